//! Calls that find nothing in the cache: a program that posts seldom, or a device that has just written.
//!
//! Rings make this awkward, since each call uses the next entry. So the lines that a call touches are learnt under single
//! step for some positions, the rings go round, and at the same positions those lines are flushed before the call is
//! timed. What is the caller's own (work requests, completions, the stack) stays where it is.

use std::arch::x86_64::{_mm_clflush, _mm_mfence};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::case::{Case, OPS, Poll, Side, Via};
use super::clock::ticks;
use super::figure::Figures;
use super::measure::{Queues, Timed};
use crate::ring::{BLOCK, Shared};
use crate::trace;

/// Positions of the rings that are timed.
const POSITIONS: usize = 32;

/// Regions after which every ring is where it was: they have 1024 entries, or 2048 blocks.
const TURN: usize = 2048 / OPS;

/// Times that the rings go round.
const TURNS: usize = 24;

/// Bytes around this function's frame that are the stack's.
const STACK: usize = 1 << 18;

const CASES: [Case; 6] = [
    Case::Send {
        via: Via::Chain,
        write: true,
        inline: false,
        signalled: 1,
        batch: 1,
    },
    Case::Send {
        via: Via::Chain,
        write: true,
        inline: true,
        signalled: 1,
        batch: 1,
    },
    Case::Recv { batch: 1 },
    Case::Poll {
        poll: Poll::Array,
        side: Side::Requester,
        batch: 1,
    },
    Case::Poll {
        poll: Poll::Array,
        side: Side::Responder,
        batch: 1,
    },
    Case::Empty { poll: Poll::Array },
];

/// What is done before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// All lines that the call touches leave all caches.
    Flush,
    /// What the device writes is in another core's cache, and what it reads is in both.
    Device,
}

fn flush(lines: &[usize]) {
    for line in lines {
        let line = ptr::with_exposed_provenance::<u8>(*line);
        // SAFETY: a traced call has just accessed the line, so it is mapped.
        unsafe { _mm_clflush(line) };
    }
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_mfence() };
}

/// Lines of each position, without those of the caller.
fn learn(subject: &mut dyn Timed, case: &Case) -> Vec<Vec<usize>> {
    let here = 0_u8;
    let here = (&raw const here).expose_provenance();
    let mut callers = subject.callers();
    callers.push(trace::Range {
        start: here - STACK,
        len: 2 * STACK,
    });
    let is_callers = |line: usize| {
        let mut ranges = callers.iter();
        ranges.any(|range| (range.start & !63..range.start + range.len).contains(&line))
    };
    (0..POSITIONS)
        .map(|_| {
            let trace = trace::run(&[], true, &mut || subject.plain(case, 1));
            let lines = trace.lines.into_iter();
            lines.filter(|line| !is_callers(*line)).collect()
        })
        .collect()
}

/// The other core's part: takes the lines of the rings that the device would.
fn as_device(queues: &Queues) {
    let touch = |ring: Shared, take: bool| {
        for at in (0..ring.len()).step_by(BLOCK) {
            if take {
                ring.take_line(at);
            } else {
                std::hint::black_box(ring.word(at));
            }
        }
    };
    touch(queues.completions, true);
    touch(queues.send, false);
    touch(queues.recv, false);
    touch(queues.record, false);
}

/// Puts the calling thread on one processor.
fn pin(processor: usize) -> bool {
    // SAFETY: zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of the usual size.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
}

/// Processors that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of the usual size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: in range.
        .filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) })
        .collect()
}

/// Waits until the turn is a wanted one.
fn wait(turn: &AtomicU64, wanted: impl Fn(u64) -> bool) -> u64 {
    let mut looks = 0_u32;
    loop {
        let now = turn.load(Ordering::Acquire);
        if wanted(now) {
            return now;
        }
        looks += 1;
        if looks < 1000 {
            std::hint::spin_loop();
        } else {
            thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Mean of the middle half: the counter's step may be as long as a call, which a median would only round.
fn middle(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    let half = &times[times.len() / 4..times.len() - times.len() / 4];
    half.iter().sum::<u64>() as f64 / half.len() as f64
}

/// One implementation's nanoseconds before which something was done.
fn time(
    subject: &mut dyn Timed,
    case: &Case,
    lines: &[Vec<usize>],
    before: Before,
    device: &mut dyn FnMut(&Queues),
) -> f64 {
    let mut times = Vec::with_capacity(TURNS * POSITIONS);
    for _ in 0..TURNS {
        subject.prepare(case, OPS);
        if before == Before::Device {
            device(&subject.queues(case));
        }
        for lines in lines {
            if before == Before::Flush {
                flush(lines);
            }
            times.push(subject.timed(case, 1));
        }
        subject.plain(case, OPS - POSITIONS);
        for _ in 1..TURN {
            subject.prepare(case, OPS);
            subject.plain(case, OPS);
        }
    }
    middle(&mut times)
}

/// Measures all.
pub fn run(subjects: &mut [&mut dyn Timed], scale: f64, figures: &mut Figures) {
    figures.section("one call, means of the middle half");
    let mut nothing: Vec<u64> = (0..1000)
        .map(|_| {
            let start = ticks();
            ticks() - start
        })
        .collect();
    let clock = middle(&mut nothing);
    let processors = allowed();
    let turn = AtomicU64::new(0);
    let work = Mutex::new(None::<Queues>);
    thread::scope(|scope| {
        let has_device = processors.len() > 1 && pin(processors[0]);
        if has_device {
            scope.spawn(|| {
                pin(processors[1]);
                // 0: idle; 1: there is work; 2: the end.
                while wait(&turn, |turn| turn != 0) == 1 {
                    if let Some(queues) = *work.lock().expect("no panic") {
                        as_device(&queues);
                    }
                    turn.store(0, Ordering::Release);
                }
            });
        }
        let mut device = |queues: &Queues| {
            *work.lock().expect("no panic") = Some(*queues);
            turn.store(1, Ordering::Release);
            wait(&turn, |turn| turn == 0);
        };
        for case in CASES {
            for subject in subjects.iter_mut() {
                subject.prepare(&case, OPS);
                let lines = learn(&mut **subject, &case);
                subject.plain(&case, OPS - POSITIONS);
                for _ in 1..TURN {
                    subject.prepare(&case, OPS);
                    subject.plain(&case, OPS);
                }
                for (before, what) in [
                    (Before::Nothing, "ns, warm"),
                    (Before::Flush, "ns, its lines flushed"),
                    (Before::Device, "ns, the device on another core"),
                ] {
                    if before == Before::Device && !has_device {
                        continue;
                    }
                    let ticks = time(&mut **subject, &case, &lines, before, &mut device);
                    let ns = (ticks - clock).max(0.0) * scale;
                    figures.add(&case.to_string(), what, subject.name(), ns);
                }
                let n = lines.iter().map(Vec::len).sum::<usize>() as f64 / POSITIONS as f64;
                figures.add(&case.to_string(), "lines flushed", subject.name(), n);
            }
        }
        turn.store(2, Ordering::Release);
    });
}

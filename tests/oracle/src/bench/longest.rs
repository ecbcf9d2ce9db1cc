//! The longest of a million calls: what an allocation, a lock that sleeps or a walk through a table would show.

use super::case::{Case, OPS, Poll, Side, Via};
use super::clock::ticks;
use super::figure::Figures;
use super::measure::Timed;

const CALLS: usize = 1_000_000;

const CASES: [Case; 3] = [
    Case::Send {
        via: Via::Chain,
        write: true,
        inline: false,
        signalled: 1,
        batch: 1,
    },
    Case::Recv { batch: 1 },
    Case::Poll {
        poll: Poll::Array,
        side: Side::Requester,
        batch: 1,
    },
];

/// How often the scheduler has taken the processor from this thread.
fn switches() -> i64 {
    // SAFETY: zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw + usage.ru_nvcsw
}

/// Measures all. Regions in which the scheduler took the processor away are done again; interrupts stay in, so the worst of
/// so many is as much the machine's as the library's, and the call of which 100 are longer stands beside it.
pub fn run(subjects: &mut [&mut dyn Timed], scale: f64, figures: &mut Figures) {
    figures.section("longest of 1,000,000 calls");
    let clock = (0..1000)
        .map(|_| {
            let start = ticks();
            ticks() - start
        })
        .min()
        .unwrap_or(0);
    for case in CASES {
        let mut times = vec![Vec::with_capacity(CALLS + OPS); subjects.len()];
        // On a busy machine a region may never be undisturbed.
        let mut tries = 2 * CALLS / OPS;
        while times.iter().any(|times| times.len() < CALLS) && tries > 0 {
            tries -= 1;
            for (subject, times) in subjects.iter_mut().zip(&mut times) {
                subject.prepare(&case, OPS);
                let before = switches();
                let start = times.len();
                for _ in 0..OPS {
                    times.push(subject.timed(&case, 1));
                }
                if switches() != before {
                    times.truncate(start);
                }
            }
        }
        for (subject, times) in subjects.iter().zip(&mut times) {
            times.truncate(CALLS);
            times.sort_unstable();
            let ns = |back: usize| {
                let index = times.len().checked_sub(back);
                let ticks = index.and_then(|index| times.get(index)).unwrap_or(&0);
                ticks.saturating_sub(clock) as f64 * scale
            };
            let case = case.to_string();
            figures.add(&case, "ns, the longest", subject.name(), ns(1));
            figures.add(&case, "ns, 100 are longer", subject.name(), ns(101));
        }
    }
}

//! What happens to completions that wait while their queue changes: resizes that work and that fail, queue pairs that start
//! over or go, and arming with its events. The same script runs on libmlx5's objects and on ours; what each step shows is
//! compared.

mod c;
mod native;
mod script;

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use fake_kernel::hca::{CompletionQueue, Cqe, Hca, QueuePair, Received};
use fake_kernel::{FakeKernel, Fault};
use serde::Serialize;

pub use c::CLiving;
pub use native::NativeLiving;
pub use script::{QPS, Step, script};

use crate::c::device::QpSpec;
use crate::call::Service;
use crate::compare::Findings;
use crate::matrix::differs;
use crate::subject::Completion;

/// A device that changes to new entries marks the end of the old ones, and the program takes that mark. libmlx5 tells the
/// device so with the next completions; ours at once.
pub const MARK_TOLD: &str = "the counter in the doorbell record right after a resize";

/// The queue pairs.
pub const SPEC: QpSpec = QpSpec {
    service: Service::Rc,
    send_wr: 64,
    recv_wr: 64,
    send_sge: 1,
    recv_sge: 1,
    inline: 0,
    tso_header: 0,
    signals_all: false,
    has_builder: false,
};

/// Entries that the completion queue begins with.
pub const ENTRIES: u32 = 63;

/// One implementation's completion queue with a channel, and its queue pairs.
pub trait Living {
    /// Whose.
    fn name(&self) -> &'static str;

    /// Makes a queue pair in this place and brings it to RTS; the one that was there is destroyed before.
    ///
    /// # Errors
    ///
    /// As the calls.
    fn replace(&mut self, place: usize) -> Result<()>;

    /// Takes a queue pair through RESET to RTS.
    ///
    /// # Errors
    ///
    /// As the calls.
    fn restart(&mut self, place: usize) -> Result<()>;

    /// A queue pair's number.
    fn number(&self, place: usize) -> u32;

    /// Posts a signalled RDMA WRITE.
    fn send(&mut self, place: usize, id: u64);

    /// Posts a receive.
    fn receive(&mut self, place: usize, id: u64);

    /// Polls one completion, and the number of its queue pair.
    fn poll(&mut self, poison: u8) -> Option<(Completion, u32)>;

    /// Asks for another size; errno.
    fn resize(&mut self, entries: u32) -> i32;

    /// Asks for an event.
    fn arm(&mut self, solicited: bool);

    /// Takes an event, if there is one, and acknowledges it.
    fn event(&mut self) -> bool;

    /// The device's view of the completion queue.
    fn queue(&self) -> &Arc<CompletionQueue>;
}

/// What a step showed.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    /// Place of the queue pair whose completion it is.
    place: Option<usize>,
    completion: Option<Completion>,
    errno: i32,
    /// The consumer counter and the arm word of the doorbell record.
    consumer: u32,
    arm: u32,
    /// Command, sequence number and counter in the doorbell register.
    bell: u32,
    is_event: bool,
    /// Entries that the device knows.
    entries: u32,
}

/// The device takes the oldest send and completes it.
fn complete_send(qp: &QueuePair, syndrome: Option<u8>) -> Result<Cqe> {
    let wqe = qp.next_send().context("nothing was sent")?;
    Ok(match syndrome {
        None => Cqe::requester(qp, &wqe),
        Some(syndrome) => Cqe::requester_error(qp, &wqe, syndrome, 0x57),
    })
}

/// The device takes the oldest receive and completes it.
fn complete_receive(qp: &QueuePair, syndrome: Option<u8>, kind: u32) -> Result<Cqe> {
    let (counter, _) = qp.next_recv().context("no receive was posted")?;
    if let Some(syndrome) = syndrome {
        return Ok(Cqe::responder_error(qp, counter, syndrome, 0x58));
    }
    let received = match kind % 4 {
        0 => Received::Send,
        1 => Received::SendImm(0x1122_3344 ^ kind),
        2 => Received::SendInv(0x4455_6600 ^ kind),
        _ => Received::WriteImm(0x7788_9900 ^ kind),
    };
    let cqe = Cqe::responder(qp, received, kind & 0xfff, counter);
    // Solicited or not, and the path that it came by.
    let cqe = cqe.with_source(0, (kind >> 4 & 7) as u8, kind >> 3 & 0xff_ffff);
    Ok(if kind & 0x80 != 0 {
        cqe.solicited()
    } else {
        cqe
    })
}

/// Runs a script.
fn play(
    kernel: &FakeKernel,
    hca: &Hca,
    living: &mut dyn Living,
    steps: &[Step],
    poison: u8,
) -> Result<Vec<Seen>> {
    for place in 0..QPS {
        living.replace(place)?;
    }
    // The page may be one that queues before had.
    if let Some(uar) = &living.queue().uar {
        uar.clear(0x20);
    }
    let mut all = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let id = index as u64 * 0x1_0000_0001;
        let (mut found, mut errno, mut is_event) = (None, 0, false);
        match *step {
            Step::Send { place } => living.send(place, id),
            Step::Receive { place } => living.receive(place, id),
            Step::Complete {
                place,
                is_send,
                syndrome,
                kind,
            } => {
                let qp = hca.qp(living.number(place)).context("no queue pair")?;
                let cqe = match is_send {
                    true => complete_send(&qp, syndrome)?,
                    false => complete_receive(&qp, syndrome, kind)?,
                };
                let written = hca.complete(living.queue(), &cqe);
                anyhow::ensure!(written.is_ok(), "step {index}: {written:?}");
            }
            Step::Poll => found = living.poll(poison),
            Step::Resize {
                entries,
                fails,
                fits,
            } => {
                if fails {
                    kernel.inject(1, Fault::Errno(libc::ENOMEM));
                }
                errno = living.resize(entries);
                if fails {
                    kernel.clear_fault();
                }
                if !fits {
                    anyhow::ensure!(errno != 0, "step {index}: no room, and no refusal");
                }
            }
            Step::Arm { solicited } => living.arm(solicited),
            Step::Event => is_event = living.event(),
            Step::Restart { place } => living.restart(place)?,
            Step::Replace { place } => living.replace(place)?,
        }
        let queue = living.queue();
        let bell = queue.uar.as_ref().map(|uar| uar.read(0x20));
        let bell = bell.unwrap_or_default();
        all.push(Seen {
            place: found.and_then(|(_, qpn)| (0..QPS).find(|place| living.number(*place) == qpn)),
            completion: found.map(|(completion, _)| completion),
            errno,
            consumer: queue.consumer(),
            arm: queue.arm_word(),
            bell: u32::from_be_bytes([bell[0], bell[1], bell[2], bell[3]]),
            is_event,
            entries: queue.buffer().count,
        });
    }
    Ok(all)
}

/// What makes the objects of one implementation.
pub type Make<'a> = dyn Fn() -> Result<Box<dyn Living + 'a>> + 'a;

/// Plays a script on the witness, twice with different poisons, and on a subject, and compares.
///
/// # Errors
///
/// An object cannot be had, or the device cannot complete what was posted.
pub fn compare(
    kernel: &FakeKernel,
    witness: (&Make<'_>, &Hca),
    subject: (&Make<'_>, &Hca),
    rounds: u64,
    seed: u64,
) -> Result<Findings> {
    let mut findings = Findings::default();
    for round in 0..rounds {
        let steps = script(seed.wrapping_mul(1000) + round);
        let run = |(make, hca): (&Make<'_>, &Hca), poison| {
            play(kernel, hca, &mut *make()?, &steps, poison)
        };
        let (one, other) = (run(witness, 0xee)?, run(witness, 0x11)?);
        let ours = run(subject, 0xee)?;
        let seen = one.iter().zip(&other).zip(&ours);
        let mut last = VecDeque::new();
        // Marks that libmlx5 has not told the device of, at most.
        let mut marks = 0;
        for (index, ((one, other), ours)) in seen.enumerate() {
            findings.completions += u64::from(ours.completion.is_some());
            last.push_back(index);
            if last.len() > 12 {
                last.pop_front();
            }
            let text = match (&one.completion, &other.completion, &ours.completion) {
                (Some(one), Some(other), Some(ours)) => differs(&[*one, *other], ours),
                (None, None, None) => None,
                (theirs, _, ours) => Some(format!("libmlx5 {theirs:?}, ours {ours:?}")),
            };
            if matches!(steps[index], Step::Resize { .. }) {
                marks += 1;
            }
            let ahead = ours.consumer.wrapping_sub(one.consumer) & 0xff_ffff;
            if ahead == 0 {
                marks = 0;
            } else if ahead <= marks {
                *findings.divergences.entry(MARK_TOLD).or_default() += 1;
            }
            let plain = |seen: &Seen| Seen {
                completion: None,
                consumer: if ahead <= marks { 0 } else { seen.consumer },
                ..*seen
            };
            let text = text.or_else(|| differs(&[plain(one), plain(other)], &plain(ours)));
            if let Some(text) = text {
                findings.differ(format!("life of a queue: {}", steps[index].name()), || {
                    let before: Vec<_> = last.iter().map(|index| &steps[*index]).collect();
                    format!("round {round}, step {index}: {text}; the last steps {before:?}")
                });
                break;
            }
        }
    }
    Ok(findings)
}

//! Carries out a script on one implementation, over poisoned memory, and keeps what it left there.

use std::ops::Range;

use anyhow::Result;

use crate::call::Outcome;
use crate::ring::BLOCK;
use crate::script::{Script, Step};
use crate::subject::{Completion, Subject};
use crate::trace::{self, Event};

/// Watched ranges of a traced call, by their numbers in [`Event::Store`].
pub mod watched {
    /// The ring.
    pub const RING: usize = 0;
    /// The doorbell record.
    pub const RECORD: usize = 1;
    /// The register, both halves.
    pub const REGISTER: usize = 2;
}

/// What one step left.
#[derive(Debug, PartialEq)]
pub enum Left {
    /// A posting call.
    Posted(Posted),
    /// Canceling: what it returned, and the WQEs, in [`Pass::bytes`].
    Canceled(i32, Range<usize>),
    /// A completion; `None` if none was found.
    Completed(Option<Completion>),
}

/// What a posting call left.
#[derive(Debug, PartialEq)]
pub struct Posted {
    /// What it returned.
    pub outcome: Outcome,
    /// The WQEs, in [`Pass::bytes`].
    pub bytes: Range<usize>,
    /// Both words of the doorbell record, the queue pair's number in control segments taken off.
    pub record: [u32; 2],
    /// Which half of the registers changed, and all of its bytes in [`Pass::bytes`].
    pub register: Option<(usize, Range<usize>)>,
    /// Stray stores: offsets in the ring outside of the WQEs.
    pub strays: Vec<usize>,
    /// Doorbell record, fences and register in the order of execution, if the call was traced; and the instructions.
    pub trace: Option<(Vec<Event>, u64)>,
}

/// What a whole script left.
#[derive(Debug, Default)]
pub struct Pass {
    /// Whose.
    pub name: &'static str,
    /// Bytes of all WQEs and registers.
    pub bytes: Vec<u8>,
    /// Per step.
    pub steps: Vec<Left>,
}

/// Which posting calls are traced: one of so many.
#[derive(Clone, Copy, Debug)]
pub struct Tracing {
    /// One of so many; 0 for none.
    pub one_of: usize,
}

/// Which call is traced next: those that were passed over are made up for, so that the share is kept.
#[derive(Debug, Default)]
struct Due {
    calls: usize,
    traced: usize,
    long: usize,
}

impl Due {
    fn is_traced(&mut self, tracing: Tracing, length: usize) -> bool {
        let is_due = tracing.one_of > 0 && self.calls >= self.traced * tracing.one_of;
        self.calls += 1;
        if !is_due {
            return false;
        }
        // A long list costs a quarter of a second under single step and shows nothing new.
        if length > 8 {
            self.long += 1;
            if !self.long.is_multiple_of(8) {
                return false;
            }
        }
        self.traced += 1;
        true
    }
}

/// Carries out a script.
///
/// # Errors
///
/// The queue pair cannot be brought to its first state.
pub fn run(
    subject: &mut dyn Subject,
    script: &Script,
    poison: u8,
    tracing: Tracing,
) -> Result<Pass> {
    subject.restart()?;
    let memory = subject.memory();
    let blocks = (memory.ring.len() / BLOCK) as u32;
    // Halves have 256 bytes (half of `bf_reg_size`).
    let half = 256;
    let mut pass = Pass {
        name: subject.name(),
        ..Pass::default()
    };
    let mut due = Due::default();
    for step in &script.steps {
        let posting = match step {
            Step::Complete {
                counter, device, ..
            } => {
                let completion = subject.complete(*counter, *device);
                pass.steps.push(Left::Completed(completion));
                continue;
            }
            Step::Cancel(step) => {
                let count = subject.cancel(step.next, step.id);
                let at = pass.bytes.len();
                let ring = memory.ring.copy();
                for block in step.start..step.end {
                    let place = (block % blocks) as usize;
                    pass.bytes
                        .extend_from_slice(&ring[place * BLOCK..][..BLOCK]);
                }
                pass.steps.push(Left::Canceled(count, at..pass.bytes.len()));
                continue;
            }
            Step::Post(posting) => posting,
        };
        memory.ring.fill(poison);
        memory.register.fill(poison);
        let mut outcome = Outcome::DONE;
        let trace = if due.is_traced(tracing, posting.post.wrs.len()) {
            let range = |shared: crate::ring::Shared| trace::Range {
                start: shared.address(),
                len: shared.len(),
            };
            let ranges = [memory.ring, memory.record, memory.register].map(range);
            let trace = trace::run(&ranges, false, &mut || {
                outcome = subject.post(&posting.post)
            });
            Some((trace.events, trace.instructions))
        } else {
            outcome = subject.post(&posting.post);
            None
        };
        let ring = memory.ring.copy();
        let at = pass.bytes.len();
        let mut is_ours = vec![false; blocks as usize];
        for block in posting.start..posting.end {
            let place = (block % blocks) as usize;
            is_ours[place] = true;
            pass.bytes
                .extend_from_slice(&ring[place * BLOCK..][..BLOCK]);
        }
        let bytes = at..pass.bytes.len();
        // A refused call may leave what it began.
        let mut strays = Vec::new();
        if posting.mistake.is_none() && !posting.post.aborts {
            for (place, block) in ring.chunks_exact(BLOCK).enumerate() {
                if !is_ours[place] && block.iter().any(|byte| *byte != poison) {
                    strays.push(place);
                }
            }
        }
        let mut register = None;
        let halves = memory.register.copy();
        for (index, bytes) in halves.chunks_exact(half).enumerate() {
            if bytes.iter().any(|byte| *byte != poison) {
                let at = pass.bytes.len();
                pass.bytes.extend_from_slice(bytes);
                register = Some((index, at..pass.bytes.len()));
            }
        }
        pass.steps.push(Left::Posted(Posted {
            outcome,
            bytes,
            record: [memory.record.word(0), memory.record.word(4)],
            register,
            strays,
            trace,
        }));
        // What follows would complete work requests that are elsewhere.
        if memory.record.word(4) != posting.end & 0xffff {
            break;
        }
    }
    // The queue pair's number is each implementation's own; everything else must be equal.
    let mut state = memory.copy_state;
    for (step, left) in script.steps.iter().zip(&pass.steps) {
        let (start, wqes, bytes) = match (step, left) {
            (Step::Post(posting), Left::Posted(posted)) => {
                (posting.start, &posting.wqes, &posted.bytes)
            }
            (Step::Cancel(step), Left::Canceled(_, bytes)) => (step.start, &step.wqes, bytes),
            _ => continue,
        };
        for (first, _) in wqes {
            let at = bytes.start + (first - start) as usize * BLOCK;
            let wqe = &mut pass.bytes[at..bytes.end];
            take_off_number(wqe, memory.qpn);
            take_off_address(wqe, memory.mac);
            take_off_state(wqe, &mut state);
        }
        if let Left::Posted(Posted {
            register: Some((_, range)),
            ..
        }) = left
        {
            take_off_number(&mut pass.bytes[range.clone()], memory.qpn);
            take_off_address(&mut pass.bytes[range.clone()], memory.mac);
            take_off_state(&mut pass.bytes[range.clone()], &mut state);
        }
    }
    Ok(pass)
}

/// In the control segment bytes 4 to 6 are the queue pair's number; in the key context of a window of type 2 (a UMR whose
/// second block begins with it) bytes 4 to 6 too. Where it is another one, it stays and shows.
fn take_off_number(wqe: &mut [u8], qpn: u32) {
    let number = &qpn.to_be_bytes()[1..];
    let is_umr = wqe[3] == 0x25;
    for at in [4, BLOCK + 4] {
        if (at < BLOCK || is_umr) && wqe.get(at..at + 3) == Some(number) {
            wqe[at..at + 3].copy_from_slice(b"QPN");
        }
    }
}

/// In the address vector of a datagram, behind the control segment, bytes 20 to 25 are the Ethernet address that the
/// kernel answered for the device.
fn take_off_address(wqe: &mut [u8], mac: [u8; 6]) {
    if wqe.get(16 + 20..16 + 26) == Some(&mac) {
        wqe[16 + 20..16 + 26].copy_from_slice(b"DEVICE");
    }
}

/// Key and address of the memory in which a copy keeps its state are each domain's own, and the same in every copy: bytes
/// 20 to 31. Work requests that the program built (their opcode's modifier is any) have what it said.
fn take_off_state(wqe: &mut [u8], state: &mut Option<[u8; 12]>) {
    let is_copy = wqe[0] == 1 && wqe[3] == 0x2f;
    // Canceled: known by the state itself.
    let is_nop = wqe[0] == 0 && wqe[3] == 0 && state.is_some();
    if !(is_copy || is_nop) || wqe[7] != 4 || wqe.len() < 64 {
        return;
    }
    let mut found = [0; 12];
    found.copy_from_slice(&wqe[20..32]);
    if *state.get_or_insert(found) == found {
        wqe[20..32].copy_from_slice(b"COPY'S STATE");
    }
}

//! Receive queues that are no queue pair's own: shared ones, XRC's, work queues. The device takes entries from them and gives
//! them back in any order.

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

use crate::call::{Outcome, Piece};
use crate::campaign::POISONS;
use crate::compare::{Findings, divergence};
use crate::receive::Receive;
use crate::subject::RecvMemory;

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shared receive queue, with a reliable connection.
    Srq,
    /// A shared receive queue of an XRC domain.
    Xrc,
    /// A receive work queue.
    Wq,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Srq, Self::Xrc, Self::Wq];

    /// Whether entries are a linked list, rather than a ring.
    pub const fn is_list(self) -> bool {
        !matches!(self, Self::Wq)
    }
}

/// One implementation's queue.
pub trait Pool {
    /// Whose it is.
    fn name(&self) -> &'static str;

    /// Work requests and elements of one, as they were given.
    fn limits(&self) -> (u32, u32);

    /// Where it is.
    fn memory(&self) -> RecvMemory;

    /// Posts a list.
    fn post(&mut self, list: &[Receive]) -> Outcome;

    /// Writes a completion and polls it: the number of the work request.
    fn complete(&mut self, cqe: Cqe64) -> Option<u64>;

    /// The index by which completions name it.
    fn user_index(&self) -> u32;
}

/// What is done.
#[derive(Debug)]
enum Step {
    Post(Vec<Receive>),
    /// Of the outstanding entries the one at this place, modulo their number.
    Complete(usize),
}

/// What must happen in the runs of each kind.
pub const EXTRA: [&str; 8] = [
    "list of 1",
    "list of 2 or more",
    "over the end of the ring",
    "counter over 16 bits",
    "refused: full",
    "refused: pieces",
    "no pieces",
    "completed out of order",
];

fn receive(rng: &mut StdRng, max_sge: u32, empty_of: u32) -> Receive {
    let pieces = match rng.random_range(0..4) {
        0 => max_sge,
        1 => 0,
        _ => rng.random_range(0..=max_sge),
    };
    let piece = |rng: &mut StdRng| Piece {
        address: rng.random(),
        len: match rng.random_ratio(1, empty_of) {
            true => 0,
            false => rng.random_range(1..1 << 31),
        },
        lkey: rng.random(),
    };
    let pieces = (0..pieces).map(|_| piece(rng)).collect();
    (rng.random(), pieces)
}

/// Steps for a queue of these limits. The model knows how many are outstanding, not where.
fn script(rng: &mut StdRng, kind: Kind, limits: (u32, u32), wanted: u64) -> Vec<Step> {
    let (max_wr, max_sge) = limits;
    let mut steps = Vec::new();
    let mut made = 0;
    let mut outstanding = 0_u32;
    while made < wanted {
        let most = max_wr.min(20);
        let n = match rng.random_range(0..4) {
            0 | 1 => 1,
            2 => rng.random_range(1..=most),
            _ => most,
        };
        // An element of no bytes is a named divergence in lists, and rare.
        let empty_of = if kind.is_list() { 90 } else { 6 };
        let mut list: Vec<Receive> = (0..n).map(|_| receive(rng, max_sge, empty_of)).collect();
        let mut posted = n.min(max_wr - outstanding);
        if rng.random_ratio(1, 20) {
            // One piece too many.
            let at = rng.random_range(0..list.len());
            let piece = Piece {
                address: 0,
                len: 1,
                lkey: 0,
            };
            // (Elements may be rounded up.)
            list[at].1 = vec![piece; 2 * max_sge as usize + 2];
            posted = posted.min(at as u32);
        }
        steps.push(Step::Post(list));
        made += u64::from(posted);
        outstanding += posted;
        let done = match rng.random_range(0..4) {
            0 => outstanding,
            1 => 0,
            _ => rng.random_range(0..=outstanding),
        };
        for _ in 0..done {
            steps.push(Step::Complete(rng.random_range(0..1 << 16)));
        }
        outstanding -= done;
    }
    steps
}

/// What a step left.
#[derive(Debug)]
enum Left {
    Posted {
        outcome: Outcome,
        entries: Vec<u32>,
        bytes: Vec<u8>,
        record: u32,
        strays: Vec<usize>,
    },
    Completed(Option<u64>),
}

/// Where the scatter list of an entry begins.
const fn scatter(kind: Kind) -> usize {
    if kind.is_list() { 16 } else { 0 }
}

fn pass(pool: &mut dyn Pool, kind: Kind, steps: &[Step], ordered: bool, poison: u8) -> Vec<Left> {
    let memory = pool.memory();
    let count = memory.ring.len() / memory.entry;
    let from = scatter(kind);
    let mut outstanding = VecDeque::new();
    let mut next = 0;
    let mut lefts = Vec::new();
    for step in steps {
        let list = match step {
            Step::Complete(at) => {
                let at = if ordered {
                    0
                } else {
                    at % outstanding.len().max(1)
                };
                // Nothing is outstanding where an implementation took less than the model.
                let entry: u32 = outstanding.remove(at).unwrap_or(0);
                let cqe = Cqe64 {
                    srqn_uidx: pool.user_index().into(),
                    byte_cnt: 0.into(),
                    sop_drop_qpn: SopDropQpn::from_bits(0x77.into()),
                    wqe_counter: (entry as u16).into(),
                    op_own: OpOwn::of(CqeOpcode::RESP_SEND, CqeFormat::NONE, false, false),
                    ..Cqe64::default()
                };
                lefts.push(Left::Completed(pool.complete(cqe)));
                continue;
            }
            Step::Post(list) => list,
        };
        let place = |entry: u32| entry as usize % count * memory.entry;
        for entry in 0..count as u32 {
            let scatter = memory.entry - from;
            memory.ring.part(place(entry) + from, scatter).fill(poison);
        }
        let outcome = pool.post(list);
        let posted = outcome.refused.unwrap_or(list.len());
        let ring = memory.ring.copy();
        let mut entries = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..posted {
            let entry = next;
            // As the device finds it when it takes this one: what it names (`next_wqe_index`), or simply the next.
            next = match kind.is_list() {
                true => {
                    let at = place(entry) + 2;
                    u16::from_be_bytes([ring[at], ring[at + 1]]).into()
                }
                false => entry.wrapping_add(1),
            };
            outstanding.push_back(entry);
            entries.push(entry);
            bytes.extend_from_slice(&ring[place(entry) + from..][..memory.entry - from]);
        }
        let is_ours = |at: usize| entries.iter().any(|entry| *entry as usize % count == at);
        let strays = (0..count).filter(|at| {
            let entry = &ring[at * memory.entry + from..][..memory.entry - from];
            outcome.refused.is_none() && !is_ours(*at) && entry.iter().any(|byte| *byte != poison)
        });
        let strays = strays.collect();
        lefts.push(Left::Posted {
            outcome,
            entries,
            bytes,
            record: memory.record.word(0),
            strays,
        });
    }
    lefts
}

/// How often each of [`EXTRA`] happened.
pub type Seen = BTreeMap<&'static str, u64>;

fn note(
    seen: &mut Seen,
    steps: &[Step],
    lefts: &[Left],
    ordered: bool,
    (count, max_sge): (u32, u32),
) {
    let mut note = |what| *seen.entry(what).or_default() += 1;
    for (step, left) in steps.iter().zip(lefts) {
        let (
            Step::Post(list),
            Left::Posted {
                outcome,
                entries,
                record,
                ..
            },
        ) = (step, left)
        else {
            if !ordered {
                note("completed out of order");
            }
            continue;
        };
        match entries.len() {
            0 => {}
            1 => note("list of 1"),
            _ => note("list of 2 or more"),
        }
        if entries.iter().skip(1).any(|entry| entry % count == 0) {
            note("over the end of the ring");
        }
        if *record < entries.len() as u32 {
            note("counter over 16 bits");
        }
        if list.iter().any(|(_, pieces)| pieces.is_empty()) {
            note("no pieces");
        }
        if let Some(refused) = outcome.refused {
            note(match list[refused].1.len() > max_sge as usize {
                true => "refused: pieces",
                false => "refused: full",
            });
        }
    }
}

/// Makes a queue.
pub type Make<'a> = &'a dyn Fn() -> Result<Box<dyn Pool + 'a>>;

/// Compares a run of about `wanted` receives; `ordered` completes them in the order of posting.
///
/// # Errors
///
/// A queue cannot be made.
pub fn run(
    kind: Kind,
    witness: Make<'_>,
    subject: Make<'_>,
    (wanted, seed): (u64, u64),
    ordered: bool,
    seen: &mut Seen,
) -> Result<Findings> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut first = witness()?;
    let limits = first.limits();
    let steps = script(&mut rng, kind, limits, wanted);
    let one = pass(&mut *first, kind, &steps, ordered, POISONS[0]);
    let other = pass(&mut *witness()?, kind, &steps, ordered, POISONS[1]);
    let mut ours = subject()?;
    let our_limits = ours.limits();
    let our = pass(&mut *ours, kind, &steps, ordered, POISONS[0]);
    let our_other = pass(&mut *subject()?, kind, &steps, ordered, POISONS[1]);
    let mut findings = Findings::default();
    if our_limits != limits {
        findings.differ(format!("{kind:?}: limits"), || {
            format!("libmlx5 {limits:?}, ours {our_limits:?}")
        });
        return Ok(findings);
    }
    let memory = first.memory();
    let count = (memory.ring.len() / memory.entry) as u32;
    note(seen, &steps, &one, ordered, (count, limits.1));
    for (number, step) in steps.iter().enumerate() {
        match [
            &one[number],
            &other[number],
            &our[number],
            &our_other[number],
        ] {
            [Left::Completed(theirs), _, Left::Completed(ours), _] => {
                findings.completions += 1;
                if theirs != ours || theirs.is_none() {
                    findings.differ(format!("{kind:?}: number of the completed"), || {
                        format!("step {number}: libmlx5 {theirs:?}, ours {ours:?}")
                    });
                }
            }
            [
                Left::Posted {
                    outcome,
                    entries,
                    bytes,
                    record,
                    ..
                },
                Left::Posted { bytes: other, .. },
                Left::Posted {
                    outcome: our_outcome,
                    entries: our_entries,
                    bytes: our_bytes,
                    record: our_record,
                    strays,
                },
                Left::Posted {
                    bytes: our_other, ..
                },
            ] => {
                findings.calls += 1;
                findings.wqes += entries.len() as u64;
                let theirs = (outcome, entries, record);
                let ours = (our_outcome, our_entries, our_record);
                if theirs != ours {
                    findings.differ(format!("{kind:?}: result, entries or record"), || {
                        format!("step {number}, {limits:?}, {count} entries: libmlx5 {theirs:?}\n    ours {ours:?}")
                    });
                    break;
                }
                let Step::Post(list) = step else {
                    unreachable!("passes of the same script");
                };
                let has_empty = |at: usize| list[at].1.iter().any(|piece| piece.len == 0);
                let diverges: Vec<bool> = (0..entries.len())
                    .map(|at| kind.is_list() && has_empty(at))
                    .collect();
                let empties = diverges.iter().filter(|diverges| **diverges).count() as u64;
                if empties > 0 {
                    *findings
                        .divergences
                        .entry(divergence::EMPTY_SHARED)
                        .or_default() += empties;
                }
                let size = bytes.len() / entries.len().max(1);
                let written = |at: &usize| bytes[*at] == other[*at] && !diverges[at / size];
                findings.written += (0..bytes.len()).filter(written).count() as u64;
                let wrong = (0..bytes.len())
                    .filter(written)
                    .any(|at| our_bytes[at] != bytes[at] || our_other[at] != bytes[at]);
                if wrong || !strays.is_empty() {
                    findings.differ(format!("{kind:?}: bytes of entries"), || {
                        format!("{step:?}\n    libmlx5 {bytes:02x?}\n    ours {our_bytes:02x?}, strays {strays:?}")
                    });
                }
            }
            _ => unreachable!("passes of the same script"),
        }
    }
    Ok(findings)
}

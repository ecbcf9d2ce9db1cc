//! Tag matching: changes of a list of tags, byte for byte, and what completions about tags say, beside libmlx5's.
//!
//! The device is played here: it keeps the list as the work requests say, meets tags or not as the dice say, and answers
//! changes. Each implementation goes through the same script on queues of its own.

use std::collections::VecDeque;
use std::ffi::c_int;

use anyhow::Result;
use fake_kernel::FakeKernel;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom as _;
use rand::{Rng, SeedableRng};
use wqe_format::mlx5::{
    Cqe64, CqeFormat, CqeOpcode, CtrlSegment, OpOwn, Opcode, TagSegment, tag_operation,
};
use zerocopy::FromBytes as _;

use crate::c::device::CDevice;
use crate::campaign::POISONS;
use crate::compare::{Findings, divergence};
use crate::ring::BLOCK;

mod side;

use side::{BUFFER, Change, Polled, Side};

/// Tags and outstanding changes of each queue: few, so that both fill up.
const SIZES: [(u32, u32); 3] = [(7, 6), (1, 1), (127, 60)];
/// `IBV_OPS_SIGNALED`, `IBV_OPS_TM_SYNC`.
const SIGNALED: c_int = 1;
const TM_SYNC: c_int = 2;
/// `IBV_WC_TM_SYNC_REQ`.
const SYNC_REQ: u32 = 1 << 4;

/// A tag of the device's list.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The phase that it was added in, as the program counts.
    phase: u32,
    buffer: u32,
    /// Its removal is posted.
    leaving: bool,
    /// A message met it, whose data are still to come.
    met: bool,
}

/// A change that will complete.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    operation: u8,
    handle: Option<u32>,
    phase: u32,
}

/// What the device, and the program that counts, know.
#[derive(Debug, Default)]
struct Model {
    /// By handle.
    list: std::collections::BTreeMap<u32, Held>,
    waiting: VecDeque<Waiting>,
    /// What was told by an addition.
    told: u32,
    /// Receives posted.
    receives: u32,
}

/// Libmlx5 twice, over different poisons, and whoever is compared with it.
struct Run<'a> {
    sides: &'a mut [Side; 3],
    findings: &'a mut Findings,
    rng: StdRng,
    model: Model,
    tags: u32,
    wide: bool,
}

impl Run<'_> {
    fn changes(&mut self) -> Vec<Change> {
        let n = self.rng.random_range(1..=4);
        let mut list = Vec::new();
        for _ in 0..n {
            let rng = &mut self.rng;
            let handles = self.model.list.iter();
            // Removed twice, or after its message, is the program's mistake, of which libmlx5 says nothing.
            let idle = handles.filter(|(_, held)| !held.leaving && !held.met);
            let handle = idle.map(|(handle, _)| *handle).choose(rng);
            let opcode = match rng.random_range(0..20) {
                0..11 => 0,
                11..15 if handle.is_some() => 1,
                15..19 => 2,
                19 => 3,
                _ => 0,
            };
            // In one batch, no tag is removed twice.
            if opcode == 1 && list.iter().any(|change: &Change| change.opcode == 1) {
                continue;
            }
            let unexpected = match rng.random_range(0..30) {
                0 => 0x1_0000 + rng.random_range(0..0x100),
                1 => rng.random_range(0xff00..0x1_0000),
                _ => rng.random_range(0..4),
            };
            list.push(Change {
                id: rng.random(),
                opcode,
                flags: match rng.random_range(0..6) {
                    0 => 0,
                    1 => TM_SYNC,
                    2..4 => SIGNALED,
                    _ => SIGNALED | TM_SYNC,
                },
                unexpected,
                handle: handle.unwrap_or(0),
                recv_id: rng.random(),
                buffer: rng.random_ratio(7, 8).then(|| {
                    let place = rng.random_range(0..self.tags as usize);
                    (place, rng.random_range(0..=BUFFER as u32))
                }),
                tag: rng.random(),
                mask: rng.random(),
            });
        }
        list
    }

    /// Posts, compares, and lets the device do it.
    fn change(&mut self) {
        let changes = self.changes();
        if changes.is_empty() {
            return;
        }
        let [one, other, mine] = self.sides;
        let (theirs, again, ours) = (
            one.change(&changes),
            other.change(&changes),
            mine.change(&changes),
        );
        self.findings.calls += 1;
        if (theirs.errno, theirs.bad, &theirs.handles, theirs.record)
            != (ours.errno, ours.bad, &ours.handles, ours.record)
        {
            self.findings.differ("outcome of a call".into(), || {
                format!("{changes:?}\n    libmlx5 {theirs:?}\n    ours {ours:?}")
            });
        }
        let done = theirs.bad.unwrap_or(changes.len());
        let last = theirs.record as usize;
        let blocks = theirs.ring.len() / BLOCK;
        for (place, change) in changes.iter().enumerate().take(done) {
            self.findings.wqes += 1;
            let block = (last.wrapping_sub(done - place)) & (blocks - 1);
            let at = block * BLOCK..(block + 1) * BLOCK;
            let pairs = theirs.ring[at.clone()].iter().zip(&again.ring[at.clone()]);
            let written: Vec<bool> = pairs.map(|(one, other)| one == other).collect();
            self.findings.written += written.iter().filter(|written| **written).count() as u64;
            let differs = (at.clone().zip(&written))
                .any(|(at, written)| *written && theirs.ring[at] != ours.ring[at]);
            if differs {
                self.findings
                    .differ(format!("WQE of {}", change.opcode), || {
                        format!(
                            "{:?}\n    libmlx5 {:02x?}\n    ours    {:02x?}",
                            change,
                            &theirs.ring[at.clone()],
                            &ours.ring[at.clone()]
                        )
                    });
            }
            self.apply(change, theirs.handles[place], &theirs.ring[at]);
        }
    }

    /// The device reads a change.
    fn apply(&mut self, change: &Change, handle: u32, wqe: &[u8]) {
        let ctrl = CtrlSegment::read_from_bytes(&wqe[..16]);
        let tag = TagSegment::read_from_bytes(&wqe[16..48]);
        let (Ok(ctrl), Ok(tag)) = (ctrl, tag) else {
            return;
        };
        // What the device would go by, worked out apart from both.
        let is_signaled = tag.flags & TagSegment::CQE_REQ != 0;
        if ctrl.opcode() != Opcode::TAG_MATCHING || is_signaled != (change.flags & SIGNALED != 0) {
            self.findings.differ("meaning of a WQE".into(), || {
                format!("{change:?}: {ctrl:?} {tag:?}")
            });
        }
        let model = &mut self.model;
        if change.opcode == 0 {
            if change.flags & TM_SYNC != 0 {
                model.told = change.unexpected;
            }
            let (_, length) = change.buffer.unwrap_or((0, 0));
            let held = Held {
                phase: model.told,
                buffer: length,
                leaving: false,
                met: false,
            };
            model.list.insert(handle, held);
        }
        let held = (change.opcode != 2).then(|| model.list.get_mut(&handle));
        let phase = held.flatten().map_or(0, |held| {
            held.leaving |= change.opcode == 1;
            held.phase
        });
        if is_signaled {
            model.waiting.push_back(Waiting {
                operation: match tag.opcode {
                    TagSegment::APPEND => tag_operation::APPEND,
                    TagSegment::REMOVE => tag_operation::REMOVE,
                    _ => tag_operation::NOOP,
                },
                handle: (change.opcode != 2).then_some(handle),
                phase,
            });
        } else if change.opcode == 1 {
            model.list.remove(&handle);
        }
    }

    fn entry(&mut self, kind: CqeOpcode, operation: u8, format: CqeFormat) -> (Cqe64, [u8; 64]) {
        let mut bytes = [0_u8; 64];
        self.rng.fill(&mut bytes[..]);
        let mut before = [0_u8; 64];
        self.rng.fill(&mut before[..]);
        let mut cqe: Cqe64 = zerocopy::transmute!(bytes);
        cqe.app = 1;
        cqe.app_op = operation;
        cqe.byte_cnt = self.rng.random_range(0..=BUFFER as u32).into();
        cqe.op_own = OpOwn::of(kind, format, self.rng.random(), false);
        (cqe, before)
    }

    fn compare(&mut self, what: &str, cqe: Cqe64, before: [u8; 64], phase: Option<u32>) {
        let fill = self.rng.random::<u8>();
        let polled = self.sides.each_mut().map(|side| {
            side.buffers.fill(fill);
            side.complete(&before, cqe)
        });
        self.findings.completions += 1;
        let [Some(theirs), Some(again), Some(ours)] = polled else {
            self.findings.differ(format!("no completion: {what}"), || {
                format!("{polled:?} of {cqe:?}")
            });
            return;
        };
        if theirs != again {
            self.findings
                .differ(format!("libmlx5 with itself: {what}"), || {
                    format!("{theirs:?} {again:?}")
                });
        }
        let without = Polled {
            flags: theirs.flags & !SYNC_REQ,
            ..theirs
        };
        if phase.is_some_and(|phase| phase > 0xffff) && ours == without && ours != theirs {
            *self
                .findings
                .divergences
                .entry(divergence::LONG_PHASE)
                .or_default() += 1;
        } else if ours != theirs {
            self.findings.differ(format!("completion: {what}"), || {
                format!("libmlx5 {theirs:?}\n    ours {ours:?}\n    {cqe:?}")
            });
        }
        if self.sides[0].buffers != self.sides[2].buffers {
            self.findings.differ(format!("data: {what}"), || {
                let [theirs, _, ours] = &*self.sides;
                format!(
                    "libmlx5 {:02x?}\n    ours {:02x?}",
                    theirs.buffers, ours.buffers
                )
            });
        }
    }

    /// A change completes.
    fn answer(&mut self) {
        let Some(waiting) = self.model.waiting.pop_front() else {
            return;
        };
        let (mut cqe, before) =
            self.entry(CqeOpcode::NO_PACKET, waiting.operation, CqeFormat::NONE);
        let held = waiting
            .handle
            .and_then(|handle| self.model.list.get(&handle));
        // What a message met cannot be taken out any more.
        let removed = waiting.operation == tag_operation::REMOVE && held.is_some_and(|h| !h.met);
        let phase = match self.rng.random_range(0..3) {
            0 => self.rng.random(),
            _ => waiting.phase as u16,
        };
        let mut bytes: [u8; 64] = zerocopy::transmute!(cqe);
        bytes[0] = bytes[0] & 0x7f | u8::from(removed) << 7;
        bytes[4..6].copy_from_slice(&phase.to_be_bytes());
        cqe = zerocopy::transmute!(bytes);
        if let (true, Some(handle)) = (removed, waiting.handle) {
            self.model.list.remove(&handle);
        }
        let what = format!("change {}", waiting.operation);
        let phase = waiting.handle.map(|_| waiting.phase);
        self.compare(&what, cqe, before, phase);
    }

    /// A message meets a tag, or the data of one come.
    fn meet(&mut self) {
        let Some((&handle, &held)) = self.model.list.iter().choose(&mut self.rng) else {
            return;
        };
        use tag_operation as operation;
        let choices: &[u8] = match held.met {
            true => &[operation::EXPECTED, operation::MSG_COMPLETION_CANCELED],
            false => &[
                operation::CONSUMED,
                operation::CONSUMED_MSG,
                operation::CONSUMED_SW_RNDV,
                operation::CONSUMED_MSG_SW_RNDV,
            ],
        };
        let operation = choices[self.rng.random_range(0..choices.len())];
        // Entries of 128 bytes may have the data in front; of 64, in place of the header, no tag has.
        let inside = self.wide && self.rng.random();
        let format = match inside {
            true => CqeFormat::INLINE_64,
            false => CqeFormat::NONE,
        };
        // That a tag is met without a packet, libmlx5 knows of one operation.
        let kind = match operation == operation::CONSUMED && self.rng.random() {
            true => CqeOpcode::NO_PACKET,
            false => CqeOpcode::RESP_SEND,
        };
        let (mut cqe, before) = self.entry(kind, operation, format);
        if inside && held.buffer == 0 && cqe.byte_cnt.get() != 0 {
            *self
                .findings
                .divergences
                .entry(divergence::TAG_WITHOUT_BUFFER)
                .or_default() += 1;
            cqe.byte_cnt = 0.into();
        }
        cqe.app_info = (handle as u16).into();
        if inside && self.rng.random_ratio(7, 8) {
            cqe.byte_cnt = self.rng.random_range(0..=held.buffer).into();
        }
        if matches!(operation, operation::CONSUMED | operation::CONSUMED_SW_RNDV) {
            if let Some(held) = self.model.list.get_mut(&handle) {
                held.met = true;
            }
        } else {
            self.model.list.remove(&handle);
            // A removal that is under way fails.
        }
        self.compare(&format!("message, {operation:#x}"), cqe, before, None);
    }

    /// A message meets none.
    fn miss(&mut self) {
        if self.model.receives == 0 {
            let id = self.rng.random();
            let answers = self.sides.each_mut().map(|side| side.receive(id));
            if answers != [0; 3] {
                self.findings
                    .differ("a receive".into(), || format!("{answers:?}"));
                return;
            }
            self.model.receives = 1;
        }
        let operation = match self.rng.random_range(0..4) {
            0 => tag_operation::NO_TAG,
            _ => tag_operation::UNEXPECTED,
        };
        let formats = [CqeFormat::NONE, CqeFormat::INLINE_32, CqeFormat::INLINE_64];
        let format = formats[self.rng.random_range(0..if self.wide { 3 } else { 2 })];
        let kinds = [
            CqeOpcode::RESP_SEND,
            CqeOpcode::RESP_SEND_IMM,
            CqeOpcode::RESP_SEND_INV,
        ];
        let kind = kinds[self.rng.random_range(0..3)];
        let (mut cqe, before) = self.entry(kind, operation, format);
        let room = if format == CqeFormat::INLINE_32 {
            32
        } else {
            64
        };
        cqe.byte_cnt = self.rng.random_range(0..=room).into();
        self.model.receives = 0;
        self.compare(&format!("no tag, {operation:#x}"), cqe, before, None);
    }
}

/// Compares an implementation with libmlx5: `wanted` steps for each size of queue, and one queue of which more messages miss
/// their tags than the device may be ahead.
///
/// # Errors
///
/// A queue cannot be made or destroyed.
pub fn run(
    kernel: &'static FakeKernel,
    official: &CDevice,
    (subject, number): (&CDevice, u8),
    (wanted, seed): (u64, u64),
    wide: bool,
) -> Result<Findings> {
    let mut findings = Findings::default();
    for (round, size) in SIZES.into_iter().enumerate() {
        let mut sides = [
            Side::new(kernel, official, 0, size, POISONS[0])?,
            Side::new(kernel, official, 0, size, POISONS[1])?,
            Side::new(kernel, subject, number, size, POISONS[0])?,
        ];
        let mut run = Run {
            sides: &mut sides,
            findings: &mut findings,
            rng: StdRng::seed_from_u64(seed + round as u64),
            model: Model::default(),
            tags: size.0,
            wide,
        };
        for _ in 0..wanted {
            match run.rng.random_range(0..10) {
                0..4 => run.change(),
                4..8 => run.answer(),
                8 => run.meet(),
                _ => run.miss(),
            }
        }
        if round == 0 {
            for _ in 0..0x4100 {
                run.miss();
            }
        }
        let [one, other, mine] = sides;
        one.destroy(official)?;
        other.destroy(official)?;
        mine.destroy(subject)?;
    }
    Ok(findings)
}

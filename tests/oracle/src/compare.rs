//! Two implementations' passes, byte for byte, under the mask of what the first one writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::call::{Opcode, Piece, Wr};
use crate::direct;
use crate::pass::{Left, Pass, Posted, watched};
use crate::ring::BLOCK;
use crate::script::{Canceling, Posting, Script, Step};
use crate::subject::Completion;
use crate::trace::Event;

/// What was compared and what differed.
#[derive(Debug, Default)]
pub struct Findings {
    /// WQEs compared.
    pub wqes: u64,
    /// Completions compared.
    pub completions: u64,
    /// Posting calls compared.
    pub calls: u64,
    /// Calls of which the single-step traces were compared.
    pub traced: u64,
    /// Bytes of WQEs that the first implementation writes.
    pub written: u64,
    /// Bytes that only the second one writes.
    pub beyond: u64,
    /// Differences by what differs.
    pub differences: BTreeMap<String, u64>,
    /// The first of each kind in full.
    pub examples: BTreeMap<String, String>,
    /// Differences that are known and named.
    pub divergences: BTreeMap<&'static str, u64>,
}

impl Findings {
    /// All of them.
    pub fn count(&self) -> u64 {
        self.differences.values().sum()
    }

    /// Notes one; the words are made only for the first of its kind.
    pub fn differ(&mut self, kind: String, example: impl FnOnce() -> String) {
        let n = self.differences.entry(kind.clone()).or_default();
        *n += 1;
        if *n == 1 {
            self.examples.insert(kind, example());
        }
    }

    /// Adds another one's.
    pub fn add(&mut self, other: Self) {
        self.wqes += other.wqes;
        self.completions += other.completions;
        self.calls += other.calls;
        self.traced += other.traced;
        self.written += other.written;
        self.beyond += other.beyond;
        for (kind, n) in other.differences {
            *self.differences.entry(kind).or_default() += n;
        }
        for (kind, example) in other.examples {
            self.examples.entry(kind).or_insert(example);
        }
        for (name, n) in other.divergences {
            *self.divergences.entry(name).or_default() += n;
        }
    }
}

/// Where libmlx5 is wrong and ours is not, with the reason.
pub mod divergence {
    /// When a chain is refused in its middle, libmlx5 rings with what stands in the ring where the refused work request
    /// would have been, not with the last one posted: an old number, or none.
    pub const CUT_CHAIN: &str = "doorbell of a chain that is refused in its middle";
    /// When the headers of a TSO go over the end of the ring, libmlx5 puts the data segments 32 bytes behind their place
    /// (`set_tso_eth_seg` has stepped over the Ethernet segment already, its caller does it again); the last of them
    /// fall into the next work request.
    pub const TSO_WRAP: &str = "TSO headers over the end of the ring";
    /// When a packet is given by `wr_set_sge` and is not longer than the headers that are copied into the work request, libmlx5
    /// adds a data segment with the same bytes: it sends them twice.
    pub const TWICE: &str = "packet of nothing but its headers, sent twice";
    /// libmlx5 44 puts entries of a shared receive queue behind the list as they complete; 48 and later, and ours, when the
    /// list has run out, in the ring's order. Both are right; with 44, completions out of order are not compared.
    pub const SHARED_ORDER: &str =
        "shared receive queue: order of entries that came back out of order";
    /// An element of no bytes in a shared receive queue: libmlx5 writes it, and the device takes it for one of 2 GiB. Ours
    /// leaves it out, as both do in other receive queues.
    pub const EMPTY_SHARED: &str = "shared receive queue: an element of no bytes";
    /// Data inside the completion of a tag that was added without a buffer: libmlx5 writes them to the buffer that the tag's place
    /// in the list had before, which may be gone. Ours ends with a length error.
    pub const TAG_WITHOUT_BUFFER: &str = "tags: data for a tag without a buffer";
    /// The phase of a list of tags: libmlx5 compares the device's 16 bits with all of the program's number, so that after 65,535
    /// messages without tag every change asks to be synchronised. Ours compares 16 bits.
    pub const LONG_PHASE: &str = "tags: a phase of more than 16 bits";
    /// The length of a key made of a list of 2 GiB or more: libmlx5 sums it in an `int`, whose sign fills the upper half.
    pub const LONG_KEY: &str = "key made of a list of 2 GiB or more";
    /// When a work request is refused, libmlx5 forgets that the one before it was an invalidation or a bind, so that the
    /// next one lacks the small fence.
    pub const LOST_FENCE: &str = "small fence forgotten over a refused work request";
    /// Canceling goes from one work request to the next by numbers that batches leave behind, aborted and refused ones too:
    /// where those lie in the midst of a work request, libmlx5 goes on there, and misses later ones. See [`crate::heads`].
    pub const LOST_CANCEL: &str =
        "canceling misses work requests behind what an aborted batch left";
}

/// Two passes of one implementation, over different poisons.
#[derive(Debug)]
pub struct Two {
    /// Over the one.
    pub one: Pass,
    /// Over the other.
    pub other: Pass,
}

fn dump(bytes: &[u8], written: &[bool]) -> String {
    let mut text = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "    {:03x}:", row * 16);
        for (column, byte) in chunk.iter().enumerate() {
            match written.get(row * 16 + column) {
                Some(false) => text.push_str(" .."),
                _ => {
                    let _ = write!(text, " {byte:02x}");
                }
            }
        }
        text.push('\n');
    }
    text
}

/// Doorbell record, fences and register, without the ring; and whether the ring was stored to after the record.
fn order(events: &[Event]) -> (Vec<Event>, bool) {
    let mut rang = false;
    let mut late = false;
    let mut order = Vec::new();
    for event in events {
        match event {
            Event::Store { range, .. } if *range == watched::RING => late |= rang,
            Event::Store { range, .. } if *range == watched::RECORD => {
                rang = true;
                order.push(*event);
            }
            // A lock is each implementation's own business.
            Event::FullFence | Event::LoadFence => {}
            _ => order.push(*event),
        }
    }
    // Which half of the register is next depends on what was before the run; compare from the first store into it.
    let base = order.iter().find_map(|event| match event {
        Event::Store { range, offset, .. } if *range == watched::REGISTER => Some(*offset),
        _ => None,
    });
    for event in &mut order {
        if let Event::Store { range, offset, .. } = event
            && *range == watched::REGISTER
        {
            *offset = offset.wrapping_sub(base.unwrap_or(0));
        }
    }
    (order, late)
}

/// Compares what a second implementation did with what the first one did.
pub fn compare(script: &Script, witness: &Two, subject: &Two) -> Findings {
    let mut findings = Findings::default();
    let mut refused = false;
    let mut turn = None;
    let both = witness.one.steps.len().min(subject.one.steps.len());
    for (number, step) in script.steps.iter().enumerate().take(both) {
        match step {
            Step::Complete {
                counter, opcode, ..
            } => {
                findings.completions += 1;
                let (ours, theirs) = (&subject.one.steps[number], &witness.one.steps[number]);
                if ours != &known(theirs, ours, *opcode) || matches!(theirs, Left::Completed(None))
                {
                    findings.differ(format!("completion of {opcode:?}"), || {
                        format!("block {counter}: libmlx5 {theirs:?}\n    ours {ours:?}")
                    });
                }
            }
            Step::Cancel(step) => canceled(&mut findings, step, number, witness, subject),
            Step::Post(posting) => {
                findings.calls += 1;
                let get = |pass: &Pass| -> Option<usize> {
                    matches!(pass.steps[number], Left::Posted(_)).then_some(number)
                };
                if get(&witness.one).is_some() {
                    call(
                        &mut findings,
                        script.ring,
                        &mut turn,
                        posting,
                        number,
                        refused,
                        witness,
                        subject,
                    );
                    refused = posting.mistake.is_some() || refused && posting.wqes.is_empty();
                }
                let (theirs, ours) = (posted(&witness.one, number), posted(&subject.one, number));
                if theirs.record != ours.record || theirs.outcome != ours.outcome {
                    // All that follows is elsewhere.
                    break;
                }
            }
        }
    }
    findings
}

/// What canceling returned, and the work requests after it.
fn canceled(
    findings: &mut Findings,
    step: &Canceling,
    number: usize,
    witness: &Two,
    subject: &Two,
) {
    let get = |pass: &Pass| match &pass.steps[number] {
        Left::Canceled(count, bytes) => (*count, pass.bytes[bytes.clone()].to_vec()),
        _ => unreachable!("passes of the same script"),
    };
    let [(count, mut one), (_, other)] = [get(&witness.one), get(&witness.other)];
    let [(our_count, ours), (_, our_other)] = [get(&subject.one), get(&subject.other)];
    let is_theirs = subject.one.name == witness.one.name;
    let to_be = step.count as i32;
    let theirs = to_be - step.lost.len() as i32;
    if count != theirs || our_count != if is_theirs { theirs } else { to_be } {
        findings.differ("canceled work requests".to_owned(), || {
            format!("libmlx5 {count}, ours {our_count}, to be {to_be}, of libmlx5's {theirs}")
        });
    }
    let mut mask: Vec<bool> = one.iter().zip(&other).map(|(a, b)| a == b).collect();
    for (first, _) in &step.wqes {
        // Immediate data that is none: ours leaves it in masked atomics (see `leave_imm`).
        let at = (first - step.start) as usize * BLOCK;
        mask[at + 12..at + 16].fill(false);
    }
    if !step.lost.is_empty() && !is_theirs {
        *findings
            .divergences
            .entry(divergence::LOST_CANCEL)
            .or_default() += 1;
        for first in &step.lost {
            // NOP; the index stays.
            let at = (first - step.start) as usize * BLOCK;
            one[at] = 0;
            one[at + 3] = 0;
        }
    }
    if (0..one.len()).any(|i| mask[i] && (one[i] != ours[i] || one[i] != our_other[i])) {
        findings.differ("bytes of canceled work requests".to_owned(), || {
            format!(
                "{step:?}\n  libmlx5:\n{}  ours:\n{}",
                dump(&one, &mask),
                dump(&ours, &mask)
            )
        });
    }
}

/// libmlx5's completion. Of a masked atomic, which it has by bytes only, it knows neither operation nor length.
fn known(theirs: &Left, ours: &Left, opcode: Opcode) -> Left {
    match (theirs, ours) {
        (Left::Completed(Some(theirs)), Left::Completed(Some(ours))) if opcode.is_masked() => {
            Left::Completed(Some(Completion {
                opcode: ours.opcode,
                byte_len: ours.byte_len,
                ..*theirs
            }))
        }
        (Left::Completed(theirs), _) => Left::Completed(*theirs),
        _ => unreachable!("the step is a completion"),
    }
}

fn posted(pass: &Pass, number: usize) -> &Posted {
    match &pass.steps[number] {
        Left::Posted(posted) => posted,
        _ => unreachable!("passes of the same script"),
    }
}

#[expect(clippy::too_many_arguments, reason = "one call, seen from all sides")]
fn call(
    findings: &mut Findings,
    ring: u32,
    turn: &mut Option<usize>,
    posting: &Posting,
    number: usize,
    after_refusal: bool,
    witness: &Two,
    subject: &Two,
) {
    let theirs = [posted(&witness.one, number), posted(&witness.other, number)];
    let ours = [posted(&subject.one, number), posted(&subject.other, number)];
    let api = posting.post.api;
    let what = |index: usize| posting.post.wrs.get(index).map(|wr| wr.opcode);
    if theirs[0].outcome != ours[0].outcome {
        let (theirs, ours) = (theirs[0].outcome, ours[0].outcome);
        findings.differ(format!("{api:?}: what the call returns"), || {
            format!("{:?}: libmlx5 {theirs:?}, ours {ours:?}", posting.mistake)
        });
    }
    if theirs[0].record != ours[0].record {
        let (theirs, ours) = (theirs[0].record, ours[0].record);
        findings.differ(format!("{api:?}: doorbell record"), || {
            format!("{:?}: libmlx5 {theirs:x?}, ours {ours:x?}", posting.mistake)
        });
    }
    // The model of the generator is a third opinion about where the queue stands.
    if theirs[0].record[1] != posting.end & 0xffff {
        findings.differ(
            format!("{api:?}: libmlx5 against the model of sizes"),
            || {
                let bytes = &witness.one.bytes[theirs[0].bytes.clone()];
                let mut at = 0;
                let mut first = String::new();
                for (wr, (_, units)) in posting.post.wrs.iter().zip(&posting.wqes) {
                    let Some(block) = bytes.get(at..at + 8) else {
                        break;
                    };
                    let real = u32::from(block[7] & 0x3f);
                    if real != *units {
                        first = format!("{units} units are {real} of {wr:?}");
                        break;
                    }
                    at += units.div_ceil(4) as usize * BLOCK;
                }
                format!(
                    "from block {} to {}, libmlx5's record {}; {:?}; {first}",
                    posting.start, posting.end, theirs[0].record[1], theirs[0].outcome
                )
            },
        );
    }
    // Blocks into which libmlx5 stores what belongs elsewhere.
    let mut spoiled = Vec::new();
    let mut fence_lost = false;
    for (wr, (start, units)) in posting.post.wrs.iter().zip(&posting.wqes) {
        if wraps_headers(ring, *start, wr) {
            spoiled.push((start + units.div_ceil(4)) % ring);
        }
    }
    for (index, (start, units)) in posting.wqes.iter().enumerate() {
        findings.wqes += 1;
        let at = (start - posting.start) as usize * BLOCK;
        let len = *units as usize * 16;
        let part = |pass: &Pass, posted: &Posted| {
            pass.bytes[posted.bytes.clone()][at..at + len.next_multiple_of(BLOCK)].to_vec()
        };
        let one = part(&witness.one, theirs[0]);
        let other = part(&witness.other, theirs[1]);
        let our_one = part(&subject.one, ours[0]);
        let our_other = part(&subject.other, ours[1]);
        let mut mask: Vec<bool> = one.iter().zip(&other).map(|(a, b)| a == b).collect();
        if spoiled.contains(&(start % ring)) {
            // Data segments of another work request.
            mask[..32].fill(false);
        }
        if wraps_headers(ring, *start, &posting.post.wrs[index]) {
            *findings
                .divergences
                .entry(divergence::TSO_WRAP)
                .or_default() += 1;
            let expected = data_segments(&posting.post.wrs[index]);
            let from = len - expected.len();
            mask[from..].fill(false);
            if subject.one.name != witness.one.name && our_one[from..len] != expected {
                findings.differ("data segments of a wrapped TSO".to_owned(), || {
                    format!("{:?}\n{}", posting.post.wrs[index], dump(&our_one, &[]))
                });
            }
        }
        let wr = &posting.post.wrs[index];
        leave_imm(&mut mask, wr.opcode);
        if let Some(length) = direct::long_list(wr) {
            *findings
                .divergences
                .entry(divergence::LONG_KEY)
                .or_default() += 1;
            mask[direct::KEY_LENGTH].fill(false);
            let ours = &our_one[direct::KEY_LENGTH];
            if subject.one.name != witness.one.name && ours != length.to_be_bytes() {
                findings.differ("length of a long key".to_owned(), || format!("{wr:?}"));
            }
        }
        if posting.is_sent_twice(index) {
            *findings.divergences.entry(divergence::TWICE).or_default() += 1;
            mask[7] = false;
            mask[48..64].fill(false);
        }
        let our_mask: Vec<bool> = our_one
            .iter()
            .zip(&our_other)
            .map(|(a, b)| a == b)
            .collect();
        findings.written += mask.iter().filter(|written| **written).count() as u64;
        let beyond = mask.iter().zip(&our_mask);
        findings.beyond += beyond.filter(|(theirs, ours)| !**theirs && **ours).count() as u64;
        let differs = (0..one.len()).any(|i| mask[i] && (one[i] != our_one[i] || !our_mask[i]));
        let lost_fence = after_refusal
            && index == 0
            && our_one[11] == one[11] | 0x20
            && (0..one.len()).all(|i| i == 11 || !mask[i] || one[i] == our_one[i]);
        if differs && lost_fence {
            fence_lost = true;
            *findings
                .divergences
                .entry(divergence::LOST_FENCE)
                .or_default() += 1;
        } else if differs {
            let opcode = what(index);
            findings.differ(format!("{api:?}: WQE of {opcode:?}"), || {
                let before = index.checked_sub(1).map(|index| {
                    let wr = &posting.post.wrs[index];
                    (wr.opcode, wr.pieces.len(), wr.header.len, posting.wqes[index])
                });
                format!(
                    "WQE {index} at block {start}, {units} units, after {before:?}: {:?}\n  libmlx5:\n{}  ours:\n{}",
                    posting.post.wrs[index],
                    dump(&one, &mask),
                    dump(&our_one, &our_mask)
                )
            });
        }
    }
    if !ours[0].strays.is_empty() && theirs[0].strays.is_empty() {
        findings.differ(format!("{api:?}: stores outside of the WQEs"), || {
            format!("blocks {:?} of {:?}", ours[0].strays, posting.post.wrs)
        });
    }
    let rings = |posted: &Posted| posted.register.is_some();
    if posting.mistake.is_some() && !posting.wqes.is_empty() {
        *findings
            .divergences
            .entry(divergence::CUT_CHAIN)
            .or_default() += 1;
        if rings(theirs[0]) && !rings(ours[0]) {
            findings.differ(format!("{api:?}: no doorbell for a cut chain"), String::new);
        }
        return;
    }
    let twice = (0..posting.wqes.len()).any(|index| posting.is_sent_twice(index));
    if spoiled.is_empty() && !twice && !fence_lost {
        register(findings, turn, posting, [theirs, ours], [witness, subject]);
    }
    if let (Some((theirs, _)), Some((ours, _))) = (&theirs[0].trace, &ours[0].trace) {
        findings.traced += 1;
        let (theirs, _) = order(theirs);
        let (ours, late) = order(ours);
        if late {
            findings.differ(
                format!("{api:?}: ring stored to after the record"),
                String::new,
            );
        }
        if theirs != ours {
            let n = posting.wqes.len();
            findings.differ(
                format!("{api:?}: order of record, fences, register"),
                || format!("{n} WQEs\n    libmlx5 {theirs:?}\n    ours    {ours:?}"),
            );
        }
    }
}

/// The bytes of a masked atomic are given to libmlx5 with immediate data that is none, which ours leaves as it was.
fn leave_imm(mask: &mut [bool], opcode: Opcode) {
    if opcode.is_masked() {
        mask[12..16].fill(false);
    }
}

/// Whether the headers of a TSO, which begin behind 30 bytes, go over the end of the ring.
fn wraps_headers(ring: u32, start: u32, wr: &Wr) -> bool {
    let first = (start % ring) as usize * BLOCK;
    wr.opcode == Opcode::Tso && first + 30 + wr.header.len as usize > ring as usize * BLOCK
}

/// The data segments of a work request (mlx5dv.h `struct mlx5_wqe_data_seg`).
fn data_segments(wr: &Wr) -> Vec<u8> {
    let segment = |piece: &Piece| {
        let mut bytes = piece.len.to_be_bytes().to_vec();
        bytes.extend(piece.lkey.to_be_bytes());
        bytes.extend(piece.address.to_be_bytes());
        bytes
    };
    wr.pieces.iter().flat_map(segment).collect()
}

fn register(
    findings: &mut Findings,
    turn: &mut Option<usize>,
    posting: &Posting,
    [theirs, ours]: [[&Posted; 2]; 2],
    [witness, subject]: [&Two; 2],
) {
    let api = posting.post.api;
    let half = |posted: &Posted| posted.register.as_ref().map(|(half, _)| *half);
    match (half(theirs[0]), half(ours[0])) {
        (None, None) => return,
        // Each has its own register and begins with either half; from then on they take turns alike.
        (Some(theirs), Some(ours)) if *turn.get_or_insert(theirs ^ ours) == theirs ^ ours => {}
        (theirs, ours) => {
            findings.differ(format!("{api:?}: half of the register"), || {
                format!("libmlx5 {theirs:?}, ours {ours:?}")
            });
            return;
        }
    }
    let bytes = |pass: &Pass, posted: &Posted| {
        let (_, range) = posted.register.as_ref()?;
        Some(pass.bytes[range.clone()].to_vec())
    };
    let (Some(one), Some(other)) = (
        bytes(&witness.one, theirs[0]),
        bytes(&witness.other, theirs[1]),
    ) else {
        return;
    };
    let (Some(our_one), Some(our_other)) =
        (bytes(&subject.one, ours[0]), bytes(&subject.other, ours[1]))
    else {
        return;
    };
    let mut mask: Vec<bool> = one.iter().zip(&other).map(|(a, b)| a == b).collect();
    if let [wr] = &posting.post.wrs[..] {
        leave_imm(&mut mask, wr.opcode);
        if direct::long_list(wr).is_some() {
            mask[direct::KEY_LENGTH].fill(false);
        }
    }
    let our_mask: Vec<bool> = our_one
        .iter()
        .zip(&our_other)
        .map(|(a, b)| a == b)
        .collect();
    if (0..one.len()).any(|i| mask[i] && (one[i] != our_one[i] || !our_mask[i])) {
        findings.differ(format!("{api:?}: bytes in the register"), || {
            format!(
                "{} WQEs\n  libmlx5:\n{}  ours:\n{}",
                posting.wqes.len(),
                dump(&one, &mask),
                dump(&our_one, &our_mask)
            )
        });
    }
}

//! Keys of keys: lists of ranges, and patterns of ranges that repeat (mlx5dv.h `struct mlx5_wqe_umr_klm_seg` and
//! `struct mlx5_wqe_umr_repeat_block_seg`).

use wqe_format::mlx5::{KlmSegment, RepeatBlockSegment, RepeatEntrySegment};
use zerocopy::FromBytes;

use super::{Fault, Range};

const UNIT: usize = 16;

/// Key and address of a KSM, which has no length of its own.
pub(super) fn ksm_entry(words: &[u8]) -> Option<(u32, u64)> {
    let (klm, _) = KlmSegment::read_from_prefix(words).ok()?;
    Some((klm.mkey.get(), klm.address.get()))
}

/// Calls `each` with the ranges behind `len` bytes at `offset` of a list.
pub(super) fn walk(
    list: &[u8],
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(Range) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut window = Window { skip: offset, len };
    let mut rest = list;
    while window.len > 0 {
        let (head, after) =
            RepeatBlockSegment::read_from_prefix(rest).map_err(|_| Fault::Translation)?;
        if head.op.get() != RepeatBlockSegment::OP {
            let (klm, after) =
                KlmSegment::read_from_prefix(rest).map_err(|_| Fault::Translation)?;
            rest = after;
            window.take(
                klm.mkey.get(),
                klm.address.get(),
                klm.byte_count.get().into(),
                each,
            )?;
            continue;
        }
        let entries = usize::from(head.num_ent.get()) * UNIT;
        let (block, after) = after.split_at_checked(entries).ok_or(Fault::Translation)?;
        rest = after;
        repeat(block, head.repeat_count.get(), &mut window, each)?;
    }
    Ok(())
}

fn repeat(
    block: &[u8],
    turns: u32,
    window: &mut Window,
    each: &mut dyn FnMut(Range) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let entries: Vec<RepeatEntrySegment> = block
        .chunks_exact(UNIT)
        .filter_map(|unit| RepeatEntrySegment::read_from_bytes(unit).ok())
        .collect();
    let turn: u64 = entries
        .iter()
        .map(|it| u64::from(it.byte_count.get()))
        .sum();
    if turn == 0 {
        return Ok(());
    }
    let skipped = (window.skip / turn).min(turns.into());
    window.skip -= skipped * turn;
    for round in skipped..turns.into() {
        for entry in &entries {
            if window.len == 0 {
                return Ok(());
            }
            let va = entry
                .va
                .get()
                .wrapping_add(round * u64::from(entry.stride.get()));
            window.take(entry.memkey.get(), va, entry.byte_count.get().into(), each)?;
        }
    }
    Ok(())
}

/// What is left of a range: bytes before it, and its bytes.
struct Window {
    skip: u64,
    len: u64,
}

impl Window {
    fn take(
        &mut self,
        key: u32,
        va: u64,
        size: u64,
        each: &mut dyn FnMut(Range) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let skipped = self.skip.min(size);
        self.skip -= skipped;
        let len = (size - skipped).min(self.len);
        if len == 0 {
            return Ok(());
        }
        self.len -= len;
        each(Range {
            key,
            va: va.wrapping_add(skipped),
            len,
        })
    }
}

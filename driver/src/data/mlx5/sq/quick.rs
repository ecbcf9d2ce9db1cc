//! The frequent work requests: sends, writes and reads of connected queues with one element or one short piece of inline data.
//!
//! They fit into a block and a half at most, need no look at the ring's end but one, and are written by straight stores. What
//! a loop over them needs is copied out of the queue first, so that it stays in registers: stores to the ring could
//! change the queue, as far as the compiler knows. Everything else takes the way in `list`.

use std::ptr::NonNull;

use wqe_format::mlx5::{
    CtrlFlags, CtrlSegment, DS_UNIT, DataSegment, InlineHeader, Opcode, RaddrSegment,
};

use super::super::record::{QueueKind, Slots};
use super::super::ring::{SendRing, Unit, copy_short};
use super::operation;
use super::request::{InlinePiece, SendFlags, SendRequest};
use super::segments::short_units_beyond_one;
use super::{BLOCK_UNITS, SendQueue};

/// What goes with a frequent opcode beside what its entry says.
mod part {
    pub(super) const IMM: u8 = 1;
    pub(super) const INVALIDATE: u8 = 1 << 1;
}

/// What is known of libibverbs' opcodes and flags on a kind of queue.
#[derive(Debug)]
pub(super) struct Table {
    /// Zero if it is not a frequent one; else what it adds to the control segment's first word: mlx5's opcode, and the units
    /// of a work request with one element. Those are odd if it has a remote address ([`REMOTE`]).
    entries: [u64; 16],
    /// See [`part`].
    parts: [u8; 16],
    /// The control segment's second word without immediate data, as memory holds it, by the lower three of libibverbs' flags
    /// (fence, signaled, solicited).
    flags: [u64; 8],
}

/// Where an entry and a record have the opcode.
const OPCODE_SHIFT: u32 = 32;
/// Units of a work request with one element: control segment, element.
const LOCAL_UNITS: u64 = 2;
/// With a remote address between them.
const REMOTE_UNITS: u64 = 3;
/// The bit of an entry that tells the two.
const REMOTE: u64 = 1;
const _: () = assert!(LOCAL_UNITS & REMOTE == 0 && REMOTE_UNITS & REMOTE != 0);

impl Table {
    const fn new(reliable: bool, always: CtrlFlags) -> Self {
        let mut table = Self::NONE;
        let known = [
            (0, Opcode::RDMA_WRITE, REMOTE_UNITS, 0),
            (1, Opcode::RDMA_WRITE_IMM, REMOTE_UNITS, part::IMM),
            (2, Opcode::SEND, LOCAL_UNITS, 0),
            (3, Opcode::SEND_IMM, LOCAL_UNITS, part::IMM),
            (9, Opcode::SEND_INVAL, LOCAL_UNITS, part::INVALIDATE),
            (4, Opcode::RDMA_READ, REMOTE_UNITS, 0),
        ];
        let mut place = 0;
        while place < known.len() {
            let (number, opcode, units, parts) = known[place];
            if reliable || opcode.0 != Opcode::RDMA_READ.0 {
                table.entries[number] = (opcode.0 as u64) << OPCODE_SHIFT | units;
                table.parts[number] = parts;
            }
            place += 1;
        }
        table.flags = operation::second_words(always);
        table
    }

    const NONE: Self = Self {
        entries: [0; 16],
        parts: [0; 16],
        flags: [0; 8],
    };
}

static NONE: Table = Table::NONE;
static UNRELIABLE: [Table; 2] = [
    Table::new(false, CtrlFlags::NONE),
    Table::new(false, CtrlFlags::CQ_UPDATE),
];
static RELIABLE: [Table; 2] = [
    Table::new(true, CtrlFlags::NONE),
    Table::new(true, CtrlFlags::CQ_UPDATE),
];

/// The table of a queue. One that signs its work requests, or takes no element (not `plain`), has none of them.
pub(super) fn table(kind: QueueKind, plain: bool, signal_all: bool) -> &'static Table {
    match kind {
        QueueKind::Rc if plain => &RELIABLE[usize::from(signal_all)],
        QueueKind::Uc if plain => &UNRELIABLE[usize::from(signal_all)],
        _ => &NONE,
    }
}

/// Inline data that is copied without a call.
const MAX_SHORT: u32 = 64;

/// The most inline bytes that a frequent work request has, where one may have `units` units: behind control segment and
/// remote address.
pub(super) fn max_short(max_inline: u32, units: u32) -> u32 {
    let room = (units - 2) * DS_UNIT as u32 - size_of::<InlineHeader>() as u32;
    max_inline.min(MAX_SHORT).min(room)
}

/// What a loop over frequent work requests keeps in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    ring: SendRing,
    slots: Slots,
    table: &'static Table,
    /// The queue pair's number, where the control segment's first word has it.
    qpn: u64,
    max_short: u32,
}

impl SendQueue {
    #[inline(always)]
    pub(super) fn hot(&self) -> Hot {
        Hot {
            ring: self.ring,
            slots: self.slots,
            table: self.table,
            qpn: self.qpn_word.into(),
            max_short: self.max_short,
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// The control segment.
    pub(super) ctrl: NonNull<Unit>,
    /// Units of 16 bytes.
    pub(super) ds: u32,
    /// Blocks.
    pub(super) blocks: u32,
    /// Whether it has inline data.
    pub(super) inline: bool,
}

impl Hot {
    /// Writes a work request if it is a frequent one, at a block of which the ring has one and a half free, and remembers it;
    /// `head` counts it already. No fence follows from an earlier one.
    #[inline(always)]
    pub(super) fn put<R: SendRequest>(
        &self,
        blocks: u32,
        head: u32,
        request: &R,
    ) -> Option<Written> {
        let table = self.table;
        let number = request.opcode().0 as usize;
        if number >= table.entries.len() || table.entries[number] == 0 {
            return None;
        }
        let mut entry = table.entries[number];
        let flags = request.flags();
        let [sge] = request.sges() else {
            return None;
        };
        let block = blocks & self.ring.mask();
        let ctrl = self.ring.block(block);
        // Where the data goes.
        let mut offset = DS_UNIT;
        if entry & REMOTE != 0 {
            let remote = request.remote();
            let segment = RaddrSegment::new(remote.addr, remote.rkey).unit();
            // SAFETY: the second unit of a free block.
            unsafe { write(ctrl, DS_UNIT, segment) };
            offset = 2 * DS_UNIT;
        }
        let length = sge.length;
        let written = if flags.contains(SendFlags::INLINE) {
            // None of no bytes, which has no header.
            if length.wrapping_sub(1) >= self.max_short {
                return None;
            }
            // Beyond the one that an element takes.
            entry += u64::from(short_units_beyond_one(length));
            let ds = entry as u32;
            if ds > BLOCK_UNITS && block == self.ring.mask() {
                return None;
            }
            // SAFETY: a unit of the block.
            let header = unsafe { ctrl.byte_add(offset) };
            // SAFETY: a unit of a free block.
            unsafe { header.cast().write(InlineHeader::of_length(length)) };
            // SAFETY: within that unit.
            let at = unsafe { header.cast::<u8>().add(size_of::<InlineHeader>()) };
            let from = InlinePiece::of_sge(sge).addr;
            // SAFETY: readable by the trait's promise. There is room: the block is not the last one of the ring, or the
            // data does not reach beyond it.
            unsafe { copy_short(from, at.as_ptr(), length as usize) };
            Written {
                ctrl,
                ds,
                blocks: (ds + 3) >> 2,
                inline: true,
            }
        } else {
            // None of no bytes, and none with the mark of inline data.
            if (length as i32) <= 0 {
                return None;
            }
            let segment = DataSegment::new(sge.addr, length, sge.lkey).unit();
            // SAFETY: the second or third unit of a free block.
            unsafe { write(ctrl, offset, segment) };
            Written {
                ctrl,
                ds: entry as u32,
                blocks: 1,
                inline: false,
            }
        };
        // The big-endian words of a `CtrlSegment`, put together from what is known of them.
        let index = u64::from(blocks as u16) << 40;
        let first = index | entry | self.qpn;
        let mut second = table.flags[flags.0 as usize & 7];
        if table.parts[number] != 0 {
            let imm = if table.parts[number] & part::IMM != 0 {
                request.imm().get()
            } else {
                request.invalidate_rkey()
            };
            second |= u64::from(imm).to_be();
        }
        // SAFETY: the first unit of a free block.
        unsafe { write(ctrl, 0, [first.to_be(), second]) };
        let rest = entry & !u64::from(CtrlSegment::MAX_DS) | u64::from(head);
        // SAFETY: there are as many records as blocks; the queue that this was copied from has the record.
        unsafe { self.slots.set_plain(block, request.wr_id(), rest) };
        Some(written)
    }
}

/// Writes a unit of a block.
///
/// # Safety
///
/// The block is free, and `offset` is that of one of its four units.
#[inline(always)]
unsafe fn write(block: NonNull<Unit>, offset: usize, unit: Unit) {
    const { assert!(size_of::<Unit>() == DS_UNIT) };
    // SAFETY: within the block.
    let at = unsafe { block.byte_add(offset) };
    // SAFETY: the caller's promise.
    unsafe { at.write(unit) };
}

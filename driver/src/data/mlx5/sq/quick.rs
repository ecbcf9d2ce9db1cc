//! The frequent work requests: sends, writes and reads of connected queues with one element or one short piece of inline data.
//!
//! They fit into a block and a half at most, need no look at the ring's end but one, and are written by straight stores. What
//! a loop over them needs is copied out of the queue first, so that it stays in registers: stores to the ring could
//! change the queue, as far as the compiler knows. Everything else takes the way in `list`.

use std::ptr::NonNull;

use wqe_format::mlx5::{CtrlFlags, DS_UNIT, DataSegment, InlineHeader, Opcode, RaddrSegment};

use super::super::record::{QueueKind, Slots};
use super::super::ring::{SendRing, Unit, copy_short};
use super::SendQueue;
use super::request::{InlinePiece, SendFlags, SendRequest};
use super::segments::short_units;

/// What goes with a frequent opcode; none of it tells a frequent one from others.
mod part {
    pub(super) const QUICK: u8 = 1;
    pub(super) const REMOTE: u8 = 1 << 1;
    pub(super) const IMM: u8 = 1 << 2;
    pub(super) const INVALIDATE: u8 = 1 << 3;
}

/// What is known of libibverbs' opcodes and flags on a kind of queue.
#[derive(Debug)]
pub(super) struct Table {
    /// mlx5's opcode, where both the control segment's first word and a record have it.
    opcodes: [u64; 16],
    /// See [`part`]; nothing if it is not a frequent one.
    parts: [u8; 16],
    /// The control segment's flags by the lower three of libibverbs' (fence, signaled, solicited), where its second word has
    /// them.
    flags: [u64; 8],
}

/// Where both words have the opcode, and the second one the flags.
const SHIFT: u32 = 32;

impl Table {
    const fn new(reliable: bool, always: CtrlFlags) -> Self {
        let mut table = Self {
            opcodes: [0; 16],
            parts: [0; 16],
            flags: [0; 8],
        };
        let known = [
            (0, Opcode::RDMA_WRITE, part::REMOTE),
            (1, Opcode::RDMA_WRITE_IMM, part::REMOTE | part::IMM),
            (2, Opcode::SEND, 0),
            (3, Opcode::SEND_IMM, part::IMM),
            (9, Opcode::SEND_INVAL, part::INVALIDATE),
            (4, Opcode::RDMA_READ, part::REMOTE),
        ];
        let mut place = 0;
        while place < known.len() {
            let (number, opcode, parts) = known[place];
            if reliable || opcode.0 != Opcode::RDMA_READ.0 {
                table.opcodes[number] = (opcode.0 as u64) << SHIFT;
                table.parts[number] = part::QUICK | parts;
            }
            place += 1;
        }
        let mut asked = 0;
        while asked < table.flags.len() {
            let flags = SendFlags(asked as u32).ctrl(CtrlFlags::NONE).with(always);
            table.flags[asked] = (flags.0 as u64) << SHIFT;
            asked += 1;
        }
        table
    }

    const NONE: Self = Self {
        opcodes: [0; 16],
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
    qpn: u32,
    max_short: u32,
}

impl SendQueue {
    #[inline(always)]
    pub(super) fn hot(&self) -> Hot {
        Hot {
            ring: self.ring,
            slots: self.slots,
            table: self.table,
            qpn: self.qpn,
            max_short: self.max_short,
        }
    }
}

/// What was written: units and blocks of a work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Units of 16 bytes, and [`INLINE`](Self::INLINE); zero if nothing was written.
    pub(super) ds: u32,
    pub(super) blocks: u32,
}

impl Written {
    pub(super) const NOTHING: Self = Self { ds: 0, blocks: 0 };
    /// With inline data. One number, so that a loop carries one.
    pub(super) const INLINE: u32 = 1 << 31;
}

impl Hot {
    /// Writes a work request if it is a frequent one, at a block of which the ring has one and a half free, and remembers it;
    /// `head` counts it already. No fence follows from an earlier one.
    #[inline(always)]
    pub(super) fn put<R: SendRequest>(&self, blocks: u32, head: u32, request: &R) -> Written {
        let table = self.table;
        let number = request.opcode().0 as usize;
        if number >= table.parts.len() || table.parts[number] == 0 {
            return Written::NOTHING;
        }
        let parts = table.parts[number];
        let opcode = table.opcodes[number];
        let flags = request.flags();
        let [sge] = request.sges() else {
            return Written::NOTHING;
        };
        let block = blocks & self.ring.mask();
        let ctrl = self.ring.block(block);
        // Where the data goes.
        let mut offset = DS_UNIT;
        if parts & part::REMOTE != 0 {
            let remote = request.remote();
            let segment = RaddrSegment::new(remote.addr, remote.rkey).unit();
            // SAFETY: the second unit of a free block.
            unsafe { write(ctrl, DS_UNIT, segment) };
            offset = 2 * DS_UNIT;
        }
        let before = (offset / DS_UNIT) as u32;
        let length = sge.length;
        let written = if flags.contains(SendFlags::INLINE) {
            // SAFETY: a unit of the block.
            let header = unsafe { ctrl.byte_add(offset) };
            // SAFETY: within that unit.
            let at = unsafe { header.cast::<u8>().add(size_of::<InlineHeader>()) };
            let end = at.addr().get() + length as usize;
            // None of no bytes, which has no header.
            if length.wrapping_sub(1) >= self.max_short || end > self.ring.end().addr().get() {
                return Written::NOTHING;
            }
            // SAFETY: a unit of a free block.
            unsafe { header.cast().write(InlineHeader::of_length(length)) };
            let from = InlinePiece::of_sge(sge).addr;
            // SAFETY: readable by the trait's promise, and up to the end of the ring there is room.
            unsafe { copy_short(from, at.as_ptr(), length as usize) };
            let ds = before + short_units(length);
            Written {
                ds: ds | Written::INLINE,
                blocks: (ds + 3) >> 2,
            }
        } else {
            // None of no bytes, and none with the mark of inline data.
            if (length as i32) <= 0 {
                return Written::NOTHING;
            }
            let segment = DataSegment::new(sge.addr, length, sge.lkey).unit();
            // SAFETY: the second or third unit of a free block.
            unsafe { write(ctrl, offset, segment) };
            Written {
                ds: before + 1,
                blocks: 1,
            }
        };
        // The big-endian words of a `CtrlSegment`, put together from what is known of them.
        let index = u64::from(blocks as u16) << 40;
        let ds = written.ds & !Written::INLINE;
        let first = index | opcode | u64::from(self.qpn << 8 | ds);
        let mut second = table.flags[flags.0 as usize & 7];
        if parts & (part::IMM | part::INVALIDATE) != 0 {
            let imm = if parts & part::IMM != 0 {
                request.imm().get()
            } else {
                request.invalidate_rkey()
            };
            second |= u64::from(imm);
        }
        // SAFETY: the first unit of a free block.
        unsafe { write(ctrl, 0, [first.to_be(), second.to_be()]) };
        // SAFETY: there are as many records as blocks; the queue that this was copied from has the record.
        unsafe {
            self.slots
                .set_plain(block, request.wr_id(), opcode | u64::from(head))
        };
        written
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

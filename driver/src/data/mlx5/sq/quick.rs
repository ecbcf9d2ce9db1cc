//! The frequent work requests: sends, writes and reads of connected queues with one element or one short piece of inline data.
//!
//! They fit into a block and a half at most, need no look at the ring's end but one, and are written by straight stores. What
//! a loop over them needs is copied out of the queue first, so that it stays in registers: stores to the ring could
//! change the queue, as far as the compiler knows. Everything else takes the way in `list`.

use std::ptr::NonNull;

use wqe_format::mlx5::{
    CtrlFlags, CtrlSegment, DS_UNIT, DataSegment, InlineHeader, Opcode, RaddrSegment,
};
use zerocopy::byteorder::big_endian::U32;

use super::super::record::{QueueKind, Slots, WorkKind};
use super::super::ring::{SendRing, Unit, copy_short};
use super::request::{InlinePiece, SendFlags, SendRequest};
use super::segments::short_units;
use super::{Last, SendQueue};

/// What is known of a libibverbs opcode: mlx5's, and what goes with it. Zero if it is not a frequent one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quick(u16);

impl Quick {
    const NONE: Self = Self(0);
    const REMOTE: u16 = 1 << 8;
    const IMM: u16 = 1 << 9;
    const INVALIDATE: u16 = 1 << 10;
    /// Tells SEND_INVAL and the like from nothing.
    const SOME: u16 = 1 << 15;

    const fn of(opcode: Opcode, parts: u16) -> Self {
        Self(Self::SOME | parts | opcode.0 as u16)
    }

    #[inline(always)]
    const fn has(self, part: u16) -> bool {
        self.0 & part != 0
    }
}

/// By libibverbs' opcodes.
pub(super) type Table = [Quick; 16];

const UNRELIABLE: Table = {
    let mut table = NONE;
    table[0] = Quick::of(Opcode::RDMA_WRITE, Quick::REMOTE);
    table[1] = Quick::of(Opcode::RDMA_WRITE_IMM, Quick::REMOTE | Quick::IMM);
    table[2] = Quick::of(Opcode::SEND, 0);
    table[3] = Quick::of(Opcode::SEND_IMM, Quick::IMM);
    table[9] = Quick::of(Opcode::SEND_INVAL, Quick::INVALIDATE);
    table
};
const NONE: Table = [Quick::NONE; 16];
const RELIABLE: Table = {
    let mut table = UNRELIABLE;
    table[4] = Quick::of(Opcode::RDMA_READ, Quick::REMOTE);
    table
};

static TABLES: [Table; 3] = [NONE, UNRELIABLE, RELIABLE];

/// The table of a queue. One that signs its work requests, or takes no element, has none of them.
pub(super) fn table(kind: QueueKind, plain: bool) -> &'static Table {
    match kind {
        QueueKind::Rc if plain => &TABLES[2],
        QueueKind::Uc if plain => &TABLES[1],
        _ => &TABLES[0],
    }
}

/// The control segment's flags by the lower three of libibverbs' (fence, signaled, solicited).
const CTRL_FLAGS: [u8; 8] = {
    let mut flags = [0; 8];
    let mut asked = 0;
    while asked < 8 {
        flags[asked] = SendFlags(asked as u32).ctrl(CtrlFlags::NONE).0;
        asked += 1;
    }
    flags
};

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
    always: u8,
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
            always: self.always.0,
            max_short: self.max_short,
        }
    }
}

impl Hot {
    /// Writes a work request if it is a frequent one, at a block of which the ring has one and a half free, and remembers it;
    /// `head` counts it already. No fence follows from an earlier one.
    #[inline(always)]
    pub(super) fn put<R: SendRequest>(&self, blocks: u32, head: u32, request: &R) -> Option<Last> {
        let number = request.opcode().0 as usize;
        let quick = if number < self.table.len() {
            self.table[number]
        } else {
            Quick::NONE
        };
        let flags = request.flags();
        let [sge] = request.sges() else {
            return None;
        };
        if quick.0 == 0 {
            return None;
        }
        let ctrl = self.ring.block(blocks);
        let mut ds = 1;
        let mut wqebbs = 1;
        if quick.has(Quick::REMOTE) {
            let remote = request.remote();
            let segment = RaddrSegment::new(remote.addr, remote.rkey).unit();
            // SAFETY: the second unit of a free block.
            unsafe { write(ctrl, ds, segment) };
            ds += 1;
        }
        let inline = flags.contains(SendFlags::INLINE);
        if inline {
            let length = sge.length;
            // SAFETY: a unit of the block.
            let header = unsafe { ctrl.add(ds as usize) };
            // SAFETY: within that unit.
            let at = unsafe { header.cast::<u8>().add(size_of::<InlineHeader>()) };
            let end = at.addr().get() + length as usize;
            if length == 0 || length > self.max_short || end > self.ring.end().addr().get() {
                return None;
            }
            // SAFETY: a unit of a free block.
            unsafe { header.cast().write(InlineHeader::of_length(length)) };
            let from = InlinePiece::of_sge(sge).addr;
            // SAFETY: readable by the trait's promise, and up to the end of the ring there is room.
            unsafe { copy_short(from, at.as_ptr(), length as usize) };
            ds += short_units(length);
            wqebbs = (ds + 3) >> 2;
        } else {
            // None of no bytes, and none with the mark of inline data.
            if (sge.length as i32) <= 0 {
                return None;
            }
            let segment = DataSegment::new(sge.addr, sge.length, sge.lkey).unit();
            // SAFETY: the second or third unit of a free block.
            unsafe { write(ctrl, ds, segment) };
            ds += 1;
        }
        let imm = if quick.has(Quick::IMM) {
            request.imm()
        } else if quick.has(Quick::INVALIDATE) {
            U32::new(request.invalidate_rkey())
        } else {
            U32::ZERO
        };
        let opcode = Opcode(quick.0 as u8);
        let flags = CtrlFlags(CTRL_FLAGS[flags.0 as usize & 7] | self.always);
        let segment = CtrlSegment::new(opcode, blocks as u16, self.qpn, ds as u8, flags);
        // SAFETY: the first unit of a free block.
        unsafe { write(ctrl, 0, segment.with_imm(imm).unit()) };
        let block = blocks & self.ring.mask();
        // SAFETY: there are as many records as blocks.
        unsafe {
            self.slots
                .set(block, request.wr_id(), head, opcode.0, WorkKind::Plain)
        };
        Some(Last {
            ctrl,
            ds,
            blocks: wqebbs,
            inline,
        })
    }
}

/// Writes a unit of a block.
///
/// # Safety
///
/// The block is free, and `place` is below four.
#[inline(always)]
unsafe fn write(block: NonNull<Unit>, place: u32, unit: Unit) {
    const { assert!(size_of::<Unit>() == DS_UNIT) };
    // SAFETY: within the block.
    let at = unsafe { block.add(place as usize) };
    // SAFETY: the caller's promise.
    unsafe { at.write(unit) };
}

//! The frequent steps of a batch: sends, writes and reads of connected queues with one element or one short piece of inline
//! data, one after the other.
//!
//! A C program makes each step by a call, so what a step costs is what it stores: to the ring, and to the draft. These
//! store each word once. Where anything is unusual they do nothing and say so, and the caller takes the way in
//! `draft`; so nothing that they need has to survive a call.

use std::ptr::NonNull;

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DataSegment, Opcode, RaddrSegment};
use wqe_format::rxe::Sge;

use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, Unit};
use super::draft::{Draft, position, progress, state};
use super::operation::class;
use super::request::{InlinePiece, Remote, SendFlags};
use super::{Last, Position, SendQueue};

/// A work request without immediate data, and nothing between remote address and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// `ibv_wr_send`.
    Send,
    /// `ibv_wr_rdma_write`.
    Write(Remote),
    /// `ibv_wr_rdma_read`.
    Read(Remote),
}

/// The classes of operations of a kind of queue that can be begun here: without a segment of the transport's.
pub(super) const fn classes(kind: QueueKind) -> u16 {
    match kind {
        QueueKind::Rc => class::SEND | class::WRITE | class::READ,
        QueueKind::Uc => class::SEND | class::WRITE,
        _ => 0,
    }
}

/// The first four bytes of a control segment's second half by the lower three of libibverbs' flags (fence, signaled,
/// solicited), as the machine reads them.
pub(super) fn flag_words(always: CtrlFlags) -> [u32; 8] {
    std::array::from_fn(|asked| {
        let flags = SendFlags(asked as u32).ctrl(CtrlFlags::NONE);
        let flags = CtrlFlags(always.0 | flags.0);
        CtrlSegment::new(Opcode::NOP, 0, 0, 0, flags).unit()[1] as u32
    })
}

/// What ends a work request in an unusual way, or begins the next one so.
const UNUSUAL: u32 =
    state::NEEDS_PAYLOAD | state::NEEDS_DESTINATION | state::FENCE_NEXT | state::FENCED;

impl SendQueue {
    /// As [`begin`](Self::begin), in place.
    #[inline(always)]
    pub fn begin_in(&self, draft: &mut Draft) {
        if self.accepting && self.fence == CtrlFlags::NONE {
            draft.begin(self.head, self.stop, self.blocks);
        } else {
            *draft = self.begin();
        }
    }

    /// As [`open`](Self::open), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// Nothing was posted to the queue since the batch was begun.
    #[inline(always)]
    pub unsafe fn open_plain(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        what: Plain,
    ) -> bool {
        let (class, opcode, remote) = match what {
            Plain::Send => (class::SEND, Opcode::SEND, None),
            Plain::Write(remote) => (class::WRITE, Opcode::RDMA_WRITE, Some(remote)),
            Plain::Read(remote) => (class::READ, Opcode::RDMA_READ, Some(remote)),
        };
        const UNUSUAL: u32 =
            state::NEEDS_PAYLOAD | state::NEEDS_DESTINATION | state::FENCE_NEXT | state::FENCED;
        let (mut blocks, mut head) = (draft.blocks(), draft.head());
        if self.stepwise & class == 0 || draft.is(UNUSUAL) {
            return false;
        }
        if draft.is(state::OPEN) {
            let ds = draft.ds();
            // As `close` does; should the rest of this be refused, it does so again.
            self.put_first_half(blocks, draft.first_half() | u64::from(ds));
            blocks = blocks.wrapping_add((ds + 3) >> 2);
            head = head.wrapping_add(1);
        }
        if head == draft.stop() {
            return false;
        }
        let block = self.ring.block(blocks);
        let mut units = 1;
        if let Some(remote) = remote {
            // SAFETY: the second unit of a free block.
            let at = unsafe { block.add(1) };
            // SAFETY: as above.
            unsafe { at.write(RaddrSegment::new(remote.addr, remote.rkey).unit()) };
            units = 2;
        }
        self.put_flags(block, self.flag_words[flags.0 as usize & 7]);
        self.remember(
            blocks,
            wr_id,
            head.wrapping_add(1),
            opcode.0,
            WorkKind::Plain,
        );
        let now = state::OPEN | state::TAKES;
        draft.store(
            position(blocks, head),
            progress(now, units, units),
            u64::from_be(
                CtrlSegment::new(opcode, blocks as u16, self.qpn, 0, CtrlFlags::NONE).doorbell(),
            ),
        );
        true
    }

    /// The first half of the control segment of a block.
    #[inline(always)]
    pub(super) fn put_first_half(&self, blocks: u32, half: u64) {
        let at = self.ring.block(blocks).cast::<u64>();
        // SAFETY: in a free block.
        unsafe { at.write(half.to_be()) };
    }

    /// The flags of a control segment. What is behind them, immediate data that is none, is not the device's business, and
    /// libmlx5 leaves it as it was; so do we, by one whole store: the register may be about to get a copy, which would
    /// wait for a narrower one.
    #[inline(always)]
    fn put_flags(&self, block: NonNull<Unit>, flags: u32) {
        // SAFETY: the second half of the block's first unit.
        let half = unsafe { block.cast::<u64>().add(1) };
        // SAFETY: the immediate data is the half's last four bytes.
        let at = unsafe { half.cast::<u32>().add(1) };
        // SAFETY: in a free block, aligned; the device does not write there.
        let imm = unsafe { at.read() };
        // The first four bytes are the lower ones of the value on the little-endian machines that we are built for.
        // SAFETY: as above.
        unsafe { half.write(u64::from(imm) << 32 | u64::from(flags)) };
    }

    /// As [`set_sge`](Self::set_sge), if nothing is unusual; says whether it did anything.
    #[inline(always)]
    pub fn set_sge_plain(&self, draft: &mut Draft, sge: Sge) -> bool {
        let units = draft.payload();
        if draft.state() & (state::TAKES | state::HEADER) != state::TAKES
            || units >= self.max_ds
            || sge.length as i32 <= 0
        {
            return false;
        }
        let at = Cursor::at(draft.blocks(), units).next();
        let segment = DataSegment::new(sge.addr, sge.length, sge.lkey).unit();
        // SAFETY: free blocks, in which a work request of `max_ds` units has room.
        unsafe { self.ring.unit(at).write(segment) };
        draft.put_payload(units + 1, 0);
        true
    }

    /// As [`set_inline`](Self::set_inline), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// The piece is readable, if it is within the limit.
    #[inline(always)]
    pub unsafe fn set_inline_plain(&self, draft: &mut Draft, piece: InlinePiece) -> bool {
        if draft.state() & (state::TAKES | state::HEADER) != state::TAKES
            || piece.len.wrapping_sub(1) >= self.max_short as usize
        {
            return false;
        }
        let mut cursor = Cursor::at(draft.blocks(), draft.payload());
        // SAFETY: free blocks, in which short data has room; the caller's promise.
        if unsafe { self.put_short(&mut cursor, piece) } {
            draft.put_payload(cursor.ds(), state::INLINE);
            return true;
        }
        false
    }

    /// As [`commit`](Self::commit), if the last work request is open and nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// Nothing was posted to the queue since the batch was begun.
    #[inline(always)]
    pub unsafe fn commit_plain(&mut self, draft: &Draft) -> bool {
        // A draft with an error has no open work request.
        if draft.state() & (state::OPEN | UNUSUAL) != state::OPEN
            || self.signature
            || !self.register.is_exclusive()
        {
            return false;
        }
        let (blocks, ds) = (draft.blocks(), draft.ds());
        self.put_first_half(blocks, draft.first_half() | u64::from(ds));
        self.stop = draft.stop();
        let wqebbs = (ds + 3) >> 2;
        let last = Last {
            ctrl: self.ring.block(blocks),
            ds,
            blocks: wqebbs,
            inline: draft.is(state::INLINE),
        };
        let position = Position {
            blocks: blocks.wrapping_add(wqebbs),
            head: draft.head().wrapping_add(1),
            fence: CtrlFlags::NONE,
        };
        // SAFETY: looked at above.
        unsafe { self.announce_to::<true>(position, last) };
        true
    }
}

//! Describing a batch step by step: the rarer ways, and the errors.

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DS_UNIT, DatagramSegment, XrcSegment};
use wqe_format::rxe::Sge;
use zerocopy::FromBytes;

use super::super::error::PostError;
use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, Unit, unit, units};
use super::draft::{Draft, state};
use super::operation::Operation;
use super::request::{Destination, InlinePiece, SendFlags};
use super::segments::Consumed;
use super::{Position, SendQueue};

/// A draft after a step, and what became of the step.
type After = (Draft, Result<(), PostError>);

impl SendQueue {
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[inline(never)]
    pub(super) unsafe fn open_other(
        &self,
        mut draft: Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> After {
        // SAFETY: the caller's promise.
        let result = unsafe { self.open_any(&mut draft, wr_id, flags, operation) };
        (draft, result)
    }

    /// As [`open`](Self::open), by the long way and in place.
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[inline]
    pub unsafe fn open_any(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        match unsafe { self.describe_next(draft, wr_id, flags, operation) } {
            Ok(()) => Ok(()),
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[inline(always)]
    unsafe fn describe_next(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<(), PostError> {
        self.end(draft)?;
        if draft.head == draft.stop {
            draft.stop = self.look_for_room(draft.head)?;
        }
        let fence = if draft.head == draft.begun {
            self.fence
        } else if draft.state & state::FENCE_NEXT != 0 {
            CtrlFlags::SMALL_FENCE
        } else {
            CtrlFlags::NONE
        };
        let blocks = draft.next;
        // SAFETY: the caller's promise; there is room.
        let it = unsafe { self.describe(blocks, flags, operation) }?;
        let asked = CtrlFlags(self.always.0 | flags.ctrl(fence).0);
        let segment = CtrlSegment::new(it.opcode, blocks as u16, self.qpn, it.ds as u8, asked)
            .with_opmod(it.opmod);
        let at = self.ring.block(blocks);
        // SAFETY: the first eight bytes of a free block.
        unsafe { at.cast::<u64>().write(segment.doorbell()) };
        // SAFETY: behind the first eight bytes of a free block.
        let half = unsafe { at.cast::<u64>().add(1) };
        // SAFETY: as above.
        unsafe { half.write(unit(segment.with_imm(it.imm.unwrap_or_default()))[1]) };
        draft.head = draft.head.wrapping_add(1);
        self.remember(blocks, wr_id, draft.head, it.opcode.0, it.kind);
        draft.at = at;
        // It is not counted yet.
        draft.ds = 0;
        draft.payload = it.ds;
        draft.state = state::if_so(it.open, state::TAKES)
            | state::if_so(it.needs_payload, state::NEEDS_PAYLOAD)
            | state::if_so(it.open && self.transport != 0, state::NEEDS_DESTINATION)
            | state::if_so(self.signature, state::NEEDS_SIGNATURE)
            | state::if_so(it.header, state::HEADER)
            | state::if_so(
                it.header && flags.contains(SendFlags::IP_CSUM),
                state::CHECKSUMS,
            )
            | state::if_so(it.next_fence != CtrlFlags::NONE, state::FENCE_NEXT);
        draft.set_ds(it.ds);
        self.settle(draft);
        Ok(())
    }

    /// Ends the last work request, if nothing was posted past the draft. One that lacks what its operation needs (a datagram's
    /// destination, an atomic's memory) is not taken.
    #[inline(always)]
    fn end(&self, draft: &mut Draft) -> Result<(), PostError> {
        if let Some(error) = draft.error {
            return Err(error);
        }
        if draft.begun != self.head {
            return Err(PostError::Incomplete);
        }
        if draft.state & state::PENDING != 0 {
            // A frequent one without a payload has been counted as if it had one.
            draft.state &= !state::PENDING;
            draft.set_ds(draft.payload);
            self.write_ds(draft);
        }
        if draft.state & (state::NEEDS_PAYLOAD | state::NEEDS_DESTINATION) != 0 {
            return Err(PostError::Incomplete);
        }
        if draft.state & state::NEEDS_SIGNATURE != 0 {
            self.sign(draft.blocks(), draft.ds);
        }
        Ok(())
    }

    /// Frequent ones may follow if there is nothing to do about the last one.
    #[inline(always)]
    fn settle(&self, draft: &mut Draft) {
        if draft.state & state::LOOK == 0 {
            draft.state |= self.ready;
        }
    }

    /// Says the work request's length in its control segment.
    #[inline(always)]
    pub(super) fn write_ds(&self, draft: &Draft) {
        let at = self.ring.block(draft.blocks()).cast::<u64>();
        // SAFETY: the first eight bytes of the block, written when the work request was begun.
        let word = u64::from_be(unsafe { at.read() }) & !u64::from(CtrlSegment::MAX_DS);
        // SAFETY: as above; the block is free.
        unsafe { at.write((word | u64::from(draft.ds)).to_be()) };
    }

    /// The end of a batch that is not as most are.
    #[inline(never)]
    pub(super) fn commit_other(&mut self, mut draft: Draft) -> Result<u32, PostError> {
        self.end(&mut draft)?;
        let count = draft.head.wrapping_sub(self.head);
        if count == 0 {
            let refused = Err(PostError::WrongState);
            return if self.accepting { Ok(0) } else { refused };
        }
        let fence = draft.state & state::FENCE_NEXT != 0;
        self.stop = if fence { draft.head } else { draft.stop };
        let position = Position {
            blocks: draft.next,
            head: draft.head,
            fence: if fence {
                CtrlFlags::SMALL_FENCE
            } else {
                CtrlFlags::NONE
            },
        };
        let last = self.last_before(draft.next, draft.ds, draft.state & state::INLINE != 0);
        self.announce(position, last);
        Ok(count)
    }

    /// Gives the open datagram its destination.
    #[inline]
    pub fn set_datagram(&self, draft: &mut Draft, to: &Destination<'_>) {
        let segment = to.av.to_qp(to.qpn, to.qkey);
        self.set_address(draft, QueueKind::Ud, units::<_, 3>(segment));
    }

    /// Gives the open request of a dynamically connected initiator its destination, and its stream if the queue pair has
    /// such.
    #[inline]
    pub fn set_dct(
        &self,
        draft: &mut Draft,
        av: &DatagramSegment,
        dctn: u32,
        access_key: u64,
        stream: u16,
    ) {
        let segment = av.to_dct(dctn, access_key);
        // SAFETY: the third word of the control segment of a block; only written to if `set_address` finds that it is open.
        let word = unsafe { self.ring.block(draft.blocks()).cast::<u8>().add(9) };
        if self.set_address(draft, QueueKind::Dci, units::<_, 3>(segment)) {
            // SAFETY: as above, in a free block.
            unsafe { word.cast::<[u8; 2]>().write(stream.to_be_bytes()) };
        }
    }

    /// Gives the open XRC request its remote shared receive queue.
    #[inline]
    pub fn set_srqn(&self, draft: &mut Draft, srqn: u32) {
        let segment = unit(XrcSegment::new(srqn));
        self.set_address(draft, QueueKind::XrcSend, [segment]);
    }

    /// Writes the transport's segment. Says whether the work request takes it.
    #[inline(always)]
    fn set_address<const N: usize>(
        &self,
        draft: &mut Draft,
        kind: QueueKind,
        segment: [Unit; N],
    ) -> bool {
        if draft.state & state::TAKES == 0 || kind != self.kind {
            draft.fail(PostError::Incomplete);
            return false;
        }
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        for unit in segment {
            // SAFETY: the rest of a free block: `open` saw room.
            unsafe { cursor.put_in_block(&self.ring, unit) };
        }
        draft.state &= !state::NEEDS_DESTINATION;
        true
    }

    /// # Safety
    ///
    /// As for [`set_sge`](Self::set_sge).
    #[inline(never)]
    pub(super) unsafe fn put_one(&self, mut draft: Draft, sge: Sge) -> After {
        // SAFETY: the caller's promise.
        let result = unsafe { self.put_elements(&mut draft, std::slice::from_ref(&sge)) };
        (draft, result)
    }

    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline(never)]
    pub(super) unsafe fn put_several(&self, mut draft: Draft, sges: &[Sge]) -> After {
        if sges.len() > self.limits.max_sge as usize {
            let error = draft.fail(PostError::TooManySges);
            return (draft, Err(error));
        }
        // SAFETY: the caller's promise.
        let result = unsafe { self.put_elements(&mut draft, sges) };
        (draft, result)
    }

    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    unsafe fn put_elements(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        let pieces = sges.iter().map(InlinePiece::of_sge);
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = unsafe { self.payload(draft, pieces) }?;
        match self.put_sges(&mut cursor, sges, consumed) {
            Ok(()) => {
                self.set_payload(draft, cursor, false);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// # Safety
    ///
    /// As for [`set_inline_list`](Self::set_inline_list).
    #[inline(never)]
    pub(super) unsafe fn put_list<I>(&self, draft: Draft, pieces: I) -> After
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        let fine = draft.error.is_none();
        // SAFETY: the caller's promise.
        let (mut draft, result) = unsafe { self.put_pieces(draft, pieces) };
        let long = result == Err(PostError::InlineTooLong);
        if long && fine && self.kind == QueueKind::RawPacket {
            draft.error = Some(PostError::PacketInlineTooLong);
            return (draft, Err(PostError::PacketInlineTooLong));
        }
        (draft, result)
    }

    /// # Safety
    ///
    /// As for [`set_inline_list`](Self::set_inline_list).
    #[inline(never)]
    pub(super) unsafe fn put_pieces<I>(&self, mut draft: Draft, pieces: I) -> After
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = match unsafe { self.payload(&mut draft, pieces.clone()) } {
            Ok(begun) => begun,
            Err(error) => return (draft, Err(error)),
        };
        let mut first = consumed.bytes;
        let pieces = pieces.skip(consumed.pieces).map(move |piece| {
            let skipped = std::mem::take(&mut first);
            InlinePiece {
                addr: piece.addr.wrapping_add(skipped),
                len: piece.len - skipped,
            }
        });
        // SAFETY: free blocks; the caller's promise.
        match unsafe { self.put_inline(&mut cursor, pieces) } {
            Ok(()) => {
                self.set_payload(&mut draft, cursor, true);
                (draft, Ok(()))
            }
            Err(error) => {
                let error = draft.fail(error);
                (draft, Err(error))
            }
        }
    }

    /// The payload is written.
    #[inline(always)]
    fn set_payload(&self, draft: &mut Draft, cursor: Cursor, inline: bool) {
        draft.set_ds(cursor.ds());
        let gone = state::NEEDS_PAYLOAD | state::INLINE | state::PENDING;
        draft.state = draft.state & !gone | state::if_so(inline, state::INLINE);
        self.settle(draft);
        self.write_ds(draft);
    }

    /// Where the payload goes, after a raw packet's header was taken from it.
    ///
    /// # Safety
    ///
    /// On raw packet queues, the pieces' first bytes are readable.
    unsafe fn payload<I>(
        &self,
        draft: &mut Draft,
        pieces: I,
    ) -> Result<(Cursor, Consumed), PostError>
    where
        I: Iterator<Item = InlinePiece>,
    {
        if draft.state & state::TAKES == 0 {
            return Err(draft.fail(PostError::Incomplete));
        }
        if draft.state & state::HEADER == 0 {
            let cursor = Cursor::at(draft.blocks(), draft.payload);
            return Ok((cursor, Consumed::default()));
        }
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        let checksums = draft.state & state::CHECKSUMS != 0;
        // SAFETY: behind the control segment of a free block; the caller's promise.
        let put = unsafe { self.put_eth(&mut cursor, checksums, pieces) };
        put.map(|consumed| (cursor, consumed))
            .map_err(|error| draft.fail(error))
    }

    /// Puts a work request into the batch that the program built itself, from the control segment on; its index is
    /// filled in. The program answers for what the device makes of it.
    pub fn raw(&self, draft: &mut Draft, wr_id: u64, wqe: &[u8]) -> Result<(), PostError> {
        // SAFETY: no headers are read.
        unsafe { self.open(draft, wr_id, SendFlags::NONE, &Operation::Nop) }?;
        draft.state &= state::NEEDS_SIGNATURE;
        let Ok((ctrl, _)) = CtrlSegment::read_from_prefix(wqe) else {
            return Err(draft.fail(PostError::Length));
        };
        let ds = u32::from(ctrl.ds());
        let length = ds as usize * DS_UNIT;
        if ds == 0 || ds > self.max_ds || length > wqe.len() {
            return Err(draft.fail(PostError::Length));
        }
        let cursor = Cursor::at(draft.blocks(), ds);
        // SAFETY: free blocks; the length was compared with the slice's and with the room.
        unsafe { self.ring.copy_in(cursor.first(), 0, wqe.as_ptr(), length) };
        let mut word = ctrl.opmod_idx_opcode;
        word.set_index(draft.blocks() as u16);
        self.remember(
            draft.blocks(),
            wr_id,
            draft.head,
            ctrl.opcode().0,
            WorkKind::Raw,
        );
        // SAFETY: the first four bytes of a free block.
        unsafe { self.ring.block(draft.blocks()).cast().write(word) };
        draft.set_ds(ds);
        Ok(())
    }
}

impl Draft {
    #[inline(always)]
    pub(super) fn set_ds(&mut self, ds: u32) {
        let blocks = self.blocks();
        self.ds = ds;
        self.next = blocks.wrapping_add((ds + 3) >> 2);
    }
}

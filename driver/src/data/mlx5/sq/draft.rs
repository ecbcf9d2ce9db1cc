//! Describing a batch step by step.

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DS_UNIT, DatagramSegment, XrcSegment};
use wqe_format::rxe::Sge;
use zerocopy::FromBytes;

use super::super::error::PostError;
use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, Unit, unit, units};
use super::operation::Operation;
use super::request::{Destination, InlinePiece, SendFlags};
use super::segments::Consumed;
use super::{Last, Position, SendQueue};

/// A batch in the making. It holds no borrow of its queue, since between libibverbs' `ibv_wr_start` and
/// `ibv_wr_complete` the program calls as it likes; use it with the queue that began it, and post nothing else meanwhile:
/// such a batch is refused.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// The queue's head when it was begun.
    begun: u32,
    /// At this `head` the queue may be full, or there was an error.
    stop: u32,
    /// Where the open work request is, or the next one will be: blocks in the lower half, work requests in the upper. A
    /// batch is stored after each step, so what changes together is one word.
    position: u64,
    /// From the lower bits: [`state`] (32), units of the open work request or the last one before the payload (16) and
    /// in all (16).
    progress: u64,
    /// The control segment's first eight bytes as a number, without the units.
    ctrl: u64,
    error: Option<PostError>,
}

/// What is known of the open work request, as bits.
pub(super) mod state {
    /// There is one.
    pub(in super::super) const OPEN: u32 = 1;
    /// It may have a payload and a destination.
    pub(in super::super) const TAKES: u32 = 1 << 1;
    /// It lacks a payload.
    pub(in super::super) const NEEDS_PAYLOAD: u32 = 1 << 2;
    /// It lacks a destination.
    pub(in super::super) const NEEDS_DESTINATION: u32 = 1 << 3;
    /// The packet's header goes into the Ethernet segment.
    pub(in super::super) const HEADER: u32 = 1 << 4;
    /// With checksums.
    pub(in super::super) const CHECKSUMS: u32 = 1 << 5;
    /// It has inline data.
    pub(in super::super) const INLINE: u32 = 1 << 6;
    /// The next one has a small fence.
    pub(in super::super) const FENCE_NEXT: u32 = 1 << 7;
    /// The open work request, or if there is none the next one, has a small fence if it asks for none.
    pub(in super::super) const FENCED: u32 = 1 << 8;

    /// `bit` if `condition`.
    #[inline(always)]
    pub(super) const fn if_so(condition: bool, bit: u32) -> u32 {
        if condition { bit } else { 0 }
    }
}

impl SendQueue {
    /// Begins a batch.
    #[inline]
    pub fn begin(&self) -> Draft {
        Draft {
            begun: self.head,
            stop: if self.accepting { self.stop } else { self.head },
            position: position(self.blocks, self.head),
            progress: state::if_so(self.fence != CtrlFlags::NONE, state::FENCED).into(),
            ctrl: 0,
            error: if self.accepting {
                None
            } else {
                Some(PostError::WrongState)
            },
        }
    }

    /// Begins a work request, and ends the one before; the `set_` functions complete it, in any order. An error is also
    /// kept in the draft.
    ///
    /// Inlined with a known operation, what depends on it is decided by the compiler.
    ///
    /// # Safety
    ///
    /// The headers of [`Operation::Tso`] are readable, if they are within the queue's limit.
    #[inline(always)]
    pub unsafe fn open(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<(), PostError> {
        if draft.is(state::OPEN) {
            self.close(draft);
        }
        if draft.head() == draft.stop || draft.begun != self.head {
            self.look_for_room_of(draft)?;
        }
        // SAFETY: the caller's promise; there is room.
        let it = match unsafe { self.describe(draft.blocks(), flags, operation) } {
            Ok(it) => it,
            Err(error) => return Err(draft.fail(error)),
        };
        let flags_byte = self.always.0 | flags.ctrl(draft.fence()).0;
        let segment = CtrlSegment::new(
            it.opcode,
            draft.blocks() as u16,
            self.qpn,
            0,
            CtrlFlags(flags_byte),
        )
        .with_opmod(it.opmod);
        draft.ctrl = u64::from_be(segment.doorbell());
        // SAFETY: behind the first eight bytes of a free block.
        let half = unsafe { self.ring.block(draft.blocks()).cast::<u64>().add(1) };
        match it.imm {
            // SAFETY: as above.
            Some(imm) => unsafe { half.write(unit(segment.with_imm(imm))[1]) },
            // Immediate data that is none is not the device's business, and libmlx5 leaves it as it was: only the first four
            // bytes, the lower ones of the value on the little-endian machines that we are built for.
            // SAFETY: as above.
            None => unsafe { half.cast::<u32>().write(unit(segment)[1] as u32) },
        }
        let head = draft.head().wrapping_add(1);
        self.remember(draft.blocks(), wr_id, head, it.opcode.0, it.kind);
        let state = state::OPEN
            | state::if_so(it.open, state::TAKES)
            | state::if_so(it.needs_payload, state::NEEDS_PAYLOAD)
            | state::if_so(it.open && self.transport != 0, state::NEEDS_DESTINATION)
            | state::if_so(it.header, state::HEADER)
            | state::if_so(
                it.header && flags.contains(SendFlags::IP_CSUM),
                state::CHECKSUMS,
            )
            | state::if_so(it.next_fence != CtrlFlags::NONE, state::FENCE_NEXT);
        draft.progress = progress(state, it.ds, it.ds);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn look_for_room_of(&self, draft: &mut Draft) -> Result<(), PostError> {
        if let Some(error) = draft.error {
            return Err(error);
        }
        if draft.begun != self.head {
            return Err(draft.fail(PostError::Incomplete));
        }
        match self.look_for_room(draft.head()) {
            Ok(stop) => {
                draft.stop = stop;
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
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
        if !draft.is(state::TAKES) || kind != self.kind {
            draft.fail(PostError::Incomplete);
            return false;
        }
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        for unit in segment {
            // SAFETY: the rest of a free block: `open` saw room.
            unsafe { cursor.put_in_block(&self.ring, unit) };
        }
        draft.progress &= !u64::from(state::NEEDS_DESTINATION);
        true
    }

    /// Gives the open work request one piece of local memory, in place of what was given before.
    ///
    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline(always)]
    pub unsafe fn set_sge(&self, draft: &mut Draft, sge: &Sge) -> Result<(), PostError> {
        if draft.state() & (state::TAKES | state::HEADER) != state::TAKES {
            // SAFETY: the caller's promise.
            return unsafe { self.put_list(draft, std::slice::from_ref(sge)) };
        }
        let mut cursor = Cursor::at(draft.blocks(), draft.payload());
        if cursor.ds() >= self.max_ds {
            return Err(draft.fail(PostError::TooManySges));
        }
        // SAFETY: free blocks, in which a work request of `max_ds` units has room.
        match unsafe { self.put_sge(&mut cursor, sge, sge.length) } {
            Ok(()) => {
                draft.set_payload(cursor, false);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// Gives the open work request its scatter/gather list, in place of what was given before.
    ///
    /// # Safety
    ///
    /// On a raw packet queue, the first 18 bytes of the packet are readable at the elements' addresses: its header is copied
    /// into the ring. Other queues read nothing.
    #[inline]
    pub unsafe fn set_sges(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        if sges.len() > self.limits.max_sge as usize {
            return Err(draft.fail(PostError::TooManySges));
        }
        // SAFETY: the caller's promise.
        unsafe { self.put_list(draft, sges) }
    }

    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    unsafe fn put_list(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        let pieces = sges.iter().map(InlinePiece::of_sge);
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = unsafe { self.payload(draft, pieces) }?;
        match self.put_sges(&mut cursor, sges, consumed) {
            Ok(()) => {
                draft.set_payload(cursor, false);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// Copies inline data into the open work request, in place of what was given before.
    ///
    /// # Safety
    ///
    /// The piece is readable, if it is within the limit.
    #[inline(always)]
    pub unsafe fn set_inline(
        &self,
        draft: &mut Draft,
        piece: InlinePiece,
    ) -> Result<(), PostError> {
        let short = piece.len.wrapping_sub(1) < self.max_short as usize;
        if short && draft.state() & (state::TAKES | state::HEADER) == state::TAKES {
            let mut cursor = Cursor::at(draft.blocks(), draft.payload());
            // SAFETY: free blocks, in which short data has room; the caller's promise.
            if unsafe { self.put_short(&mut cursor, piece) } {
                draft.set_payload(cursor, true);
                return Ok(());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.put_pieces(draft, std::iter::once(piece)) }
    }

    /// Copies inline data from several pieces into the open work request, in place of what was given before.
    ///
    /// # Safety
    ///
    /// Every piece is readable, if their sum is within the limit; a sum that is not is refused before anything is read but the
    /// header of a raw packet.
    #[inline]
    pub unsafe fn set_inline_list<I>(&self, draft: &mut Draft, pieces: I) -> Result<(), PostError>
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        let fine = draft.error.is_none();
        // SAFETY: the caller's promise.
        let put = unsafe { self.put_pieces(draft, pieces) };
        if put == Err(PostError::InlineTooLong) && fine && self.kind == QueueKind::RawPacket {
            draft.error = Some(PostError::PacketInlineTooLong);
            return Err(PostError::PacketInlineTooLong);
        }
        put
    }

    /// # Safety
    ///
    /// As for [`set_inline_list`](Self::set_inline_list).
    #[inline(never)]
    unsafe fn put_pieces<I>(&self, draft: &mut Draft, pieces: I) -> Result<(), PostError>
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = unsafe { self.payload(draft, pieces.clone()) }?;
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
                draft.set_payload(cursor, true);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
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
        if !draft.is(state::TAKES) {
            return Err(draft.fail(PostError::Incomplete));
        }
        if !draft.is(state::HEADER) {
            let cursor = Cursor::at(draft.blocks(), draft.payload());
            return Ok((cursor, Consumed::default()));
        }
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        let checksums = draft.is(state::CHECKSUMS);
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
        draft.progress = 0;
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
        let head = draft.head().wrapping_add(1);
        self.remember(draft.blocks(), wr_id, head, ctrl.opcode().0, WorkKind::Raw);
        draft.ctrl = u64::from(word.into_bits().get()) << 32
            | u64::from(ctrl.qpn_ds.into_bits().get() & !u32::from(CtrlSegment::MAX_DS));
        draft.progress = progress(state::OPEN, ds, ds);
        Ok(())
    }

    /// Ends the open work request; the next one goes behind it. One that lacks what its operation needs (a datagram's
    /// destination, an atomic's memory) is not taken, and the draft keeps the error.
    #[inline(always)]
    pub fn close(&self, draft: &mut Draft) {
        let wrong = state::NEEDS_PAYLOAD | state::NEEDS_DESTINATION;
        if draft.state() & (state::OPEN | wrong) != state::OPEN {
            draft.lack();
            return;
        }
        let (blocks, ds) = (draft.blocks(), draft.ds());
        self.put_first_half(blocks, draft.ctrl | u64::from(ds));
        if self.signature {
            self.sign(blocks, self.last_of(draft).ds);
        }
        draft.position = position(
            blocks.wrapping_add((ds + 3) >> 2),
            draft.head().wrapping_add(1),
        );
        let fence = state::if_so(draft.is(state::FENCE_NEXT), state::FENCED);
        let state = draft.state() & state::INLINE | fence;
        draft.progress = progress(state, draft.payload(), ds);
    }

    /// The open work request.
    #[inline(always)]
    fn last_of(&self, draft: &Draft) -> Last {
        let cursor = Cursor::at(draft.blocks(), draft.ds());
        self.last(&cursor, draft.is(state::INLINE))
    }

    /// Ends the batch: gives all of it to the device, or nothing if there was an error. Says how many work requests.
    ///
    /// # Errors
    ///
    /// The first of the batch.
    #[inline]
    pub fn commit(&mut self, draft: &mut Draft) -> Result<u32, PostError> {
        let mut last = self.last_of(draft);
        if draft.is(state::OPEN) {
            self.close(draft);
        } else {
            // Ended before: the last one lies behind where the next would be.
            let blocks = draft.blocks().wrapping_sub(last.blocks);
            last.ctrl = self.ring.block(blocks);
        }
        if draft.error.is_some() || draft.begun != self.head {
            return Err(draft.error.unwrap_or(PostError::Incomplete));
        }
        let count = draft.head().wrapping_sub(self.head);
        self.stop = if draft.is(state::FENCED) {
            draft.head()
        } else {
            draft.stop
        };
        if count != 0 {
            let position = Position {
                blocks: draft.blocks(),
                head: draft.head(),
                fence: draft.fence(),
            };
            self.announce(position, last);
        }
        Ok(count)
    }
}

/// See [`Draft::position`].
#[inline(always)]
pub(super) fn position(blocks: u32, head: u32) -> u64 {
    u64::from(head) << 32 | u64::from(blocks)
}

/// See [`Draft::progress`].
#[inline(always)]
pub(super) fn progress(state: u32, payload: u32, ds: u32) -> u64 {
    u64::from(ds) << 48 | u64::from(payload) << 32 | u64::from(state)
}

impl Draft {
    #[inline(always)]
    pub(super) fn blocks(&self) -> u32 {
        self.position as u32
    }

    #[inline(always)]
    pub(super) fn head(&self) -> u32 {
        (self.position >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn state(&self) -> u32 {
        self.progress as u32
    }

    /// Whether one of these bits is set.
    #[inline(always)]
    pub(super) fn is(&self, bits: u32) -> bool {
        self.progress as u32 & bits != 0
    }

    #[inline(always)]
    pub(super) fn payload(&self) -> u32 {
        (self.progress >> 32) as u16 as u32
    }

    #[inline(always)]
    pub(super) fn ds(&self) -> u32 {
        (self.progress >> 48) as u32
    }

    #[inline(always)]
    pub(super) fn stop(&self) -> u32 {
        self.stop
    }

    /// Begins anew, without fence.
    #[inline(always)]
    pub(super) fn begin(&mut self, head: u32, stop: u32, blocks: u32) {
        self.begun = head;
        self.stop = stop;
        self.position = position(blocks, head);
        self.progress = 0;
        self.error = None;
    }

    #[inline(always)]
    pub(super) fn first_half(&self) -> u64 {
        self.ctrl
    }

    /// Stores what a work request that is begun changes.
    #[inline(always)]
    pub(super) fn store(&mut self, position: u64, progress: u64, ctrl: u64) {
        self.position = position;
        self.progress = progress;
        self.ctrl = ctrl;
    }

    /// The flag of a work request that asks for no fence.
    #[inline(always)]
    fn fence(&self) -> CtrlFlags {
        if self.is(state::FENCED) {
            CtrlFlags::SMALL_FENCE
        } else {
            CtrlFlags::NONE
        }
    }

    /// The first error of the batch; work requests begun after it are refused with the same.
    #[inline]
    pub fn error(&self) -> Option<PostError> {
        self.error
    }

    #[inline(always)]
    fn set_payload(&mut self, cursor: Cursor, inline: bool) {
        self.put_payload(cursor.ds(), state::if_so(inline, state::INLINE));
    }

    /// The open work request has a payload now, up to a unit.
    #[inline(always)]
    pub(super) fn put_payload(&mut self, ds: u32, inline: u32) {
        let gone = u64::from(u16::MAX) << 48 | u64::from(state::NEEDS_PAYLOAD | state::INLINE);
        self.progress = self.progress & !gone | u64::from(ds) << 48 | u64::from(inline);
    }

    /// Makes the batch fail with an error that the caller found.
    pub fn refuse(&mut self, error: PostError) {
        self.fail(error);
    }

    /// Ends the open work request, if there is one, as one that lacks something.
    #[cold]
    #[inline(never)]
    fn lack(&mut self) {
        if self.is(state::OPEN) {
            self.fail(PostError::Incomplete);
        }
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: PostError) -> PostError {
        self.progress = 0;
        // The next work request meets the error there.
        self.stop = self.head();
        *self.error.get_or_insert(error)
    }
}

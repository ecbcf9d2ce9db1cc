//! Describing a batch step by step: the frequent ways.
//!
//! They take straight stores: a work request is complete in the ring at each step, so nothing has to be ended. Everything else
//! is in `steps`; its functions take drafts and give them back by value, so that a draft in a caller's variable stays in
//! registers.

use std::ptr::NonNull;

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DataSegment, InlineHeader, RaddrSegment};
use wqe_format::rxe::Sge;

use super::super::error::PostError;
use super::super::record::WorkKind;
use super::super::ring::{Unit, copy_short, unit};
use super::operation::Operation;
use super::request::{InlinePiece, SendFlags};
use super::segments::short_units;
use super::{Last, Position, SendQueue};

/// A batch in the making. It holds no borrow of its queue, since between libibverbs' `ibv_wr_start` and
/// `ibv_wr_complete` the program calls as it likes; use it with the queue that began it, and post nothing else meanwhile:
/// such a batch is refused.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Draft {
    /// The control segment's first eight bytes as a number, without the units.
    pub(super) ctrl: u64,
    /// The queue's head when it was begun.
    pub(super) begun: u32,
    /// Where the next work request will be. Numbers are as wide as they are read, so that none waits for a narrower store;
    /// and in an order in which the compiler does not copy two of the queue's at once, which were stored one by one.
    pub(super) next: u32,
    /// At this `head` the next work request takes the long way: the queue may be full, there was an error, or the last
    /// one lacks something or has a fence behind it.
    pub(super) stop: u32,
    /// Work requests posted with those of the batch.
    pub(super) head: u32,
    /// Where the last work request is.
    pub(super) blocks: u32,
    /// See [`state`].
    pub(super) state: u32,
    /// Units of the last work request: before the payload, and in all.
    pub(super) payload: u32,
    pub(super) ds: u32,
    pub(super) error: Option<PostError>,
}

/// What is known of the last work request, as bits.
pub(super) mod state {
    /// It may have a payload and a destination.
    pub(in super::super) const TAKES: u32 = 1;
    /// It lacks a payload.
    pub(in super::super) const NEEDS_PAYLOAD: u32 = 1 << 1;
    /// It lacks a destination.
    pub(in super::super) const NEEDS_DESTINATION: u32 = 1 << 2;
    /// It lacks a signature.
    pub(in super::super) const NEEDS_SIGNATURE: u32 = 1 << 3;
    /// The next one has a small fence.
    pub(in super::super) const FENCE_NEXT: u32 = 1 << 4;
    /// There was an error.
    pub(in super::super) const FAILED: u32 = 1 << 5;
    /// The packet's header goes into the Ethernet segment.
    pub(in super::super) const HEADER: u32 = 1 << 6;
    /// With checksums.
    pub(in super::super) const CHECKSUMS: u32 = 1 << 7;
    /// It has inline data.
    pub(in super::super) const INLINE: u32 = 1 << 8;
    /// It is a frequent one: its payload begins in its first block.
    pub(in super::super) const FREQUENT: u32 = 1 << 9;

    /// A frequent one that has no inline data.
    pub(in super::super) const READY: u32 = TAKES | FREQUENT;
    /// What the end of a batch has to look at.
    pub(in super::super) const LOOK: u32 =
        NEEDS_PAYLOAD | NEEDS_DESTINATION | NEEDS_SIGNATURE | FENCE_NEXT | FAILED;

    /// `bit` if `condition`.
    #[inline(always)]
    pub(in super::super) const fn if_so(condition: bool, bit: u32) -> u32 {
        if condition { bit } else { 0 }
    }
}

impl SendQueue {
    /// Begins a batch.
    #[inline(always)]
    pub fn begin(&self) -> Draft {
        Draft {
            begun: self.head,
            stop: self.stop,
            blocks: 0,
            next: self.blocks,
            head: self.head,
            state: 0,
            payload: 0,
            ds: 0,
            ctrl: 0,
            error: None,
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
        // SAFETY: nothing was posted meanwhile: the head is where it was.
        if draft.begun == self.head && unsafe { self.open_frequent(draft, wr_id, flags, operation) }
        {
            return Ok(());
        }
        let copied = *operation;
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.open_other(*draft, wr_id, flags, &copied) };
        // So the compiler need not prepare for the short steps on this way.
        // SAFETY: of what `open_any` begins, nothing is marked as a frequent one.
        unsafe { std::hint::assert_unchecked(after.state != state::READY) };
        *draft = after;
        result
    }

    /// As [`open`](Self::open), if it is a frequent one and nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// Nothing was posted to the queue since the batch was begun.
    #[inline(always)]
    pub unsafe fn open_frequent(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> bool {
        let Some(frequent) = operation.frequent() else {
            return false;
        };
        if self.frequent & frequent.class == 0 || draft.head == draft.stop {
            return false;
        }
        let blocks = draft.next;
        // What is given is used up one by one, so that few registers do.
        draft.head = draft.head.wrapping_add(1);
        self.remember(
            blocks,
            wr_id,
            draft.head,
            frequent.opcode.0,
            WorkKind::Plain,
        );
        let at = self.ring.block(blocks);
        let mut units = 1;
        if let Some(remote) = frequent.remote {
            let segment = unit(RaddrSegment::new(remote.addr, remote.rkey));
            // SAFETY: the second unit of a free block: there is room.
            unsafe { put(at, units, segment) };
            units += 1;
        }
        // SAFETY: the second half of the control segment.
        let half = unsafe { at.cast::<u64>().add(1) };
        let flags = u64::from(self.flag_words[flags.0 as usize & 7]);
        let imm = match frequent.imm {
            Some(imm) => imm.to_bytes(),
            // Immediate data that is none is not the device's business, and libmlx5 leaves it as it was; so do we, by one
            // whole store: the register may be about to get a copy, which would wait for a narrower one.
            None => {
                // SAFETY: the half's last four bytes.
                let at = unsafe { half.cast::<[u8; 4]>().add(1) };
                // SAFETY: in a free block; the device does not write there.
                unsafe { at.read() }
            }
        };
        // The first four bytes are the lower ones of the value on the little-endian machines that we are built for.
        let half_word = u64::from(u32::from_le_bytes(imm)) << 32 | flags;
        // SAFETY: in a free block.
        unsafe { half.write(half_word) };
        let segment =
            CtrlSegment::new(frequent.opcode, blocks as u16, self.qpn, 0, CtrlFlags::NONE);
        draft.ctrl = u64::from_be(segment.doorbell());
        self.put_first_half(at, draft.ctrl | u64::from(units));
        draft.blocks = blocks;
        draft.next = blocks.wrapping_add(1);
        draft.payload = units;
        draft.ds = units;
        draft.state = state::READY;
        true
    }

    /// Writes the first half of a control segment.
    #[inline(always)]
    pub(super) fn put_first_half(&self, at: NonNull<Unit>, half: u64) {
        // SAFETY: `at` comes from `SendRing::block`, of a block that is free.
        unsafe { at.cast::<u64>().write(half.to_be()) };
    }

    /// Gives the open work request one piece of local memory, in place of what was given before.
    ///
    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline(always)]
    pub unsafe fn set_sge(&self, draft: &mut Draft, sge: &Sge) -> Result<(), PostError> {
        if self.set_sge_frequent(draft, sge) {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.put_one(*draft, *sge) };
        *draft = after;
        result
    }

    /// As [`set_sge`](Self::set_sge), if nothing is unusual; says whether it did anything.
    #[inline(always)]
    pub fn set_sge_frequent(&self, draft: &mut Draft, sge: &Sge) -> bool {
        // Not of no bytes, and not with the mark of inline data.
        if draft.state != state::READY || (sge.length as i32) <= 0 {
            return false;
        }
        let at = self.ring.block(draft.blocks);
        let segment = unit(DataSegment::new(sge.addr, sge.length, sge.lkey));
        // SAFETY: the second or third unit of a free block.
        unsafe { put(at, draft.payload, segment) };
        draft.ds = draft.payload + 1;
        self.put_first_half(at, draft.ctrl | u64::from(draft.ds));
        true
    }

    /// Gives the open work request its scatter/gather list, in place of what was given before.
    ///
    /// # Safety
    ///
    /// On a raw packet queue, the first 18 bytes of the packet are readable at the elements' addresses: its header is copied
    /// into the ring. Other queues read nothing.
    #[inline(always)]
    pub unsafe fn set_sges(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        if let [sge] = sges
            && self.limits.max_sge != 0
        {
            // SAFETY: the caller's promise.
            return unsafe { self.set_sge(draft, sge) };
        }
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.put_several(*draft, sges) };
        *draft = after;
        result
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
        // SAFETY: the caller's promise.
        if unsafe { self.set_inline_frequent(draft, piece) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.put_pieces(*draft, std::iter::once(piece)) };
        *draft = after;
        result
    }

    /// As [`set_inline`](Self::set_inline), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// The piece is readable, if it is within the limit.
    #[inline(always)]
    pub unsafe fn set_inline_frequent(&self, draft: &mut Draft, piece: InlinePiece) -> bool {
        let short = piece.len.wrapping_sub(1) < self.max_short as usize;
        if !short || draft.state & !state::INLINE != state::READY {
            return false;
        }
        let at = self.ring.block(draft.blocks);
        // SAFETY: the second or third unit of the block.
        let header = unsafe { at.add(draft.payload as usize) };
        // SAFETY: within that unit.
        let data = unsafe { header.cast::<u8>().add(size_of::<InlineHeader>()) };
        if data.addr().get() + piece.len > self.ring.end().addr().get() {
            return false;
        }
        let length = piece.len as u32;
        // SAFETY: a unit of a free block.
        unsafe { header.cast().write(InlineHeader::of_length(length)) };
        // SAFETY: readable by the caller's promise, and up to the end of the ring there is room.
        unsafe { copy_short(piece.addr, data.as_ptr(), piece.len) };
        draft.ds = draft.payload + short_units(length);
        draft.next = draft.blocks.wrapping_add((draft.ds + 3) >> 2);
        draft.state = state::READY | state::INLINE;
        self.put_first_half(at, draft.ctrl | u64::from(draft.ds));
        true
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
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.put_list(*draft, pieces) };
        *draft = after;
        result
    }

    /// Ends the batch: gives all of it to the device, or nothing if there was an error. Says how many work requests.
    ///
    /// # Errors
    ///
    /// The first of the batch.
    #[inline(always)]
    pub fn commit(&mut self, draft: &mut Draft) -> Result<u32, PostError> {
        if draft.begun != self.head || !draft.is_usual() {
            return self.commit_other(*draft);
        }
        // SAFETY: nothing is promised.
        unsafe { self.give::<false>(draft) };
        Ok(draft.head.wrapping_sub(draft.begun))
    }

    /// As [`commit`](Self::commit), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// Nothing was posted to the queue since the batch was begun.
    #[inline(always)]
    pub unsafe fn commit_frequent(&mut self, draft: &Draft) -> bool {
        if !draft.is_usual() || !self.register.is_exclusive() {
            return false;
        }
        // SAFETY: looked at above.
        unsafe { self.give::<true>(draft) };
        true
    }

    /// # Safety
    ///
    /// With `EXCLUSIVE`, the register belongs to this queue.
    #[inline(always)]
    unsafe fn give<const EXCLUSIVE: bool>(&mut self, draft: &Draft) {
        self.stop = draft.stop;
        let last = self.last_of(draft);
        let position = Position {
            blocks: draft.next,
            head: draft.head,
            fence: CtrlFlags::NONE,
        };
        // SAFETY: the caller's promise.
        unsafe { self.announce_to::<EXCLUSIVE>(position, last) };
    }

    /// The last work request.
    #[inline(always)]
    pub(super) fn last_of(&self, draft: &Draft) -> Last {
        Last {
            ctrl: self.ring.block(draft.blocks),
            ds: draft.ds,
            blocks: draft.next.wrapping_sub(draft.blocks),
            inline: draft.state & state::INLINE != 0,
        }
    }
}

/// Writes a unit of a block.
///
/// # Safety
///
/// The block is free, and `place` is below four.
#[inline(always)]
unsafe fn put(block: NonNull<Unit>, place: u32, unit: Unit) {
    // SAFETY: within the block.
    let at = unsafe { block.add(place as usize) };
    // SAFETY: the caller's promise.
    unsafe { at.write(unit) };
}

impl Draft {
    /// The first error of the batch; work requests begun after it are refused with the same.
    #[inline]
    pub fn error(&self) -> Option<PostError> {
        self.error
    }

    /// Whether the end of the batch has nothing to look at, and there is something in it.
    #[inline(always)]
    fn is_usual(&self) -> bool {
        self.state & state::LOOK == 0 && self.head != self.begun
    }

    /// Makes the batch fail with an error that the caller found.
    pub fn refuse(&mut self, error: PostError) {
        self.fail(error);
    }

    #[inline(always)]
    pub(super) fn fail(&mut self, error: PostError) -> PostError {
        self.state = state::FAILED;
        // The next work request meets the error there.
        self.stop = self.head;
        *self.error.get_or_insert(error)
    }
}

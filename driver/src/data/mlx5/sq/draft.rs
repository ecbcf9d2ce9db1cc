//! Describing a batch step by step: the frequent ways.
//!
//! They take straight stores: a work request is complete in the ring at each step, so nothing has to be ended. Everything else
//! is in `steps`; its functions take drafts and give them back by value, so that a draft in a caller's variable stays in
//! registers.

use std::ptr::NonNull;

use wqe_format::mlx5::{CtrlFlags, DataSegment, InlineHeader, RaddrSegment};
use wqe_format::rxe::Sge;

use super::super::error::PostError;
use super::super::ring::{Unit, copy_short, unit};
use super::operation::Operation;
use super::request::{InlinePiece, SendFlags};
use super::segments::short_units_beyond_one;
use super::{BLOCK_UNITS, Last, SendQueue};

/// A batch in the making. It holds no borrow of its queue, since between libibverbs' `ibv_wr_start` and
/// `ibv_wr_complete` the program calls as it likes; use it with the queue that began it, and post nothing else meanwhile:
/// such a batch is refused.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Draft {
    /// The queue's head when it was begun.
    pub(super) begun: u32,
    /// Where the next work request will be. Numbers are as wide as they are read, so that none waits for a narrower store;
    /// and in an order in which the compiler does not copy two of the queue's at once, which were stored one by one.
    pub(super) next: u32,
    /// At this `head` the next work request takes the long way: the queue may be full, or there was an error.
    pub(super) stop: u32,
    /// Work requests posted with those of the batch.
    pub(super) head: u32,
    /// The last work request's control segment, for steps that may trust it.
    pub(super) at: NonNull<Unit>,
    /// See [`state`].
    pub(super) state: u32,
    /// Units of the last work request: before the payload, and in all.
    pub(super) payload: u32,
    pub(super) ds: u32,
    pub(super) error: Option<PostError>,
}

// SAFETY: the pointer is into a ring, which is the process's and not a thread's.
unsafe impl Send for Draft {}
// SAFETY: as above; through a shared reference nothing is written.
unsafe impl Sync for Draft {}

/// What is known of the last work request, as bits; and, in the upper half, which classes of operations may follow by the
/// frequent steps.
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
    /// It is a frequent one without its payload, which begins in its first block; its length has one unit for it already, as
    /// most take.
    pub(in super::super) const PENDING: u32 = 1 << 6;
    /// The packet's header goes into the Ethernet segment.
    pub(in super::super) const HEADER: u32 = 1 << 7;
    /// With checksums.
    pub(in super::super) const CHECKSUMS: u32 = 1 << 8;
    /// It has inline data.
    pub(in super::super) const INLINE: u32 = 1 << 9;

    /// Where the classes are.
    pub(in super::super) const CLASSES_SHIFT: u32 = 16;

    /// What the end of a batch has to look at; no frequent one follows either.
    pub(in super::super) const LOOK: u32 =
        NEEDS_PAYLOAD | NEEDS_DESTINATION | NEEDS_SIGNATURE | FENCE_NEXT | FAILED | PENDING;

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
            at: NonNull::dangling(),
            next: self.blocks,
            head: self.head,
            state: self.ready,
            payload: 0,
            ds: 0,
            error: None,
        }
    }

    /// Begins a batch in the place of another: as [`begin`](Self::begin), in fewer stores.
    #[inline(always)]
    pub fn begin_in(&self, draft: &mut Draft) {
        draft.begun = self.head;
        draft.next = self.blocks;
        draft.stop = self.stop;
        draft.head = self.head;
        // Nothing looks at the rest in this state.
        draft.state = self.ready;
        draft.error = None;
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
        unsafe { std::hint::assert_unchecked(after.state & state::PENDING == 0) };
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
        // The classes are there only if nothing has to be done about the last one.
        let class = u32::from(frequent.class) << state::CLASSES_SHIFT;
        if draft.state & class == 0 || draft.head == draft.stop {
            return false;
        }
        let blocks = draft.next;
        let block = blocks & self.ring.mask();
        // What is given is used up one by one, so that few registers do.
        draft.head = draft.head.wrapping_add(1);
        let rest = u64::from(frequent.opcode.0) << 32 | u64::from(draft.head);
        // SAFETY: there are as many records as blocks, and we have the record that they are in.
        unsafe { self.slots.set_plain(block, wr_id, rest) };
        let at = self.ring.block(block);
        let mut units = 1;
        if let Some(remote) = frequent.remote {
            let segment = unit(RaddrSegment::new(remote.addr, remote.rkey));
            // SAFETY: the second unit of a free block: there is room.
            unsafe { put(at, units, segment) };
            units += 1;
        }
        let mut second = self.second_words[flags.0 as usize & 7];
        // libmlx5 leaves immediate data that is none as it was, which is not the device's business: zero is one store, and the
        // register may be about to get a copy, which would wait for several.
        if let Some(imm) = frequent.imm {
            second |= u64::from(imm.get()).to_be();
        }
        // With the payload's unit.
        let ds = units + 1;
        let opcode = u64::from(frequent.opcode.0) << 32 | u64::from(ds);
        let first = u64::from(blocks as u16) << 40 | opcode | u64::from(self.qpn_word);
        // SAFETY: the first unit of a free block.
        unsafe { at.write([first.to_be(), second]) };
        draft.at = at;
        draft.next = blocks.wrapping_add(1);
        draft.payload = units;
        draft.ds = ds;
        draft.state = state::TAKES | state::PENDING;
        true
    }

    /// Gives the open work request one piece of local memory, in place of what was given before.
    ///
    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline(always)]
    pub unsafe fn set_sge(&self, draft: &mut Draft, sge: &Sge) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        if unsafe { self.set_sge_frequent(draft, sge) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (after, result) = unsafe { self.put_one(*draft, *sge) };
        *draft = after;
        result
    }

    /// As [`set_sge`](Self::set_sge), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// The draft is this queue's.
    #[inline(always)]
    pub unsafe fn set_sge_frequent(&self, draft: &mut Draft, sge: &Sge) -> bool {
        // Not of no bytes, and not with the mark of inline data.
        if draft.state & state::PENDING == 0 || (sge.length as i32) <= 0 {
            return false;
        }
        let segment = unit(DataSegment::new(sge.addr, sge.length, sge.lkey));
        // SAFETY: the second or third unit of a free block of this queue's ring.
        unsafe { put(draft.at, draft.payload, segment) };
        draft.state = self.done;
        true
    }

    /// Gives the open work request its scatter/gather list, in place of what was given before.
    ///
    /// # Safety
    ///
    /// The draft is this queue's. On a raw packet queue, the first 18 bytes of the packet are readable at the elements' addresses: its header is copied
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
    /// The draft is this queue's. The piece is readable, if it is within the limit.
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
    /// The draft is this queue's. The piece is readable, if it is within the limit.
    #[inline(always)]
    pub unsafe fn set_inline_frequent(&self, draft: &mut Draft, piece: InlinePiece) -> bool {
        let short = piece.len.wrapping_sub(1) < self.max_short as usize;
        if !short || draft.state & state::PENDING == 0 {
            return false;
        }
        let length = piece.len as u32;
        // Beyond the one that is counted.
        let more = short_units_beyond_one(length);
        let ds = draft.ds + more;
        let at = draft.at;
        // SAFETY: the end of the block.
        let behind = unsafe { at.add(BLOCK_UNITS as usize) };
        if ds > BLOCK_UNITS && behind == self.ring.end() {
            return false;
        }
        // SAFETY: the second or third unit of the block.
        let header = unsafe { at.add(draft.payload as usize) };
        // Whole, so that a copy into the register need not wait; the units are the word's last byte.
        let first = at.cast::<u64>();
        // SAFETY: written when it was begun.
        let word = unsafe { first.read() };
        // SAFETY: a word of a free block.
        unsafe { first.write(word.wrapping_add(u64::from(more).to_be())) };
        // SAFETY: a unit of a free block.
        unsafe { header.cast().write(InlineHeader::of_length(length)) };
        // SAFETY: within that unit.
        let data = unsafe { header.cast::<u8>().add(size_of::<InlineHeader>()) };
        // SAFETY: readable by the caller's promise. There is room: the block is not the last one of the ring, or the data does
        // not reach beyond it.
        unsafe { copy_short(piece.addr, data.as_ptr(), piece.len) };
        draft.ds = ds;
        // Its first block is counted.
        draft.next = draft.next.wrapping_add((ds - 1) >> 2);
        draft.state = self.done | state::INLINE;
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
        let ctrl = self.ring.block(draft.blocks());
        // SAFETY: of the register nothing is promised.
        unsafe { self.give::<false>(draft, ctrl) };
        Ok(draft.head.wrapping_sub(draft.begun))
    }

    /// As [`commit`](Self::commit), if nothing is unusual; says whether it did anything.
    ///
    /// # Safety
    ///
    /// The draft is this queue's. Nothing was posted to the queue since the batch was begun.
    #[inline(always)]
    pub unsafe fn commit_frequent(&mut self, draft: &Draft) -> bool {
        if !draft.is_usual() || !self.register.is_exclusive() {
            return false;
        }
        // SAFETY: looked at above.
        unsafe { self.give::<true>(draft, draft.at) };
        true
    }

    /// # Safety
    ///
    /// With `EXCLUSIVE`, the register belongs to this queue. The control segment is the last work request's.
    #[inline(always)]
    unsafe fn give<const EXCLUSIVE: bool>(&mut self, draft: &Draft, ctrl: NonNull<Unit>) {
        self.stop = draft.stop;
        self.fence = CtrlFlags::NONE;
        let last = Last {
            ctrl,
            ds: draft.ds,
            inline: draft.state & state::INLINE != 0,
        };
        let alone = draft.head.wrapping_sub(draft.begun) == 1;
        // SAFETY: the caller's promise.
        unsafe { self.announce_to::<EXCLUSIVE>(draft.next, draft.head, last, alone) };
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

    /// Whether the end of the batch has nothing to look at, and there is something in it; work requests that take nothing
    /// are not usual.
    #[inline(always)]
    fn is_usual(&self) -> bool {
        self.state & (state::LOOK | state::TAKES) == state::TAKES
    }

    /// Where the last work request is.
    #[inline(always)]
    pub(super) fn blocks(&self) -> u32 {
        self.next.wrapping_sub((self.ds + 3) >> 2)
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

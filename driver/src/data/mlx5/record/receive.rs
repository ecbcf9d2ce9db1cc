//! What is remembered of a ring's receive work requests, and how far it is complete.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::super::protocol::tail;

/// The ids of the work requests in a receive queue's entries.
#[derive(Clone, Copy, Debug)]
pub(in crate::data::mlx5) struct WrIds<'a> {
    start: NonNull<AtomicU64>,
    _shared: PhantomData<&'a [AtomicU64]>,
}

impl WrIds<'_> {
    /// As [`RecvShared::set_wr_id`].
    ///
    /// # Safety
    ///
    /// `entry` is below the number of entries.
    #[inline(always)]
    pub(in crate::data::mlx5) unsafe fn set(&self, entry: u32, wr_id: u64) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.start.add(entry as usize) };
        // SAFETY: one of the ids, which are borrowed.
        unsafe { slot.as_ref() }.store(wr_id, Ordering::Relaxed);
    }
}

/// The part of a receive queue (a queue pair's own, or a receive work queue) that its poller knows.
pub struct RecvShared {
    wr_ids: Box<[AtomicU64]>,
    /// Their number less one.
    mask: u32,
    tail: CachePadded<AtomicU32>,
    ring: NonNull<u8>,
    stride_shift: u32,
    signature: bool,
    null_lkey: u32,
}

// SAFETY: as for `SendShared`.
unsafe impl Send for RecvShared {}
// SAFETY: as for `SendShared`.
unsafe impl Sync for RecvShared {}

impl RecvShared {
    /// For a ring of `entries` of 2^`stride_shift` bytes. With `signature`, the first 16 bytes of an entry are none of
    /// its scatter list.
    ///
    /// # Panics
    ///
    /// If the number of entries is not a power of two up to 2^16, or the stride is not at least 16 bytes and below 64 KiB.
    pub fn new(
        ring: NonNull<u8>,
        entries: u32,
        stride_shift: u32,
        signature: bool,
        null_lkey: u32,
    ) -> Self {
        assert!(entries.is_power_of_two() && entries <= 1 << 16);
        assert!((4..16).contains(&stride_shift));
        Self {
            wr_ids: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            mask: entries - 1,
            tail: CachePadded::new(AtomicU32::new(0)),
            ring,
            stride_shift,
            signature,
            null_lkey,
        }
    }

    /// Start of the ring.
    #[inline]
    pub fn ring(&self) -> NonNull<u8> {
        self.ring
    }

    /// Entries in the ring: a power of two.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.wr_ids.len() as u32
    }

    /// An entry is 2 to the power of this many bytes.
    #[inline]
    pub fn stride_shift(&self) -> u32 {
        self.stride_shift
    }

    /// Whether an entry begins with 16 bytes of signature.
    #[inline]
    pub fn has_signature(&self) -> bool {
        self.signature
    }

    /// The key that data is not scattered to, if there is one.
    #[inline]
    pub fn null_lkey(&self) -> u32 {
        self.null_lkey
    }

    /// The ids, for a loop that keeps where they are in a register.
    #[inline(always)]
    pub(in crate::data::mlx5) fn wr_ids(&self) -> WrIds<'_> {
        WrIds {
            start: NonNull::from(&*self.wr_ids).cast(),
            _shared: PhantomData,
        }
    }

    #[inline]
    fn slot(&self, entry: u32) -> &AtomicU64 {
        let place = (entry & self.mask) as usize;
        // SAFETY: the mask is the length, a power of two, less one, so the masked index is below the length.
        unsafe { self.wr_ids.get_unchecked(place) }
    }

    /// The id of the work request in an entry; counters of more bits than the ring has are brought into its range.
    #[inline]
    pub fn wr_id(&self, entry: u32) -> u64 {
        self.slot(entry).load(Ordering::Relaxed)
    }

    /// Remembers the id of the work request in an entry.
    #[inline]
    pub fn set_wr_id(&self, entry: u32, wr_id: u64) {
        self.slot(entry).store(wr_id, Ordering::Relaxed);
    }

    /// Work requests that are complete, as the poster sees it.
    #[inline]
    pub fn tail(&self) -> u32 {
        tail::observe(&*self.tail)
    }

    /// Work requests that are complete, for the poller, who alone changes it.
    #[inline]
    pub fn own_tail(&self) -> u32 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Says that one more is complete. Only the poller of the queue's completions calls it. The poller does not look
    /// at the entry or its id after this.
    #[inline]
    pub fn complete_one(&self) {
        self.complete(1);
    }

    /// Says that so many more are complete.
    #[inline]
    pub fn complete(&self, count: u32) {
        tail::publish(&*self.tail, self.own_tail().wrapping_add(count));
    }

    /// Back to nothing posted, after the queue pair went to RESET and its completions were removed.
    pub fn reset(&self) {
        tail::publish(&*self.tail, 0);
    }

    /// As if so many had been posted and completed.
    #[cfg(test)]
    pub(in crate::data::mlx5) fn start_at(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
    }
}

impl fmt::Debug for RecvShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvShared")
            .field("entries", &self.wr_ids.len())
            .field("stride_shift", &self.stride_shift)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

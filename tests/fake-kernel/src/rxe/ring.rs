//! The kernel's side of a queue shared with the program (`uapi rdma/rdma_user_rxe.h`).
//!
//! Linux keeps its own copy of every index and size and masks what the program writes; so does this.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use oxverbs::sys::Errno;
use uverbs_abi::udata::rxe::MmapInfo;
use wqe_format::rxe::queue;

use crate::config::Lie;
use crate::raw::{self, PAGE};

/// A cache line: the least size of an entry (`rxe_queue_init`).
const CACHE_LINE: usize = 64;

/// Who advances the producer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Producer {
    Program,
    Kernel,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    len: usize,
    offset: u64,
    log2: u32,
    mask: u32,
    producer: Producer,
    /// The index that this side owns.
    own: u32,
}

// SAFETY: the mapping belongs to the process; all access goes through `&self` or `&mut self` of the
// value, and to words shared with the program by atomics.
unsafe impl Send for Ring {}

impl Ring {
    /// A queue of at least `entries` entries of at least `entry` bytes at `offset` of `fd`.
    pub(crate) fn new(
        fd: RawFd,
        offset: u64,
        entries: u32,
        entry: usize,
        producer: Producer,
    ) -> Result<Self, Errno> {
        let entry = entry.max(CACHE_LINE).next_power_of_two();
        let slots = (entries as usize + 1).next_power_of_two();
        let len = (queue::DATA + slots * entry).next_multiple_of(PAGE);
        let start = raw::map(fd, len, offset)?;
        let ring = Self {
            start,
            len,
            offset,
            log2: entry.trailing_zeros(),
            mask: slots as u32 - 1,
            producer,
            own: 0,
        };
        ring.word(queue::LOG2_ELEM_SIZE)
            .store(ring.log2, Ordering::Relaxed);
        ring.word(queue::INDEX_MASK)
            .store(ring.mask, Ordering::Release);
        Ok(ring)
    }

    /// Bytes of the mapping.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Entries that the queue holds when full.
    pub(crate) fn capacity(&self) -> u32 {
        self.mask
    }

    /// Where the program maps it.
    pub(crate) fn mmap_info(&self) -> MmapInfo {
        MmapInfo {
            offset: self.offset,
            size: self.len as u32,
            ..MmapInfo::default()
        }
    }

    /// Writes what a broken kernel would.
    pub(crate) fn lie(&self, lie: Lie) {
        match lie {
            Lie::Log2ElemSize(value) => {
                self.word(queue::LOG2_ELEM_SIZE)
                    .store(value, Ordering::Release);
            }
            Lie::IndexMask(value) => self.word(queue::INDEX_MASK).store(value, Ordering::Release),
            Lie::Producer(value) => {
                self.word(queue::PRODUCER_INDEX)
                    .store(value, Ordering::Release);
            }
            Lie::Consumer(value) => {
                self.word(queue::CONSUMER_INDEX)
                    .store(value, Ordering::Release);
            }
            Lie::QueueSize(_) | Lie::QueueOffset(_) | Lie::Handle(_) => {}
        }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the header's words lie inside the mapping, whose length is at least `queue::DATA`.
        let word = unsafe { self.start.add(at) };
        // SAFETY: aligned (a page start plus a multiple of 4), alive as long as `self`, and used only as
        // an atomic on both sides.
        unsafe { word.cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<u8> {
        let at = queue::DATA + (((index & self.mask) as usize) << self.log2);
        // SAFETY: `at` plus an entry's size is at most the mapping's length by construction.
        unsafe { self.start.add(at) }
    }

    /// Bytes of an entry.
    pub(crate) fn entry_len(&self) -> usize {
        1 << self.log2
    }

    /// Entries that wait for the consumer.
    pub(crate) fn used(&self) -> u32 {
        let (producer, consumer) = match self.producer {
            Producer::Program => (
                self.word(queue::PRODUCER_INDEX).load(Ordering::Acquire),
                self.own,
            ),
            Producer::Kernel => (
                self.own,
                self.word(queue::CONSUMER_INDEX).load(Ordering::Acquire),
            ),
        };
        producer.wrapping_sub(consumer) & self.mask
    }

    /// The oldest entry that the program produced.
    pub(crate) fn front(&self) -> Option<Vec<u8>> {
        if self.used() == 0 {
            return None;
        }
        let mut bytes = vec![0; self.entry_len()];
        // SAFETY: an entry lies inside the mapping and the buffer has its size; the program may write it
        // meanwhile, which a byte-wise copy out of raw memory survives as torn values.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.entry(self.own).as_ptr(),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        };
        Some(bytes)
    }

    /// Gives the oldest entry back to the program.
    pub(crate) fn advance(&mut self) {
        self.own = self.own.wrapping_add(1) & self.mask;
        self.word(queue::CONSUMER_INDEX)
            .store(self.own, Ordering::Release);
    }

    /// Adds an entry for the program; `false` if it does not fit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        if self.used() == self.mask || bytes.len() > self.entry_len() {
            return false;
        }
        let to = self.entry(self.own);
        // SAFETY: `bytes` is not longer than the entry, which lies inside the mapping; the program reads
        // it only after the producer index moved.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.own = self.own.wrapping_add(1) & self.mask;
        fence(Ordering::Release);
        self.word(queue::PRODUCER_INDEX)
            .store(self.own, Ordering::Release);
        true
    }

    /// Forgets all entries, as a queue pair's reset does.
    pub(crate) fn clear(&mut self) {
        self.own = 0;
        self.word(queue::PRODUCER_INDEX).store(0, Ordering::Release);
        self.word(queue::CONSUMER_INDEX).store(0, Ordering::Release);
    }

    /// Takes over the waiting entries of `old`, as a resize does.
    pub(crate) fn take_over(&mut self, old: &Self) {
        let used = old.used();
        let first = match old.producer {
            Producer::Program => old.own,
            Producer::Kernel => old.own.wrapping_sub(used),
        };
        for i in 0..used {
            let from = old.entry(first.wrapping_add(i));
            let len = old.entry_len().min(self.entry_len());
            // SAFETY: both entries lie inside their own mappings and have at least `len` bytes.
            unsafe { self.entry(i).copy_from_nonoverlapping(from, len) };
        }
        match self.producer {
            Producer::Kernel => self.own = used,
            Producer::Program => self.own = 0,
        }
        self.word(queue::PRODUCER_INDEX)
            .store(used, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this side's own mapping, which no one can reach after drop; the program has another.
        let _ = unsafe { raw::unmap(self.start.as_ptr().expose_provenance(), self.len) };
    }
}

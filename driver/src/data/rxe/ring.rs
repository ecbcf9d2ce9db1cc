//! A queue's memory: header words and entries.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use wqe_format::rxe::queue::{
    BadGeometry, CONSUMER_INDEX, Geometry, INDEX_MASK, LOG2_ELEM_SIZE, PRODUCER_INDEX,
};

use super::index::{observe, publish};
use crate::sys::mapping::SharedMapping;

/// A mapped queue whose size and entry size were checked against the mapping once, and are not read again.
///
/// The kernel side of the memory is not trusted: an index that it publishes is taken modulo the queue's size, and
/// entries are copied out before they are looked at.
#[derive(Debug)]
pub struct Ring {
    start: NonNull<u8>,
    geometry: Geometry,
    // keeps the memory mapped
    _mapping: SharedMapping,
}

// SAFETY: the memory belongs to the value through `_mapping`; nothing in it belongs to a thread. Not `Sync`: describing a work
// request writes to entries through `&SendQueue`, which two threads must not do at once.
unsafe impl Send for Ring {}
impl Ring {
    /// Takes over a mapping whose entries hold at least `least` bytes.
    ///
    /// # Errors
    ///
    /// The header does not fit the mapping.
    pub fn new(mapping: SharedMapping, least: usize) -> Result<Self, BadGeometry> {
        let len = mapping.len();
        // An unreadable header is refused before it is read.
        if len < wqe_format::rxe::queue::DATA {
            return Err(BadGeometry::NoHeader);
        }
        let start = mapping.start();
        let word = |offset| {
            // SAFETY: within the header, which the mapping holds, and 4-aligned in a page-aligned mapping (K1).
            let word = unsafe { header_word(start, offset) };
            word.load(Ordering::Relaxed)
        };
        let geometry = Geometry::check(word(LOG2_ELEM_SIZE), word(INDEX_MASK), len, least)?;
        Ok(Self {
            start,
            geometry,
            _mapping: mapping,
        })
    }

    /// Size and number of entries.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: callers pass header offsets; `new` saw that the mapping holds the header, and it lives as long as
        // `self`.
        unsafe { header_word(self.start, offset) }
    }

    /// The producer's index as the kernel published it; what it wrote before is visible.
    #[inline]
    pub fn producer(&self) -> u32 {
        observe(self.word(PRODUCER_INDEX), self.geometry.mask())
    }

    /// The consumer's index as the kernel published it; the entries before it are ours again.
    #[inline]
    pub fn consumer(&self) -> u32 {
        observe(self.word(CONSUMER_INDEX), self.geometry.mask())
    }

    /// Gives the entries before `index` to the kernel.
    #[inline]
    pub fn publish_producer(&self, index: u32) {
        publish(self.word(PRODUCER_INDEX), index);
    }

    /// Gives the entries before `index` back to the kernel.
    #[inline]
    pub fn publish_consumer(&self, index: u32) {
        publish(self.word(CONSUMER_INDEX), index);
    }

    /// Writes a value into an entry.
    ///
    /// # Panics
    ///
    /// If it does not fit into the entry, or `at` is not a multiple of 8.
    ///
    /// # Safety
    ///
    /// The entry with this index is the caller's: not published, and written by nobody else.
    #[inline]
    pub unsafe fn write<T: Copy>(&self, index: u32, at: usize, value: T) {
        assert!(at + size_of::<T>() <= self.geometry.elem_size() && at.is_multiple_of(8));
        const { assert!(align_of::<T>() <= 8) };
        // SAFETY: the offset is within the mapping: `Geometry` checked that all entries are.
        let place = unsafe { self.start.add(self.geometry.offset(index) + at) };
        // SAFETY: valid for writes as above; aligned to 8, since entries start at multiples of 8 in a page-aligned
        // mapping; the entry is the caller's.
        unsafe { place.cast::<T>().write(value) };
    }

    /// Copies bytes into an entry.
    ///
    /// # Panics
    ///
    /// If they do not fit into the entry.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write); `from` is readable for `len` bytes outside of the queue's memory.
    #[inline]
    pub unsafe fn copy_in(&self, index: u32, at: usize, from: *const u8, len: usize) {
        let room = self.geometry.elem_size();
        assert!(at <= room && len <= room - at);
        // SAFETY: within the mapping, as the assertion says.
        let place = unsafe { self.start.add(self.geometry.offset(index) + at) };
        // SAFETY: both ranges are valid and apart by the caller's promise; bytes have no alignment.
        unsafe { std::ptr::copy_nonoverlapping(from, place.as_ptr(), len) };
    }

    /// Copies a value out of an entry. The kernel may be writing to it, so any bytes may come.
    ///
    /// # Panics
    ///
    /// If the entry is shorter than the value, or `at` is not a multiple of 8.
    #[inline]
    pub fn read<T: Copy + zerocopy::FromBytes>(&self, index: u32, at: usize) -> T {
        assert!(at + size_of::<T>() <= self.geometry.elem_size() && at.is_multiple_of(8));
        const { assert!(align_of::<T>() <= 8) };
        // SAFETY: the offset is within the mapping: `Geometry` checked that all entries are.
        let place = unsafe { self.start.add(self.geometry.offset(index) + at) };
        // SAFETY: valid for reads as above, aligned as in `write`; volatile, since the kernel is outside of Rust's
        // memory model and may write meanwhile; any bytes are a `T`.
        unsafe { place.cast::<T>().read_volatile() }
    }
}

/// # Safety
///
/// `start` is the 4-aligned start of readable and writable memory of at least `offset + 4` bytes that stays valid for
/// `'a`; `offset` is a multiple of 4.
#[inline]
unsafe fn header_word<'a>(start: NonNull<u8>, offset: usize) -> &'a AtomicU32 {
    // SAFETY: in bounds by the caller's promise.
    let word = unsafe { start.add(offset) };
    // SAFETY: aligned and valid by the caller's promise; all accesses on our side are atomic, the kernel's are of 32
    // bits as well.
    unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
}

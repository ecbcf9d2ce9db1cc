//! Memory that a queue and the device share, seen from the device's side.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use wqe_format::mlx5::Cqe64;

/// Bytes of a send queue's block.
pub const BLOCK: usize = 64;

/// A range of shared memory. All accesses copy.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process; users take turns by themselves.
unsafe impl Send for Shared {}

impl Shared {
    /// The range.
    ///
    /// # Safety
    ///
    /// It stays mapped as long as the value is used, and no reference to it exists.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// Its first address.
    pub fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    /// Its pointer.
    pub fn pointer(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it.
    ///
    /// # Panics
    ///
    /// If it is not in it.
    pub fn part(&self, at: usize, len: usize) -> Self {
        assert!(at + len <= self.len, "{at}+{len} of {}", self.len);
        // SAFETY: in range by the assertion.
        let start = unsafe { self.start.add(at) };
        Self { start, len }
    }

    /// Fills it with one byte.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the constructor's promise.
        unsafe { self.start.write_bytes(byte, self.len) };
    }

    /// Appends a copy of it.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        let at = to.len();
        to.resize(at + self.len, 0);
        let target = to[at..].as_mut_ptr();
        // SAFETY: the constructor's promise; the target has room for it.
        unsafe { self.start.as_ptr().copy_to_nonoverlapping(target, self.len) };
    }

    /// A copy of it.
    pub fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    /// Writes bytes to its start.
    ///
    /// # Panics
    ///
    /// If they are more than it has.
    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: the constructor's promise and the assertion.
        unsafe {
            self.start
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// A big-endian word at an offset.
    ///
    /// # Panics
    ///
    /// If it is outside or not aligned.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be(self.atomic(at).load(Ordering::Acquire))
    }

    /// Writes a big-endian word at an offset.
    ///
    /// # Panics
    ///
    /// If it is outside or not aligned.
    pub fn set_word(&self, at: usize, value: u32) {
        self.atomic(at).store(value.to_be(), Ordering::Release);
    }

    /// Makes the cache line of an offset this processor's, as it is when the device has just written it.
    ///
    /// # Panics
    ///
    /// If it is outside or not aligned.
    pub fn take_line(&self, at: usize) {
        self.atomic(at).fetch_or(0, Ordering::AcqRel);
    }

    fn atomic(&self, at: usize) -> &AtomicU32 {
        let part = self.part(at, 4);
        assert!(part.address().is_multiple_of(4));
        // SAFETY: in range, aligned, and shared memory is only accessed by copies and atomics.
        unsafe { part.start.cast::<AtomicU32>().as_ref() }
    }
}

/// The device's end of a completion queue.
#[derive(Debug)]
pub struct CqWriter {
    ring: Shared,
    entries: u32,
    entry: usize,
    producer: u32,
}

impl CqWriter {
    /// For a ring of entries of 64 or 128 bytes, from its start.
    pub fn new(ring: Shared, entries: u32, entry: usize) -> Self {
        Self {
            ring,
            entries,
            entry,
            producer: 0,
        }
    }

    /// The ring.
    pub fn ring(&self) -> Shared {
        self.ring
    }

    /// Completions written so far.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// The slot that is next.
    pub fn slot(&self) -> Shared {
        let place = (self.producer & (self.entries - 1)) as usize;
        self.ring.part(place * self.entry, self.entry)
    }

    /// Writes one entry: what comes before the last 64 bytes of a long slot, the entry, then the owner.
    pub fn write(&mut self, before: &[u8], cqe: Cqe64) {
        let slot = self.slot();
        slot.write(before);
        let owner = self.producer & self.entries != 0;
        let bytes: [u8; 64] = zerocopy::transmute!(cqe);
        let cqe_part = slot.part(self.entry - BLOCK, BLOCK);
        cqe_part.write(&bytes[..63]);
        // As the device does, last the byte that gives it away.
        fence(Ordering::Release);
        let last = cqe.op_own.with_owner(owner).into_bits();
        cqe_part.part(63, 1).write(&[last]);
        self.producer = self.producer.wrapping_add(1);
    }
}

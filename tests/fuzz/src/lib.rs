//! What the fuzz targets share: rings on the heap with guards around them.

#![allow(missing_docs, reason = "for the targets beside it only")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Bytes of a guard before and behind.
const GUARD: usize = 4096;
const MARK: u8 = 0xa7;

/// Memory that tells whether anybody wrote beside it.
#[derive(Debug)]
pub struct Guarded {
    start: NonNull<u8>,
    len: usize,
}

impl Guarded {
    pub fn new(len: usize) -> Self {
        // SAFETY: not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(Self::layout(len)) }).expect("memory");
        let this = Self { start, len };
        for guard in this.guards() {
            // SAFETY: within the allocation.
            unsafe { guard.write_bytes(MARK, GUARD) };
        }
        this
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.next_multiple_of(GUARD) + 2 * GUARD, GUARD)
            .expect("a valid layout")
    }

    fn guards(&self) -> [NonNull<u8>; 2] {
        // SAFETY: within the allocation.
        [self.start, unsafe { self.start.add(GUARD + self.len) }]
    }

    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: within the allocation.
        unsafe { self.start.add(GUARD) }
    }

    /// Writes bytes over and over until the memory is full.
    pub fn fill(&self, bytes: &[u8]) {
        for i in 0..self.len {
            let byte = bytes.get(i % bytes.len().max(1)).copied().unwrap_or(0);
            // SAFETY: within the memory.
            unsafe { self.start().add(i).write(byte) };
        }
    }

    /// # Panics
    ///
    /// If a guard was written to.
    pub fn check(&self) {
        for guard in self.guards() {
            for i in 0..GUARD {
                // SAFETY: within the allocation.
                assert_eq!(
                    unsafe { guard.add(i).read() },
                    MARK,
                    "written beside a ring"
                );
            }
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

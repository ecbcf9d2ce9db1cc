//! What is left behind: heap bytes and descriptors of this process. A test program that has this module counts every
//! allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// Counts bytes that are allocated and not freed.
struct Counting;

/// Bytes that are allocated now.
pub(crate) static LIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's block, of this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

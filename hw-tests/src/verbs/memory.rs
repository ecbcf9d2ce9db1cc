//! The suite's own memory: page-aligned, between guard pages, and never behind a reference, since
//! the device writes to it.

use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use super::types::{Answer, Buf, Fault};

const PAGE: usize = 4096;

/// One allocation. Nothing frees it before the process ends: a case is one process, and a device
/// that writes late must hit memory, not someone else's.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the block is plain memory of the process; all accesses are volatile byte copies.
unsafe impl Send for Block {}

/// All allocations of a provider.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: Mutex<HashMap<u32, Block>>,
}

impl Memory {
    /// `len` zeroed bytes, which end on a page boundary's guard page and begin behind one. Pages are
    /// touched only when used, so that huge buffers cost address space alone.
    pub(crate) fn allocate(&self, len: u64) -> Answer<Buf> {
        let len = usize::try_from(len).map_err(|_| Fault::errno(libc::ENOMEM, "allocate"))?;
        let inner = len.max(1).next_multiple_of(PAGE);
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let all = unsafe {
            libc::mmap(
                ptr::null_mut(),
                inner + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if all == libc::MAP_FAILED {
            return Err(Fault::errno(libc::ENOMEM, "allocate test memory"));
        }
        let inner_start = all.wrapping_byte_add(PAGE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the mapping just made.
        if unsafe { libc::mprotect(inner_start, inner, protection) } != 0 {
            return Err(Fault::errno(libc::ENOMEM, "allocate test memory"));
        }
        let start = NonNull::new(inner_start.cast::<u8>()).expect("mmap does not answer null");
        let mut blocks = self.blocks.lock().expect("no panic under the lock");
        let id = blocks.len() as u32 + 1;
        blocks.insert(id, Block { start, len: inner });
        Ok(Buf {
            id,
            addr: start.as_ptr() as u64,
            len: len as u64,
        })
    }

    /// Address of `offset` after checking that `len` bytes lie inside the block.
    fn at(&self, buf: Buf, offset: u64, len: usize) -> Answer<*mut u8> {
        let blocks = self.blocks.lock().expect("no panic under the lock");
        let outside = || Fault::errno(libc::EFAULT, "touch test memory");
        let block = blocks.get(&buf.id).ok_or_else(outside)?;
        let offset = usize::try_from(offset).map_err(|_| outside())?;
        if offset.checked_add(len).is_none_or(|end| end > block.len) {
            return Err(outside());
        }
        Ok(block.start.as_ptr().wrapping_add(offset))
    }

    pub(crate) fn write(&self, buf: Buf, offset: u64, bytes: &[u8]) -> Answer<()> {
        let to = self.at(buf, offset, bytes.len())?;
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` checked that the whole range is inside a live block.
            unsafe { to.wrapping_add(i).write_volatile(*byte) };
        }
        Ok(())
    }

    pub(crate) fn read(&self, buf: Buf, offset: u64, len: u64) -> Answer<Vec<u8>> {
        let len = usize::try_from(len).map_err(|_| Fault::errno(libc::EFAULT, "read"))?;
        let from = self.at(buf, offset, len)?;
        let read = |i| {
            // SAFETY: `at` checked that the whole range is inside a live block.
            unsafe { from.wrapping_add(i).read_volatile() }
        };
        Ok((0..len).map(read).collect())
    }
}

/// Address of `len` bytes that are all the same 2 MiB, mapped again and again. Stays mapped.
pub(crate) fn repeated(len: u64) -> Option<u64> {
    const PIECE: usize = 2 << 20;
    let len = usize::try_from(len).ok()?;
    // SAFETY: a NUL-terminated name and no flags.
    let fd = unsafe { libc::memfd_create(c"hw-tests".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: an ordinary call on our own descriptor.
    if fd < 0 || unsafe { libc::ftruncate(fd, PIECE as libc::off_t) } != 0 {
        return None;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
    let all = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return None;
    }
    for at in (0..len).step_by(PIECE) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let place = all.wrapping_byte_add(at);
        // SAFETY: the range lies inside the mapping just made, which nothing else uses.
        let piece = unsafe { libc::mmap(place, PIECE, protection, flags, fd, 0) };
        if piece == libc::MAP_FAILED {
            return None;
        }
    }
    Some(all as u64)
}

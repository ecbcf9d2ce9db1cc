//! Pages of BAR 0 in this process' memory.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::control::vfio::pci::BarMapping;
use crate::sys::Errno;
use crate::sys::process::ProcessId;

/// Keeps a mapping, and ends it.
#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    len: usize,
    owner: ProcessId,
}

// SAFETY: the mapping belongs to the process, not to a thread; nothing but the drop uses the pointer.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.owner.is_current() {
            // SAFETY: the value owns the mapping, and whoever had its address gave it up with the value.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Maps `len` bytes at `offset` of the device's file.
pub(super) fn map(device: BorrowedFd<'_>, offset: u64, len: usize) -> Result<BarMapping, Errno> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno(libc::EOVERFLOW))?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of the process.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            protection,
            libc::MAP_SHARED,
            device.as_raw_fd(),
            offset,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    let mapped = Mapped {
        start: NonNull::new(start.cast()).ok_or(Errno(libc::ENOMEM))?,
        len,
        owner: ProcessId::current(),
    };
    // SAFETY: the range is the mapping just made; the advice only concerns later forks, whose children have no business
    // with the registers.
    if unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) } != 0 {
        return Err(Errno::last());
    }
    let start = mapped.start;
    // SAFETY: axiom V1: the bytes can be read and written until the mapping ends, which is when `mapped` is dropped.
    Ok(unsafe { BarMapping::new(start, len, Box::new(mapped)) })
}

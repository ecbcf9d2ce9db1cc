//! Memory shared with the kernel.

use std::ptr::NonNull;

use super::errno::Errno;
use super::fd::UverbsFd;
use super::kernel::KernelRef;
use super::process::ProcessId;

/// A shared mapping of a uverbs file descriptor.
///
/// The kernel writes to it at any time, so no reference to its bytes ever exists: users take the
/// pointer and the length, and check what they find there. It is kept out of forked children
/// (`MADV_DONTFORK`), and only the process that made it unmaps it.
#[derive(Debug)]
pub struct SharedMapping {
    start: NonNull<u8>,
    len: usize,
    kernel: KernelRef,
    owner: ProcessId,
}

// SAFETY: the mapping belongs to the process, not to a thread; the value gives out a raw pointer
// only, whose users prove their own accesses.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; no method reads or writes the memory.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes at `offset` of `fd`.
    pub fn map(fd: &UverbsFd, len: usize, offset: u64) -> Result<Self, Errno> {
        Self::of(fd, fd.mmap(len, offset)?, len)
    }

    /// [`map`](Self::map) of what may be read only: a store there ends the program.
    pub fn map_read_only(fd: &UverbsFd, len: usize, offset: u64) -> Result<Self, Errno> {
        Self::of(fd, fd.mmap_read_only(len, offset)?, len)
    }

    fn of(fd: &UverbsFd, start: NonNull<u8>, len: usize) -> Result<Self, Errno> {
        let kernel = fd.kernel().clone();
        let mapping = Self {
            start,
            len,
            kernel,
            owner: ProcessId::current(),
        };
        if matches!(mapping.kernel, KernelRef::Linux) {
            // SAFETY: the range is the mapping just made; the advice only concerns later forks.
            if unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
                return Err(Errno::last());
            }
        }
        Ok(mapping)
    }

    /// First byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes asked for; the kernel maps whole pages.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes, which the kernel refuses to map.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        match &self.kernel {
            // SAFETY: the value owns the mapping and nobody can reach it after drop.
            KernelRef::Linux => unsafe {
                libc::munmap(self.start.as_ptr().cast(), self.len);
            },
            KernelRef::Fake(fake) => {
                // SAFETY: address and length are those that the stand-in's `mmap` gave. It has
                // nobody to report an error to.
                let _ = unsafe { fake.munmap(self.start, self.len) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_shared_memory_of_a_file() {
        // SAFETY: a NUL-terminated name and no flags.
        let raw = unsafe { libc::memfd_create(c"shared".as_ptr(), 0) };
        let fd = UverbsFd::owned(KernelRef::Linux, raw);
        // SAFETY: an ordinary system call on our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(raw, 8192) }, 0);
        let one = SharedMapping::map(&fd, 4096, 4096).unwrap();
        let other = SharedMapping::map(&fd, 4096, 4096).unwrap();
        assert_eq!((one.len(), one.is_empty()), (4096, false));
        // SAFETY: the first byte of a mapping that is alive.
        unsafe { one.start().write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { other.start().read_volatile() }, 7);
    }

    #[test]
    fn an_unmappable_descriptor_says_so() {
        let null = UverbsFd::open(KernelRef::Linux, c"/dev/null").unwrap();
        assert_eq!(
            SharedMapping::map(&null, 4096, 0).unwrap_err(),
            Errno(libc::ENODEV)
        );
        assert_eq!(
            SharedMapping::map(&null, 4096, u64::MAX).unwrap_err(),
            Errno(libc::EOVERFLOW)
        );
    }
}

//! A uverbs file descriptor and the kernel that answers on it.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

use super::errno::Errno;
use super::kernel::KernelRef;
use super::process::ProcessId;

/// A file descriptor of the uverbs ABI: a device, a completion channel or an event file.
///
/// Owned ones are closed on drop, borrowed ones are left open (libibverbs closes its own command
/// descriptor). A forked child neither closes nor uses what its parent opened.
#[derive(Debug)]
pub struct UverbsFd {
    fd: RawFd,
    closes: bool,
    kernel: KernelRef,
    owner: ProcessId,
}

impl UverbsFd {
    /// Opens `path` read-write and close-on-exec.
    pub fn open(kernel: KernelRef, path: &CStr) -> Result<Self, Errno> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let fd = match &kernel {
            // SAFETY: `path` is a NUL-terminated string that outlives the call.
            KernelRef::Linux => check(unsafe { libc::open(path.as_ptr(), flags) })?,
            KernelRef::Fake(fake) => fake.open(path, flags)?,
        };
        Ok(Self::owned(kernel, fd))
    }

    /// Takes ownership of `fd`.
    pub fn owned(kernel: KernelRef, fd: RawFd) -> Self {
        Self {
            fd,
            closes: true,
            kernel,
            owner: ProcessId::current(),
        }
    }

    /// Uses `fd`, which someone else closes after this value is gone.
    pub fn borrowed(kernel: KernelRef, fd: RawFd) -> Self {
        Self {
            fd,
            closes: false,
            kernel,
            owner: ProcessId::current(),
        }
    }

    /// The kernel that answers on this descriptor.
    pub fn kernel(&self) -> &KernelRef {
        &self.kernel
    }

    /// Whether the calling process opened the descriptor, rather than inherited it by fork.
    #[inline]
    pub fn is_owned_by_this_process(&self) -> bool {
        self.owner.is_current()
    }

    /// Whether the descriptor closes with this value.
    pub fn is_owned(&self) -> bool {
        self.closes
    }

    /// `ioctl(2)`. The returned value is the kernel's, not negative.
    ///
    /// # Safety
    ///
    /// `arg` and every pointer inside it follow the rules of `request`.
    pub unsafe fn ioctl(&self, request: u64, arg: *mut u8) -> Result<i32, Errno> {
        match &self.kernel {
            // SAFETY: the caller vouches for `arg`.
            KernelRef::Linux => check(unsafe { libc::ioctl(self.fd, request as _, arg) }),
            // SAFETY: the caller vouches for `arg`.
            KernelRef::Fake(fake) => Ok(unsafe { fake.ioctl(self.fd, request, arg) }?),
        }
    }

    /// `write(2)`. Answers how many bytes the kernel took.
    ///
    /// # Safety
    ///
    /// A response pointer inside `bytes` is valid for the response's length.
    #[inline]
    pub unsafe fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.kernel {
            KernelRef::Linux => {
                // SAFETY: `bytes` is readable; the caller vouches for pointers inside it.
                check_len(unsafe { libc::write(self.fd, bytes.as_ptr().cast(), bytes.len()) })
            }
            // SAFETY: the caller vouches for pointers inside `bytes`.
            KernelRef::Fake(fake) => Ok(unsafe { fake.write(self.fd, bytes) }?),
        }
    }

    /// `read(2)` of event records. `EAGAIN` if the descriptor does not block and has none.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        match &self.kernel {
            KernelRef::Linux => {
                // SAFETY: `bytes` is writable for its whole length.
                check_len(unsafe { libc::read(self.fd, bytes.as_mut_ptr().cast(), bytes.len()) })
            }
            KernelRef::Fake(fake) => Ok(fake.read(self.fd, bytes)?),
        }
    }

    /// Maps `len` bytes at `offset` of the descriptor, shared and read-write.
    ///
    /// Prefer [`SharedMapping::map`](super::mapping::SharedMapping::map), which owns the mapping.
    pub fn mmap(&self, len: usize, offset: u64) -> Result<NonNull<u8>, Errno> {
        self.mmap_with(len, offset, true)
    }

    /// [`mmap`](Self::mmap) of what may be read only.
    pub fn mmap_read_only(&self, len: usize, offset: u64) -> Result<NonNull<u8>, Errno> {
        self.mmap_with(len, offset, false)
    }

    fn mmap_with(&self, len: usize, offset: u64, write: bool) -> Result<NonNull<u8>, Errno> {
        let KernelRef::Fake(fake) = &self.kernel else {
            let offset = offset.try_into().map_err(|_| Errno(libc::EOVERFLOW))?;
            let protection = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
            // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
            let address = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    self.fd,
                    offset,
                )
            };
            if address == libc::MAP_FAILED {
                return Err(Errno::last());
            }
            return NonNull::new(address.cast()).ok_or(Errno(libc::ENOMEM));
        };
        Ok(fake.mmap(self.fd, len, offset)?)
    }

    /// Sets or clears `O_NONBLOCK`, for event descriptors. A stand-in kernel's are real ones too.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<(), Errno> {
        // SAFETY: `F_GETFL` takes no argument.
        let flags = check(unsafe { libc::fcntl(self.fd, libc::F_GETFL) })?;
        let flags = if nonblocking {
            flags | libc::O_NONBLOCK
        } else {
            flags & !libc::O_NONBLOCK
        };
        // SAFETY: `F_SETFL` takes an integer.
        check(unsafe { libc::fcntl(self.fd, libc::F_SETFL, flags) })?;
        Ok(())
    }

    /// Closes an owned descriptor and tells what the kernel said; drop does the same in silence.
    /// In a forked child, and for a borrowed descriptor, nothing is closed.
    pub fn close(mut self) -> Result<(), Errno> {
        self.close_once()
    }

    /// Never repeated after `EINTR`: Linux has freed the number by then (`close(2)`).
    fn close_once(&mut self) -> Result<(), Errno> {
        if !std::mem::take(&mut self.closes) || !self.is_owned_by_this_process() {
            return Ok(());
        }
        match &self.kernel {
            // SAFETY: this value owns the descriptor, and `closes` is false from here on.
            KernelRef::Linux => check(unsafe { libc::close(self.fd) }).map(drop),
            KernelRef::Fake(fake) => Ok(fake.close(self.fd)?),
        }
    }
}

impl Drop for UverbsFd {
    fn drop(&mut self) {
        // A destructor has nobody to tell; `close` is for callers that want to know.
        let _ = self.close_once();
    }
}

impl AsRawFd for UverbsFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

#[inline]
fn check(result: i32) -> Result<i32, Errno> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

#[inline]
fn check_len(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: `F_GETFD` takes no argument and any number is allowed.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn owned_closes_and_borrowed_does_not() {
        let owned = UverbsFd::open(KernelRef::Linux, c"/dev/null").unwrap();
        let fd = owned.as_raw_fd();
        drop(UverbsFd::borrowed(KernelRef::Linux, fd));
        assert!(is_open(fd));
        owned.close().unwrap();
    }

    #[test]
    fn errors_are_the_kernels() {
        let missing = UverbsFd::open(KernelRef::Linux, c"/nonexistent/uverbs0").unwrap_err();
        assert_eq!(missing, Errno(libc::ENOENT));
        let null = UverbsFd::open(KernelRef::Linux, c"/dev/null").unwrap();
        // SAFETY: `/dev/null` knows no ioctl and reads no argument.
        let refused = unsafe { null.ioctl(0xc018_1b01, ptr::null_mut()) };
        assert_eq!(refused, Err(Errno(libc::ENOTTY)));
    }

    #[test]
    fn a_forked_child_does_not_close() {
        let owned = UverbsFd::open(KernelRef::Linux, c"/dev/null").unwrap();
        let fd = owned.as_raw_fd();
        // SAFETY: the child only closes, asks with fcntl and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(owned);
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!is_open(fd))) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call, `child` is our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        owned.close().unwrap();
    }
}

//! The kernel seam: every system call on a uverbs file descriptor goes through here.
//!
//! [`Kernel`] is what a test puts in place of Linux (`tests/fake-kernel`). [`KernelRef`] is how the
//! driver holds it: the real kernel is a variant without `dyn`, so that rxe's doorbell costs one
//! predictable branch and the system call.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// System calls on uverbs devices, answered by something other than Linux.
///
/// # Implementation safety
///
/// Buffers behind `arg` and `bytes` hold addresses in the caller's process, as they do for the real
/// kernel; an implementation reads and writes only what the uverbs ABI says of them.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// `open(2)` of a device node or of a completion or event file.
    fn open(&self, path: &CStr, flags: i32) -> io::Result<RawFd>;

    /// `ioctl(2)`.
    ///
    /// # Safety
    ///
    /// `arg` and every pointer inside it follow the rules of `request`.
    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut u8) -> io::Result<i32>;

    /// `write(2)`, the framing of commands on kernels without the ioctl and of rxe's doorbell.
    ///
    /// # Safety
    ///
    /// A response pointer inside `bytes` is valid for the response's length.
    unsafe fn write(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize>;

    /// `read(2)` of event records.
    fn read(&self, fd: RawFd, bytes: &mut [u8]) -> io::Result<usize>;

    /// Shared `mmap(2)` of `len` bytes at `offset` of `fd`, read-write or, where the program only reads,
    /// at least readable.
    fn mmap(&self, fd: RawFd, len: usize, offset: u64) -> io::Result<NonNull<u8>>;

    /// `munmap(2)` of a mapping made by [`Kernel::mmap`].
    ///
    /// # Safety
    ///
    /// `addr` and `len` are those of one mapping that nothing uses any more.
    unsafe fn munmap(&self, addr: NonNull<u8>, len: usize) -> io::Result<()>;

    /// `close(2)`.
    fn close(&self, fd: RawFd) -> io::Result<()>;
}

/// Which kernel answers.
#[derive(Clone, Debug, Default)]
pub enum KernelRef {
    /// Linux, by libc's functions (so that a preloaded library sees them).
    #[default]
    Linux,
    /// A stand-in for tests.
    Fake(Arc<dyn Kernel>),
}

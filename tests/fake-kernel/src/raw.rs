//! System calls as such, past libc's names: an interposing library defines those names itself, and would
//! otherwise call itself from here.

use std::os::fd::RawFd;
use std::ptr;

use oxverbs::sys::Errno;

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

/// Linux rounds mappings to pages.
pub(crate) const PAGE: usize = 4096;

/// A descriptor that this side owns.
#[derive(Debug)]
pub(crate) struct Owned(pub(crate) RawFd);

impl Drop for Owned {
    fn drop(&mut self) {
        close(self.0);
    }
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: closing a number touches no memory; the callers own the descriptor.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// A memory file of `len` bytes, sparse.
pub(crate) fn memory_file(len: i64, cloexec: bool) -> Result<RawFd, Errno> {
    let flags = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a NUL-terminated name.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_memfd_create, c"fake-uverbs".as_ptr(), flags) })?
            as RawFd;
    // SAFETY: an integer argument.
    if let Err(errno) = check(unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) }) {
        close(fd);
        return Err(errno);
    }
    Ok(fd)
}

/// A pipe: read end, write end; only the write end does not block.
pub(crate) fn pipe() -> Result<(RawFd, Owned), Errno> {
    let mut ends = [0_i32; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    let write_end = Owned(ends[1]);
    // SAFETY: integer arguments.
    unsafe { libc::syscall(libc::SYS_fcntl, ends[1], libc::F_SETFL, libc::O_NONBLOCK) };
    Ok((ends[0], write_end))
}

pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: `bytes` is readable for its length.
    let n = check(unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) })?;
    Ok(n as usize)
}

pub(crate) fn read(fd: RawFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `bytes` is writable for its length.
    let n = check(unsafe { libc::syscall(libc::SYS_read, fd, bytes.as_mut_ptr(), bytes.len()) })?;
    Ok(n as usize)
}

/// A second, non-blocking description of what `fd` refers to.
pub(crate) fn reopen_nonblocking(fd: RawFd) -> Result<Owned, Errno> {
    let path = format!("/proc/self/fd/{fd}\0");
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: `path` ends with a NUL and outlives the call.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) })?;
    Ok(Owned(fd as RawFd))
}

/// The file's inode number, which tells a descriptor number that was used again.
pub(crate) fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: zero bytes are a valid `statx`.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path with `AT_EMPTY_PATH` means the descriptor; `stat` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_INO,
            &raw mut stat,
        )
    };
    (result == 0).then_some(stat.stx_ino)
}

/// Whether nobody has the read end of the pipe whose write end is `fd` any more.
pub(crate) fn is_broken_pipe(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid entry, no waiting.
    let n = unsafe { libc::syscall(libc::SYS_poll, &raw mut poll, 1, 0) };
    n == 1 && poll.revents & libc::POLLERR != 0
}

/// Maps `len` bytes of `fd` shared and read-write.
pub(crate) fn map(fd: RawFd, len: usize, offset: u64) -> Result<ptr::NonNull<u8>, Errno> {
    map_with(fd, len, offset, true)
}

/// As [`map`], perhaps for reading only.
pub(crate) fn map_with(
    fd: RawFd,
    len: usize,
    offset: u64,
    writes: bool,
) -> Result<ptr::NonNull<u8>, Errno> {
    let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let address = check(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            ptr::null_mut::<u8>(),
            len,
            protection,
            libc::MAP_SHARED,
            fd,
            offset,
        )
    })?;
    ptr::NonNull::new(ptr::with_exposed_provenance_mut(address as usize)).ok_or(Errno(libc::ENOMEM))
}

/// A mapping of this side's.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: a range of the process's memory, reached by its address only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: RawFd, len: usize, offset: u64) -> Result<Self, Errno> {
        let start = map(fd, len, offset)?;
        Ok(Self { start, len })
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which no one can reach after drop.
        let _ = unsafe { unmap(self.start.as_ptr().expose_provenance(), self.len) };
    }
}

/// Unmaps.
///
/// # Safety
///
/// Nothing uses the range any more.
pub(crate) unsafe fn unmap(address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller vouches for the range.
    check(unsafe { libc::syscall(libc::SYS_munmap, address, len) }).map(drop)
}

/// Copies from the program's memory; `EFAULT` where it has none, never a signal.
pub(crate) fn copy_in(address: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    transfer(libc::SYS_process_vm_readv, address, bytes.as_mut_ptr(), len)?;
    Ok(bytes)
}

/// Copies to the program's memory.
///
/// Addresses come from requests, whose senders vouch for them (`Kernel::ioctl`, `Kernel::write`), and
/// from registered memory (K3).
pub(crate) fn copy_out(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    transfer(
        libc::SYS_process_vm_writev,
        address,
        bytes.as_ptr().cast_mut(),
        bytes.len(),
    )
}

fn transfer(call: libc::c_long, remote: u64, local: *mut u8, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    let local = libc::iovec {
        iov_base: local.cast(),
        iov_len: len,
    };
    let remote = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(remote as usize),
        iov_len: len,
    };
    // SAFETY: `local` is a buffer of the caller's of `len` bytes, written only by the reading call; the
    // remote side is checked by the kernel.
    let n = check(unsafe {
        libc::syscall(
            call,
            std::process::id(),
            &raw const local,
            1_usize,
            &raw const remote,
            1_usize,
            0_usize,
        )
    })?;
    if n as usize == len {
        Ok(())
    } else {
        Err(Errno(libc::EFAULT))
    }
}

//! Event counters, by which one thread or a device wakes another.

use std::os::fd::{FromRawFd, OwnedFd};

use super::errno::Errno;

/// A new counter at zero, close-on-exec, that does not block (`eventfd(2)`).
pub fn eventfd() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

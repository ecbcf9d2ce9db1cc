//! What a descriptor is ready for.

use std::os::fd::AsRawFd;

/// Whether a descriptor is in error, as a pipe is whose readers are gone (`poll(2)`, `POLLERR`).
pub fn has_error(fd: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one entry, which outlives the call; it does not wait.
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready > 0 && asked.revents & libc::POLLERR != 0
}

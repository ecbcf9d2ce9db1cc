//! Event counters, by which one thread or a device wakes another, and waiting for them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

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

/// Adds 1 to a counter.
pub fn signal(fd: impl AsFd) {
    let one = 1u64.to_ne_bytes();
    let fd = fd.as_fd().as_raw_fd();
    // A counter that is full wakes whoever waits too. SAFETY: 8 readable bytes.
    let _ = unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Sets a counter back to zero; answers whether it was not.
pub fn take(fd: impl AsFd) -> bool {
    let mut count = [0u8; 8];
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: 8 writable bytes.
    let len = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
    len == 8
}

/// Waits until one of `fds` can be read, a signal comes or the time is over.
pub fn wait(fds: &[BorrowedFd<'_>], time: Duration) {
    wait_for(fds.iter().map(AsRawFd::as_raw_fd), time);
}

/// As [`wait`], for descriptors that the caller knows by number; one that is not open can be read, as `poll(2)` has it.
pub fn wait_for(fds: impl IntoIterator<Item = RawFd>, time: Duration) {
    let mut polled: Vec<libc::pollfd> = fds
        .into_iter()
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let time = i32::try_from(time.as_millis().max(1)).unwrap_or(i32::MAX);
    let count = polled.len() as libc::nfds_t;
    // Whoever waits looks at everything afterwards, so it does not matter why this returned. SAFETY: as many elements as
    // said, which outlive the call.
    let _ = unsafe { libc::poll(polled.as_mut_ptr(), count, time) };
}

/// Keeps signals away from the calling thread: they are for the program's own threads.
pub fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: writes the set, whatever it was.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was just written; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_taken_once() {
        let fd = eventfd().unwrap();
        assert!(!take(&fd));
        signal(&fd);
        signal(&fd);
        wait(&[fd.as_fd()], Duration::from_secs(10));
        assert!(take(&fd));
        assert!(!take(&fd));
        wait(&[fd.as_fd()], Duration::from_millis(1));
    }
}

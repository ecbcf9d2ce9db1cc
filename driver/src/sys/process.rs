//! Which process this is, cheaply enough to ask on every post.
//!
//! A forked child inherits file descriptors and a copy of every object, but not ownership: it must
//! not close, unmap or post to what its parent still uses. `getpid` costs a system call, so the
//! answer is cached in a page that the kernel clears in a forked child (`MADV_WIPEONFORK`,
//! Linux 4.14; `madvise(2)`), which also covers children made by `clone` without libc.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Identity of a process, as remembered by the objects that it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId(u32);

/// Address of the page that a child finds zeroed. The page is never unmapped.
#[derive(Debug)]
struct WipedOnFork(NonNull<AtomicU32>);

// SAFETY: the page lives as long as the process and is accessed only as an atomic.
unsafe impl Send for WipedOnFork {}
// SAFETY: as above.
unsafe impl Sync for WipedOnFork {}

static PAGE: OnceLock<Option<WipedOnFork>> = OnceLock::new();

impl ProcessId {
    /// The calling process.
    #[inline]
    pub fn current() -> Self {
        let Some(page) = PAGE.get_or_init(WipedOnFork::new) else {
            return Self(std::process::id());
        };
        // SAFETY: the page holds an aligned `u32`, zero bytes are a valid one, and it stays mapped.
        let cached = unsafe { page.0.as_ref() };
        match cached.load(Ordering::Relaxed) {
            0 => {
                let id = std::process::id();
                cached.store(id, Ordering::Relaxed);
                Self(id)
            }
            id => Self(id),
        }
    }

    /// Whether the calling process is this one, not a forked child of it.
    #[inline]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

impl WipedOnFork {
    /// Maps the page; `None` where the kernel has no such advice, and the caller asks `getpid`.
    fn new() -> Option<Self> {
        // SAFETY: `sysconf` has no preconditions.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory.
        let page = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the range is the mapping just made, which nothing uses yet.
        if unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above; nothing else knows the address.
            unsafe { libc::munmap(page, len) };
            return None;
        }
        NonNull::new(page.cast()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_process_is_current() {
        let id = ProcessId::current();
        assert!(id.is_current());
        assert_eq!(id.0, std::process::id());
    }

    #[test]
    fn forked_child_is_another_process() {
        let parent = ProcessId::current();
        // SAFETY: the child calls only functions that are safe after fork in a threaded process:
        // loads, `getpid` and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let code = i32::from(parent.is_current());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call, `child` is our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert!(parent.is_current());
    }
}

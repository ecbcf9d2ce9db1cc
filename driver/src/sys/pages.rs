//! Whole pages of the process' own memory, for a device to read and write.

use std::fs;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use super::errno::Errno;
use super::process::ProcessId;

/// Bytes of the system's pages.
pub fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: `sysconf` has no preconditions.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size)
            .ok()
            .filter(|size| size.is_power_of_two())
            .unwrap_or(4096)
    })
}

/// Bytes of the system's huge pages, as far as programs get them without asking for a size.
pub fn huge_page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let read = || -> Option<usize> {
            let info = fs::read_to_string("/proc/meminfo").ok()?;
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("Hugepagesize:"))?;
            let kib: usize = line.split_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
                .filter(|size| size.is_power_of_two() && *size >= page_size())
        };
        read().unwrap_or(2 << 20)
    })
}

/// `EFAULT` unless the process has something at all these addresses, be it readable or not.
pub fn are_mapped(start: NonNull<u8>, len: usize) -> Result<(), Errno> {
    let bad = Errno(libc::EFAULT);
    let inside = start.addr().get() % page_size();
    let end = start.addr().get().checked_add(len).ok_or(bad)?;
    end.checked_next_multiple_of(page_size()).ok_or(bad)?;
    // Of a range that is mapped it does nothing (`msync(2)`: no write-back since Linux 2.6.19), of another it says `ENOMEM`.
    // SAFETY: the call reads and writes no memory of the process.
    let answer = unsafe {
        libc::msync(
            start.as_ptr().wrapping_sub(inside).cast(),
            inside + len,
            libc::MS_ASYNC,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(bad),
    }
}

/// Zeroed pages that a forked child does not get (`MADV_DONTFORK`), so that the child's writes never
/// make the kernel copy a page that the device still uses.
///
/// A device reads and writes them, so no reference to their bytes ever exists: users take the pointer
/// and prove their own accesses. Only the process that made them unmaps them.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
    owner: ProcessId,
}

// SAFETY: the mapping belongs to the process, not to a thread; the value gives out a raw pointer only,
// whose users prove their own accesses.
unsafe impl Send for Pages {}
// SAFETY: as above; no method reads or writes the memory.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes, in whole pages.
    pub fn new(len: usize) -> Result<Self, Errno> {
        Self::map(len, page_size(), 0)
    }

    /// At least `len` bytes, in whole huge pages. `ENOMEM` if the system has not enough of them.
    pub fn huge(len: usize) -> Result<Self, Errno> {
        Self::map(len, huge_page_size(), libc::MAP_HUGETLB)
    }

    fn map(len: usize, page: usize, flags: i32) -> Result<Self, Errno> {
        let len = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or(Errno(libc::ENOMEM))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let pages = Self {
            start: NonNull::new(start.cast()).ok_or(Errno(libc::ENOMEM))?,
            len,
            owner: ProcessId::current(),
        };
        // SAFETY: the range is the mapping just made; the advice only concerns later forks.
        if unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) } != 0 {
            return Err(Errno::last());
        }
        Ok(pages)
    }

    /// First byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: there is always a page.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.owner.is_current() {
            // SAFETY: the value owns the mapping and nobody can reach it after drop.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of `smaps` that tells the flags of the mapping at `start`.
    fn flags(start: NonNull<u8>) -> Option<String> {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let address = start.addr().get();
        let mut inside = false;
        for line in smaps.lines() {
            let range = line.split_whitespace().next().and_then(|range| {
                let (from, to) = range.split_once('-')?;
                let from = usize::from_str_radix(from, 16).ok()?;
                Some(from..usize::from_str_radix(to, 16).ok()?)
            });
            if let Some(range) = range {
                inside = range.contains(&address);
            } else if inside && line.starts_with("VmFlags:") {
                return Some(line.to_owned());
            }
        }
        None
    }

    #[test]
    fn what_is_not_mapped_is_told() {
        let pages = Pages::new(3 * page_size()).unwrap();
        let (start, len) = (pages.start(), pages.len());
        assert_eq!(are_mapped(start, len), Ok(()));
        // SAFETY: within the pages.
        let inside = unsafe { start.add(100) };
        assert_eq!(are_mapped(inside, len - 100), Ok(()));
        let low = NonNull::new(ptr::without_provenance_mut(0x1000)).unwrap();
        assert_eq!(are_mapped(low, 1), Err(Errno(libc::EFAULT)));
        assert_eq!(are_mapped(start, usize::MAX), Err(Errno(libc::EFAULT)));
    }

    /// B60: memory of queues is whole pages of its own, which a child does not get, and nothing of it
    /// is left afterwards.
    #[test]
    fn pages_are_whole_zeroed_and_not_inherited() {
        let pages = Pages::new(100).unwrap();
        assert_eq!(pages.len(), page_size());
        assert_eq!(pages.start().addr().get() % page_size(), 0);
        // `dc`: do not copy on fork
        assert!(flags(pages.start()).unwrap().contains(" dc"));
        for at in 0..pages.len() {
            // SAFETY: within the mapping, which nothing else uses.
            let byte = unsafe { pages.start().add(at) };
            // SAFETY: as above.
            assert_eq!(unsafe { byte.read_volatile() }, 0);
        }
    }

    #[test]
    fn huge_pages_or_an_error() {
        match Pages::huge(1) {
            Ok(pages) => assert_eq!(pages.len(), huge_page_size()),
            Err(errno) => assert_eq!(errno, Errno(libc::ENOMEM)),
        }
        assert_eq!(Pages::new(usize::MAX).unwrap_err(), Errno(libc::ENOMEM));
    }
}

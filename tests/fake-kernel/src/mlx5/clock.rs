//! The page by which programs turn timestamps into nanoseconds, and the register of the free-running clock.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use oxverbs::sys::Errno;
use uverbs_abi::udata::mlx5::ClockInfo;
use zerocopy::IntoBytes;

use super::uar::clock_file_offset;
use crate::raw::{self, PAGE};

/// Where in its page the clock's register is: `internal_timer_h` at 0x1000 of `struct mlx5_init_seg`, in pages of
/// 4 KiB.
pub(crate) const CORE_CLOCK_OFFSET: u64 = 0;

/// Shift and factor of 156.25 MHz: 6.4 ns a tick.
pub(crate) const SHIFT: u32 = 23;
/// As above.
pub(crate) const MULT: u32 = (6.4 * (1_u32 << SHIFT) as f64) as u32;

/// This side's mapping of both pages.
#[derive(Debug)]
pub(crate) struct Page {
    start: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, and only this value writes it, behind the state's lock.
unsafe impl Send for Page {}

impl Page {
    pub(crate) fn new(fd: RawFd) -> Result<Self, Errno> {
        let page = Self {
            start: raw::map(fd, 2 * PAGE, clock_file_offset())?,
        };
        page.write(&ClockInfo {
            sign: 2,
            nsec: 1_000_000_000,
            cycles: 1_000,
            mult: MULT,
            shift: SHIFT,
            mask: u64::MAX >> 1,
            overflow_period: 1 << 32,
            ..ClockInfo::default()
        });
        Ok(page)
    }

    /// Writes the shared struct.
    pub(crate) fn write(&self, info: &ClockInfo) {
        let bytes = info.as_bytes();
        // SAFETY: the page is larger than the struct; the program reads it by its sequence number.
        unsafe {
            self.start
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this side's own mapping, which no one can reach after drop.
        let _ = unsafe { raw::unmap(self.start.as_ptr().expose_provenance(), 2 * PAGE) };
    }
}

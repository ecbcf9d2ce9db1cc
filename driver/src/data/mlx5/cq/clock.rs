//! Device time to wall-clock time, with the page that the kernel keeps up to date.
//!
//! uapi `rdma/mlx5-abi.h`, `struct mlx5_ib_clock_info`: a sequence word that is odd while the kernel writes, then
//! the wall-clock time of a device time and the rate between the two.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Offsets in `struct mlx5_ib_clock_info`.
pub(crate) mod offset {
    pub(crate) const SIGN: usize = 0;
    pub(crate) const NSEC: usize = 8;
    pub(crate) const CYCLES: usize = 16;
    pub(crate) const FRAC: usize = 24;
    pub(crate) const MULT: usize = 32;
    pub(crate) const SHIFT: usize = 36;
    pub(crate) const MASK: usize = 40;
    pub(crate) const OVERFLOW_PERIOD: usize = 48;
}

/// `MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`.
const KERNEL_UPDATING: u32 = 1;
/// Looks at the sequence word before the page counts as busy (libmlx5 looks ten times).
const ATTEMPTS: u32 = 10;

/// The kernel is writing the clock page; nothing was consumed, ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockBusy;

impl fmt::Display for ClockBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel is updating the device's clock page; poll again")
    }
}

impl core::error::Error for ClockBusy {}

/// The kernel's clock page, mapped.
#[derive(Clone, Copy, Debug)]
pub struct ClockPage(NonNull<u8>);

// SAFETY: the page is only read, with atomics.
unsafe impl Send for ClockPage {}
// SAFETY: as above.
unsafe impl Sync for ClockPage {}

impl ClockPage {
    /// The page at `base`.
    ///
    /// # Safety
    ///
    /// `base` is aligned to 8, and at least 56 bytes stay readable there as long as this or a copy of it is used.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    fn word32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: inside the 56 bytes.
        let at = unsafe { self.0.add(offset) };
        // SAFETY: aligned and readable by `new`'s contract; the kernel writes it whole.
        let word = unsafe { AtomicU32::from_ptr(at.cast().as_ptr()) };
        word.load(order)
    }

    fn word64(&self, offset: usize) -> u64 {
        // SAFETY: inside the 56 bytes.
        let at = unsafe { self.0.add(offset) };
        // SAFETY: aligned and readable by `new`'s contract; the kernel writes it whole.
        let word = unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) };
        word.load(Ordering::Relaxed)
    }

    /// Nanoseconds after which a copy is too old; the kernel does not change it.
    pub fn overflow_period(&self) -> u64 {
        self.word64(offset::OVERFLOW_PERIOD)
    }

    /// A consistent copy.
    ///
    /// # Errors
    ///
    /// The kernel is writing, or wrote during each of several attempts.
    pub fn read(&self) -> Result<ClockInfo, ClockBusy> {
        for _ in 0..ATTEMPTS {
            let before = self.word32(offset::SIGN, Ordering::Acquire);
            if before & KERNEL_UPDATING != 0 {
                core::hint::spin_loop();
                continue;
            }
            let info = ClockInfo {
                nsec: self.word64(offset::NSEC),
                last_cycles: self.word64(offset::CYCLES),
                frac: self.word64(offset::FRAC),
                mult: self.word32(offset::MULT, Ordering::Relaxed),
                shift: self.word32(offset::SHIFT, Ordering::Relaxed),
                mask: self.word64(offset::MASK),
            };
            // What was read above is read before the sequence word is looked at again.
            fence(Ordering::Acquire);
            if self.word32(offset::SIGN, Ordering::Relaxed) == before {
                return Ok(info);
            }
        }
        Err(ClockBusy)
    }
}

/// How device time relates to wall-clock time (mlx5dv.h `struct mlx5dv_clock_info`, in its order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClockInfo {
    /// Wall-clock time in ns at `last_cycles`.
    pub nsec: u64,
    /// A device time.
    pub last_cycles: u64,
    /// Fraction of a nanosecond at `last_cycles`, scaled by 2^`shift`.
    pub frac: u64,
    /// Nanoseconds per cycle, scaled by 2^`shift`.
    pub mult: u32,
    /// See `mult`.
    pub shift: u32,
    /// The bits that the device's counter has.
    pub mask: u64,
}

impl ClockInfo {
    /// The wall-clock time in ns of a device time, which may lie half the counter's range before or after
    /// `last_cycles` (mlx5dv.h `mlx5dv_ts_to_ns`).
    #[inline]
    pub const fn to_ns(&self, device_time: u64) -> u64 {
        let after = device_time.wrapping_sub(self.last_cycles) & self.mask;
        let mult = self.mult as u64;
        if after > self.mask / 2 {
            let before = self.last_cycles.wrapping_sub(device_time) & self.mask;
            let scaled = before.wrapping_mul(mult).wrapping_sub(self.frac);
            self.nsec.wrapping_sub(scaled.wrapping_shr(self.shift))
        } else {
            let scaled = after.wrapping_mul(mult).wrapping_add(self.frac);
            self.nsec.wrapping_add(scaled.wrapping_shr(self.shift))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(8))]
    struct Page([u8; 64]);

    fn page(sign: u32) -> Page {
        let mut page = Page([0; 64]);
        page.0[0..4].copy_from_slice(&sign.to_ne_bytes());
        page.0[8..16].copy_from_slice(&1_000_000u64.to_ne_bytes());
        page.0[16..24].copy_from_slice(&500u64.to_ne_bytes());
        page.0[24..32].copy_from_slice(&6u64.to_ne_bytes());
        page.0[32..36].copy_from_slice(&(5u32 << 3).to_ne_bytes());
        page.0[36..40].copy_from_slice(&3u32.to_ne_bytes());
        page.0[40..48].copy_from_slice(&0xffff_ffffu64.to_ne_bytes());
        page
    }

    fn read(page: &mut Page) -> Result<ClockInfo, ClockBusy> {
        let base = NonNull::from(&mut page.0).cast();
        // SAFETY: 64 bytes, aligned to 8, that live through the call.
        unsafe { ClockPage::new(base) }.read()
    }

    /// B46: an odd sequence word is busy, not an endless loop; an even one is read.
    #[test]
    fn odd_is_busy() {
        assert_eq!(read(&mut page(7)), Err(ClockBusy));
        assert_eq!(read(&mut page(8)).unwrap().nsec, 1_000_000);
    }

    /// 5 ns per cycle, and a fraction that carries: times after, at and before the page's, and around the counter's wrap.
    #[test]
    fn time_runs_both_ways_and_wraps() {
        let info = read(&mut page(0)).unwrap();
        assert_eq!(info.to_ns(500), 1_000_000, "6/8 ns is cut off");
        assert_eq!(info.to_ns(600), 1_000_500);
        // (100 * 40 - 6) >> 3 = 499.
        assert_eq!(info.to_ns(400), 1_000_000 - 499);
        // 600 cycles before, across zero: (600 * 40 - 6) >> 3 = 2999.
        assert_eq!(info.to_ns(0xffff_ff9c), 1_000_000 - 2999);
    }
}

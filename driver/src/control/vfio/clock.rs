//! The page that turns the device's time into the system's, which the kernel's driver keeps for programs
//! (uapi `rdma/mlx5-abi.h`, `struct mlx5_ib_clock_info`).
//!
//! It begins with the system's time and goes on by the device's clock, as the kernel's does: times never go backwards, and
//! drift from the system's as the device's clock does.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::pci::Pci;
use super::segment;
use crate::data::mlx5::cq::clock_offset as offset;
use crate::sys::errno::Errno;
use crate::sys::pages::Pages;

/// Bytes of the page.
const PAGE: usize = 4096;
/// Nanoseconds of a cycle are scaled so that they have at most so many bits: their product with the cycles of minutes fits.
const MULT_BITS: u32 = 27;
/// The bits of the device's counter that count (Linux `CLOCKSOURCE_MASK(41)` of `lib/clock.c`).
const MASK: u64 = (1 << 41) - 1;

/// The page, and what the next time is counted from.
#[derive(Debug)]
pub struct Clock {
    page: Pages,
    rate: Rate,
    last: Mutex<Last>,
}

/// Nanoseconds of a cycle: `mult` / 2^`shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    mult: u32,
    shift: u32,
}

impl Rate {
    /// Of a clock of so many kHz; none of one that stands.
    fn of(khz: u32) -> Option<Self> {
        let nanoseconds = |shift: u32| (1_000_000u64 << shift).checked_div(khz.into());
        // a frequency that fits 32 bits of kHz, and a million with 20 bits: up to 43 more
        let fits = |shift: &u32| {
            nanoseconds(*shift).is_some_and(|mult| (1..1 << MULT_BITS).contains(&mult))
        };
        let shift = (0..=31).rev().find(fits)?;
        let mult = u32::try_from(nanoseconds(shift)?).ok()?;
        Some(Self { mult, shift })
    }

    /// Cycles after which products do not fit any more.
    fn longest(self) -> u64 {
        (u64::MAX >> 1) / u64::from(self.mult)
    }

    fn nanoseconds(self, cycles: u64) -> u64 {
        ((u128::from(cycles) * u128::from(self.mult)) >> self.shift) as u64
    }
}

/// A time of the device's, and the system's that belongs to it.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    cycles: u64,
    nanoseconds: u64,
    /// Of a nanosecond, scaled.
    fraction: u64,
}

/// Looks at both clocks, of which that counts in which the system's went on least.
const LOOKS: u32 = 16;

impl Last {
    /// The present.
    fn now(pci: &dyn Pci) -> Result<Self, Errno> {
        let mut best = (u128::MAX, Self::default());
        for _ in 0..LOOKS {
            let before = since_epoch();
            let cycles = segment::timer(pci)? & MASK;
            let passed = since_epoch().saturating_sub(before);
            if passed < best.0 {
                let middle = Self {
                    cycles,
                    nanoseconds: (before + passed / 2) as u64,
                    fraction: 0,
                };
                best = (passed, middle);
            }
        }
        Ok(best.1)
    }
}

/// The system's time in nanoseconds.
fn since_epoch() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos())
}

impl Clock {
    /// A page for a clock of so many kHz; none of a device that has no clock.
    pub(super) fn new(pci: &dyn Pci, khz: u32) -> Result<Option<Self>, Errno> {
        let Some(rate) = Rate::of(khz) else {
            return Ok(None);
        };
        let clock = Self {
            page: Pages::new(PAGE)?,
            rate,
            last: Mutex::new(Last::now(pci)?),
        };
        clock.store_constants();
        clock.refresh(pci);
        Ok(Some(clock))
    }

    /// Where it is.
    pub fn start(&self) -> NonNull<u8> {
        self.page.start()
    }

    /// Goes on to the present. Has to be called before the counter has gone half around.
    pub(super) fn refresh(&self, pci: &dyn Pci) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(now) = segment::timer(pci) else {
            // The device is gone, and its times with it.
            return;
        };
        let now = now & MASK;
        let passed = u128::from(now.wrapping_sub(last.cycles) & MASK);
        let scaled = passed * u128::from(self.rate.mult) + u128::from(last.fraction);
        *last = Last {
            cycles: now,
            nanoseconds: last.nanoseconds + (scaled >> self.rate.shift) as u64,
            fraction: (scaled & ((1 << self.rate.shift) - 1)) as u64,
        };
        self.store(&last);
    }

    fn store_constants(&self) {
        let Rate { mult, shift } = self.rate;
        self.word32(offset::MULT).store(mult, Ordering::Relaxed);
        self.word32(offset::SHIFT).store(shift, Ordering::Relaxed);
        self.word64(offset::MASK).store(MASK, Ordering::Relaxed);
        let longest = self.rate.nanoseconds(self.rate.longest().min(MASK / 2));
        self.word64(offset::OVERFLOW_PERIOD)
            .store(longest, Ordering::Relaxed);
    }

    /// Writes a time, with an odd sequence word meanwhile.
    fn store(&self, last: &Last) {
        let sign = self.word32(offset::SIGN);
        let before = sign.load(Ordering::Relaxed);
        sign.store(before | 1, Ordering::Relaxed);
        // Who reads what follows reads the odd word too.
        fence(Ordering::Release);
        self.word64(offset::CYCLES)
            .store(last.cycles, Ordering::Relaxed);
        self.word64(offset::NSEC)
            .store(last.nanoseconds, Ordering::Relaxed);
        self.word64(offset::FRAC)
            .store(last.fraction, Ordering::Relaxed);
        sign.store(before.wrapping_add(2) & !1, Ordering::Release);
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the offsets lie in the page's first 56 bytes.
        let word = unsafe { self.page.start().add(at) };
        // SAFETY: aligned as in the structure; the page lives as long as `self`, and is only reached by atomics.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above.
        let word = unsafe { self.page.start().add(at) };
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_clocks() {
        for khz in [1, 1_000, 156_250, 1_000_000] {
            let rate = Rate::of(khz).unwrap();
            // a second
            let nanoseconds = rate.nanoseconds(u64::from(khz) * 1000);
            let off = nanoseconds.abs_diff(1_000_000_000);
            assert!(off <= 20, "{khz} kHz: {nanoseconds} ns");
            assert!(
                rate.longest() > u64::from(khz) * 1000,
                "{khz} kHz: {rate:?}"
            );
        }
        assert_eq!(Rate::of(0), None);
    }
}

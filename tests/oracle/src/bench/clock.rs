//! The processor's time-stamp counter, in nanoseconds.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::time::{Duration, Instant};

/// Ticks now; nothing before it is still under way, nothing after it has begun.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    // SAFETY: reads a counter.
    let now = unsafe { _rdtsc() };
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    now
}

/// Nanoseconds of one tick, measured against the monotonic clock.
pub fn nanoseconds_per_tick() -> f64 {
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let (elapsed, last) = (start.elapsed(), ticks());
    elapsed.as_nanos() as f64 / (last - first) as f64
}

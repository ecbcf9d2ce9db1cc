//! A lock for what posters and pollers, or queues of one register, must share.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::Backoff;

use super::protocol::{try_lock, unlock};

/// A spin lock: what it guards takes tens of nanoseconds, and no holder sleeps. It can be disabled for programs
/// that promise that there is one thread at a time, and then only says when the promise is broken.
#[derive(Debug)]
pub(super) struct SpinLock {
    held: AtomicBool,
    enabled: bool,
}

impl SpinLock {
    pub(super) const fn new(enabled: bool) -> Self {
        Self {
            held: AtomicBool::new(false),
            enabled,
        }
    }

    /// Takes the lock until the guard is dropped.
    ///
    /// # Panics
    ///
    /// If it is disabled and held: the program broke its promise, or came back here from a call of ours.
    #[inline]
    pub(super) fn lock(&self) -> Held<'_> {
        if self.enabled {
            if !try_lock(&self.held) {
                self.wait();
            }
        } else {
            if self.held.load(Ordering::Relaxed) {
                entered_twice();
            }
            self.held.store(true, Ordering::Relaxed);
        }
        Held(&self.held)
    }

    #[cold]
    fn wait(&self) {
        let backoff = Backoff::new();
        loop {
            while self.held.load(Ordering::Relaxed) {
                // Spins first, then yields: the holder may not be running.
                backoff.snooze();
            }
            if try_lock(&self.held) {
                return;
            }
        }
    }
}

#[cold]
fn entered_twice() -> ! {
    panic!("a queue that was made for one thread at a time is used by two, or from within itself");
}

/// Unlocks when it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        unlock(self.0);
    }
}

//! The locks that libibverbs promises to C programs: one per queue, held for a few stores.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::Backoff;

/// A spin lock: holders do no system call but rxe's doorbell.
#[derive(Debug, Default)]
pub(crate) struct SpinLock {
    held: AtomicU32,
}

impl SpinLock {
    #[inline]
    pub(crate) fn acquire(&self) {
        if self.held.swap(1, Ordering::Acquire) != 0 {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let backoff = Backoff::new();
        while self.held.load(Ordering::Relaxed) != 0 || self.held.swap(1, Ordering::Acquire) != 0 {
            backoff.snooze();
        }
    }

    /// Releases the lock. Whoever calls it holds the lock, or took it over from a call that did.
    #[inline]
    pub(crate) fn release(&self) {
        self.held.store(0, Ordering::Release);
    }
}

/// A value behind a spin lock.
#[derive(Debug)]
pub(crate) struct Locked<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of the lock, one thread at a time.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            lock: SpinLock::default(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.lock.acquire();
        Guard { locked: self }
    }

    /// Takes the lock and keeps it beyond the call: `ibv_wr_start` to `ibv_wr_complete`, `ibv_start_poll` to
    /// `ibv_end_poll`.
    #[inline]
    pub(crate) fn hold(&self) {
        self.lock.acquire();
    }

    /// Ends [`hold`](Self::hold).
    #[inline]
    pub(crate) fn release(&self) {
        self.lock.release();
    }

    /// The value, for whoever holds the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock by [`hold`](Self::hold) and has no other reference to the value.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the lock is what makes it unique")]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: unique by the caller's promise.
        unsafe { &mut *self.value.get() }
    }
}

/// Access to the value; releases the lock when dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    locked: &'a Locked<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.locked.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.locked.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.locked.lock.release();
    }
}

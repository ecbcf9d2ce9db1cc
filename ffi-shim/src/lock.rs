//! The locks that libibverbs promises to C programs: one per queue, held for a few stores.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::Backoff;

use crate::log;

/// What keeps other threads out.
pub(crate) trait Lock {
    /// Takes it, waiting if need be.
    fn acquire(&self);
    /// Takes it if it is free; says whether it did.
    fn try_acquire(&self) -> bool;
    /// Releases it. Whoever calls this holds the lock, or took it over from a call that did.
    fn release(&self);
}

/// A spin lock: holders do no system call but rxe's doorbell.
#[derive(Debug, Default)]
pub(crate) struct SpinLock {
    held: AtomicU32,
}

impl Lock for SpinLock {
    #[inline]
    fn acquire(&self) {
        if self.held.swap(1, Ordering::Acquire) != 0 {
            self.wait();
        }
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.held.swap(1, Ordering::Acquire) == 0
    }

    #[inline]
    fn release(&self) {
        self.held.store(0, Ordering::Release);
    }
}

impl SpinLock {
    #[cold]
    fn wait(&self) {
        let backoff = Backoff::new();
        while self.held.load(Ordering::Relaxed) != 0 || self.held.swap(1, Ordering::Acquire) != 0 {
            backoff.snooze();
        }
    }
}

/// How many threads a program uses a queue from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Any number.
    Many,
    /// One at a time, of which it was told that a broken promise ends the program (a thread domain,
    /// `MLX5_SINGLE_THREADED`).
    One,
    /// One polls (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`); another may be here for a moment, destroying a queue pair.
    OnePoller,
}

/// A spin lock, or, where the program promised that one thread at a time uses the queue, a mark that finds out a
/// broken promise.
#[derive(Debug)]
pub(crate) struct QueueLock {
    lock: SpinLock,
    shared: bool,
    forgiving: bool,
}

impl QueueLock {
    pub(crate) fn new(threads: Threads) -> Self {
        Self {
            lock: SpinLock::default(),
            shared: threads == Threads::Many,
            forgiving: threads == Threads::OnePoller,
        }
    }

    /// Somebody else is here.
    #[cold]
    fn taken(&self) {
        if !self.forgiving {
            broken_promise();
        }
        let backoff = Backoff::new();
        while self.lock.held.load(Ordering::Relaxed) != 0 {
            backoff.snooze();
        }
    }
}

impl Lock for QueueLock {
    #[inline(always)]
    fn acquire(&self) {
        if self.shared {
            self.lock.acquire();
        } else {
            // No other thread is here if the promise holds, so a load and a store do; if it does not, they see it mostly.
            if self.lock.held.load(Ordering::Acquire) != 0 {
                self.taken();
            }
            self.lock.held.store(1, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        if self.shared {
            return self.lock.try_acquire();
        }
        // As in `acquire`.
        let free = self.lock.held.load(Ordering::Acquire) == 0;
        if free {
            self.lock.held.store(1, Ordering::Relaxed);
        }
        free
    }

    #[inline(always)]
    fn release(&self) {
        self.lock.release();
    }
}

/// Ends the program, as the official provider does: the queue may already be damaged.
#[cold]
fn broken_promise() -> ! {
    log::always(format_args!(
        "two threads use a queue at the same time that was made for one (a thread domain, or MLX5_SINGLE_THREADED=1)"
    ));
    std::process::abort()
}

/// A value behind a lock.
#[derive(Debug)]
pub(crate) struct Locked<T, L = SpinLock> {
    lock: L,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of the lock, one thread at a time: by the lock, or by the promise of the
// program that made it go without one (C2).
unsafe impl<T: Send, L: Sync> Sync for Locked<T, L> {}

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with(value, SpinLock::default())
    }
}

impl<T, L: Lock> Locked<T, L> {
    pub(crate) fn with(value: T, lock: L) -> Self {
        Self {
            lock,
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, L> {
        self.lock.acquire();
        Guard { locked: self }
    }

    /// Takes the lock and keeps it beyond the call: `ibv_wr_start` to `ibv_wr_complete`, `ibv_start_poll` to
    /// `ibv_end_poll`.
    #[inline]
    pub(crate) fn hold(&self) {
        self.lock.acquire();
    }

    /// Takes the lock as [`hold`](Self::hold), if it is free; says whether it did.
    #[inline(always)]
    pub(crate) fn try_hold(&self) -> bool {
        self.lock.try_acquire()
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
pub(crate) struct Guard<'a, T, L: Lock = SpinLock> {
    locked: &'a Locked<T, L>,
}

impl<T, L: Lock> Deref for Guard<'_, T, L> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.locked.value.get() }
    }
}

impl<T, L: Lock> DerefMut for Guard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.locked.value.get() }
    }
}

impl<T, L: Lock> Drop for Guard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        self.locked.lock.release();
    }
}

//! Which places of the command queue are free.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Any command.
    Ordinary,
    /// Commands that give pages: the others may wait for them, so they have a place of their own.
    Pages,
}

/// The places.
#[derive(Debug)]
pub(super) struct Slots {
    free: Mutex<u32>,
    given_back: Condvar,
    /// The place for pages.
    pages: u32,
}

impl Slots {
    /// `count` places, from 2 to 32, the last of which is for pages.
    pub(super) fn new(count: u32) -> Self {
        Self {
            free: Mutex::new(u32::MAX >> (32 - count)),
            given_back: Condvar::new(),
            pages: count - 1,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u32> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. Those whose command never ended are not given back, so this may fail.
    pub(super) fn take(&self, class: Class, time: Duration) -> Option<u32> {
        let deadline = Instant::now() + time;
        let pages = 1 << self.pages;
        let mine = match class {
            Class::Ordinary => !pages,
            Class::Pages => pages,
        };
        let mut free = self.lock();
        loop {
            if *free & mine != 0 {
                let slot = (*free & mine).trailing_zeros();
                *free &= !(1 << slot);
                return Some(slot);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.given_back.wait_timeout(free, left);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The command in a place has ended.
    pub(super) fn give_back(&self, slot: u32) {
        *self.lock() |= 1 << slot;
        self.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_is_for_pages() {
        let slots = Slots::new(4);
        let soon = Duration::from_millis(1);
        for slot in 0..3 {
            assert_eq!(slots.take(Class::Ordinary, soon), Some(slot));
        }
        assert_eq!(slots.take(Class::Ordinary, soon), None);
        assert_eq!(slots.take(Class::Pages, soon), Some(3));
        assert_eq!(slots.take(Class::Pages, soon), None);
        slots.give_back(1);
        assert_eq!(slots.take(Class::Ordinary, soon), Some(1));
        assert_eq!(Slots::new(32).take(Class::Pages, soon), Some(31));
    }
}

//! Numbers by which completions name queues (the "user index", 24 bits).
//!
//! The program chooses them. The lowest free one is taken, so that a table of them stays small.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::errno::Errno;

/// The kernel takes this one for "none" (`MLX5_IB_DEFAULT_UIDX`).
pub const NONE: u32 = 0xff_ffff;

/// The numbers of a context.
#[derive(Debug, Default)]
pub struct UserIndices(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    /// All from here on are free.
    next: u32,
    /// And these.
    returned: BinaryHeap<Reverse<u32>>,
}

/// A number that is taken; it is free again when this is dropped.
#[derive(Debug)]
pub struct UserIndex {
    value: u32,
    of: Arc<UserIndices>,
}

impl UserIndices {
    /// Takes the lowest free number.
    pub fn take(self: &Arc<Self>) -> Result<UserIndex, Errno> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match free.returned.pop() {
            Some(Reverse(value)) => value,
            None if free.next < NONE => {
                free.next += 1;
                free.next - 1
            }
            None => return Err(Errno(libc::ENOMEM)),
        };
        Ok(UserIndex {
            value,
            of: self.clone(),
        })
    }
}

impl UserIndex {
    /// The number.
    pub fn get(&self) -> u32 {
        self.value
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        let mut free = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.push(Reverse(self.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken() {
        let indices = Arc::<UserIndices>::default();
        let take = || indices.take().unwrap();
        let (zero, one, two) = (take(), take(), take());
        assert_eq!((zero.get(), one.get(), two.get()), (0, 1, 2));
        drop(one);
        drop(zero);
        let zero = take();
        assert_eq!((zero.get(), take().get()), (0, 1));
        // the second one was dropped at once
        assert_eq!((take().get(), two.get()), (1, 2));
    }

    #[test]
    fn the_number_that_means_none_is_never_taken() {
        let indices = Arc::<UserIndices>::default();
        indices.0.lock().unwrap().next = NONE - 1;
        let last = indices.take().unwrap();
        assert_eq!(last.get(), NONE - 1);
        assert_eq!(indices.take().unwrap_err(), Errno(libc::ENOMEM));
        drop(last);
        assert_eq!(indices.take().unwrap().get(), NONE - 1);
    }
}

//! Numbers: which handles have one, and which ones the device has finished with.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sys::errno::Errno;

/// Handles by the device's number, where objects of two kinds may have the same one.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<HashMap<u32, Vec<u32>>>);

impl Numbers {
    pub(super) fn insert(&self, number: u32, handle: u32) {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handles.entry(number).or_default().push(handle);
    }

    pub(super) fn forget(&self, number: u32, handle: u32) {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = handles.get_mut(&number) {
            of.retain(|other| *other != handle);
            if of.is_empty() {
                handles.remove(&number);
            }
        }
    }

    pub(super) fn of(&self, number: u32) -> Vec<u32> {
        let handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handles.get(&number).cloned().unwrap_or_default()
    }
}

/// DC targets that the device has drained.
#[derive(Debug, Default)]
pub(super) struct Drained {
    numbers: Mutex<HashSet<u32>>,
    changed: Condvar,
}

impl Drained {
    /// As long as the kernel waits for the event (`mlx5_ib` `qpc.c`: a command's time).
    const LIMIT: Duration = Duration::from_secs(60);

    /// The device has said so.
    pub(super) fn tell(&self, number: u32) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.insert(number);
        self.changed.notify_all();
    }

    /// Waits for it. `ETIMEDOUT` if it does not come.
    pub(super) fn wait(&self, number: u32) -> Result<(), Errno> {
        let end = Instant::now() + Self::LIMIT;
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        while !numbers.remove(&number) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno(libc::ETIMEDOUT));
            }
            let waited = self.changed.wait_timeout(numbers, left);
            numbers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

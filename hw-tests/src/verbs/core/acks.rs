//! Acknowledged completion events: a queue goes when the last of those that were reported is acknowledged.

use std::sync::{Condvar, Mutex};

use super::lock;

/// How many events of a completion queue the case acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acks {
    count: Mutex<u32>,
    more: Condvar,
}

impl Acks {
    pub(super) fn add(&self, events: u32) {
        *lock(&self.count) += events;
        self.more.notify_all();
    }

    /// Waits until as many are acknowledged as were `reported`.
    pub(super) fn wait_for(&self, reported: u32) {
        let mut count = lock(&self.count);
        while *count < reported {
            count = self.more.wait(count).expect("no panic under the lock");
        }
    }
}

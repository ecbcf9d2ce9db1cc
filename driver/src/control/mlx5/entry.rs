//! Where completions find a queue, from its creation to the cleaning after its end.
//!
//! A queue is entered under its user index, which nobody else has meanwhile. Devices whose completions
//! carry the queue's own number (`cqe_version` 0) give that number to the next queue as soon as the
//! kernel has destroyed this one; there, creating and destroying exclude each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Mlx5Context;
use super::user_index::UserIndex;
use crate::data::mlx5::{CqeVersion, QueueRecord, UserIndexTable};
use crate::sys::errno::Errno;

/// Which numbers a queue's are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of queue pairs and work queues.
    Queue,
    /// Of shared receive queues.
    SharedQueue,
}

/// Locks for creating and destroying queues, where numbers come back at once.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    queues: Mutex<()>,
    shared_queues: Mutex<()>,
}

/// The right to create or to destroy a queue.
#[derive(Debug)]
pub(super) struct Making<'a> {
    table: &'a Arc<UserIndexTable>,
    _held: Option<MutexGuard<'a, ()>>,
}

/// A queue's place in the table. It leaves the table with this.
#[derive(Debug)]
pub(super) struct Entry {
    table: Arc<UserIndexTable>,
    key: u32,
    /// Free again when this is dropped.
    _index: Option<UserIndex>,
    present: bool,
    /// Whether memory of a program's own has to be given back before the queue's end is reported.
    custom: bool,
}

impl Mlx5Context {
    /// Whether completions carry numbers that the program chose.
    pub(crate) fn names_queues_by_index(&self) -> bool {
        matches!(self.tables(), CqeVersion::V1(_))
    }

    /// To be held from before the kernel's call until the queue is entered or has left.
    pub(super) fn making(&self, kind: Kind) -> Making<'_> {
        let lock = |mutex| {
            let mutex: &Mutex<()> = mutex;
            Some(mutex.lock().unwrap_or_else(PoisonError::into_inner))
        };
        match (self.tables(), kind) {
            (CqeVersion::V1(table), _) => Making { table, _held: None },
            (CqeVersion::V0 { queue_pairs, .. }, Kind::Queue) => Making {
                table: queue_pairs,
                _held: lock(&self.numbers().queues),
            },
            (CqeVersion::V0 { shared_queues, .. }, Kind::SharedQueue) => Making {
                table: shared_queues,
                _held: lock(&self.numbers().shared_queues),
            },
        }
    }
}

impl Making<'_> {
    /// Enters a queue under its index, or its number where it has none.
    pub(super) fn enter(
        &self,
        index: Option<UserIndex>,
        number: u32,
        record: Arc<QueueRecord>,
        custom: bool,
    ) -> Result<Entry, Errno> {
        let key = index.as_ref().map_or(number, UserIndex::get);
        // a number that is in use, or has more than 24 bits, is a kernel's mistake
        self.table
            .insert(key, record)
            .map_err(|_| Errno(libc::EPROTO))?;
        Ok(Entry {
            table: self.table.clone(),
            key,
            _index: index,
            present: true,
            custom,
        })
    }
}

impl Entry {
    /// What completions call the queue.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Takes the queue out of the table.
    pub(super) fn leave(&mut self) {
        if !std::mem::take(&mut self.present) {
            return;
        }
        let mut gone = self.table.remove(self.key);
        // Pollers hold on to a queue for nanoseconds; but one may be asleep, or be this very thread in
        // the midst of its polling.
        let mut patience = 1000;
        while self.custom && !gone && patience > 0 {
            std::thread::yield_now();
            gone = self.table.collect();
            patience -= 1;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A queue that the kernel has destroyed and whose completions can still be there. When they are
/// cleaned, this is dropped.
#[derive(Debug)]
pub struct Dying<'a> {
    events: u32,
    entry: Option<&'a mut Entry>,
    _making: Making<'a>,
}

impl<'a> Dying<'a> {
    pub(super) fn new(events: u32, entry: Option<&'a mut Entry>, making: Making<'a>) -> Self {
        Self {
            events,
            entry,
            _making: making,
        }
    }

    /// Events of the queue that were delivered.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// What completions call the queue; `None` if there can be none.
    pub fn key(&self) -> Option<u32> {
        self.entry.as_ref().map(|entry| entry.key())
    }
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.leave();
        }
    }
}

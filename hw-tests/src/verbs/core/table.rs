//! Objects by small numbers, which are also the kernel's user handles.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::verbs::types::{Answer, Fault};

/// One number space for all objects, so that an event's number names one object only.
static NEXT: AtomicU32 = AtomicU32::new(1);

pub(super) fn new_id() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
pub(super) struct Table<T> {
    live: Mutex<HashMap<u32, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            live: Mutex::default(),
        }
    }
}

impl<T> Table<T> {
    pub(super) fn add(&self, object: T) -> u32 {
        let id = new_id();
        self.add_as(id, object);
        id
    }

    pub(super) fn add_as(&self, id: u32, object: T) {
        let mut live = self.live.lock().expect("no panic under the lock");
        live.insert(id, Arc::new(object));
    }

    pub(super) fn get(&self, id: u32) -> Answer<Arc<T>> {
        let live = self.live.lock().expect("no panic under the lock");
        let found = live.get(&id).cloned();
        found.ok_or_else(|| Fault::errno(libc::EBADF, "use an object that is gone"))
    }

    /// Forgets all objects; they are answered by their numbers.
    pub(super) fn take_all(&self) -> Vec<(u32, Arc<T>)> {
        let mut live = self.live.lock().expect("no panic under the lock");
        live.drain().collect()
    }

    /// Forgets the object, which unmaps its queues unless a call still uses them.
    pub(super) fn remove(&self, id: u32) {
        self.live
            .lock()
            .expect("no panic under the lock")
            .remove(&id);
    }
}

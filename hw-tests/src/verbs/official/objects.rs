//! libibverbs' objects by small numbers.

use std::collections::HashMap;
use std::sync::Mutex;

use super::layout::Ptr;
use crate::verbs::types::{Answer, Fault};

/// An object of libibverbs, which is thread-safe by its documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer(pub(super) Ptr);

// SAFETY: libibverbs promises thread safety for all its objects; destruction is the table's.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

#[derive(Debug, Default)]
pub(super) struct Objects {
    live: Mutex<(u32, HashMap<u32, Pointer>)>,
}

impl Objects {
    pub(super) fn add(&self, object: Ptr) -> u32 {
        let mut live = self.live.lock().expect("no panic under the lock");
        live.0 += 1;
        let id = live.0;
        live.1.insert(id, Pointer(object));
        id
    }

    pub(super) fn get(&self, id: u32) -> Answer<Ptr> {
        let live = self.live.lock().expect("no panic under the lock");
        let object = live.1.get(&id).map(|pointer| pointer.0);
        object.ok_or_else(|| Fault::errno(libc::EBADF, "use an object that is gone"))
    }

    pub(super) fn id(&self, object: Ptr) -> u32 {
        let live = self.live.lock().expect("no panic under the lock");
        let found = live.1.iter().find(|(_, pointer)| pointer.0 == object);
        found.map_or(0, |(id, _)| *id)
    }

    pub(super) fn remove(&self, id: u32) {
        self.live
            .lock()
            .expect("no panic under the lock")
            .1
            .remove(&id);
    }
}

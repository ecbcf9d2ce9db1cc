//! Who keeps a device open.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use super::objects::Objects;
use crate::sys::process::ProcessId;

/// A share in an open device. The thread that reads events takes one too while it tells of one, and may so be the last: who
/// drops this waits for it, so that a device that nobody uses any more is closed when its last user's share is gone.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    // dropped in this order
    objects: Arc<Objects>,
    _visit: Visit,
}

impl Held {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        let visit = Visit {
            lock: objects.platform().visits(),
            owner: ProcessId::current(),
        };
        Self {
            objects,
            _visit: visit,
        }
    }
}

impl Deref for Held {
    type Target = Arc<Objects>;

    fn deref(&self) -> &Arc<Objects> {
        &self.objects
    }
}

/// Waits, when it is dropped, for the end of a visit of the thread that reads events.
#[derive(Clone, Debug)]
struct Visit {
    lock: Arc<Mutex<()>>,
    owner: ProcessId,
}

impl Drop for Visit {
    fn drop(&mut self) {
        // That thread is not in a forked child, and its lock may be held there for ever.
        if self.owner.is_current() {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

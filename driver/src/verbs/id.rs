//! Names of objects in events.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which object an event is about.
///
/// The kernel carries it as the object's `user_handle`. It is a number and not an address, and never used
/// twice in a process: an event that is read after its object is gone names nothing, so destroying an
/// object has to wait for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(pub(crate) u64);

impl ObjectId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

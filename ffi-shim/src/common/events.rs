//! Waiting until a program gave back what the kernel delivered, before its object goes.

use std::mem::offset_of;

use crate::abi::objects::{ibv_cq, ibv_qp, ibv_srq};
use crate::abi::wq::ibv_wq;

/// Where an object counts the events that its program gave back, and what guards the count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *const u32,
}

macro_rules! of {
    ($object:expr, $type:ty, $counter:ident) => {
        Events {
            mutex: $object.wrapping_byte_add(offset_of!($type, mutex)).cast(),
            cond: $object.wrapping_byte_add(offset_of!($type, cond)).cast(),
            completed: $object
                .wrapping_byte_add(offset_of!($type, $counter))
                .cast(),
        }
    };
}

impl Events {
    pub(crate) fn of_qp(qp: *mut ibv_qp) -> Self {
        of!(qp, ibv_qp, events_completed)
    }

    pub(crate) fn of_srq(srq: *mut ibv_srq) -> Self {
        of!(srq, ibv_srq, events_completed)
    }

    pub(crate) fn of_wq(wq: *mut ibv_wq) -> Self {
        of!(wq, ibv_wq, events_completed)
    }

    /// Completion events, then asynchronous ones.
    pub(crate) fn of_cq(cq: *mut ibv_cq) -> [Self; 2] {
        [
            of!(cq, ibv_cq, comp_events_completed),
            of!(cq, ibv_cq, async_events_completed),
        ]
    }

    /// Initialises the lock and the condition.
    ///
    /// # Safety
    ///
    /// The object is writable, and nobody uses its lock.
    pub(crate) unsafe fn init(self) {
        // SAFETY: the caller's promise; default attributes.
        unsafe { libc::pthread_mutex_init(self.mutex, std::ptr::null()) };
        // SAFETY: as above.
        unsafe { libc::pthread_cond_init(self.cond, std::ptr::null()) };
    }

    /// Waits until the program gave back as many events as the kernel delivered; there is nothing to wait for when the
    /// kernel did not say (see [`destroyed`](super::destroyed)).
    ///
    /// # Safety
    ///
    /// The object is alive, its lock and condition are initialised, and the count is written under the lock.
    pub(crate) unsafe fn wait(self, reported: Option<u32>) {
        let Some(reported) = reported else { return };
        // SAFETY: initialised by the caller's promise.
        unsafe { libc::pthread_mutex_lock(self.mutex) };
        // SAFETY: read under the mutex.
        while unsafe { self.completed.read_volatile() } != reported {
            // SAFETY: as above; the mutex is held.
            unsafe { libc::pthread_cond_wait(self.cond, self.mutex) };
        }
        // SAFETY: held by this thread.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
    }
}

//! The device file, and what has to outlive it.

use std::mem;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use crate::control::kernel::Uctx;
use crate::data::mlx5::KeepAlive;

/// The device file.
///
/// A kernel that fails to destroy a queue goes on using its memory until the file is closed, so the
/// memory is left here.
#[derive(Debug)]
pub(super) struct DeviceFile {
    uctx: Uctx,
    abandoned: Mutex<Vec<Abandoned>>,
}

struct Abandoned(#[expect(dead_code, reason = "only kept")] KeepAlive);

impl std::fmt::Debug for Abandoned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Abandoned")
    }
}

impl DeviceFile {
    pub(super) fn new(uctx: Uctx) -> Self {
        Self {
            uctx,
            abandoned: Mutex::default(),
        }
    }

    /// Keeps what the kernel did not let go of; or a device that this process drives, as long as that is up.
    pub(super) fn abandon(&self, memory: KeepAlive) {
        if let Some(objects) = self.uctx.objects() {
            return objects.abandon(memory);
        }
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Abandoned(memory));
    }
}

impl Deref for DeviceFile {
    type Target = Uctx;

    fn deref(&self) -> &Uctx {
        &self.uctx
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        // The file closes with `uctx`, which is dropped before the memory; one that somebody else closes
        // is closed later than that.
        if !self.uctx.fd().is_owned() {
            let abandoned = self
                .abandoned
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            mem::forget(mem::take(abandoned));
        }
    }
}

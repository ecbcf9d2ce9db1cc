//! The device's interrupts: event descriptors that QEMU hands over.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::MSIX_VECTORS;
use crate::host::Interrupts;

/// One descriptor for each MSI-X vector that the guest has enabled.
#[derive(Clone, Debug, Default)]
pub(super) struct EventDescriptors {
    files: Arc<Mutex<Vec<Option<File>>>>,
    /// Interrupts that are lost from now on.
    lost: Arc<AtomicBool>,
}

impl EventDescriptors {
    /// Sets those from `start` on; what has no file is disabled.
    pub(super) fn set(&self, start: u32, count: u32, files: Vec<File>) {
        let mut all = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        all.resize_with(usize::from(MSIX_VECTORS), || None);
        let mut files = files.into_iter();
        for place in all.iter_mut().skip(start as usize).take(count as usize) {
            *place = files.next();
        }
    }

    /// Loses all interrupts from now on, or none.
    pub(super) fn lose(&self, lost: bool) {
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Disables all of them.
    pub(super) fn clear(&self) {
        self.files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Interrupts for EventDescriptors {
    fn raise(&self, vector: u16) {
        if self.lost.load(Ordering::Relaxed) {
            return;
        }
        let all = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(mut file)) = all.get(usize::from(vector)).map(Option::as_ref) else {
            log::debug!("vector {vector} is raised while the guest has it disabled");
            return;
        };
        // eventfd(2): the eight bytes are added to a counter; it fails only when that would overflow, and then the
        // interrupt is pending anyway.
        if let Err(error) = file.write_all(&1u64.to_ne_bytes()) {
            log::warn!("raising vector {vector}: {error}");
        }
    }
}

//! The seams between the device and whoever drives it.

use std::fmt;
use std::sync::Mutex;

/// An access to guest memory that no map covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault {
    /// The first address of the access.
    pub iova: u64,
    /// Its length in bytes.
    pub len: usize,
}

impl fmt::Display for DmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no map covers {} bytes at {:#x}", self.len, self.iova)
    }
}

impl std::error::Error for DmaFault {}

/// The guest's memory as the device sees it.
///
/// An access may cross from one map of the guest into the next: splitting it is the
/// implementation's work. An access of which any byte is unmapped is a fault and never a panic.
pub trait GuestMemory: Send + Sync {
    /// Reads `to.len()` bytes at `iova`.
    fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), DmaFault>;

    /// Writes `from` at `iova`, in ascending order of addresses.
    fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault>;
}

/// The device's MSI-X vectors.
pub trait Interrupts: Send {
    /// Sends the message of a vector.
    fn raise(&self, vector: u16);
}

/// Where a port's frames go.
pub trait Link: Send {
    /// Takes a frame to the other end; it may be lost on the way, as frames are.
    fn send(&mut self, frame: &[u8]);
}

/// Guest memory for tests: one piece, from address 0 on.
pub struct Ram(Mutex<Vec<u8>>);

impl Ram {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Ram {
        Ram(Mutex::new(vec![0; len]))
    }

    fn with<T>(
        &self,
        iova: u64,
        len: usize,
        act: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, DmaFault> {
        let mut bytes = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let range = usize::try_from(iova)
            .ok()
            .and_then(|start| Some(start..start.checked_add(len)?))
            .and_then(|range| bytes.get_mut(range));
        range.map(act).ok_or(DmaFault { iova, len })
    }
}

impl fmt::Debug for Ram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ram").finish_non_exhaustive()
    }
}

impl GuestMemory for Ram {
    fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.with(iova, to.len(), |bytes| to.copy_from_slice(bytes))
    }

    fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.with(iova, from.len(), |bytes| bytes.copy_from_slice(from))
    }
}

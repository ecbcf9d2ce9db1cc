//! What objects need of the device that they live on.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::control::vfio::clock::Clock;
use crate::control::vfio::command::Commands;
use crate::control::vfio::pci::BarMapping;
use crate::sys::errno::Errno;

/// Commands, mappings and event queues of an initialized device.
pub trait Platform: Commands {
    /// Lets the device read and write a range of this process' memory, until the answer is dropped. The
    /// range is contiguous for the device, and its first address has the same place in a page of 4 KiB; larger
    /// ranges in larger pages too, as far as that is possible: then lists of pages are shorter.
    fn map(&self, address: u64, bytes: u64) -> Result<Mapped, Errno>;

    /// The number of the event queue of a completion vector; `None` if there are fewer.
    fn event_queue(&self, vector: u32) -> Option<u32>;

    /// Completion vectors.
    fn completion_vectors(&self) -> u32;

    /// Whether stores to doorbell pages are combined, which BlueFlame needs.
    fn write_combining(&self) -> bool;

    /// The device's time, in its own units.
    fn timer(&self) -> Result<u64, Errno>;

    /// The page that turns that time into the system's, if the device has a clock.
    fn clock(&self) -> Option<Arc<Clock>>;

    /// Locked while the thread that reads events has a share in the objects.
    fn visits(&self) -> Arc<Mutex<()>>;

    /// Maps the doorbell page of this number: 4 KiB of BAR 0.
    fn doorbell_page(&self, number: u32) -> Result<BarMapping, Errno>;

    /// Whether this process opened the device, rather than a parent of it.
    fn is_ours(&self) -> bool;

    /// What the function says of itself.
    fn identity(&self) -> Identity;

    /// What is held for the device now.
    fn usage(&self) -> DriverUsage;
}

/// What a driver in this process holds for its device. Nothing of it grows while no objects are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverUsage {
    /// Ranges of the process' memory that the device reaches; VFIO allows for a limited number (`dma_entry_limit`).
    pub mappings: usize,
    /// Bytes of I/O addresses that are free.
    pub free_addresses: u64,
    /// Pages of 4 KiB that the firmware has borrowed.
    pub firmware_pages: u32,
}

/// Numbers of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The firmware's version: major, minor and sub-minor number, of 32, 16 and 16 bits.
    pub firmware: u64,
    /// Device id of the configuration space.
    pub device: u16,
    /// Revision of the configuration space.
    pub revision: u8,
}

/// Memory that the device may use.
pub struct Mapped {
    /// Where the device sees it.
    pub iova: u64,
    /// Ends the mapping when it is dropped.
    pub keep: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({:#x})", self.iova)
    }
}

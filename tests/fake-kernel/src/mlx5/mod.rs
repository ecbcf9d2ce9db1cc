//! ConnectX: the program's rings in its own memory, and a device that reads them.

pub(crate) mod clock;
pub(crate) mod device;
pub mod hca;
pub(crate) mod methods;
pub(crate) mod queues;
pub(crate) mod uar;
pub(crate) mod ucontext;
pub(crate) mod work_queue;

/// What a device has beyond the core's objects.
#[derive(Debug)]
pub(crate) struct DeviceState {
    next_uar: u32,
}

impl Default for DeviceState {
    fn default() -> Self {
        // The kernel's own pages come first.
        Self { next_uar: 8 }
    }
}

impl DeviceState {
    /// A number for a doorbell page.
    pub(crate) fn next_uar(&mut self) -> u32 {
        self.next_uar += 1;
        self.next_uar
    }
}

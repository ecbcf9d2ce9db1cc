//! ConnectX: the program's rings in its own memory, and a device that reads them.

pub(crate) mod clock;
pub(crate) mod device;
pub(crate) mod exec;
pub(crate) mod firmware;
pub mod hca;
pub(crate) mod methods;
pub(crate) mod modify_qp;
pub(crate) mod others;
pub(crate) mod queues;
pub(crate) mod uar;
pub(crate) mod ucontext;
pub(crate) mod work_queue;

/// What a device has beyond the core's objects.
#[derive(Debug)]
pub(crate) struct DeviceState {
    next_uar: u32,
    next_dm_page: u32,
    next_firmware_object: u32,
}

impl Default for DeviceState {
    fn default() -> Self {
        // The kernel's own pages come first.
        Self {
            next_uar: 8,
            next_dm_page: 0,
            next_firmware_object: 0,
        }
    }
}

impl DeviceState {
    /// The first of `n` pages of device memory.
    pub(crate) fn next_dm_page(&mut self, n: u32) -> u32 {
        let page = self.next_dm_page;
        self.next_dm_page += n;
        page
    }

    /// A number for an object that a firmware command makes.
    pub(crate) fn next_firmware_object(&mut self) -> u32 {
        self.next_firmware_object += 1;
        self.next_firmware_object
    }

    /// A number for a doorbell page.
    pub(crate) fn next_uar(&mut self) -> u32 {
        self.next_uar += 1;
        self.next_uar
    }
}

//! Doorbell pages that are memory: stores wake nobody, and a second store hides the first one.
//!
//! What a register holds is therefore a hint. The truth is in the doorbell records of live queues: the counter of a send queue,
//! and the arm word of a completion queue, in which a new queue gets a mark that no driver writes.

use crate::device::Device;
use crate::{completion, transport, uar};

/// What stands in an arm word that no driver wrote yet: its serial number has two bits, and its kind one (`mlx5dv.h`
/// `MLX5_CQ_DB_REQ_NOT_SOL`).
pub(crate) const NOT_ARMED: [u8; 4] = [0xff; 4];

impl Device {
    /// From now on doorbell pages are memory that its driver stores to, and whoever drives the device looks there
    /// ([`Device::doorbell_pages`]) and calls [`Device::rung`] and [`Device::look_at_records`].
    pub fn watch(&mut self) {
        self.watches = true;
    }

    /// Numbers of the doorbell pages in use.
    pub fn doorbell_pages(&self) -> impl Iterator<Item = u32> {
        self.resources.uars.iter().map(|(page, _)| page)
    }

    /// Eight bytes were found at a register of a doorbell page.
    pub fn rung(&mut self, page: u32, register: u32, bytes: [u8; 8]) {
        let [.., a, b, c, d] = bytes;
        if register == uar::ARM_CQ as u32 {
            completion::look(self, u32::from_be_bytes([0, b, c, d]));
        } else {
            transport::look(self, page, u32::from_be_bytes([0, a, b, c]));
        }
    }

    /// Looks whether any queue has new work; answers whether one had.
    pub fn look_at_records(&mut self) -> bool {
        let completions = completion::look_at_all(self);
        transport::look_at_all(self) || completions
    }
}

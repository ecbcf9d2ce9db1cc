//! Completion queues.

use crate::device::Device;

/// What the data path keeps for a completion queue.
#[derive(Debug, Default)]
pub(crate) struct CqData {}

/// The 8 bytes written to a page's arm register: serial number, kind and consumer index, then
/// the queue's number.
pub(crate) fn arm(_device: &mut Device, _uar: u32, _word: [u8; 8]) {}

/// `RESIZE_CQ`: whether the completions not yet polled fit into the new ring, and if so, from now
/// on they go there.
pub(crate) fn resize(_device: &mut Device, _cqn: u32, _ring: crate::resources::Ring) -> bool {
    false
}

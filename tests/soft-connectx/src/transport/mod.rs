//! Queue pairs at work.

mod psn;

use std::time::Duration;

use crate::device::Device;
use crate::resources::QpState;

/// What the data path keeps for the whole device.
#[derive(Debug, Default)]
pub(crate) struct State {}

/// What the data path keeps for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpData {}

/// What the data path keeps for a shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct SrqData {}

/// Bytes were written at `register` (an offset in the page, of 0x800..0xc00) of a doorbell page.
pub(crate) fn doorbell(_device: &mut Device, _uar: u32, _register: u32, _bytes: &[u8]) {}

/// A command took a queue pair from one state to another; its fields are those of the new one.
pub(crate) fn state_changed(_device: &mut Device, _qpn: u32, _from: QpState, _to: QpState) {}

/// What is due is done; the answer is when something is due next.
pub(crate) fn tick(_device: &mut Device) -> Option<Duration> {
    None
}

/// A frame arrived.
pub(crate) fn receive(_device: &mut Device, _frame: &[u8]) {}

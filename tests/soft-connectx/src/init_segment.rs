//! The first page of BAR0.

use crate::device::Device;

/// What of the segment changes.
#[derive(Debug, Default)]
pub(crate) struct InitSegment {}

pub(crate) fn read(_device: &mut Device, _offset: u64, to: &mut [u8]) {
    to.fill(0);
}

pub(crate) fn write(_device: &mut Device, _offset: u64, _from: &[u8]) {}

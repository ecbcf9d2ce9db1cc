//! The command interface.

use std::time::Duration;

use crate::device::Device;

/// The queue of command entries in guest memory.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {}

/// Commands that wait for something go on; the answer is when to look again.
pub(crate) fn tick(_device: &mut Device) -> Option<Duration> {
    None
}

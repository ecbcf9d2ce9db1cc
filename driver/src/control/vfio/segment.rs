//! The initialization segment at the start of BAR 0 (`mlx5_ifc.h` `initial_seg`).

use std::time::{Duration, Instant};

use super::pci::Pci;
use crate::sys::errno::Errno;

/// `cmd_interface_rev` and `fw_rev_subminor`.
const COMMAND_REVISION: u64 = 0x4;
const FIRMWARE_REVISION: u64 = 0x0;
const QUEUE_HIGH: u64 = 0x10;
const QUEUE_LOW: u64 = 0x14;
const DOORBELL: u64 = 0x18;
const INITIALIZING: u64 = 0x1fc;
/// `health_buffer.rfr`, and its `synd`.
const HEALTH_RFR: u64 = 0x238;
const HEALTH_SYNDROME: u64 = 0x23c;
const INTERNAL_TIMER_HIGH: u64 = 0x1000;
const HEALTH_COUNTER: u64 = 0x1010;

/// `CMD_IF_REV` of `mlx5_core`.
const SUPPORTED_REVISION: u32 = 5;
/// What a bus reads where nobody answers.
const GONE: u32 = u32::MAX;
/// Bytes of the page that the command queue has.
const PAGE: u32 = 4096;

/// `nic_interface` beside the queue's address, and the state in which nobody drives the device
/// (`MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED`).
const INTERFACE: u32 = 8;
const DISABLED: u32 = 1;

/// What the device says of its command queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) entries: u32,
    pub(super) log_stride: u8,
}

/// How the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// As it should be; a number that advances.
    Good(u32),
    /// The firmware stopped, for a reason of its own.
    Failed(u8),
    /// Nobody answers.
    Gone,
}

fn read(pci: &dyn Pci, offset: u64) -> Result<u32, Errno> {
    match pci.read_be32(offset)? {
        GONE => Err(Errno(libc::ENODEV)),
        value => Ok(value),
    }
}

/// Waits until the firmware is up after power on or reset. `ENODEV` if nobody answers, `ETIMEDOUT`.
pub(super) fn wait_for_firmware(pci: &dyn Pci, time: Duration) -> Result<(), Errno> {
    let deadline = Instant::now() + time;
    loop {
        // All ones right after a reset mean: not yet.
        let word = pci.read_be32(INITIALIZING)?;
        if word != GONE && word >> 31 == 0 {
            break;
        }
        if Instant::now() >= deadline {
            let gone = word == GONE;
            return Err(Errno(if gone { libc::ENODEV } else { libc::ETIMEDOUT }));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    match read(pci, COMMAND_REVISION)? >> 16 {
        SUPPORTED_REVISION => Ok(()),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// Major, minor and subminor version of the firmware.
pub(super) fn firmware(pci: &dyn Pci) -> Result<[u16; 3], Errno> {
    let version = read(pci, FIRMWARE_REVISION)?;
    let sub = read(pci, COMMAND_REVISION)?;
    Ok([version as u16, (version >> 16) as u16, sub as u16])
}

/// The shape of the command queue. `EPROTO` for one that no driver could use.
pub(super) fn command_queue(pci: &dyn Pci) -> Result<Shape, Errno> {
    let word = read(pci, QUEUE_LOW)?;
    let (log_entries, log_stride) = (word >> 4 & 0xf, word & 0xf);
    // At least a place for pages beside another, at most as many as the doorbell has bits; entries have 64 bytes.
    let fits = (1..=5).contains(&log_entries)
        && (6..=12).contains(&log_stride)
        && 1 << (log_entries + log_stride) <= PAGE;
    if !fits {
        return Err(Errno(libc::EPROTO));
    }
    Ok(Shape {
        entries: 1 << log_entries,
        log_stride: log_stride as u8,
    })
}

/// Says where the command queue is, and that the full driver speaks (`nic_interface` 0).
pub(super) fn set_command_queue(pci: &dyn Pci, iova: u64) -> Result<(), Errno> {
    pci.write_be32(QUEUE_HIGH, (iova >> 32) as u32)?;
    Ok(pci.write_be32(QUEUE_LOW, iova as u32 & !(PAGE - 1))?)
}

/// Stops the device by its register: nothing is read or written any more. `ETIMEDOUT`.
pub(super) fn disable(pci: &dyn Pci, time: Duration) -> Result<(), Errno> {
    let queue = read(pci, QUEUE_LOW)? & !(PAGE - 1);
    pci.write_be32(QUEUE_LOW, queue | DISABLED << INTERFACE)?;
    let deadline = Instant::now() + time;
    while read(pci, QUEUE_LOW)? >> INTERFACE & 7 != DISABLED {
        if Instant::now() >= deadline {
            return Err(Errno(libc::ETIMEDOUT));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Where the device thinks that the command queue is; not every device says it.
pub(super) fn queue_address(pci: &dyn Pci) -> Result<u64, Errno> {
    let high = pci.read_be32(QUEUE_HIGH)?;
    let low = pci.read_be32(QUEUE_LOW)?;
    Ok(u64::from(high) << 32 | u64::from(low & !(PAGE - 1)))
}

/// Gives entries of the command queue to the device.
pub(super) fn ring(pci: &dyn Pci, slots: u32) -> Result<(), Errno> {
    crate::sys::barrier::device_sees_doorbell_record_before_register();
    Ok(pci.write_be32(DOORBELL, slots)?)
}

/// How the device is.
pub(super) fn health(pci: &dyn Pci) -> Health {
    let (Ok(counter), Ok(rfr), Ok(syndrome)) = (
        pci.read_be32(HEALTH_COUNTER),
        pci.read_be32(HEALTH_RFR),
        pci.read_be32(HEALTH_SYNDROME),
    ) else {
        return Health::Gone;
    };
    if counter == GONE && rfr == GONE {
        return Health::Gone;
    }
    match (syndrome >> 16) as u8 {
        0 if rfr >> 31 == 0 => Health::Good(counter),
        syndrome => Health::Failed(syndrome),
    }
}

/// The device's time.
pub(super) fn timer(pci: &dyn Pci) -> Result<u64, Errno> {
    loop {
        let high = pci.read_be32(INTERNAL_TIMER_HIGH)?;
        let low = pci.read_be32(INTERNAL_TIMER_HIGH + 4)?;
        // the upper half changes once in seconds, so this ends
        if pci.read_be32(INTERNAL_TIMER_HIGH)? == high {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
    }
}

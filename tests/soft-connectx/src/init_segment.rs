//! The first pages of BAR0: `mlx5_ifc_initial_seg_bits` of `mlx5_ifc.h`, `struct mlx5_init_seg`.
//!
//! Reads may have any length and start anywhere: drivers read bytes of the health buffer.

use std::time::Duration;

use crate::command;
use crate::device::Device;

/// Firmware 20.39.1002, of the line that belongs to a ConnectX-6.
pub(crate) const FIRMWARE: [u16; 3] = [20, 39, 1002];
/// `CMD_IF_REV` of `mlx5_core`.
const COMMAND_INTERFACE: u16 = 5;
/// `log_cmdq_size` and `log_cmdq_stride`.
pub(crate) const LOG_COMMANDS: u8 = 5;
pub(crate) const LOG_COMMAND_STRIDE: u8 = 6;
/// Kilohertz of the timer, as capabilities tell (`device_frequency_khz`).
pub(crate) const FREQUENCY_KHZ: u32 = 156_250;

const COMMAND_HIGH: u64 = 0x10;
const COMMAND_LOW: u64 = 0x14;
const COMMAND_DOORBELL: u64 = 0x18;
const HEALTH: u64 = 0x200;

/// States of the interface between driver and device (`nic_interface`, `MLX5_NIC_IFC_*`).
const INTERFACE_DISABLED: u8 = 1;
const INTERFACE_SOFTWARE_RESET: u8 = 7;

/// What of the segment changes.
#[derive(Debug, Default)]
pub(crate) struct InitSegment {
    /// High half of the command queue's address.
    high: u32,
    /// Bits 31 to 12 of its low half.
    low: u32,
    /// Bits 10 to 8 of the low half's register.
    interface: u8,
    /// What is wrong (`synd`, `MLX5_INITIAL_SEG_HEALTH_SYNDROME_*`); 0 is nothing.
    syndrome: u8,
    /// Advances with every look.
    health: u32,
}

impl InitSegment {
    /// Where the command queue lies.
    pub(crate) fn commands(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    /// Whether commands are taken.
    pub(crate) fn takes_commands(&self) -> bool {
        self.interface == 0 && self.syndrome == 0
    }

    /// The device fails for good: the health buffer asks for a reset and nothing works any more.
    pub(crate) fn fail(&mut self, syndrome: u8) {
        self.syndrome = syndrome;
    }

    /// Whether the device has failed.
    pub(crate) fn failed(&self) -> bool {
        self.syndrome != 0
    }

    fn dword(&self, at: u64, time: u64) -> u32 {
        let [major, minor, sub] = FIRMWARE.map(u32::from);
        match at {
            0x0 => minor << 16 | major,
            0x4 => u32::from(COMMAND_INTERFACE) << 16 | sub,
            COMMAND_HIGH => self.high,
            COMMAND_LOW => {
                let sizes = u32::from(LOG_COMMANDS << 4 | LOG_COMMAND_STRIDE);
                self.low | u32::from(self.interface) << 8 | sizes
            }
            // Not initializing; the driver of firmware that failed may ask for a software reset (`MLX5_FW_RESET_SUPPORTED_OFFSET`
            // of mlx5_core's health.c), without which it waits for a reset of the function in vain.
            0x1fc => 1 << 30,
            0x230 => major << 24 | minor << 16 | sub, // `fw_version`
            0x234 => 0x20f,                           // `hw_id` of a ConnectX-6
            0x238 => u32::from(self.failed()) << 31,  // `rfr`
            0x23c => u32::from(self.syndrome) << 16,
            0x1000 => (time >> 32) as u32,
            0x1004 => time as u32,
            0x1010 => self.health & 0xff_ffff | u32::from(self.syndrome) << 24,
            _ => 0,
        }
    }
}

/// The timer of the segment and of completions.
pub(crate) fn timer(now: Duration) -> u64 {
    (now.as_nanos() * u128::from(FREQUENCY_KHZ) / 1_000_000) as u64
}

pub(crate) fn read(device: &mut Device, offset: u64, to: &mut [u8]) {
    let time = timer(device.now);
    if !device.segment.failed() && !(HEALTH..HEALTH + 0x40).contains(&offset) {
        device.segment.health = device.segment.health.wrapping_add(1);
    }
    for (at, byte) in (offset..).zip(to) {
        let dword = device.segment.dword(at & !3, time).to_be_bytes();
        *byte = dword[(at & 3) as usize];
    }
}

/// Registers are dwords; a write of eight bytes is two of them.
pub(crate) fn write(device: &mut Device, offset: u64, from: &[u8]) {
    for (at, dword) in (offset..).step_by(4).zip(from.chunks_exact(4)) {
        let value = u32::from_be_bytes([dword[0], dword[1], dword[2], dword[3]]);
        match at {
            COMMAND_HIGH => device.segment.high = value,
            COMMAND_LOW => {
                device.segment.low = value & 0xffff_f000;
                device.segment.interface = (value >> 8 & 7) as u8;
                let stops = device.segment.interface == INTERFACE_DISABLED && device.hca.may_stop;
                if stops || device.segment.interface == INTERFACE_SOFTWARE_RESET {
                    device.reset_firmware();
                    device.segment.interface = INTERFACE_DISABLED;
                }
            }
            COMMAND_DOORBELL => command::doorbell(device, value),
            _ => {}
        }
    }
}

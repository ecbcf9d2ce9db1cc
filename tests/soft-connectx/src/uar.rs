//! The doorbell pages of BAR0.
//!
//! One page (PRM 8.1.3; `MLX5_CQ_DOORBELL` 0x20, `MLX5_EQ_DOORBEL_OFFSET` 0x40 and
//! `MLX5_BF_OFFSET` 0x800 in the kernel's headers):
//!
//! | offset | register |
//! |---|---|
//! | 0x20 | arm a completion queue, 8 bytes |
//! | 0x40 | consumer index of an event queue, and arm it |
//! | 0x48 | consumer index of an event queue |
//! | 0x800 | two BlueFlame registers of 512 bytes, and from 0xc00 two more, for fast requests: the kernel registers memory there |

use std::collections::BTreeMap;

use crate::device::Device;
use crate::{completion, events, transport};

/// Bytes of a page.
pub(crate) const PAGE_SIZE: u64 = 4096;
/// The first page behind initialization segment and MSI-X table.
pub(crate) const FIRST_PAGE: u64 = 4;
/// The first page that `ALLOC_UAR` gives.
pub(crate) const FIRST_USABLE: u32 = 16;
/// The last page before memory on the device.
pub(crate) const LAST_PAGE: u32 = (crate::memic::START / PAGE_SIZE) as u32 - 1;

pub(crate) const ARM_CQ: u64 = 0x20;
const ARM_EQ: u64 = 0x40;
const CONSUMER_EQ: u64 = 0x48;
const BLUE_FLAME: std::ops::Range<u64> = 0x800..0x1000;

/// Registers of 8 bytes of which a bus of 32 bits wrote one half.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    halves: BTreeMap<u32, [u8; 4]>,
}

/// A write of any length; registers nobody knows swallow it, as do pages nobody has.
pub(crate) fn write(device: &mut Device, offset: u64, from: &[u8]) {
    let Ok(page) = u32::try_from(offset / PAGE_SIZE) else {
        return;
    };
    if device.resources.uars.get(page).is_none() {
        return;
    }
    let register = offset % PAGE_SIZE;
    match (register, from) {
        (ARM_CQ, &[a, b, c, d]) => {
            device.uar.halves.insert(page, [a, b, c, d]);
        }
        (0x24, &[e, f, g, h]) => {
            if let Some([a, b, c, d]) = device.uar.halves.remove(&page) {
                completion::arm(device, page, [a, b, c, d, e, f, g, h]);
            }
        }
        (ARM_CQ, &[a, b, c, d, e, f, g, h]) => {
            completion::arm(device, page, [a, b, c, d, e, f, g, h]);
        }
        (ARM_EQ | CONSUMER_EQ, &[a, b, c, d, ..]) => {
            events::consumer(device, page, [a, b, c, d], register == ARM_EQ);
        }
        _ if BLUE_FLAME.contains(&register) => {
            transport::doorbell(device, page, register as u32, from);
        }
        _ => {}
    }
}

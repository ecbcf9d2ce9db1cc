//! Commands that wait for pages of memory.
//!
//! A card's firmware may ask for more memory at any time (event PAGE_REQUEST) and leave a command undone until it has it,
//! while the driver, perhaps inside that very command, has to give pages by another one. Only an adversary does so here,
//! for the model needs no memory.

use std::time::Duration;

use log::error;
use wqe_format::mlx5::firmware::eqe::PagesReqEvent;
use wqe_format::mlx5::firmware::{EventType, Opcode};

use crate::adversary::Freedom;
use crate::device::Device;
use crate::events;

/// One in so many commands that create something needs pages.
const SELDOM: u64 = 16;
/// Most pages that one command needs.
const MOST: u64 = 40;
/// A driver that gives nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the device waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hunger {
    /// Pages that it must have.
    pages: u32,
    /// When it gives up.
    until: Duration,
}

/// Whether a command can be done now, as far as pages go.
pub(super) fn fed(device: &mut Device, opcode: Opcode) -> bool {
    let Some(hunger) = device.commands.hunger else {
        return true;
    };
    if device.pages.count() >= hunger.pages {
        device.commands.hunger = None;
        return true;
    }
    if device.now >= hunger.until {
        error!("the driver gave no pages");
        device.commands.hunger = None;
        return true;
    }
    opcode == Opcode::MANAGE_PAGES
}

/// The driver says that it has no pages: the model does without.
pub(super) fn refused(device: &mut Device) {
    device.commands.hunger = None;
}

/// When to look again whether pages came.
pub(super) fn patience(device: &Device) -> Option<Duration> {
    device.commands.hunger.map(|hunger| hunger.until)
}

/// Perhaps needs pages before a command that creates something can be done.
pub(super) fn perhaps(device: &mut Device, opcode: Opcode) {
    let name = opcode.name().unwrap_or_default();
    let creates = name.starts_with("CREATE_") || name.starts_with("ALLOC_");
    if !creates
        || device.commands.hunger.is_some()
        || events::taker(device, EventType::PAGE_REQUEST).is_none()
        || !device.adversary.happens(Freedom::Pages, SELDOM)
    {
        return;
    }
    let pages = 1 + device.adversary.choose(Freedom::Pages, MOST) as u32;
    device.commands.hunger = Some(Hunger {
        pages: device.pages.count() + pages,
        until: device.now + PATIENCE,
    });
    let mut data = PagesReqEvent::zeroed();
    data.set_function_id(device.config.function_id())
        .set_num_pages(pages);
    events::raise_async(device, EventType::PAGE_REQUEST, 0, data.as_bytes());
}

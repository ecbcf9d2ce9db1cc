//! What the device can do.

pub mod atomic;
pub mod command;
pub mod ethernet;
pub mod event;
pub mod flow_table;
pub mod general;
pub mod general2;
mod kind;
pub mod memory;
pub mod odp;
pub mod qos;
pub mod roce;

pub use kind::CapType;

/// The layouts of these modules.
pub(super) const LAYOUTS: &[&[&super::Layout]] = &[
    atomic::LAYOUTS,
    command::LAYOUTS,
    ethernet::LAYOUTS,
    event::LAYOUTS,
    flow_table::LAYOUTS,
    general::LAYOUTS,
    general2::LAYOUTS,
    memory::LAYOUTS,
    odp::LAYOUTS,
    qos::LAYOUTS,
    roce::LAYOUTS,
];

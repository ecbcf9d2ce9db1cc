//! Registers behind the command ACCESS_REG.

pub mod access;
pub mod capability;
pub mod counters;
pub mod host;
mod id;
pub mod module;
pub mod port;

pub use id::RegisterId;

/// The layouts of these modules.
pub(super) const LAYOUTS: &[&[&super::Layout]] = &[
    access::LAYOUTS,
    capability::LAYOUTS,
    counters::LAYOUTS,
    host::LAYOUTS,
    module::LAYOUTS,
    port::LAYOUTS,
];

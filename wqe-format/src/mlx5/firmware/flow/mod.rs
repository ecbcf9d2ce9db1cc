//! Steering: tables, groups and entries that packets are matched with.

pub mod counter;
pub mod entry;
pub mod group;
pub mod header;
pub mod matching;
pub mod table;

/// The layouts of these modules.
pub(super) const LAYOUTS: &[&[&super::Layout]] = &[
    counter::LAYOUTS,
    entry::LAYOUTS,
    group::LAYOUTS,
    header::LAYOUTS,
    matching::LAYOUTS,
    table::LAYOUTS,
];

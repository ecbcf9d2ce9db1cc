//! A completion queue, as its commands set it.

use super::Ring;
use crate::completion::CqData;
use crate::completion::compress::Compression;

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) uid: u16,
    /// `cqc` as it was given.
    pub(crate) context: Vec<u8>,
    /// Slots are 64 bytes, or 128.
    pub(crate) ring: Ring,
    /// Address of the doorbell record.
    pub(crate) dbr: u64,
    /// The event queue that is told of completions (`c_eqn_or_apu_element`).
    pub(crate) eqn: u32,
    pub(crate) uar: u32,
    /// Collapsed to one slot (`cc`).
    pub(crate) collapsed: bool,
    /// Overruns silently (`oi`).
    pub(crate) ignores_overrun: bool,
    /// `cqe_comp_en` and how.
    pub(crate) compression: Option<Compression>,
    /// Whether 64 bytes of data may go into a slot's first half (`cqe_sz` 1 or 2).
    pub(crate) slot_128: bool,
    pub(crate) moderation_count: u16,
    /// In microseconds.
    pub(crate) moderation_period: u16,
    /// What the data path keeps.
    pub(crate) data: CqData,
}

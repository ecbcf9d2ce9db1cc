//! Shared receive queues.

use super::Ring;
use crate::transport::SrqData;

/// Which command created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrqKind {
    /// `CREATE_SRQ`.
    Basic,
    /// `CREATE_RMP`.
    Rmp,
    /// `CREATE_XRC_SRQ`.
    Xrc,
    /// `CREATE_XRQ`, with tag matching.
    Tag,
}

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) kind: SrqKind,
    pub(crate) uid: u16,
    /// `srqc`, `rmpc`, `xrc_srqc` or `xrqc` as it was given.
    pub(crate) context: Vec<u8>,
    /// Linked slots, or, where not, a ring (`wq_type` 1 is a ring).
    pub(crate) ring: Ring,
    pub(crate) dbr: u64,
    pub(crate) pd: u32,
    /// Of an XRC SRQ.
    pub(crate) xrcd: u32,
    /// Of an XRC SRQ or XRQ.
    pub(crate) cqn: u32,
    /// What a completion carries, of an XRC SRQ or XRQ.
    pub(crate) user_index: u32,
    /// Limit water mark; 0 is none.
    pub(crate) limit: u16,
    /// Whether each request begins with a signature segment (`wq_signature`).
    pub(crate) signature: bool,
    /// Whether it failed.
    pub(crate) error: bool,
    /// What the data path keeps.
    pub(crate) data: SrqData,
}

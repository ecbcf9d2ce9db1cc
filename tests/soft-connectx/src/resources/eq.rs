//! An event queue.

use wqe_format::mlx5::firmware::EventType;

use super::Ring;

/// An event queue; entries are 64 bytes.
#[derive(Debug)]
pub(crate) struct Eq {
    /// `eqc` as it was given.
    pub(crate) context: Vec<u8>,
    pub(crate) ring: Ring,
    /// The MSI-X vector.
    pub(crate) vector: u16,
    pub(crate) uar: u32,
    /// Whether it overruns silently (`oi`).
    pub(crate) ignores_overrun: bool,
    /// The event types that are reported here, `1 << type`, in 256 bits.
    pub(crate) events: [u64; 4],
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    /// Whether the next event interrupts.
    pub(crate) armed: bool,
    /// Whether it overran, after which nothing is reported any more.
    pub(crate) failed: bool,
}

impl Eq {
    /// Whether events of this type are reported here.
    pub(crate) fn wants(&self, kind: EventType) -> bool {
        self.events[usize::from(kind.0 >> 6)] >> (kind.0 & 63) & 1 != 0
    }
}

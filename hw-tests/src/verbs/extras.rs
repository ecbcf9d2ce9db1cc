//! What some devices have beyond verbs that every device has, and libibverbs reaches through a provider's own table only.

use super::types::*;

/// The device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// In its own units.
    pub(crate) ticks: u64,
    /// Units in a millisecond.
    pub(crate) khz: u64,
}

/// A completion with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) id: u64,
    pub(crate) status: Status,
    /// In the device's units.
    pub(crate) ticks: u64,
    /// Nanoseconds since 1970, of a device that wall-clock time is known of.
    pub(crate) wall: Option<u64>,
}

/// Queues that packets to a port's address are spread over by the hash of their connection.
#[derive(Clone, Debug)]
pub(crate) struct SpreadInit {
    pub(crate) pd: Pd,
    /// Where they complete: the work request's identifier is the queue.
    pub(crate) cq: Cq,
    pub(crate) port: u8,
    pub(crate) queues: usize,
    /// The queue of each entry of the table, a power of two of them.
    pub(crate) table: Vec<usize>,
    /// Receives of each queue, which all are of `slot` and come one after the other from there on.
    pub(crate) receives: usize,
    pub(crate) slot: Sge,
    /// Packets from there to there are meant.
    pub(crate) from: [u8; 6],
    pub(crate) to: [u8; 6],
}

/// What a provider of a device with such things has beside [`Verbs`](super::Verbs).
pub(crate) trait Extras {
    /// The local key of memory that is nowhere: what is written there is gone, what is read there is zero
    /// (`ibv_alloc_null_mr`).
    fn null_key(&self) -> Option<u32>;

    /// What time it is (`ibv_query_rt_values_ex`).
    fn clock(&self) -> Answer<Option<Clock>>;

    /// Whether completions tell wall-clock times too.
    fn knows_wall_clock(&self) -> bool;

    /// A completion queue that tells times.
    fn create_timed_cq(&self, cqe: u32) -> Answer<Cq>;

    /// The next completion of such a queue.
    fn poll_timed(&self, cq: Cq) -> Answer<Option<Timed>>;

    /// Whether packets can be spread over receive queues.
    fn spreads(&self) -> Answer<bool>;

    /// Begins to spread packets; what was spread before is destroyed.
    fn spread(&self, init: &SpreadInit) -> Answer<()>;
}

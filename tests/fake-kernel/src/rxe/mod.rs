//! The software RoCE device: queues in shared memory, run by the doorbell's call.

pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod queues;
pub(crate) mod responder;
pub(crate) mod ring;

use ring::Ring;

/// rxe's part of a completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) ring: Ring,
    pub(crate) armed: Armed,
}

/// What a completion queue waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) next: bool,
    pub(crate) solicited: bool,
}

/// rxe's part of a queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) send: Ring,
    pub(crate) recv: Option<Ring>,
    pub(crate) wait: Option<Wait>,
}

/// Why a send queue stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: std::time::Instant,
    /// Retries left; 7 in the attribute means for ever (`None`).
    pub(crate) rnr_left: Option<u32>,
    /// Waiting for a peer that does not answer, not for one that has no receive request.
    pub(crate) for_peer: bool,
}

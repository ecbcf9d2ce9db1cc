//! Resources that others belong to, with nothing of their own but an owner.
//!
//! `uid` is the user context (DEVX) that created a resource: 0 is the kernel. Who isn't 0 only
//! reaches what has the same number.

/// A doorbell page of BAR0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uar {
    pub(crate) uid: u16,
}

/// A user context of DEVX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uctx;

/// User memory registered for queues.
#[derive(Clone, Debug)]
pub(crate) struct Umem {
    pub(crate) uid: u16,
    pub(crate) buffer: super::Buffer,
}

/// A range of queue pairs' numbers that none gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedQpns {
    pub(crate) uid: u16,
}

/// A protection domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pd {
    pub(crate) uid: u16,
}

/// The state of a signature's computation (`create_psv_in` in `mlx5_ifc.h`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Psv {
    pub(crate) uid: u16,
    pub(crate) pd: u32,
}

/// An XRC domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xrcd {
    pub(crate) uid: u16,
}

/// A transport domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportDomain {
    pub(crate) uid: u16,
}

/// A set of queue pairs' counters (`query_q_counter_out` in `mlx5_ifc.h`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) uid: u16,
    pub(crate) rx_write_requests: u32,
    pub(crate) rx_read_requests: u32,
    pub(crate) rx_atomic_requests: u32,
    pub(crate) out_of_buffer: u32,
    pub(crate) out_of_sequence: u32,
    pub(crate) duplicate_request: u32,
    pub(crate) rnr_nak_retry_err: u32,
    pub(crate) packet_seq_err: u32,
    pub(crate) implied_nak_seq_err: u32,
    pub(crate) local_ack_timeout_err: u32,
    pub(crate) resp_local_length_error: u32,
    pub(crate) req_cqe_error: u32,
    pub(crate) req_remote_access_errors: u32,
    pub(crate) req_remote_invalid_request: u32,
    pub(crate) resp_remote_access_errors: u32,
    pub(crate) resp_cqe_error: u32,
    pub(crate) req_cqe_flush_error: u32,
    pub(crate) resp_cqe_flush_error: u32,
    pub(crate) req_transport_retries_exceeded: u32,
    pub(crate) req_rnr_retries_exceeded: u32,
}

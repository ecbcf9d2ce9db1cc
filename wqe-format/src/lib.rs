//! Formats that RDMA devices read and write: work queue entries, completions, doorbells.
//!
//! Encode and decode only: no memory mapping, no kernel struct, no allocation.
//!
//! * [`rxe`]: soft-RoCE's queues in memory shared with the kernel (uapi `rdma/rdma_user_rxe.h`).
#![no_std]
#![forbid(unsafe_code)]

pub mod rxe;

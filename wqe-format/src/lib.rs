//! Formats that RDMA devices read and write: work queue entries, completions, doorbells.
//!
//! Encode and decode only: no memory mapping, no kernel struct, no allocation.
//!
//! * [`mlx5`]: ConnectX work requests, completions and doorbells (rdma-core `mlx5dv.h`, the manual).
//! * [`rxe`]: soft-RoCE's queues in memory shared with the kernel (uapi `rdma/rdma_user_rxe.h`).
#![no_std]
#![forbid(unsafe_code)]

pub mod mlx5;
pub mod rxe;

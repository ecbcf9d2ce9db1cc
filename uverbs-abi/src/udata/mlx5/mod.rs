//! The ConnectX driver `mlx5_ib` (`uapi rdma/mlx5-abi.h`).
//!
//! The program allocates every ring and every doorbell record and tells the kernel where they are;
//! the kernel answers the device's numbers. A kernel answers as much of a response as it knows, so a
//! zero may mean "not there": each response whose fields grew has a `response_length`.
//!
//! Structs as of Linux 6.13; what older headers lack says so.

pub mod context;
pub mod device;
pub mod mmap;
pub mod queue;
pub mod work_queue;

pub use context::*;
pub use device::*;
pub use queue::*;
pub use work_queue::*;

/// Layouts of all of them, for tests against C and for tools.
pub const LAYOUTS: &[&[&crate::layout::Layout]] = &[
    context::LAYOUTS,
    device::LAYOUTS,
    queue::LAYOUTS,
    work_queue::LAYOUTS,
];

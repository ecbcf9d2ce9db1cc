//! RDMA verbs for Linux without C: a userspace provider and driver for mlx5 and rxe.

pub mod control;
pub mod data;
pub mod error;
pub mod sys;
pub mod verbs;

pub use error::{Error, Result};
pub use verbs::*;

/// What the libibverbs plug-in stands on: the untyped core below [`verbs`]. Not for anyone else; it may change
/// with every release.
#[doc(hidden)]
pub mod ffi_core {
    pub use crate::control::kernel::*;
    pub use crate::control::mlx5 as mlx5_control;
    pub use crate::control::refusal;
    pub use crate::control::vfio::linux::MLX5_DEVICE_IDS;
    pub use crate::data::mlx5;
    pub use crate::data::rxe;
    pub use crate::data::rxe::PostError;
    pub use crate::sys::errno::Errno;
    pub use crate::sys::fd::UverbsFd;
    pub use crate::sys::kernel::KernelRef;
    pub use crate::sys::mapping::SharedMapping;
    pub use crate::sys::pages::page_size;
    pub use uverbs_abi;
    pub use wqe_format;
}

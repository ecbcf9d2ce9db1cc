//! RDMA verbs for Linux without C: a userspace provider and driver for mlx5 and rxe.

pub mod control;
pub mod data;
pub mod error;
pub mod sys;
pub mod verbs;

pub use error::{Error, Result};
pub use verbs::*;

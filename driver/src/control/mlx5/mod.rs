//! How mlx5 objects come to exist through the kernel.
//!
//! The kernel's mlx5 driver leaves the memory of the queues to the process: buffers, doorbell records
//! and the choice of doorbell register are made here and named in the driver's part of the create
//! commands. What comes out is an owned object with the data path's queues ([`crate::data`]) in it.

pub mod av;
pub mod buffer;
pub mod context;
pub mod cq;
pub mod dbrec;
pub mod dm;
pub mod domain;
pub mod entry;
pub mod environment;
mod file;
pub mod geometry;
mod pages;
pub mod placement;
pub mod qp;
pub mod qp_modify;
pub mod response;
pub mod special;
pub mod srq;
pub mod tags;
pub mod uar;
pub mod user_index;
pub mod wq;

pub use context::{Mlx5Context, OpenError, Opened};

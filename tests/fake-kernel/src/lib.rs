//! Answers uverbs calls in process, like Linux 6.12 with rxe or mlx5 devices.
//!
//! [`FakeKernel`] is a transport-independent emulator: it takes requests apart with the decoding side of
//! `uverbs-abi`, keeps objects with their references, and gives out real mappings (the command descriptor is a
//! sparse memory file). There are two ways to it:
//!
//! * [`oxverbs::sys::kernel::Kernel`], the driver's own seam;
//! * `fake-kernel-preload`, by which Debian's unmodified libibverbs and its providers run on it, preloaded or
//!   linked into an executable. They come first: what they do not run on proves nothing.
//!
//! It counts calls, makes the k-th one fail ([`Fault`]), records what was sent ([`record`]), lies in answers
//! ([`Lie`]), and says what is still alive ([`Census`]).
//!
//! A room per family: `core` does what Linux' RDMA core does for all; `rxe` has its queues in shared memory and an
//! engine that the doorbell's call runs; `mlx5` takes the program's rings by address, gives out doorbell pages,
//! and has a device behind it ([`hca`]) that writes completions when told to, or executes what is posted
//! ([`hca::Hca::run`], or by itself with [`Mlx5::runs`]).

mod config;
mod core;
mod event;
mod fault;
mod kernel;
mod mlx5;
mod raw;
pub mod record;
mod request;
mod rxe;
mod state;
pub mod sysfs;

pub use config::{Config, Family, Lie, Link, Mlx5};
pub use fault::Fault;
pub use kernel::FakeKernel;
pub use mlx5::hca;
pub use state::Census;

//! Answers uverbs calls in process, like Linux 6.12 with an rxe device.
//!
//! [`FakeKernel`] is a transport-independent emulator: it takes requests apart with the decoding side of
//! `uverbs-abi`, keeps objects with their references, gives out real mappable queues (the command
//! descriptor is a sparse memory file), and moves bytes between queue pairs of the process.
//! There are two ways to it:
//!
//! * [`oxverbs::sys::kernel::Kernel`], the driver's own seam;
//! * `fake-kernel-preload`, a library for `LD_PRELOAD`, by which Debian's unmodified libibverbs and its rxe
//!   provider run on it. They come first: what they do not run on proves nothing.
//!
//! It counts calls, makes the k-th one fail ([`Fault`]), records what was sent ([`record`]), lies in answers
//! ([`Lie`]), and says what is still alive ([`Census`]).
//!
//! A device of another family adds its methods beside [`Config`]'s rxe ones: `methods` and `commands` hold
//! what the core does, `device` and `engine` what rxe does.

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

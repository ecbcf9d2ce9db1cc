//! QEMU guests with Debian kernels in which RDMA programs run.
//!
//! ```no_run
//! use lab::{Config, Guest, Kernel, Provider, Step};
//!
//! # fn main() -> anyhow::Result<()> {
//! let config = Config { kernel: Kernel::Backports, provider: Provider::Official, ..Config::default() };
//! let mut guest = Guest::boot(&config)?;
//! let info = guest.run(Step::new("devinfo", "ibv_devinfo -d rxe0 -v"))?.expect_ok()?;
//! println!("{}", info.stdout);
//!
//! let client = Step::new("client", "ibv_rc_pingpong -g 1 -d rxe0 localhost")
//!     .server(Step::new("server", "ibv_rc_pingpong -g 1 -d rxe0"))
//!     .when_listening(18515);
//! let client = guest.run(client)?.expect_ok()?;
//! assert!(client.servers[0].ok());
//! # Ok(())
//! # }
//! ```
//!
//! Everything comes from Debian's archive (the host's own mirror) into a cache; nothing needs root, and nothing of the
//! host but its kernel is used. Guests are emulated (TCG), never virtualised.

pub mod cache;
pub mod config;
pub mod cpio;
pub mod death;
pub mod debian;
pub mod guest;
pub mod interrupt;
pub mod kernel_image;
pub mod kits;
mod qemu;
pub mod setup;
pub mod step;
pub mod witness;

pub use config::{Config, Profile, Provider, Topology};
pub use death::GuestDied;
pub use guest::{Guest, Resources, Running, Stream, Versions};
pub use interrupt::{Interrupted, interrupt};
pub use kits::{Kernel, Userland};
pub use step::{Ended, Outcome, Step};

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
//! Everything comes from Debian's archive (the host's own mirror) into a [`cache`]; nothing needs root, and nothing of the
//! host but its kernel is used. Guests are emulated (TCG), never virtualised.
//!
//! # What a step finds in the guest
//!
//! | path | is |
//! |---|---|
//! | `/` | the chosen Debian release with rdma-core, perftest, qperf, pyverbs, strace, valgrind, ...; read-only |
//! | `/tmp`, `/run`, `/dev/shm` | memory |
//! | `/share/work` | [`Guest::work`] on the host, writable on both sides |
//! | `/oxverbs/checkout` | the repository, read-only |
//! | `/oxverbs/target` | the build directory, read-only; its profile's programs and examples are in `$PATH` |
//! | `/run/oxverbs/shares/NAME` | a directory of [`Config::shares`], read-only |
//! | `/etc/libibverbs.d` | Debian's files with [`Provider::Official`], ours alone with [`Provider::Ours`] |
//!
//! Two commands are there for convenience: `wait-port PORT` returns once something listens on that TCP port, `claims`
//! prints for each RDMA device the file whose provider code serves it. Steps run as root, with unlimited locked memory.
//!
//! # How it works
//!
//! QEMU starts the ELF kernel directly (its PVH entry) with a small initial file system of busybox and the modules for
//! rxe and 9P. That mounts the release's tree and a shared directory from the host over 9P and hands over to a shell
//! script there, which makes the devices and then takes orders over a virtio serial port. A step's output goes to files
//! in the shared directory, so nothing is lost when the guest dies; the guest is ended by killing QEMU.

pub mod cache;
pub mod config;
mod connectx;
pub mod cpio;
pub mod death;
pub mod debian;
pub mod drop_in;
pub mod guest;
pub mod interrupt;
pub mod kernel_image;
pub mod kits;
pub mod pair;
mod qemu;
pub mod setup;
pub mod step;
pub mod witness;

pub use config::{Cable, Clock, Config, ConnectX, Device, Link, Peer, Profile, Provider, Topology};
pub use death::GuestDied;
pub use guest::{Guest, Resources, Running, Stream, Versions};
pub use interrupt::{Interrupted, interrupt};
pub use kits::{Kernel, Userland};
pub use pair::Pair;
pub use step::{Ended, Outcome, Step};

//! The Linux uverbs kernel ABI: bytes in, bytes out.
//!
//! Everything that passes between a program and `/dev/infiniband/uverbsN`, as typed values and as
//! the bytes they are on the wire, without a system call, an allocation or `unsafe`:
//!
//! * [`ioctl`]: `RDMA_VERBS_IOCTL`, a header and an array of 16-byte attributes. [`Command`] builds
//!   one (a client), [`RequestView`] takes one apart (a kernel emulator, a sandbox, a tracer).
//! * [`object`]: the object tree, the core's and what mlx5 adds to it, one module per method, one
//!   constant per attribute. The attribute's type knows its method, its direction and its value, so
//!   that a command that does not fit its method does not compile.
//! * [`write`](mod@write): the older `write()` commands with both of their framings, and wrapped in
//!   the ioctl `INVOKE_WRITE`.
//! * [`event`]: records read from completion channels and from the asynchronous event file.
//! * [`udata`]: what drivers add to commands and responses.
//! * [`netlink`]: RDMA netlink, by which devices are found.
//! * [`trace`]: requests as text.
//!
//! # A command
//!
//! ```
//! use uverbs_abi::{handle, ioctl::Command, object::cq::create};
//!
//! let mut cmd = Command::<create::Method>::new();
//! cmd.new_handle(create::HANDLE)
//!     .output(create::RESP_CQE)
//!     .input(create::CQE, 256)
//!     .input(create::USER_HANDLE, 0xdead_beef)
//!     .input(create::COMP_VECTOR, 0);
//! // `driver` turns the offsets of `raw` into pointers and calls ioctl(2)
//! let driver_id = uverbs_abi::types::DriverId::RXE;
//! let raw = cmd.prepare(driver_id).unwrap();
//! assert_eq!(raw.frame.bytes().len(), 24 + 5 * 16);
//! // and then
//! let _handle: handle::Cq = cmd.handle(create::HANDLE).unwrap();
//! let _cqe: u32 = cmd.get(create::RESP_CQE).unwrap();
//! ```
//!
//! # Sources
//!
//! Numbers, sizes and offsets come from Linux' headers (`include/uapi/rdma`), as installed by
//! Debian's linux-libc-dev; the crate's tests compile C against those headers and compare every
//! one of them. All integers are in host order unless their type says big-endian: the ABI is
//! between a process and its own kernel.
#![no_std]
#![forbid(unsafe_code)]
#![allow(
    missing_debug_implementations,
    reason = "zerocopy's derives make unnameable types in our macros' name; ours all derive Debug"
)]

#[macro_use]
mod macros;

pub mod event;
pub mod handle;
pub mod ioctl;
pub mod layout;
pub mod netlink;
pub mod object;
mod reserved;
pub mod trace;
pub mod types;
pub mod udata;
pub mod write;

pub use ioctl::{Command, RequestView};
pub use reserved::Reserved;

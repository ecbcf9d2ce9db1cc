//! Write commands: the older half of the ABI, still the only way to many verbs.
//!
//! A command is a number, a request struct and a response struct; drivers append their own data to
//! both. [`WriteCall`] holds one command with all of that and gives it in either framing:
//!
//! * [`invoke`](WriteCall::invoke): as the ioctl method `INVOKE_WRITE` (kernels since 5.0);
//! * [`plain`](WriteCall::plain): as bytes for `write()`.
//!
//! *Extended* commands are a second numbering with a longer header.
//!
//! Source: `uapi rdma/ib_user_verbs.h`, `drivers/infiniband/core/uverbs_cmd.c`, `uverbs_main.c`.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::layout::{HasLayout, Layout};

pub mod ah;
mod call;
pub mod context;
pub mod cq;
pub mod device;
pub mod flow;
pub mod frame;
pub mod mcast;
pub mod mr;
pub mod pd;
pub mod post;
pub mod qp;
pub mod srq;
pub mod wq;
pub mod xrcd;

pub use call::{Plain, WriteCall};

/// A request struct that is a write command.
pub trait WriteCommand: IntoBytes + Immutable + FromBytes + HasLayout {
    /// What the command is.
    const SPEC: &'static WriteSpec;
    /// The response struct; `()` if there is none.
    type Response: FromBytes;
}

/// Description of a write command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSpec {
    /// Number of the command.
    pub number: u32,
    /// Whether it is one of the extended commands.
    pub extended: bool,
    /// The C name.
    pub name: &'static str,
    /// The request struct.
    pub request: &'static Layout,
    /// Bytes of the request struct, without variable parts.
    pub request_len: usize,
    /// Bytes of the response struct.
    pub response_len: usize,
}

impl WriteSpec {
    /// Number and extension as `WRITE_CMD` and the headers carry them.
    pub const fn command(&self) -> u32 {
        if self.extended {
            self.number | frame::FLAG_EXTENDED
        } else {
            self.number
        }
    }

    /// Whether the request struct starts with the address of the response. Extended commands have
    /// it in their header, commands without response nowhere.
    pub const fn has_response_pointer(&self) -> bool {
        !self.extended && self.response_len > 0
    }
}

/// Every write command that this crate knows, by module.
pub const COMMANDS: &[&[&WriteSpec]] = &[
    ah::COMMANDS,
    context::COMMANDS,
    cq::COMMANDS,
    device::COMMANDS,
    flow::COMMANDS,
    mcast::COMMANDS,
    mr::COMMANDS,
    pd::COMMANDS,
    post::COMMANDS,
    qp::COMMANDS,
    srq::COMMANDS,
    wq::COMMANDS,
    xrcd::COMMANDS,
];

/// The description of a command, from the number in `WRITE_CMD` or in a header.
pub fn find(command: u32) -> Option<&'static WriteSpec> {
    let mut all = COMMANDS.iter().flat_map(|module| module.iter());
    all.find(|spec| spec.command() == command).copied()
}

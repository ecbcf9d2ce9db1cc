//! rxe (soft-RoCE): queues in memory shared with the kernel.
//!
//! A queue is a [`queue`] header followed by entries of one power-of-two size: send work requests
//! ([`SendWqe`]), receive work requests ([`RecvWqe`]) or completions ([`Cqe`]). All numbers are in the
//! host's byte order except where a field's type says otherwise.
//!
//! Source of every layout and number: uapi `rdma/rdma_user_rxe.h` and `rdma/ib_user_verbs.h` of Linux 6.12.

mod cqe;
mod describe;
mod entry;
mod operation;
pub mod queue;
mod wqe;

pub use cqe::{Cqe, WcFlags, WcOpcode, WcStatus};
pub use entry::{BadEntry, Payload, SendEntry, Sges};
pub use operation::{Access, BindMw, Flush, Operation, SendFlags, Transport, WrOpcode};
pub use wqe::{AddressVector, Datagram, DmaInfo, NetworkType, RecvWqe, SendWqe, SendWr, Sge};

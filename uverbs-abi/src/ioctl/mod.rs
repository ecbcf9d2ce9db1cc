//! `RDMA_VERBS_IOCTL`: a header and an array of 16-byte attributes.
//!
//! [`wire`] has the bytes, [`attribute`] the types of attributes, [`command`] builds a request,
//! [`request`] takes one apart, [`spec`] describes methods as data.
//!
//! Rules of the wire (`drivers/infiniband/core/uverbs_ioctl.c`):
//!
//! * A payload of up to 8 bytes travels inside the attribute, a longer one by address. That holds
//!   for inputs only; an output always has an address.
//! * Objects and file descriptors travel as numbers inside the attribute, with length 0; for a new
//!   object the kernel writes the number back into the attribute.
//! * [`wire::ATTR_F_MANDATORY`] makes a kernel refuse the call (`EPROTONOSUPPORT`) if it does not know
//!   the attribute; without it the kernel ignores what it does not know. An attribute that appears
//!   twice is refused.
//! * The kernel sets [`wire::ATTR_F_VALID_OUTPUT`] in outputs that it wrote.

pub mod attribute;
pub mod command;
mod error;
pub mod request;
pub mod spec;
pub mod wire;

pub use command::{Command, Raw, Slot};
pub use error::Error;
pub use request::{AttrView, Malformed, RequestView};
pub use spec::{AttributeSpec, HasUhw, Kind, Method, MethodSpec};

//! RDMA netlink: by which devices, their character devices and their resources are found.
//!
//! Requests go to a socket of protocol [`NETLINK_RDMA`]; answers come as one or more datagrams, each of
//! several messages. This module has the framing (`uapi linux/netlink.h`), [`nldev`] the
//! messages (`uapi rdma/rdma_netlink.h`). No socket here:
//!
//! ```
//! use uverbs_abi::netlink::{Body, messages, nldev};
//!
//! let request = nldev::get_devices(1);
//! // send request.bytes(), receive into `datagram`, until `Body::Done`
//! # let datagram: &[u8] = &[];
//! for message in messages(datagram) {
//!     match message.unwrap().body() {
//!         Body::Data(payload) => {
//!             let device = nldev::Device::parse(payload).unwrap();
//!             println!("{}: {}", device.index, device.name);
//!         }
//!         Body::Error(errno) => println!("errno {errno}"),
//!         Body::Done => {}
//!     }
//! }
//! ```
//!
//! Parsers take any bytes without a panic. Integers are in host order.

use core::fmt;

use zerocopy::{FromBytes, IntoBytes};

pub mod nldev;
mod request;

pub use request::Request;

/// Protocol of the socket.
pub const NETLINK_RDMA: i32 = 20;
/// The request asks for something (`NLM_F_REQUEST`).
pub const NLM_F_REQUEST: u16 = 1;
/// The answer has several messages and ends in one of type done (`NLM_F_MULTI`).
pub const NLM_F_MULTI: u16 = 2;
/// The kernel confirms the request (`NLM_F_ACK`).
pub const NLM_F_ACK: u16 = 4;
/// All entries instead of one (`NLM_F_DUMP`).
pub const NLM_F_DUMP: u16 = 0x300;
/// Type of a message with an errno (`NLMSG_ERROR`).
pub const NLMSG_ERROR: u16 = 2;
/// Type of the last message of several (`NLMSG_DONE`).
pub const NLMSG_DONE: u16 = 3;
/// Marks the type of an attribute that holds attributes (`NLA_F_NESTED`).
pub const NLA_F_NESTED: u16 = 1 << 15;
/// The type without marks.
pub const NLA_TYPE_MASK: u16 = 0x3fff;

abi_structs! {
    /// Header of a message.
    "nlmsghdr" Header [16] {
        /// Bytes of the message with this header, without padding.
        0 nlmsg_len: u32,
        4 nlmsg_type: u16,
        6 nlmsg_flags: u16,
        /// Comes back in answers.
        8 nlmsg_seq: u32,
        12 nlmsg_pid: u32,
    }

    /// Header of an attribute.
    "nlattr" AttrHeader [4] {
        /// Bytes of the attribute with this header, without padding.
        0 nla_len: u16,
        2 nla_type: u16,
    }
}

/// Messages and attributes start at multiples of 4.
const ALIGN: usize = 4;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// A length reaches beyond the bytes, or not over its own header.
    Length,
    /// An attribute that every such message has is absent.
    Missing(nldev::Attr),
    /// An attribute's value has another size than its type, or is no string.
    Value(nldev::Attr),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("a netlink length does not fit"),
            Self::Missing(attr) => write!(f, "netlink attribute {attr:?} is absent"),
            Self::Value(attr) => write!(f, "netlink attribute {attr:?} has an unusable value"),
        }
    }
}

impl core::error::Error for Malformed {}

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: &'b [u8],
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'b> {
    /// An answer: attributes.
    Data(&'b [u8]),
    /// A refusal, with a positive errno; 0 is a confirmation ([`NLM_F_ACK`]).
    Error(i32),
    /// The end of an answer of several messages.
    Done,
}

impl<'b> Message<'b> {
    /// What the message is.
    pub fn body(&self) -> Body<'b> {
        let errno = || i32::read_from_prefix(self.payload).map_or(0, |(errno, _)| errno);
        match self.header.nlmsg_type {
            // wraps only for a number that no kernel sends
            NLMSG_ERROR => Body::Error(errno().wrapping_neg()),
            // an answer of several messages that was broken off ends in an errno
            NLMSG_DONE if errno() < 0 => Body::Error(errno().wrapping_neg()),
            NLMSG_DONE => Body::Done,
            _ => Body::Data(self.payload),
        }
    }

    /// The command that a message of [`Body::Data`] answers, if it is one of NLDEV's.
    pub fn command(&self) -> Option<nldev::Command> {
        let kind = self.header.nlmsg_type;
        (kind >> 10 == nldev::CLIENT).then_some(nldev::Command(kind & 0x3ff))
    }
}

/// The messages of a datagram. An error ends the iteration.
pub fn messages(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

/// Iterator of [`messages`].
#[derive(Clone, Debug)]
pub struct Messages<'b> {
    rest: &'b [u8],
}

impl<'b> Iterator for Messages<'b> {
    type Item = Result<Message<'b>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        let Ok((header, _)) = Header::read_from_prefix(bytes) else {
            return Some(Err(Malformed::Length));
        };
        let len = usize::try_from(header.nlmsg_len).unwrap_or(usize::MAX);
        match bytes.get(size_of::<Header>()..len) {
            Some(payload) => {
                self.rest = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
                Some(Ok(Message { header, payload }))
            }
            None => Some(Err(Malformed::Length)),
        }
    }
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'b> {
    /// Its number.
    pub attr: nldev::Attr,
    /// Its value.
    pub value: &'b [u8],
}

impl<'b> Attribute<'b> {
    /// The value as a number of exactly the type's size.
    pub fn number<T: FromBytes>(&self) -> Result<T, Malformed> {
        T::read_from_bytes(self.value).map_err(|_| Malformed::Value(self.attr))
    }

    /// The value as a number of any size up to 8 bytes.
    pub fn any_number(&self) -> Result<u64, Malformed> {
        match self.value.len() {
            1 => self.number::<u8>().map(u64::from),
            2 => self.number::<u16>().map(u64::from),
            4 => self.number::<u32>().map(u64::from),
            _ => self.number::<u64>(),
        }
    }

    /// The value as a string that ends in a zero byte.
    pub fn string(&self) -> Result<&'b str, Malformed> {
        core::ffi::CStr::from_bytes_until_nul(self.value)
            .ok()
            .and_then(|text| text.to_str().ok())
            .ok_or(Malformed::Value(self.attr))
    }

    /// The attributes that the value holds.
    pub fn nested(&self) -> Attributes<'b> {
        attributes(self.value)
    }
}

/// The attributes of a message's payload, or of an attribute's value. An error ends the iteration.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// Iterator of [`attributes`].
#[derive(Clone, Debug)]
pub struct Attributes<'b> {
    rest: &'b [u8],
}

impl<'b> Iterator for Attributes<'b> {
    type Item = Result<Attribute<'b>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        let Ok((header, _)) = AttrHeader::read_from_prefix(bytes) else {
            return Some(Err(Malformed::Length));
        };
        let len = usize::from(header.nla_len);
        match bytes.get(size_of::<AttrHeader>()..len) {
            Some(value) => {
                self.rest = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
                let attr = nldev::Attr(header.nla_type & NLA_TYPE_MASK);
                Some(Ok(Attribute { attr, value }))
            }
            None => Some(Err(Malformed::Length)),
        }
    }
}

/// Appends `value` to `bytes` at `at` and gives the aligned end; `None` if it does not fit.
fn put_attribute(bytes: &mut [u8], at: usize, kind: u16, value: &[u8]) -> Option<usize> {
    let len = size_of::<AttrHeader>() + value.len();
    let end = at.checked_add(len.next_multiple_of(ALIGN))?;
    let room = bytes.get_mut(at..end)?;
    let header = AttrHeader {
        nla_len: u16::try_from(len).ok()?,
        nla_type: kind,
    };
    let (head, body) = room.split_at_mut(size_of::<AttrHeader>());
    head.copy_from_slice(header.as_bytes());
    let (body, padding) = body.split_at_mut(value.len());
    body.copy_from_slice(value);
    padding.fill(0);
    Some(end)
}

//! Whole send queue entries taken apart: for dumps, and for who plays the kernel's side of a queue.

use core::fmt;

use zerocopy::FromBytes;

use super::operation::{Operation, SendFlags, Transport, WrOpcode};
use super::wqe::{Datagram, SendWqe, Sge};

/// A send queue entry with what follows its head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendEntry<'a> {
    /// The head as it stands in the queue.
    pub wqe: SendWqe,
    /// What it asks for.
    pub operation: Operation,
    /// Where it goes, if the queue pair sends datagrams.
    pub datagram: Option<Datagram>,
    /// With what.
    pub payload: Payload<'a>,
}

/// What follows the head of a send queue entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// Scatter/gather elements.
    Sges(Sges<'a>),
    /// The data itself.
    Inline(&'a [u8]),
    /// The value of an atomic write.
    Value([u8; 8]),
}

/// Scatter/gather elements of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sges<'a>(&'a [[u8; size_of::<Sge>()]]);

impl<'a> Sges<'a> {
    /// `count` elements at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// There are not that many.
    pub fn new(bytes: &'a [u8], count: u32) -> Result<Self, BadEntry> {
        let elements = bytes.as_chunks().0;
        match elements.get(..count as usize) {
            Some(elements) => Ok(Self(elements)),
            None => Err(BadEntry::TooShort),
        }
    }

    /// The elements.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Sge> + use<'a> {
        self.0.iter().map(|bytes| zerocopy::transmute!(*bytes))
    }
}

/// Why bytes are not a send queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadEntry {
    /// The bytes end before the entry does.
    TooShort,
    /// An opcode that rxe does not have.
    Opcode(u32),
    /// An operation that the transport does not have.
    Transport(WrOpcode, Transport),
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("the bytes end before the entry does"),
            Self::Opcode(number) => write!(f, "no operation has number {number}"),
            Self::Transport(opcode, transport) => {
                write!(f, "{transport:?} queue pairs have no {opcode:?}")
            }
        }
    }
}

impl core::error::Error for BadEntry {}

impl<'a> SendEntry<'a> {
    /// Takes apart the entry at the start of `bytes`, of a queue pair of kind `transport`. Any bytes are allowed.
    ///
    /// # Errors
    ///
    /// The bytes are no entry.
    pub fn decode(bytes: &'a [u8], transport: Transport) -> Result<Self, BadEntry> {
        let (wqe, rest) = SendWqe::read_from_prefix(bytes).map_err(|_| BadEntry::TooShort)?;
        let operation = wqe.wr.operation();
        let operation = operation.ok_or(BadEntry::Opcode(wqe.wr.raw_opcode))?;
        let opcode = operation.opcode();
        if !opcode.may_be_posted_on(transport) {
            return Err(BadEntry::Transport(opcode, transport));
        }
        let payload = if opcode == WrOpcode::AtomicWrite {
            Payload::Value(*rest.first_chunk().ok_or(BadEntry::TooShort)?)
        } else if !opcode.has_local_memory() {
            Payload::None
        } else if wqe.wr.flags().contains(SendFlags::INLINE) && opcode.can_be_inline() {
            let data = rest.get(..wqe.dma.length as usize);
            Payload::Inline(data.ok_or(BadEntry::TooShort)?)
        } else {
            Payload::Sges(Sges::new(rest, wqe.dma.num_sge)?)
        };
        Ok(Self {
            wqe,
            operation,
            datagram: matches!(transport, Transport::Ud).then(|| wqe.wr.datagram()),
            payload,
        })
    }
}

impl fmt::Display for SendEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.wqe)?;
        if let Some(datagram) = &self.datagram {
            write!(f, " to {datagram}")?;
        }
        match self.payload {
            Payload::None => Ok(()),
            Payload::Inline(data) => write!(f, ": {} inline", data.len()),
            Payload::Value(value) => write!(f, ": value {:#x}", u64::from_ne_bytes(value)),
            Payload::Sges(sges) => {
                let mut separator = ": ";
                for sge in sges.iter() {
                    write!(
                        f,
                        "{separator}{:#x}+{:#x} lkey {:#x}",
                        sge.addr, sge.length, sge.lkey
                    )?;
                    separator = ", ";
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qp {:#x} qkey {:#x}", self.remote_qpn, self.remote_qkey)?;
        if self.ah_num != 0 {
            return write!(f, " ah {}", self.ah_num);
        }
        let [a, b, c, d, e, g] = self.av.dmac;
        write!(f, " port {}", self.av.port_num)?;
        write!(f, " mac {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")?;
        let gid = core::net::Ipv6Addr::from(self.av.dgid);
        write!(f, " gid {gid}")
    }
}

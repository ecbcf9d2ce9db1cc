//! What the posting and the polling side of a queue share.
//!
//! A poster writes what a completion will need (the work request's id, what it was) before it gives the work request to
//! the device; a poller reads it when the completion has come. The device stands between the two, so both sides use
//! relaxed atomics, and the barriers of [`sys::barrier`](crate::sys::barrier) order them against the device. In the
//! other direction the poller publishes how far the queue is complete: a tail, released by the poller and acquired by
//! the poster, who may then write over what lies before it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::srq::SrqShared;

mod receive;
mod send;

pub use receive::RecvShared;
pub(super) use receive::WrIds;
use send::Records;
pub(super) use send::{RawRecord, Slots};
pub use send::{SendShared, WorkKind, WorkRecord};

/// What kind of queue a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// XRC initiator.
    XrcSend,
    /// XRC target: its receive work requests are in XRC shared receive queues.
    XrcRecv,
    /// Raw Ethernet packets.
    RawPacket,
    /// Dynamically connected initiator.
    Dci,
    /// Dynamically connected target.
    Dct,
    /// A shared receive queue for XRC or with tags, which completions name by its own user index.
    NamedSrq,
    /// A receive work queue of an indirection table.
    Rwq,
}

/// Where a queue's receive work requests are.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a record is allocated once, and a box would cost a load in every completion"
)]
// A tag of its own: pollers ask for it with every receive, and a niche would have to be decoded.
#[repr(u8)]
pub enum ReceiveSide {
    /// It has none (or an XRC target: the completion names the shared queue).
    None,
    /// In its own ring.
    Own(RecvShared),
    /// In a shared receive queue.
    Shared(Arc<SrqShared>),
    /// In one with a list of tags.
    Tagged(Arc<SrqShared>),
}

impl ReceiveSide {
    /// In a shared receive queue, with tags or without.
    pub fn shared(srq: Arc<SrqShared>) -> Self {
        match srq.tags() {
            Some(_) => Self::Tagged(srq),
            None => Self::Shared(srq),
        }
    }
}

/// Keeps memory that a queue lies in.
pub type KeepAlive = Box<dyn Any + Send + Sync>;

/// What is known about a queue whose completions can arrive: found by the user index that the device puts into them.
pub struct QueueRecord {
    records: Records,
    kind: QueueKind,
    number: u32,
    cookie: usize,
    send: Option<SendShared>,
    receive: ReceiveSide,
    checksums: bool,
    /// Whether receives are of a ring of its own, and nothing is to be said of their checksums.
    plain_receive: bool,
    /// The memory that `send` and `receive` point to; a late completion may still look at it.
    _memory: Option<KeepAlive>,
}

impl QueueRecord {
    /// A record. `number` is the queue pair's or queue's number; `cookie` is the maker's and comes back with every
    /// completion (libibverbs' object, for the plug-in).
    ///
    /// `memory` is dropped with the record: not before the last poller that could have found it is done.
    ///
    /// # Safety
    ///
    /// The rings that `send` and `receive` point to are readable and writable in their whole length as long as the record
    /// exists, which `memory` may see to.
    pub unsafe fn new(
        kind: QueueKind,
        number: u32,
        cookie: usize,
        send: Option<SendShared>,
        receive: ReceiveSide,
        memory: Option<KeepAlive>,
    ) -> Self {
        Self {
            records: send.as_ref().map_or(Records::none(), Records::of),
            kind,
            number,
            cookie,
            send,
            plain_receive: matches!(receive, ReceiveSide::Own(_)),
            receive,
            checksums: false,
            _memory: memory,
        }
    }

    /// What is found where there is no record: it neither sends nor receives.
    pub(super) const fn nobodys() -> Self {
        Self {
            records: Records::none(),
            kind: QueueKind::Rc,
            number: 0,
            cookie: 0,
            send: None,
            receive: ReceiveSide::None,
            checksums: false,
            plain_receive: false,
            _memory: None,
        }
    }

    /// The record of the send work request that a completion is about; `last` is the entry's last word, as a number: the
    /// counter stands in its upper half. Of a queue that sends nothing, one that is not plain.
    #[inline(always)]
    pub(super) fn work(&self, last: u32) -> RawRecord {
        // SAFETY: they are of this queue, or of none.
        unsafe { self.records.find(last) }
    }

    /// The send queue.
    ///
    /// # Safety
    ///
    /// It has one: [`work`](Self::work) gave a plain record.
    #[inline(always)]
    pub(super) unsafe fn send_unchecked(&self) -> &SendShared {
        // SAFETY: the caller's promise.
        unsafe { self.send.as_ref().unwrap_unchecked() }
    }

    /// Its own receive queue, if nothing is to be said of the checksums of what it receives.
    #[inline(always)]
    pub(super) fn plain_receive(&self) -> Option<&RecvShared> {
        if !self.plain_receive {
            return None;
        }
        match &self.receive {
            ReceiveSide::Own(recv) => Some(recv),
            // SAFETY: the mark was made for the other kind, which never changes.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Its completions say whether checksums of packets are right: the device checks them for this kind of queue pair
    /// (never for a receive work queue, whose `IBV_WC_IP_CSUM_OK` libmlx5 does not report).
    #[must_use]
    pub fn with_checksums(mut self) -> Self {
        self.checksums = true;
        self.plain_receive = false;
        self
    }

    /// Whether its completions say that checksums are right.
    #[inline]
    pub fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// Kind of the queue.
    #[inline]
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    /// Its number.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The maker's value.
    #[inline]
    pub fn cookie(&self) -> usize {
        self.cookie
    }

    /// Its send queue, if it has one.
    #[inline]
    pub fn send(&self) -> Option<&SendShared> {
        self.send.as_ref()
    }

    /// Its receive side.
    #[inline]
    pub fn receive(&self) -> &ReceiveSide {
        &self.receive
    }

    /// Its own receive queue, if it has one.
    #[inline]
    pub fn recv(&self) -> Option<&RecvShared> {
        match &self.receive {
            ReceiveSide::Own(recv) => Some(recv),
            _ => None,
        }
    }

    /// The shared receive queue that it receives from, or is.
    #[inline]
    pub fn srq(&self) -> Option<&Arc<SrqShared>> {
        match &self.receive {
            ReceiveSide::Shared(srq) | ReceiveSide::Tagged(srq) => Some(srq),
            _ => None,
        }
    }
}

impl fmt::Debug for QueueRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueRecord")
            .field("kind", &self.kind)
            .field("number", &self.number)
            .field("send", &self.send)
            .field("receive", &self.receive)
            .finish_non_exhaustive()
    }
}

//! What the posting and the polling side of a queue share.
//!
//! A poster writes what a completion will need (the work request's id, what it was) before it gives the work request to
//! the device; a poller reads it when the completion has come. The device stands between the two, so both sides use
//! relaxed atomics, and the barriers of [`sys::barrier`](crate::sys::barrier) order them against the device. In the
//! other direction the poller publishes how far the queue is complete: a tail, released by the poller and acquired by
//! the poster, who may then write over what lies before it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::protocol::tail;
use super::srq::SrqShared;

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
    /// An XRC shared receive queue, which completions name by its own user index.
    XrcSrq,
    /// A receive work queue of an indirection table.
    Rwq,
}

/// What a send work request was, where the completion's opcode does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkKind {
    /// As the completion says.
    Plain = 0,
    /// A memory window was bound.
    BindMw = 1,
    /// A key was invalidated.
    LocalInv = 2,
    /// A memory key was configured (`IBV_WC_DRIVER1`).
    Mkey = 3,
    /// The program built the work request itself (`IBV_WC_DRIVER2`).
    Raw = 4,
    /// The device copied memory (`IBV_WC_DRIVER3`).
    Memcpy = 5,
    /// Canceled before it was begun; as its own opcode says, not the completion's.
    Canceled = 6,
}

/// What is remembered of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRecord {
    /// The program's number.
    pub wr_id: u64,
    /// Work requests posted up to this one and with it: the queue's tail once it is complete.
    pub head: u32,
    /// Opcode in its control segment.
    pub opcode: u8,
    /// What it was.
    pub kind: WorkKind,
}

/// One record in memory: 16 bytes, written by two stores.
#[derive(Debug, Default)]
#[repr(C, align(16))]
struct WorkSlot {
    wr_id: AtomicU64,
    /// `head`, then the opcode in bits 32..40, then the kind in bits 40..48; bit 63 if that is not [`WorkKind::Plain`].
    rest: AtomicU64,
}

/// The bit of a record that says that its kind is not [`WorkKind::Plain`]: a poller sees it as a sign.
const NOT_PLAIN: u64 = 1 << 63;

/// A record's second word.
#[inline(always)]
const fn rest(head: u32, opcode: u8, kind: WorkKind) -> u64 {
    let mark = if matches!(kind, WorkKind::Plain) {
        0
    } else {
        NOT_PLAIN
    };
    head as u64 | (opcode as u64) << 32 | (kind as u64) << 40 | mark
}

/// The only record of a queue that sends nothing: a poller that meets it takes the long way.
static NO_WORK: WorkSlot = WorkSlot {
    wr_id: AtomicU64::new(0),
    rest: AtomicU64::new(NOT_PLAIN),
};

/// A record as it is in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord {
    /// The program's number.
    pub(super) wr_id: u64,
    pub(super) rest: u64,
}

impl RawRecord {
    /// Of no work request: a plain one with the number 0.
    pub(super) const NONE: Self = Self { wr_id: 0, rest: 0 };

    /// [`WorkRecord::head`].
    #[inline]
    pub(super) const fn head(self) -> u32 {
        self.rest as u32
    }

    /// Whether the completion says all about what it was.
    #[inline]
    pub(super) const fn is_plain(self) -> bool {
        self.rest & NOT_PLAIN == 0
    }

    /// Its parts.
    #[inline]
    pub(super) const fn decode(self) -> WorkRecord {
        WorkRecord {
            wr_id: self.wr_id,
            head: self.head(),
            opcode: (self.rest >> 32) as u8,
            kind: match (self.rest >> 40) as u8 {
                1 => WorkKind::BindMw,
                2 => WorkKind::LocalInv,
                3 => WorkKind::Mkey,
                4 => WorkKind::Raw,
                5 => WorkKind::Memcpy,
                6 => WorkKind::Canceled,
                _ => WorkKind::Plain,
            },
        }
    }
}

/// Where the records of a send queue are, for its poster, who keeps it in a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots(NonNull<WorkSlot>);

impl Slots {
    /// As [`SendShared::set_record`].
    ///
    /// # Safety
    ///
    /// The queue that it is of exists, and `block` is below its number of blocks.
    #[inline(always)]
    pub(super) unsafe fn set(self, block: u32, wr_id: u64, head: u32, opcode: u8, kind: WorkKind) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.0.add(block as usize) };
        // SAFETY: one of the records, which live as long as the queue.
        let slot = unsafe { slot.as_ref() };
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.rest.store(rest(head, opcode, kind), Ordering::Relaxed);
    }
}

impl Slots {
    /// The same of a plain work request; `rest` is its head, and its opcode in bits 32 to 39.
    ///
    /// # Safety
    ///
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub(super) unsafe fn set_plain(self, block: u32, wr_id: u64, rest: u64) {
        const { assert!(WorkKind::Plain as u64 == 0) };
        // SAFETY: the caller's promise.
        let slot = unsafe { self.0.add(block as usize) };
        // SAFETY: one of the records, which live as long as the queue.
        let slot = unsafe { slot.as_ref() };
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.rest.store(rest, Ordering::Relaxed);
    }
}

/// The part of a send queue that its poller knows.
pub struct SendShared {
    slots: Box<[WorkSlot]>,
    /// Their number less one.
    mask: u32,
    tail: CachePadded<AtomicU32>,
    ring: NonNull<u8>,
    /// The key whose memory does not exist; zero if the device has none.
    null_lkey: u32,
}

// SAFETY: the ring is memory of the process, not of a thread; the pointer is only handed out.
unsafe impl Send for SendShared {}
// SAFETY: as above, and all else is atomic or never changes.
unsafe impl Sync for SendShared {}

impl SendShared {
    /// For a ring of `wqebbs` blocks of 64 bytes at `ring`. `null_lkey` is the device's `dump_fill_mkey`, which data is
    /// not scattered to; zero if there is none.
    ///
    /// # Panics
    ///
    /// If the number of blocks is not a power of two up to 2^16.
    pub fn new(ring: NonNull<u8>, wqebbs: u32, null_lkey: u32) -> Self {
        assert!(wqebbs.is_power_of_two() && wqebbs <= 1 << 16);
        Self {
            slots: (0..wqebbs).map(|_| WorkSlot::default()).collect(),
            mask: wqebbs - 1,
            tail: CachePadded::new(AtomicU32::new(0)),
            ring,
            null_lkey,
        }
    }

    /// Start of the ring.
    #[inline]
    pub fn ring(&self) -> NonNull<u8> {
        self.ring
    }

    /// Blocks of 64 bytes in the ring: a power of two.
    #[inline]
    pub fn wqebbs(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The key that data is not scattered to, if there is one.
    #[inline]
    pub fn null_lkey(&self) -> u32 {
        self.null_lkey
    }

    #[inline]
    fn slot(&self, wqebb: u32) -> &WorkSlot {
        let place = (wqebb & self.mask) as usize;
        // SAFETY: the mask is the length, a power of two, less one, so the masked index is below the length.
        unsafe { self.slots.get_unchecked(place) }
    }

    /// Where the records are.
    pub(super) fn slots(&self) -> Slots {
        Slots(NonNull::from(&*self.slots).cast())
    }

    /// As [`record`](Self::record), not decoded yet.
    #[inline]
    pub(super) fn raw_record(&self, wqebb: u32) -> RawRecord {
        let slot = self.slot(wqebb);
        RawRecord {
            wr_id: slot.wr_id.load(Ordering::Relaxed),
            rest: slot.rest.load(Ordering::Relaxed),
        }
    }

    /// The record of the work request that begins at a block; counters of more bits than the ring has are brought into
    /// its range, so `wqe_counter` of a completion does as it is.
    #[inline]
    pub fn record(&self, wqebb: u32) -> WorkRecord {
        self.raw_record(wqebb).decode()
    }

    /// Remembers a work request that begins at a block.
    #[inline]
    pub fn set_record(&self, wqebb: u32, record: WorkRecord) {
        let slot = self.slot(wqebb);
        let rest = rest(record.head, record.opcode, record.kind);
        slot.wr_id.store(record.wr_id, Ordering::Relaxed);
        slot.rest.store(rest, Ordering::Relaxed);
    }

    /// Work requests that are complete, as the poster sees it; what lies before is the poster's again.
    #[inline]
    pub fn tail(&self) -> u32 {
        tail::observe(&*self.tail)
    }

    /// Says that all work requests up to a record's `head` are complete. The poller does not look at their memory or
    /// their records after this.
    #[inline]
    pub fn complete(&self, head: u32) {
        tail::publish(&*self.tail, head);
    }

    /// Back to nothing posted, after the queue pair went to RESET and its completions were removed.
    pub fn reset(&self) {
        self.complete(0);
    }
}

impl fmt::Debug for SendShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendShared")
            .field("wqebbs", &self.slots.len())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

/// Where a poller finds the records of a send queue, or the one of a queue that has none.
#[derive(Clone, Copy, Debug)]
struct Records {
    start: NonNull<WorkSlot>,
    /// Which bits of a record's distance from the start, in bytes, are in range.
    distances: u32,
}

// SAFETY: the records are atomic, and memory of the process, not of a thread.
unsafe impl Send for Records {}
// SAFETY: as above.
unsafe impl Sync for Records {}

impl Records {
    const fn none() -> Self {
        Self {
            start: NonNull::from_ref(&NO_WORK),
            distances: 0,
        }
    }

    fn of(shared: &SendShared) -> Self {
        Self {
            start: shared.slots().0,
            distances: shared.mask * size_of::<WorkSlot>() as u32,
        }
    }
}

/// The ids of the work requests in a receive queue's entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrIds<'a> {
    start: NonNull<AtomicU64>,
    _shared: PhantomData<&'a [AtomicU64]>,
}

impl WrIds<'_> {
    /// As [`RecvShared::set_wr_id`].
    ///
    /// # Safety
    ///
    /// `entry` is below the number of entries.
    #[inline(always)]
    pub(super) unsafe fn set(&self, entry: u32, wr_id: u64) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.start.add(entry as usize) };
        // SAFETY: one of the ids, which are borrowed.
        unsafe { slot.as_ref() }.store(wr_id, Ordering::Relaxed);
    }
}

/// The part of a receive queue (a queue pair's own, or a receive work queue) that its poller knows.
pub struct RecvShared {
    wr_ids: Box<[AtomicU64]>,
    /// Their number less one.
    mask: u32,
    tail: CachePadded<AtomicU32>,
    ring: NonNull<u8>,
    stride_shift: u32,
    signature: bool,
    null_lkey: u32,
}

// SAFETY: as for `SendShared`.
unsafe impl Send for RecvShared {}
// SAFETY: as for `SendShared`.
unsafe impl Sync for RecvShared {}

impl RecvShared {
    /// For a ring of `entries` of 2^`stride_shift` bytes. With `signature`, the first 16 bytes of an entry are none of
    /// its scatter list.
    ///
    /// # Panics
    ///
    /// If the number of entries is not a power of two up to 2^16, or the stride is not at least 16 bytes and below 64 KiB.
    pub fn new(
        ring: NonNull<u8>,
        entries: u32,
        stride_shift: u32,
        signature: bool,
        null_lkey: u32,
    ) -> Self {
        assert!(entries.is_power_of_two() && entries <= 1 << 16);
        assert!((4..16).contains(&stride_shift));
        Self {
            wr_ids: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            mask: entries - 1,
            tail: CachePadded::new(AtomicU32::new(0)),
            ring,
            stride_shift,
            signature,
            null_lkey,
        }
    }

    /// Start of the ring.
    #[inline]
    pub fn ring(&self) -> NonNull<u8> {
        self.ring
    }

    /// Entries in the ring: a power of two.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.wr_ids.len() as u32
    }

    /// An entry is 2 to the power of this many bytes.
    #[inline]
    pub fn stride_shift(&self) -> u32 {
        self.stride_shift
    }

    /// Whether an entry begins with 16 bytes of signature.
    #[inline]
    pub fn has_signature(&self) -> bool {
        self.signature
    }

    /// The key that data is not scattered to, if there is one.
    #[inline]
    pub fn null_lkey(&self) -> u32 {
        self.null_lkey
    }

    /// The ids, for a loop that keeps where they are in a register.
    #[inline(always)]
    pub(super) fn wr_ids(&self) -> WrIds<'_> {
        WrIds {
            start: NonNull::from(&*self.wr_ids).cast(),
            _shared: PhantomData,
        }
    }

    #[inline]
    fn slot(&self, entry: u32) -> &AtomicU64 {
        let place = (entry & self.mask) as usize;
        // SAFETY: the mask is the length, a power of two, less one, so the masked index is below the length.
        unsafe { self.wr_ids.get_unchecked(place) }
    }

    /// The id of the work request in an entry; counters of more bits than the ring has are brought into its range.
    #[inline]
    pub fn wr_id(&self, entry: u32) -> u64 {
        self.slot(entry).load(Ordering::Relaxed)
    }

    /// Remembers the id of the work request in an entry.
    #[inline]
    pub fn set_wr_id(&self, entry: u32, wr_id: u64) {
        self.slot(entry).store(wr_id, Ordering::Relaxed);
    }

    /// Work requests that are complete, as the poster sees it.
    #[inline]
    pub fn tail(&self) -> u32 {
        tail::observe(&*self.tail)
    }

    /// Work requests that are complete, for the poller, who alone changes it.
    #[inline]
    pub fn own_tail(&self) -> u32 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Says that one more is complete. Only the poller of the queue's completions calls it. The poller does not look
    /// at the entry or its id after this.
    #[inline]
    pub fn complete_one(&self) {
        self.complete(1);
    }

    /// Says that so many more are complete.
    #[inline]
    pub fn complete(&self, count: u32) {
        tail::publish(&*self.tail, self.own_tail().wrapping_add(count));
    }

    /// Back to nothing posted, after the queue pair went to RESET and its completions were removed.
    pub fn reset(&self) {
        tail::publish(&*self.tail, 0);
    }

    /// As if so many had been posted and completed.
    #[cfg(test)]
    pub(super) fn start_at(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
    }
}

impl fmt::Debug for RecvShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvShared")
            .field("entries", &self.wr_ids.len())
            .field("stride_shift", &self.stride_shift)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
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
        const SHIFT: u32 = 16 - size_of::<WorkSlot>().trailing_zeros();
        let distance = (last >> SHIFT & self.records.distances) as usize;
        // SAFETY: within the records: a multiple of their size, cut to their number, or to the only one.
        let slot = unsafe { self.records.start.byte_add(distance) };
        // SAFETY: a record, which lives as long as the queue.
        let slot = unsafe { slot.as_ref() };
        RawRecord {
            wr_id: slot.wr_id.load(Ordering::Relaxed),
            rest: slot.rest.load(Ordering::Relaxed),
        }
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
            ReceiveSide::Shared(srq) => Some(srq),
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

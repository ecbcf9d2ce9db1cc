//! What is remembered of send work requests, and how far their queue is complete.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::super::protocol::tail;

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

impl WorkSlot {
    #[inline(always)]
    fn load(&self) -> RawRecord {
        RawRecord {
            wr_id: self.wr_id.load(Ordering::Relaxed),
            rest: self.rest.load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn store(&self, wr_id: u64, rest: u64) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Relaxed);
    }
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
pub(in crate::data::mlx5) struct RawRecord {
    /// The program's number.
    pub(in crate::data::mlx5) wr_id: u64,
    pub(in crate::data::mlx5) rest: u64,
}

impl RawRecord {
    /// Of no work request: a plain one with the number 0.
    pub(in crate::data::mlx5) const NONE: Self = Self { wr_id: 0, rest: 0 };

    /// [`WorkRecord::head`].
    #[inline]
    pub(in crate::data::mlx5) const fn head(self) -> u32 {
        self.rest as u32
    }

    /// Whether the completion says all about what it was.
    #[inline]
    pub(in crate::data::mlx5) const fn is_plain(self) -> bool {
        self.rest & NOT_PLAIN == 0
    }

    /// Its parts.
    #[inline]
    pub(in crate::data::mlx5) const fn decode(self) -> WorkRecord {
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
pub(in crate::data::mlx5) struct Slots(NonNull<WorkSlot>);

impl Slots {
    /// As [`SendShared::set_record`].
    ///
    /// # Safety
    ///
    /// The queue that it is of exists, and `block` is below its number of blocks.
    #[inline(always)]
    pub(in crate::data::mlx5) unsafe fn set(
        self,
        block: u32,
        wr_id: u64,
        head: u32,
        opcode: u8,
        kind: WorkKind,
    ) {
        // SAFETY: passed on.
        unsafe { self.put(block, wr_id, rest(head, opcode, kind)) };
    }

    /// The same of a plain work request; `rest` is its head, and its opcode in bits 32 to 39.
    ///
    /// # Safety
    ///
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub(in crate::data::mlx5) unsafe fn set_plain(self, block: u32, wr_id: u64, rest: u64) {
        const { assert!(WorkKind::Plain as u64 == 0) };
        // SAFETY: passed on.
        unsafe { self.put(block, wr_id, rest) };
    }

    /// # Safety
    ///
    /// As for [`set`](Self::set).
    #[inline(always)]
    unsafe fn put(self, block: u32, wr_id: u64, rest: u64) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.0.add(block as usize) };
        // SAFETY: one of the records, which live as long as the queue.
        unsafe { slot.as_ref() }.store(wr_id, rest);
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
    pub(in crate::data::mlx5) fn slots(&self) -> Slots {
        Slots(NonNull::from(&*self.slots).cast())
    }

    /// As [`record`](Self::record), not decoded yet.
    #[inline]
    pub(in crate::data::mlx5) fn raw_record(&self, wqebb: u32) -> RawRecord {
        self.slot(wqebb).load()
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
        let rest = rest(record.head, record.opcode, record.kind);
        self.slot(wqebb).store(record.wr_id, rest);
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
pub(super) struct Records {
    start: NonNull<WorkSlot>,
    /// Which bits of a record's distance from the start, in bytes, are in range.
    distances: u32,
}

// SAFETY: the records are atomic, and memory of the process, not of a thread.
unsafe impl Send for Records {}
// SAFETY: as above.
unsafe impl Sync for Records {}

impl Records {
    pub(super) const fn none() -> Self {
        Self {
            start: NonNull::from_ref(&NO_WORK),
            distances: 0,
        }
    }

    pub(super) fn of(shared: &SendShared) -> Self {
        Self {
            start: shared.slots().0,
            distances: shared.mask * size_of::<WorkSlot>() as u32,
        }
    }

    /// See [`QueueRecord::work`](super::QueueRecord::work).
    ///
    /// # Safety
    ///
    /// The queue that they are of exists.
    #[inline(always)]
    pub(super) unsafe fn find(self, last: u32) -> RawRecord {
        const SHIFT: u32 = 16 - size_of::<WorkSlot>().trailing_zeros();
        let distance = (last >> SHIFT & self.distances) as usize;
        // SAFETY: within the records: a multiple of their size, cut to their number, or to the only one.
        let slot = unsafe { self.start.byte_add(distance) };
        // SAFETY: a record, which lives as long as the queue.
        unsafe { slot.as_ref() }.load()
    }
}

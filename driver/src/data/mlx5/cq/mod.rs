//! The completion queue.
//!
//! A ring of entries that the device writes and the program reads; a bit in each says whose it is. A poll looks at the
//! next entry's last byte, finds the queue that the entry is about by the number in it, takes the work request's
//! number from that queue's record, and tells the device, once per poll, how far it came.
//!
//! | file | idea |
//! |---|---|
//! | `ring` | where entries stand |
//! | `handover` | whose an entry is |
//! | `parse` | what an entry means for its queue |
//! | `batch` | polling into an array |
//! | `run` | the same of entries that are all alike |
//! | `arrange` | fields to a completion's words |
//! | `lazy` | polling one by one, fields on request |
//! | `scatter` | data inside entries |
//! | `tagged` | entries about tags |
//! | `arm` | asking for an event |
//! | `clean`, `resize` | entries taken out, entries moved |
//! | `compressed` | entries that stand for several |
//! | `clock` | device time to wall-clock time |
//! | `dump` | what is written about errors |
//!
//! Nothing that an entry says is trusted. One that is about no known queue, or of no known kind, is *dropped*: it makes
//! no completion, polling goes on behind it, and [`dropped`](CompletionQueue::dropped) counts it. (libmlx5 returns an
//! error then, and the completions before it in the same call are lost.) A call drops at most as many entries as the
//! queue has.

mod arm;
mod arrange;
mod batch;
mod clean;
mod clock;
mod completion;
mod compressed;
mod dump;
mod handover;
mod lazy;
mod parse;
mod resize;
mod ring;
mod run;
mod scatter;
mod tagged;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use wqe_format::mlx5::CqeFormat;

pub use arm::EventCount;
pub(crate) use clock::offset as clock_offset;
pub use clock::{ClockBusy, ClockInfo, ClockPage};
pub use completion::{Completion, flag as wc_flag, opcode as wc_opcode};
pub use dump::ErrorLog;
pub use lazy::NothingTaken;
pub use resize::{NewRing, ResizeError};

use arm::Doorbell;
use compressed::Compression;
use lazy::Current;
use parse::Readers;
use ring::{CqRing, Entry};
use scatter::InlineData;

use super::protection::SignatureKeys;
use super::record::KeepAlive;
use super::table::UserIndexTable;

/// How entries name the queue that they are about: what the kernel answered in `cqe_version`.
#[derive(Clone, Debug)]
pub enum CqeVersion {
    /// By queue pair number, or by shared receive queue number.
    V0 {
        /// Records by queue pair number.
        queue_pairs: Arc<UserIndexTable>,
        /// Records by shared receive queue number.
        shared_queues: Arc<UserIndexTable>,
    },
    /// By the user index that the queue was created with.
    V1(Arc<UserIndexTable>),
}

/// What a completion queue is made of.
pub struct CqParts {
    /// Its entries.
    pub ring: NonNull<u8>,
    /// Their number, a power of two.
    pub entries: u32,
    /// Bytes of one: 64 or 128.
    pub entry_size: u32,
    /// The device's number of the queue.
    pub cqn: u32,
    /// Its doorbell record: consumer index and arming.
    pub doorbell_record: NonNull<u32>,
    /// The page of device registers that it is armed by.
    pub uar: NonNull<u8>,
    /// How entries name queues.
    pub version: CqeVersion,
    /// The kernel's clock page, where lazy polling is to give wall-clock times.
    pub clock: Option<ClockPage>,
    /// Where errors are written about.
    pub error_log: Arc<ErrorLog>,
    /// Where errors of keys' signatures are kept.
    pub signatures: Arc<SignatureKeys>,
    /// Keeps the ring and the doorbell record.
    pub memory: Option<KeepAlive>,
}

impl fmt::Debug for CqParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqParts")
            .field("entries", &self.entries)
            .field("entry_size", &self.entry_size)
            .field("cqn", &self.cqn)
            .finish_non_exhaustive()
    }
}

/// The number or size of entries is not one that a queue can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCqGeometry;

impl fmt::Display for BadCqGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a completion queue has a power of two of entries, up to 2^24, of 64 or 128 bytes",
        )
    }
}

impl std::error::Error for BadCqGeometry {}

/// Which of the ways of polling suits a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// Version 1, entries of 64 bytes.
    Narrow,
    /// The same, by a processor that can do what [`arrange::Best`] needs, where visits to the table need no barrier.
    Frequent,
    /// Version 1, entries of 128 bytes.
    Wide,
    /// Version 0.
    Version0,
    /// Entries may be compressed.
    Compressed,
}

/// A completion queue. Whoever has `&mut` to it polls; it may be sent to another thread.
///
/// ```
/// fn can_be_sent<T: Send>() {}
/// can_be_sent::<oxverbs::data::mlx5::CompletionQueue>();
/// ```
pub struct CompletionQueue {
    /// The next entry, or one that is never ours if entries may be compressed, so that a poll goes the long way.
    next: Entry,
    /// The next entry's owner bit if it is ours.
    parity: u8,
    mode: Mode,
    /// Entries taken, modulo 2^32. Changed by `go_to` and `step` only, together with the two above.
    ci: u32,
    ring: CqRing,
    v1: bool,
    doorbell: Doorbell,
    readers: Readers,
    dropped: u64,
    cqn: u32,
    events: EventCount,
    clock: Option<ClockPage>,
    clock_info: ClockInfo,
    current: Current,
    error_log: Arc<ErrorLog>,
    signatures: Arc<SignatureKeys>,
    compression: Option<Compression>,
    /// Keeps the ring after a resize.
    ring_memory: Option<KeepAlive>,
    _memory: Option<KeepAlive>,
}

impl CompletionQueue {
    /// A queue whose entries are marked here as never written.
    ///
    /// # Errors
    ///
    /// See [`BadCqGeometry`].
    ///
    /// # Safety
    ///
    /// - The ring (`entries * entry_size` bytes, aligned to 64) and the doorbell record (8 bytes, aligned to 8) are readable
    ///   and writable as long as `memory` or the queue exists, the page of registers (40 bytes, aligned to 8) writable;
    ///   nobody accesses them but the queue and, later, the device.
    /// - The buffers of work requests that complete here stay writable until their completion is taken, as posting them
    ///   promised: data inside completions is copied there.
    pub unsafe fn new(parts: CqParts) -> Result<Self, BadCqGeometry> {
        let ring = CqRing::new(parts.ring, parts.entries, parts.entry_size).ok_or(BadCqGeometry)?;
        // SAFETY: ours alone by contract.
        unsafe { ring.mark_never_written() };
        let (v1, readers) = match parts.version {
            CqeVersion::V1(table) => (
                true,
                Readers {
                    queues: table.reader(),
                    shared: None,
                },
            ),
            CqeVersion::V0 {
                queue_pairs,
                shared_queues,
            } => (
                false,
                Readers {
                    queues: queue_pairs.reader(),
                    shared: Some(shared_queues.reader()),
                },
            ),
        };
        Ok(Self {
            next: ring.at(0),
            parity: ring.parity(0),
            ring,
            ci: 0,
            mode: match (v1, ring.is_wide()) {
                (true, false) if arrange::has_best() && readers.queues.is_one_sided() => {
                    Mode::Frequent
                }
                (true, false) => Mode::Narrow,
                (true, true) => Mode::Wide,
                (false, _) => Mode::Version0,
            },
            v1,
            // SAFETY: passed on.
            doorbell: unsafe { Doorbell::new(parts.doorbell_record, parts.uar) },
            readers,
            dropped: 0,
            cqn: parts.cqn,
            events: EventCount::default(),
            clock: parts.clock,
            clock_info: ClockInfo::default(),
            current: Current::nothing(ring.at(0)),
            error_log: parts.error_log,
            signatures: parts.signatures,
            compression: None,
            ring_memory: None,
            _memory: parts.memory,
        })
    }

    /// The device's number, which the kernel gives when the queue is created: after the ring was made.
    pub fn set_cqn(&mut self, cqn: u32) {
        self.cqn = cqn;
    }

    /// The device's number.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Entries in the ring: one more than `ibv_create_cq` is told.
    pub fn entries(&self) -> u32 {
        self.ring.count()
    }

    /// Entries taken so far, modulo 2^32.
    pub fn consumer_index(&self) -> u32 {
        self.ci
    }

    /// Entries that made no completion because they were about no known queue or of no known kind.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What counts the events taken of this queue; whoever takes them counts.
    pub fn event_count(&self) -> EventCount {
        self.events.clone()
    }

    /// Asks for an event at the next completion, or at the next solicited or failed one.
    #[inline]
    pub fn arm(&self, solicited_only: bool) {
        self.doorbell
            .arm(self.events.get(), solicited_only, self.ci, self.cqn);
    }

    /// Keeps an error of a key's signature at the key. It makes no completion; without such a key it is dropped.
    #[cold]
    fn keep_signature_error(&mut self, entry: Entry) {
        if !self.signatures.keep(entry.get().as_signature_error()) {
            self.dropped += 1;
        }
    }

    /// Goes on with entry `ci`.
    fn go_to(&mut self, ci: u32) {
        self.ci = ci;
        self.next = self.ring.at(ci);
        self.parity = self.ring.parity(ci);
        if self.mode == Mode::Compressed {
            (self.next, self.parity) = (Entry::nobodys(), 0);
        }
    }

    /// Goes on behind the next entry, `entry`. Not with compression.
    #[inline(always)]
    fn step<const WIDE: bool>(&mut self, entry: Entry) {
        self.ci = self.ci.wrapping_add(1);
        // SAFETY: the entry is in the ring.
        self.next = unsafe { entry.after::<WIDE>() };
        if self.next == self.ring.end() {
            self.turn();
        }
    }

    /// The ring's end was reached: goes on with its first entry, in the next lap.
    #[inline(always)]
    fn turn(&mut self) {
        self.next = self.ring.at(0);
        self.parity ^= 1;
    }

    /// The data inside an entry, if its format says so and its size has room for it.
    ///
    /// The base is the 64 bytes with the fields (32 bytes of data) or those before them (64), for sends as for
    /// receives. Debian's libmlx5 44 and 56 read a send's from elsewhere in 128-byte entries (fixed upstream by
    /// rdma-core 45184d2c8).
    fn inline_data(&self, cqe: Entry, length: u32) -> Option<InlineData> {
        let format = cqe.get().format();
        let at = match format {
            CqeFormat::INLINE_32 => cqe.at(),
            // SAFETY: the fields are the upper half of the entry.
            CqeFormat::INLINE_64 if self.ring.is_wide() => unsafe { cqe.at().sub(64) },
            _ => return None,
        };
        Some(InlineData {
            at,
            room: parse::inline_room(format),
            length,
        })
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("cqn", &self.cqn)
            .field("ring", &self.ring)
            .field("ci", &self.ci)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

/// Asks the processor to load a line that is about to be read.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads no memory as far as the program sees, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

const _: () = {
    const fn can_be_sent<T: Send>() {}
    can_be_sent::<CompletionQueue>();
};

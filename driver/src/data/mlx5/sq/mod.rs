//! The send queue.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the queue's state: what is posted, what is complete, giving it to the device |
//! | `request` | what can be posted |
//! | `list` | posting whole work requests, one or a list (`ibv_post_send`) |
//! | `quick` | the frequent ones among them, by straight stores |
//! | `draft` | describing a batch step by step (`ibv_wr_*`): the frequent steps, by straight stores |
//! | `steps` | the rarer steps |
//! | `operation` | what a work request of such a batch does |
//! | `segments` | local memory, windows, packets: the segments that both write |
//! | `umr` | configuring memory keys |
//! | `signed` | the same of keys with signatures |
//! | `cancel` | canceling what the device has not begun |
//! | `changes` | changes of a list of tags |

mod cancel;
mod changes;
mod draft;
mod list;
mod operation;
mod quick;
mod request;
mod segments;
mod signed;
mod steps;
mod umr;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DS_UNIT, SEND_WQE_BB, doorbell, signature};

pub(super) use changes::Changes;
pub use draft::Draft;
pub use operation::Operation;
pub use request::{
    AtomicOperands, Bind, Destination, InlinePiece, Remote, Segmentation, SendFlags, SendRequest,
    WrOpcode,
};

pub use signed::SignatureUpdate;
pub use umr::{KeyLayout, KeyUpdate, PatternPiece};

use super::error::PostError;
use super::record::{QueueKind, QueueRecord, SendShared, Slots, WorkKind};
use super::register::{Announced, Register};
use super::ring::{SendRing, Unit};
use crate::sys::barrier;

/// Units of a block.
const BLOCK_UNITS: u32 = (SEND_WQE_BB / DS_UNIT) as u32;

/// What the queue pair's creation and the device say about a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Work requests that can be posted and not complete.
    pub max_wr: u32,
    /// Scatter/gather elements of one.
    pub max_sge: u32,
    /// Inline bytes of one.
    pub max_inline: u32,
    /// Bytes of headers that raw packets have inline: 0 or 18.
    pub min_inline_header: u32,
    /// Bytes of payload that the device cuts into packets; zero if it does not.
    pub max_tso: u32,
    /// Bytes of headers of such.
    pub max_tso_header: u32,
    /// Whether raw packets may ask for checksums.
    pub checksums: bool,
    /// Whether the device does atomics.
    pub atomics: bool,
    /// Bytes that one copy request copies at most; zero if the device does not copy.
    pub max_copy: u64,
}

/// What a send queue is made of.
#[derive(Debug)]
pub struct SendParts {
    /// Shared with pollers; has the ring.
    pub record: Arc<QueueRecord>,
    /// The pair's doorbell record: the second big-endian word of it counts blocks.
    pub doorbell: NonNull<u32>,
    /// The register.
    pub register: Register,
    /// Limits.
    pub limits: SendLimits,
    /// Whether each work request makes a completion, asked for or not (`sq_sig_all`).
    pub signal_all: bool,
    /// Whether work requests are signed.
    pub signature: bool,
}

/// A send queue: work requests are written into free blocks of the ring, and given to the device batch by batch.
pub struct SendQueue {
    ring: SendRing,
    /// The records in `record`.
    slots: Slots,
    /// Blocks that were posted, modulo 2^32; the device counts them modulo 2^16.
    blocks: u32,
    /// Work requests that were posted.
    head: u32,
    /// At this `head` the queue may be full, or the next work request has a fence.
    stop: u32,
    /// The queue pair's number.
    qpn: u32,
    /// The same in the place that it has in a control segment's first word.
    qpn_word: u32,
    /// Flags of each work request.
    always: CtrlFlags,
    /// The next work request's fence, if it asks for none.
    fence: CtrlFlags,
    signature: bool,
    accepting: bool,
    kind: QueueKind,
    /// The most inline bytes of a frequent one.
    max_short: u32,
    /// Which opcodes are frequent ones.
    table: &'static quick::Table,
    /// Which classes of operations a batch may have.
    classes: u16,
    /// A draft's state before its first work request: which of them go by the frequent steps (see [`draft::state`]).
    ready: u32,
    /// The same behind a frequent one.
    done: u32,
    /// For those: see [`operation::second_words`].
    second_words: [u64; 8],
    /// Units of the transport's own segment, behind the control segment.
    transport: u32,
    /// Units of 16 bytes of one work request: more could run into blocks that are still posted.
    max_ds: u32,
    limits: SendLimits,
    doorbell: NonNull<u32>,
    register: Register,
    record: Arc<QueueRecord>,
}

// SAFETY: the ring, the doorbell record and the register are the process's, not a thread's; they are written through `&mut`
// or, by drafts, through `&` of a value that is not `Sync`.
unsafe impl Send for SendQueue {}

/// How far a batch is.
#[derive(Clone, Copy, Debug)]
struct Position {
    blocks: u32,
    head: u32,
    fence: CtrlFlags,
}

/// The last work request of a batch.
#[derive(Clone, Copy, Debug)]
struct Last {
    ctrl: NonNull<Unit>,
    /// Its units of 16 bytes.
    ds: u32,
    inline: bool,
}

impl SendQueue {
    /// A queue.
    ///
    /// # Panics
    ///
    /// If the record has no send queue, `max_wr` is not between 1 and the number of blocks, or the inline header is
    /// neither 0 nor 18 bytes.
    ///
    /// # Safety
    ///
    /// The doorbell record is writable and aligned to 8 bytes as long as the queue exists. Nobody but the device, and the
    /// record's pollers, accesses the ring. There is no other queue over the same ring.
    pub unsafe fn new(parts: SendParts) -> Self {
        let SendParts {
            record,
            doorbell,
            register,
            limits,
            signal_all,
            signature,
        } = parts;
        let shared = record.send().expect("a record with a send queue");
        // SAFETY: the ring is readable and writable as long as the record exists, by the promise of who made it.
        let ring = unsafe { SendRing::new(shared.ring(), shared.wqebbs()) };
        assert!(limits.max_wr != 0 && limits.max_wr <= ring.wqebbs());
        assert!(limits.min_inline_header == 0 || limits.min_inline_header == 18);
        let of_one = ring.wqebbs() / limits.max_wr * BLOCK_UNITS;
        let always = if signal_all {
            CtrlFlags::CQ_UPDATE
        } else {
            CtrlFlags::NONE
        };
        let frequent = operation::frequent(record.kind(), !signature);
        let ready = u32::from(frequent) << draft::state::CLASSES_SHIFT;
        Self {
            ring,
            slots: shared.slots(),
            blocks: 0,
            head: 0,
            stop: 0,
            qpn: record.number(),
            qpn_word: record.number() << 8,
            always,
            second_words: operation::second_words(always),
            fence: CtrlFlags::NONE,
            signature,
            accepting: false,
            kind: record.kind(),
            table: quick::table(record.kind(), !signature && limits.max_sge != 0, signal_all),
            classes: operation::classes(record.kind()),
            ready,
            done: ready | draft::state::TAKES,
            transport: segments::transport_units(record.kind()),
            max_short: quick::max_short(limits.max_inline, of_one),
            max_ds: of_one.min(CtrlSegment::MAX_DS.into()),
            limits,
            doorbell,
            register,
            record,
        }
    }

    /// The limits of one work request.
    #[inline]
    pub fn limits(&self) -> &SendLimits {
        &self.limits
    }

    /// What is shared with pollers.
    #[inline]
    pub fn record(&self) -> &Arc<QueueRecord> {
        &self.record
    }

    /// The register.
    #[inline]
    pub fn register(&self) -> &Register {
        &self.register
    }

    #[inline(always)]
    fn shared(&self) -> &SendShared {
        match self.record.send() {
            Some(shared) => shared,
            // SAFETY: `new` saw that there is one, and a record never changes.
            None => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Work requests that can be posted now.
    pub fn free(&self) -> u32 {
        let used = self.head.wrapping_sub(self.shared().tail());
        self.limits.max_wr.saturating_sub(used)
    }

    /// Blocks that were posted: what the doorbell record says, before it is cut to 16 bits.
    pub fn posted_blocks(&self) -> u32 {
        self.blocks
    }

    /// Work requests that were posted.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Whether the queue pair's state lets work requests in: from RTS on, also in SQD, SQE and ERR.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
        // The next post looks.
        self.stop = self.head;
    }

    /// Back to nothing posted, after the queue pair went to RESET and its completions were removed. The doorbell record is
    /// cleared too.
    pub fn reset(&mut self) {
        self.accepting = false;
        self.blocks = 0;
        self.head = 0;
        self.stop = 0;
        self.fence = CtrlFlags::NONE;
        self.shared().reset();
        self.store_doorbell(self.blocks);
    }

    /// Starts the counters elsewhere, so that tests need not post 65536 blocks to see them wrap.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, blocks: u32, head: u32) {
        self.blocks = blocks;
        self.head = head;
        self.stop = head;
        self.shared().complete(head);
    }

    #[inline(always)]
    fn position(&self) -> Position {
        Position {
            blocks: self.blocks,
            head: self.head,
            fence: self.fence,
        }
    }

    /// Where the queue may be full, as far as pollers said by now.
    #[cold]
    #[inline(never)]
    fn look_for_room(&self, head: u32) -> Result<u32, PostError> {
        if !self.accepting {
            return Err(PostError::WrongState);
        }
        let stop = self.shared().tail().wrapping_add(self.limits.max_wr);
        if stop == head {
            return Err(PostError::QueueFull);
        }
        Ok(stop)
    }

    /// Ends a work request that is written: signs it if that is asked for, remembers it for the poller, steps over it.
    #[inline(always)]
    fn finish(&self, position: &mut Position, ds: u32, wr_id: u64, opcode: u8, kind: WorkKind) {
        if self.signature {
            self.sign(position.blocks, ds);
        }
        position.head = position.head.wrapping_add(1);
        self.remember(position.blocks, wr_id, position.head, opcode, kind);
        position.blocks = position.blocks.wrapping_add((ds + 3) >> 2);
    }

    /// Remembers a work request for the poller.
    #[inline(always)]
    fn remember(&self, blocks: u32, wr_id: u64, head: u32, opcode: u8, kind: WorkKind) {
        let block = blocks & self.ring.mask();
        // SAFETY: there are as many records as blocks, and we have the record that they are in.
        unsafe { self.slots.set(block, wr_id, head, opcode, kind) };
    }

    #[cold]
    #[inline(never)]
    fn sign(&self, blocks: u32, ds: u32) {
        let mut bytes = [0; CtrlSegment::MAX_DS as usize * DS_UNIT];
        for (place, chunk) in bytes.chunks_exact_mut(DS_UNIT).enumerate() {
            if place < ds as usize {
                let at = self.ring.unit((blocks << 2).wrapping_add(place as u32));
                // SAFETY: a unit of the ring that belongs to the work request.
                let unit: Unit = unsafe { at.read() };
                chunk.copy_from_slice(zerocopy::IntoBytes::as_bytes(&unit));
            }
        }
        let byte = signature::of_wqe(&bytes);
        // SAFETY: `signature` is the ninth byte of the control segment.
        let at = unsafe { self.ring.block(blocks).cast::<u8>().add(8) };
        // SAFETY: as above; the work request is ours.
        unsafe { at.write(byte) };
    }

    /// The work request of so many units before a block.
    #[inline(always)]
    fn last_before(&self, blocks: u32, ds: u32, inline: bool) -> Last {
        Last {
            ctrl: self.ring.block(blocks.wrapping_sub((ds + 3) >> 2)),
            ds,
            inline,
        }
    }

    #[inline(always)]
    fn store_doorbell(&self, blocks: u32) {
        // SAFETY: the second of the record's two words.
        let word = unsafe { self.doorbell.add(doorbell::RECORD_SEND) };
        // SAFETY: writable and aligned by the promise of who made the queue.
        let word = unsafe { AtomicU32::from_ptr(word.as_ptr()) };
        word.store(doorbell::queue_record(blocks), Ordering::Relaxed);
    }

    /// Gives what was written since the last time to the device.
    #[inline(always)]
    fn announce(&mut self, position: Position, last: Last) {
        let alone = position.head.wrapping_sub(self.head) == 1;
        self.fence = position.fence;
        // SAFETY: nothing is promised.
        unsafe { self.announce_to::<false>(position.blocks, position.head, last, alone) };
    }

    /// `alone` says whether there is one work request.
    ///
    /// # Safety
    ///
    /// With `EXCLUSIVE`, the register belongs to this queue.
    #[inline(always)]
    unsafe fn announce_to<const EXCLUSIVE: bool>(
        &mut self,
        blocks: u32,
        head: u32,
        last: Last,
        alone: bool,
    ) {
        self.blocks = blocks;
        self.head = head;
        barrier::device_sees_wqe_before_doorbell_record();
        self.store_doorbell(blocks);
        let announced = Announced {
            ctrl: last.ctrl.cast(),
            ds: last.ds,
            alone,
            inline: last.inline,
        };
        if EXCLUSIVE {
            // SAFETY: the caller's promise; spares the way for others.
            unsafe { std::hint::assert_unchecked(self.register.is_exclusive()) };
        }
        // SAFETY: the last work request is complete and lies in the ring, which is whole blocks.
        unsafe { self.register.ring(announced, &self.ring) };
    }
}

impl fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("kind", &self.kind)
            .field("number", &self.record.number())
            .field("blocks", &self.blocks)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

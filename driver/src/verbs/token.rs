//! Buffers that a queue keeps until their work requests complete.

use std::sync::atomic::{AtomicU64, Ordering};

use super::completion::Completion;
use super::mr::RegionSlice;

/// Names a safely posted work request; its completion has it as `wr_id`.
///
/// Bit 63 is set, so it differs from any number below 2^63 that the program chooses for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

const TAG: u64 = 1 << 63;
const SLOT_BITS: u32 = 20;
const LAP_BITS: u32 = 16;

impl Token {
    /// The `wr_id` of its completion.
    pub fn wr_id(self) -> u64 {
        self.0
    }

    /// Whether the completion is that of this work request.
    pub fn is_of(self, completion: &Completion) -> bool {
        completion.wr_id() == self.0
    }
}

/// The buffers of one queue, by slot; all memory is allocated when the queue is made.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Tag and number of the table: it tells queues apart that share a completion queue.
    table: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Counts uses, so that a completion read twice does not free the slot's next buffer.
    lap: u16,
    buffer: Option<RegionSlice>,
}

impl Tokens {
    /// Room for as many work requests as the queue holds.
    pub(super) fn new(capacity: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let capacity = capacity.min(1 << SLOT_BITS);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % (1 << (63 - SLOT_BITS - LAP_BITS));
        Self {
            table: TAG | number << (SLOT_BITS + LAP_BITS),
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Makes room for a queue that was resized; buffers stay.
    pub(super) fn grow(&mut self, capacity: u32) {
        let old = self.slots.len() as u32;
        for slot in old..capacity.min(1 << SLOT_BITS) {
            self.slots.push(Slot::default());
            self.free.insert(0, slot);
        }
    }

    /// The token of the next buffer to keep; `None` if all slots are taken.
    #[inline]
    pub(super) fn next(&self) -> Option<Token> {
        let &slot = self.free.last()?;
        let lap = u64::from(self.slots[slot as usize].lap);
        Some(Token(self.table | lap << SLOT_BITS | u64::from(slot)))
    }

    /// Keeps the buffer of the work request that was posted with [`next`](Self::next).
    #[inline]
    pub(super) fn keep(&mut self, buffer: RegionSlice) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].buffer = Some(buffer);
        }
    }

    /// Gives the buffer of a completed work request back; `None` if it is not of this queue.
    #[inline]
    pub(super) fn reclaim(&mut self, wr_id: u64) -> Option<RegionSlice> {
        let index = wr_id & ((1 << SLOT_BITS) - 1);
        let lap = (wr_id >> SLOT_BITS) as u16;
        let table = wr_id >> (SLOT_BITS + LAP_BITS) << (SLOT_BITS + LAP_BITS);
        let slot = self.slots.get_mut(index as usize)?;
        if table != self.table || lap != slot.lap {
            return None;
        }
        let buffer = slot.buffer.take()?;
        slot.lap = slot.lap.wrapping_add(1);
        self.free.push(index as u32);
        Some(buffer)
    }
}

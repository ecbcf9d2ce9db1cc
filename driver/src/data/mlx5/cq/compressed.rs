//! Compressed completions, made ordinary in place.
//!
//! A block of compressed completions takes as many entries of the ring as it has completions. So when the consumer meets
//! one, it writes each completion into the entry that the block took for it, with that entry's owner bit: from then on
//! the ring is one of ordinary entries, and a poll of one completion, a clean or a resize in the middle of a block have
//! nothing to know. No entry is left that could seem to be valid on a later turn.
//!
//! Unproven on hardware, and off unless [`enable_compression`](CompletionQueue::enable_compression) is called: no library that
//! the tests run reads such completions. libmlx5 lets a program ask for them and then leaves them to it.

use wqe_format::mlx5::compressed::{Block, Layout, Title, is_valid_enhanced};
use wqe_format::mlx5::{Cqe64, CqeFormat, MiniArray, MiniFormat, OpOwn};

use super::batch::Taken;
use super::completion::Completion;
use super::handover::is_ours;
use super::ring::{CqRing, Entry};
use super::{CompletionQueue, Mode};
use crate::sys::barrier;

/// How a queue's completions are compressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compression {
    layout: Layout,
    format: MiniFormat,
    /// The entry before the consumer's next: an enhanced block takes from it what its completions share.
    last: Option<Cqe64>,
}

impl CompletionQueue {
    /// Reads compressed completions, of the layout and the format that the kernel was asked for when the queue was made.
    /// Called before the first completion. Says whether it is possible: only entries of 64 bytes can be compressed.
    pub fn enable_compression(&mut self, layout: Layout, format: MiniFormat) -> bool {
        if self.ring.is_wide() {
            return false;
        }
        self.mode = Mode::Compressed;
        self.compression = Some(Compression {
            layout,
            format,
            last: None,
        });
        self.go_to(self.ci);
        true
    }

    /// Entry `ci`, if it is ours; a block that begins there is made ordinary. Entries between the consumer's index and
    /// `ci` are ours.
    pub(super) fn entry_at(&mut self, ci: u32) -> Option<Entry> {
        let Some(compression) = self.compression else {
            return self.ring.ours(ci);
        };
        let entry = self.ring.at(ci);
        let [turn, op_own] = entry.turn_and_op_own();
        barrier::completion_is_read_after_its_owner_bit();
        let log_size = self.ring.count().ilog2();
        let valid = match compression.layout {
            Layout::Basic => is_ours(op_own, self.ring.parity(ci)),
            Layout::Enhanced => is_valid_enhanced(turn, OpOwn::from_bits(op_own), ci, log_size),
        };
        if !valid {
            return None;
        }
        if OpOwn::from_bits(op_own).format() == CqeFormat::COMPRESSED {
            self.make_ordinary(&compression, ci, entry, log_size);
        }
        Some(entry)
    }

    /// Writes a block's completions into its entries. A block that cannot be one stays as it is, and its entry is dropped
    /// when it is taken.
    #[cold]
    fn make_ordinary(&self, compression: &Compression, ci: u32, entry: Entry, log_size: u32) {
        let cqe = entry.get();
        let block = match compression.layout {
            Layout::Basic => Block::basic(&cqe, ci, log_size, compression.format),
            Layout::Enhanced => {
                let before = if ci == self.ci {
                    compression.last
                } else {
                    Some(self.ring.at(ci.wrapping_sub(1)).get())
                };
                let title = before
                    .and_then(|cqe| Title::new(&cqe, Layout::Enhanced, compression.format).ok());
                Block::enhanced(title, cqe.op_own, ci, log_size)
            }
        };
        // The entries of the block must be ones that the program has not passed to the device: no more than a lap
        // from the consumer's index on.
        let Ok(block) = block else { return };
        let room = self.ring.count() - ci.wrapping_sub(self.ci);
        if block.count() > room {
            return;
        }
        // SAFETY: any 64 bytes are mini entries, as they are an entry; the block's entries are ours.
        let arrays = |index| unsafe { self.ring.at(index).at().cast::<MiniArray>().read() };
        // Mini entries are read eight at a time, before the entry they stand in is written: that is never behind the
        // next completion's.
        for (step, cqe) in block.expand(arrays).enumerate() {
            // SAFETY: an entry of the block, which is ours.
            unsafe { self.ring.write(ci.wrapping_add(step as u32), cqe) };
        }
    }

    /// Moves entry `from` of the ring to `to` of `ring`, valid on its turn there.
    ///
    /// # Safety
    ///
    /// Both are the program's, and the rings' entries have the same size.
    pub(super) unsafe fn move_entry(&self, from: u32, ring: &CqRing, to: u32) {
        // SAFETY: passed on.
        unsafe { self.ring.copy_entry(from, ring, to) };
        if let Some(Compression {
            layout: Layout::Enhanced,
            ..
        }) = self.compression
        {
            let turn = to >> ring.count().ilog2();
            let cqe = Cqe64 {
                signature: turn as u8,
                ..ring.at(to).get()
            };
            // SAFETY: passed on.
            unsafe { ring.write(to, cqe) };
        }
    }

    /// Remembers entry `ci`, which is taken now, for a block that may follow.
    #[inline]
    pub(super) fn remember(&mut self, entry: Entry) {
        if let Some(compression) = &mut self.compression {
            compression.last = Some(entry.get());
        }
    }

    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into).
    #[cold]
    pub(super) unsafe fn poll_compressed(
        &mut self,
        mut out: *mut Completion,
        room: usize,
    ) -> usize {
        let mut left = room;
        let mut lap = self.ring.count();
        self.begin_visit();
        let finders = self.readers.finders();
        while left != 0 && lap != 0 {
            let Some(entry) = self.entry_at(self.ci) else {
                break;
            };
            self.remember(entry);
            let op_own = entry.op_own();
            let what = if self.v1 {
                // SAFETY: a visit has begun; a place is left. The owner bit was looked at in the queue's own way.
                unsafe { self.take_entry::<true>(finders, entry, op_own, op_own & 1, out) }
            } else {
                // SAFETY: as above.
                unsafe { self.take_entry::<false>(finders, entry, op_own, op_own & 1, out) }
            };
            self.go_to(self.ci.wrapping_add(1));
            if what == Taken::Completion {
                // SAFETY: a place was used, so this is at most the array's end.
                out = unsafe { out.add(1) };
                left -= 1;
            } else {
                lap -= 1;
            }
        }
        self.end_visit();
        room - left
    }
}

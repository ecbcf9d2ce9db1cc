//! Whose an entry is: the protocol between device and program, over memory or over loom's model of it.
//!
//! The device writes an entry and then its last byte; the program reads that byte, once, and then the rest. The program
//! says how far it came in the doorbell record after it read the entries; the device writes over them after it read that.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::ring::NEVER_WRITTEN;

/// Whether `op_own` marks an entry of ours where `parity` (0 or 1) is what the lap expects.
#[inline(always)]
pub(super) const fn is_ours(op_own: u8, parity: u8) -> bool {
    // Two conditions in one comparison: rotated, a wrong owner bit stands at the top, and below it 0xf is 0x78 and more.
    (op_own ^ parity).rotate_right(1) < NEVER_WRITTEN >> 1
}

/// The last byte of an entry.
pub(super) trait OwnerByte {
    fn load(&self, order: Ordering) -> u8;
}

impl OwnerByte for AtomicU8 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u8 {
        Self::load(self, order)
    }
}

/// The word that says how far the program came.
pub(super) trait ConsumerWord {
    fn store(&self, value: u32, order: Ordering);
}

impl ConsumerWord for AtomicU32 {
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        Self::store(self, value, order);
    }
}

/// The last byte. What was written before it is seen by what is read after this. (On x86-64 a plain load, because loads
/// are not reordered; devices count as other processors there.)
#[inline(always)]
pub(super) fn look(byte: &impl OwnerByte) -> u8 {
    byte.load(Ordering::Acquire)
}

/// Gives entries back, after all reads of them.
#[inline(always)]
pub(super) fn give_back(word: &impl ConsumerWord, value: u32) {
    word.store(value, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU8 as LoomU8, AtomicU32 as LoomU32};
    use loom::thread;

    use super::*;

    /// Ordered as the code above asks, or not at all.
    struct Byte<const ORDERED: bool>(LoomU8);
    struct Word<const ORDERED: bool>(LoomU32);

    impl<const ORDERED: bool> OwnerByte for Byte<ORDERED> {
        fn load(&self, order: Ordering) -> u8 {
            self.0.load(if ORDERED { order } else { Ordering::Relaxed })
        }
    }

    impl<const ORDERED: bool> ConsumerWord for Word<ORDERED> {
        fn store(&self, value: u32, order: Ordering) {
            self.0
                .store(value, if ORDERED { order } else { Ordering::Relaxed });
        }
    }

    const ENTRIES: u32 = 2;

    /// A ring of two entries, so that one is used again and again. loom reports every access to a cell that is not ordered
    /// against the others.
    struct Queue<const BYTE: bool, const WORD: bool> {
        entries: [(UnsafeCell<u32>, Byte<BYTE>); ENTRIES as usize],
        consumer: Word<WORD>,
    }

    impl<const BYTE: bool, const WORD: bool> Queue<BYTE, WORD> {
        fn new() -> Self {
            let entry = || (UnsafeCell::new(0), Byte(LoomU8::new(NEVER_WRITTEN)));
            Self {
                entries: [entry(), entry()],
                consumer: Word(LoomU32::new(0)),
            }
        }

        /// The device: fields, then the last byte.
        fn write(&self, index: u32, value: u32) -> bool {
            if index - self.consumer.0.load(Ordering::Acquire) == ENTRIES {
                return false;
            }
            let (fields, last) = &self.entries[(index % ENTRIES) as usize];
            // SAFETY: the protocol under test gives the entry to the device alone; loom checks it.
            fields.with_mut(|fields| unsafe { fields.write(value) });
            last.0
                .store(u8::from(index & ENTRIES != 0), Ordering::Release);
            true
        }

        /// As `CompletionQueue::poll`.
        fn poll(&self, ci: &mut u32) -> Option<u32> {
            let (fields, last) = &self.entries[(*ci % ENTRIES) as usize];
            let value = is_ours(look(last), u8::from(*ci & ENTRIES != 0)).then(|| {
                // SAFETY: as above, to the program alone.
                fields.with(|fields| unsafe { fields.read() })
            });
            if value.is_some() {
                *ci += 1;
                give_back(&self.consumer, *ci);
            }
            value
        }
    }

    fn model<const BYTE: bool, const WORD: bool>() {
        loom::model(|| {
            let queue = Arc::new(Queue::<BYTE, WORD>::new());
            let device = queue.clone();
            let device =
                thread::spawn(move || (0..3).take_while(|&n| device.write(n, n + 1)).count());
            let (mut ci, mut seen) = (0, 0);
            for _ in 0..3 {
                if let Some(value) = queue.poll(&mut ci) {
                    assert_eq!(value, seen + 1, "an entry was lost or seen twice");
                    seen = value;
                }
            }
            let written = device.join().unwrap() as u32;
            while let Some(value) = queue.poll(&mut ci) {
                assert_eq!(value, seen + 1, "an entry was lost or seen twice");
                seen = value;
            }
            assert_eq!(seen, written);
        });
    }

    /// B35: whoever sees the owner bit sees the entry, and the device writes over it only after it was read, in every
    /// interleaving and on weakly ordered memory, over two laps.
    #[test]
    fn entries_are_whole_when_their_owner_bit_is_seen() {
        model::<true, true>();
    }

    /// The model is worth something: it finds an owner bit without an order,
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn an_unordered_owner_bit_is_found() {
        model::<false, true>();
    }

    /// and a consumer index without one.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn an_unordered_consumer_index_is_found() {
        model::<true, false>();
    }
}

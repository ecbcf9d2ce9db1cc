//! The protocol of a queue's two indices, over whatever holds them: the mapped header, or loom's model of it.
//!
//! Each side owns one index and keeps a copy of its own; it reads the other's. Publishing releases what was written to
//! the entries before (or that they were read), observing acquires it. Nothing else orders entries and indices.

use std::sync::atomic::{AtomicU32, Ordering};

/// An index that two sides share.
pub(super) trait IndexWord {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
}

impl IndexWord for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        Self::store(self, value, order);
    }
}

/// The other side's index, brought into the queue's range. Entries that it gave away with it are complete.
#[inline]
pub(super) fn observe(word: &impl IndexWord, mask: u32) -> u32 {
    word.load(Ordering::Acquire) & mask
}

/// Gives entries to the other side: the producer those it wrote, the consumer those it is done with.
#[inline]
pub(super) fn publish(word: &impl IndexWord, index: u32) {
    word.store(index, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use wqe_format::rxe::queue::{DATA, Geometry};

    use super::*;

    impl IndexWord for loom::sync::atomic::AtomicU32 {
        fn load(&self, order: Ordering) -> u32 {
            Self::load(self, order)
        }

        fn store(&self, value: u32, order: Ordering) {
            Self::store(self, value, order);
        }
    }

    /// Wrong on purpose: what the model must find.
    struct Unordered(loom::sync::atomic::AtomicU32);

    impl IndexWord for Unordered {
        fn load(&self, _: Ordering) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        fn store(&self, value: u32, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// A queue of two entries, so that one is used again and again. loom reports every access to a cell that is not
    /// ordered against the others.
    struct Queue<W> {
        geometry: Geometry,
        producer: W,
        consumer: W,
        entries: [UnsafeCell<u64>; 2],
    }

    impl<W: IndexWord> Queue<W> {
        fn new(word: impl Fn() -> W) -> Self {
            Self {
                geometry: Geometry::check(3, 1, DATA + 16, 8).unwrap(),
                producer: word(),
                consumer: word(),
                entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            }
        }

        /// As `SendQueue::open`, `close` and `commit`.
        fn post(&self, own: &mut u32, value: u64) -> bool {
            let consumer = observe(&self.consumer, self.geometry.mask());
            if self.geometry.is_full(*own, consumer) {
                return false;
            }
            // SAFETY: the protocol under test gives the entry to the producer alone; loom checks it.
            self.entries[*own as usize].with_mut(|entry| unsafe { entry.write(value) });
            *own = self.geometry.next(*own);
            publish(&self.producer, *own);
            true
        }

        /// As `CompletionQueue::poll`.
        fn poll(&self, own: &mut u32) -> Option<u64> {
            if observe(&self.producer, self.geometry.mask()) == *own {
                return None;
            }
            // SAFETY: as above, to the consumer alone.
            let value = self.entries[*own as usize].with(|entry| unsafe { entry.read() });
            *own = self.geometry.next(*own);
            publish(&self.consumer, *own);
            Some(value)
        }
    }

    fn model<W: IndexWord + Send + Sync + 'static>(word: fn() -> W) {
        loom::model(move || {
            let queue = Arc::new(Queue::new(word));
            let peer = queue.clone();
            let producer = thread::spawn(move || {
                let mut own = 0;
                (1..=3).take_while(|&n| peer.post(&mut own, n)).count()
            });
            let mut own = 0;
            let mut seen = 0;
            for _ in 0..3 {
                if let Some(value) = queue.poll(&mut own) {
                    assert_eq!(value, seen + 1, "an entry was lost or seen twice");
                    seen = value;
                }
            }
            let posted = producer.join().unwrap() as u64;
            while let Some(value) = queue.poll(&mut own) {
                assert_eq!(value, seen + 1, "an entry was lost or seen twice");
                seen = value;
            }
            assert_eq!(seen, posted);
        });
    }

    fn word() -> loom::sync::atomic::AtomicU32 {
        loom::sync::atomic::AtomicU32::new(0)
    }

    /// B29, B35: whoever sees an index sees the entries before it, in every interleaving and on weakly ordered memory.
    #[test]
    fn entries_are_complete_when_their_index_is_seen() {
        model(word);
    }

    /// The model is worth something: it finds indices without an order.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn unordered_indices_are_found() {
        model(|| Unordered(word()));
    }
}

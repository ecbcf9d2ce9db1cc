//! The protocols between threads, over whatever holds their words: memory, or loom's model of it.
//!
//! Each is two or three functions, which the queues call; the models at the end call the same ones in every interleaving that
//! the memory model allows.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A word that threads share.
pub(super) trait Word<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
}

macro_rules! word {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                <$atomic>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
        }
    )*};
}

word!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64);

/// Tails: how far a queue is complete. The poller alone changes it.
pub(super) mod tail {
    use super::*;

    /// For the poster: what lies before is its own again.
    #[inline(always)]
    pub(in super::super) fn observe(tail: &impl Word<u32>) -> u32 {
        // Acquire: what the poller read of the entries lies before they are written again.
        tail.load(Ordering::Acquire)
    }

    /// For the poller: it is done with all before.
    #[inline(always)]
    pub(in super::super) fn publish(tail: &impl Word<u32>, value: u32) {
        tail.store(value, Ordering::Release);
    }
}

/// Who has an entry of a shared receive queue. The poster alone, under the queue's lock, gives it to the device and
/// takes it back into the list; any poller returns it.
pub(super) mod owner {
    use super::*;

    /// In the list or the wait queue.
    pub(in super::super) const LIST: u8 = 0;
    /// Posted: the device has it, and then the poller of its completion.
    pub(in super::super) const DEVICE: u8 = 1;
    /// Completed, not in the list yet.
    pub(in super::super) const FREE: u8 = 2;

    /// For a poller that has taken the completion. An entry that the device does not have is left alone, so that a wrong
    /// completion cannot put one into the list twice.
    #[inline(always)]
    pub(in super::super) fn release(owner: &impl Word<u8>) {
        if owner.load(Ordering::Relaxed) == DEVICE {
            // Release: what the poller read of the entry lies before the poster writes to it again.
            owner.store(FREE, Ordering::Release);
        }
    }

    /// For the poster: whether the entry came back. It is the list's then.
    #[inline(always)]
    pub(in super::super) fn take(owner: &impl Word<u8>) -> bool {
        let free = is_free(owner);
        if free {
            owner.store(LIST, Ordering::Relaxed);
        }
        free
    }

    /// For the poster: whether the entry came back.
    #[inline(always)]
    pub(in super::super) fn is_free(owner: &impl Word<u8>) -> bool {
        owner.load(Ordering::Acquire) == FREE
    }

    /// For the poster: the entry is posted.
    #[inline(always)]
    pub(in super::super) fn give(owner: &impl Word<u8>) {
        owner.store(DEVICE, Ordering::Relaxed);
    }
}

/// A reader's mark of its visits to a table: odd during one. The reader alone changes it.
///
/// A reader marks its visit, then there is a barrier, then it looks up. A remover takes a record out, then there is a
/// barrier, then it looks at the marks. So either the remover sees the visit, or the reader does not see the record.
pub(super) mod visit {
    use super::*;

    /// No visit has this number: it is odd, and 2^63 visits are never made.
    pub(in super::super) const UNSEEN: u64 = u64::MAX;

    /// Before the reader's barrier. If it has begun, nothing changes.
    #[inline(always)]
    pub(in super::super) fn begin(mark: &impl Word<u64>) {
        mark.store(mark.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// Whether the reader itself, who asks, is in a visit.
    #[inline(always)]
    pub(in super::super) fn lasts(mark: &impl Word<u64>) -> bool {
        mark.load(Ordering::Relaxed) % 2 == 1
    }

    /// After the last use of what was found. `visits` is the reader's own count, twice as many as there were: what the mark
    /// is between visits.
    #[inline(always)]
    pub(in super::super) fn end(mark: &impl Word<u64>, visits: &mut u64) {
        *visits = visits.wrapping_add(2);
        mark.store(*visits, Ordering::Release);
    }

    /// After the remover's barrier: whether the reader may be in a visit that began before the removal. `seen` is the visit
    /// that it was in when this was asked last, or [`UNSEEN`].
    pub(in super::super) fn may_last(mark: &impl Word<u64>, seen: &mut u64) -> bool {
        // Acquire: what the reader did in a visit that ended lies before the record is dropped.
        let now = mark.load(Ordering::Acquire);
        let lasts = now % 2 == 1 && (*seen == UNSEEN || *seen == now);
        *seen = now;
        lasts
    }
}

/// A lock that is held or not.
pub(super) trait Latch {
    fn swap(&self, value: bool, order: Ordering) -> bool;
    fn store(&self, value: bool, order: Ordering);
}

impl Latch for AtomicBool {
    #[inline(always)]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        Self::swap(self, value, order)
    }

    #[inline(always)]
    fn store(&self, value: bool, order: Ordering) {
        Self::store(self, value, order);
    }
}

/// Takes the lock if it is free.
#[inline(always)]
pub(super) fn try_lock(latch: &impl Latch) -> bool {
    !latch.swap(true, Ordering::Acquire)
}

/// Gives the lock back.
#[inline(always)]
pub(super) fn unlock(latch: &impl Latch) {
    latch.store(false, Ordering::Release);
}

#[cfg(test)]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic as loom_atomic;
    use loom::thread;

    use super::*;

    word!(
        loom_atomic::AtomicU8: u8,
        loom_atomic::AtomicU32: u32,
        loom_atomic::AtomicU64: u64
    );

    impl Latch for loom_atomic::AtomicBool {
        fn swap(&self, value: bool, order: Ordering) -> bool {
            Self::swap(self, value, order)
        }

        fn store(&self, value: bool, order: Ordering) {
            Self::store(self, value, order);
        }
    }

    /// Wrong on purpose: what the models must find.
    struct Unordered<W>(W);

    impl<T, W: Word<T>> Word<T> for Unordered<W> {
        fn load(&self, _: Ordering) -> T {
            self.0.load(Ordering::Relaxed)
        }

        fn store(&self, value: T, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    impl<L: Latch> Latch for Unordered<L> {
        fn swap(&self, value: bool, _: Ordering) -> bool {
            self.0.swap(value, Ordering::Relaxed)
        }

        fn store(&self, value: bool, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    fn word32() -> loom_atomic::AtomicU32 {
        loom_atomic::AtomicU32::new(0)
    }

    /// A send queue of two entries. The device is a word that says how far work requests are posted: the barriers against the
    /// real one are as strong (see `sys::barrier`). The poller reads the record and the work request (for inline scatter).
    struct Queue<W> {
        device: loom_atomic::AtomicU32,
        tail: W,
        entries: [UnsafeCell<u64>; 2],
    }

    fn tails<W: Word<u32> + Send + Sync + 'static>(word: fn() -> W) {
        loom::model(move || {
            let queue = Arc::new(Queue {
                device: word32(),
                tail: word(),
                entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            });
            let peer = queue.clone();
            let poster = thread::spawn(move || {
                let mut head: u32 = 0;
                for _ in 0..3 {
                    if head.wrapping_sub(tail::observe(&peer.tail)) == 2 {
                        break;
                    }
                    // SAFETY: the protocol under test gives the entry to the poster alone; loom checks it.
                    peer.entries[head as usize % 2].with_mut(|entry| unsafe {
                        entry.write(u64::from(head) + 1);
                    });
                    head += 1;
                    peer.device.store(head, Ordering::Release);
                }
                head
            });
            let mut done = 0;
            let mut poll = || {
                let posted = queue.device.load(Ordering::Acquire);
                while done != posted {
                    // SAFETY: as above, to the poller alone.
                    let value =
                        queue.entries[done as usize % 2].with(|entry| unsafe { entry.read() });
                    done += 1;
                    assert_eq!(
                        value,
                        u64::from(done),
                        "a record was written over before it was read"
                    );
                }
                tail::publish(&queue.tail, done);
                done
            };
            poll();
            let posted = poster.join().unwrap();
            assert_eq!(poll(), posted);
        });
    }

    /// A poster does not write over what a poller still reads, in any interleaving and on weakly ordered memory.
    #[test]
    fn tails_are_ordered() {
        tails(word32);
    }

    /// The model is worth something.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn unordered_tails_are_found() {
        tails(|| Unordered(word32()));
    }

    /// Two pollers return entries of a shared receive queue to one poster, who writes to them again.
    fn owners<W: Word<u8> + Send + Sync + 'static>(word: fn(u8) -> W) {
        loom::model(move || {
            let entries = Arc::new([0, 1].map(|_| (word(owner::DEVICE), UnsafeCell::new(7_u64))));
            let pollers = [0, 1].map(|which| {
                let entries = entries.clone();
                thread::spawn(move || {
                    let (state, entry) = &entries[which];
                    // SAFETY: the protocol under test gives the entry to the poller of its completion; loom checks it.
                    assert_eq!(entry.with(|entry| unsafe { entry.read() }), 7);
                    owner::release(state);
                    // A wrong completion says it again. Whatever the poster does meanwhile, it must not be two.
                    owner::release(state);
                })
            });
            let mut taken = [0; 2];
            let mut look = || {
                for (which, (state, entry)) in entries.iter().enumerate() {
                    if owner::take(state) {
                        // SAFETY: as above, to the poster.
                        entry.with_mut(|entry| unsafe { entry.write(8) });
                        taken[which] += 1;
                    }
                }
            };
            // loom lets the others run before the first load only if it is asked to.
            thread::yield_now();
            look();
            for poller in pollers {
                poller.join().unwrap();
            }
            look();
            assert_eq!(taken, [1, 1], "each entry comes back once");
        });
    }

    /// B58: entries come back whole and once.
    #[test]
    fn owners_are_ordered() {
        owners(loom_atomic::AtomicU8::new);
    }

    /// The model is worth something.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn unordered_owners_are_found() {
        owners(|value| Unordered(loom_atomic::AtomicU8::new(value)));
    }

    /// A reader visits a table of one record while it is removed; dropping is writing to it. The barriers are full ones: what
    /// `membarrier` makes of them in the reader is what its own would be.
    fn visits(fences: bool) {
        loom::model(move || {
            let shared = Arc::new((
                loom_atomic::AtomicU64::new(0),
                loom_atomic::AtomicBool::new(true),
                UnsafeCell::new(7_u64),
            ));
            let fence = move || {
                if fences {
                    loom_atomic::fence(Ordering::SeqCst);
                }
            };
            let peer = shared.clone();
            let reader = thread::spawn(move || {
                let (mark, present, record) = &*peer;
                let mut visits = 0;
                visit::begin(mark);
                fence();
                if present.load(Ordering::Acquire) {
                    // SAFETY: the protocol under test keeps the record during the visit; loom checks it.
                    assert_eq!(record.with(|record| unsafe { record.read() }), 7);
                }
                visit::end(mark, &mut visits);
            });
            let (mark, present, record) = &*shared;
            present.store(false, Ordering::Release);
            let mut seen = visit::UNSEEN;
            let mut dropped = false;
            let mut collect = || {
                fence();
                if !dropped && !visit::may_last(mark, &mut seen) {
                    // SAFETY: as above, to the remover alone.
                    record.with_mut(|record| unsafe { record.write(0) });
                    dropped = true;
                }
                dropped
            };
            collect();
            reader.join().unwrap();
            assert!(collect(), "nobody looks at it any more");
        });
    }

    /// B38: no reader has a record that is dropped.
    #[test]
    fn removed_records_outlive_visits() {
        visits(true);
    }

    /// The model is worth something: without barriers, a mark and a look-up may pass each other.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn visits_without_barriers_are_found() {
        visits(false);
    }

    /// Two queues ring a shared register: each takes a half in turn and writes to it.
    fn registers<L: Latch + Send + Sync + 'static>(latch: fn(bool) -> L) {
        loom::model(move || {
            let register = Arc::new((
                latch(false),
                loom_atomic::AtomicU32::new(0),
                [UnsafeCell::new(0_u32), UnsafeCell::new(0_u32)],
            ));
            // Rings, unless the lock is held just then: says whether it did.
            let ring = |register: &(L, loom_atomic::AtomicU32, [UnsafeCell<u32>; 2]), who: u32| {
                let (latch, half, halves) = register;
                if !try_lock(latch) {
                    return false;
                }
                let at = half.load(Ordering::Relaxed);
                // SAFETY: the lock under test gives the register to one; loom checks it.
                halves[at as usize].with_mut(|half| unsafe { half.write(who) });
                half.store(at ^ 1, Ordering::Relaxed);
                unlock(latch);
                true
            };
            let peer = register.clone();
            let other = thread::spawn(move || [0; 2].map(|_| ring(&peer, 1)));
            let ours = [0; 2].map(|_| ring(&register, 2));
            let rings = [ours, other.join().unwrap()];
            let count = rings.as_flattened().iter().filter(|&&rang| rang).count();
            let (_, half, _) = &*register;
            assert_eq!(
                half.load(Ordering::Relaxed) as usize,
                count % 2,
                "each ring takes a half"
            );
        });
    }

    /// B53: one register, two threads: they alternate, and none writes into the other's half.
    #[test]
    fn shared_registers_are_locked() {
        registers(loom_atomic::AtomicBool::new);
    }

    /// The model is worth something.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn unordered_locks_are_found() {
        registers(|value| Unordered(loom_atomic::AtomicBool::new(value)));
    }
}

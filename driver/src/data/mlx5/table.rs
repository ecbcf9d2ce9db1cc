//! From the user index in a completion to the queue that it is about.
//!
//! Looking up takes two loads and no lock, in the middle of every completion. So a record that was taken out of the table
//! may still be in the hands of a poller, and is dropped late: when every reader was seen outside of its visits
//! after the record had gone. A reader marks its visits by two plain stores; what orders them against the removal is a
//! barrier that the remover has executed in all threads (`sys::barrier::order_all_threads`), or one in the reader where
//! the system has no such call.
//!
//! A completion may carry any index, also one of a queue that never used the completion queue (a faulty device, or
//! memory that a program wrote over): no index makes a reader see freed memory.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::protocol::visit;
use super::record::QueueRecord;
use crate::sys::barrier;

/// User indices have 24 bits. The first level takes the upper 16, the second the lower 8: what stands together in a
/// completion, so that a poller takes it by a load, in whatever order its bytes are.
const UPPER_LEN: usize = 1 << 16;
const LOWER_LEN: usize = 1 << 8;
/// The largest user index, plus one.
pub const USER_INDICES: u32 = 1 << 24;

/// Records by the low byte. Indices are given out from the lowest on, so 256 queues share one of these, of 2 KiB.
type Lower = [AtomicPtr<QueueRecord>; LOWER_LEN];
/// Those by the upper bytes, each as its distance from [`NO_LOWER`]: half a megabyte of zeros, of which the system gives
/// memory to the pages that are used.
type Upper = [AtomicUsize; UPPER_LEN];

/// What stands where no record is: a poller need not ask whether it found something before it looks at the work request's
/// record, of which nobody's says that the long way must be taken.
static NOBODY: QueueRecord = QueueRecord::nobodys();
static NO_LOWER: Lower = [const { AtomicPtr::new((&raw const NOBODY).cast_mut()) }; LOWER_LEN];

const fn nobody() -> *mut QueueRecord {
    (&raw const NOBODY).cast_mut()
}

/// A lower level by its distance.
#[inline(always)]
fn lower(distance: usize) -> *mut Lower {
    let base = (&raw const NO_LOWER).expose_provenance();
    ptr::with_exposed_provenance_mut(base.wrapping_add(distance))
}

/// The distance of a lower level.
fn distance(lower: *mut Lower) -> usize {
    lower
        .expose_provenance()
        .wrapping_sub((&raw const NO_LOWER).addr())
}

/// Places in the first level, with the bytes in the order of a completion, and in the second.
const fn split(user_index: u32) -> (u16, u8) {
    let [_, upper, middle, lower] = user_index.to_be_bytes();
    (u16::from_ne_bytes([upper, middle]), lower)
}

fn empty_upper() -> Box<Upper> {
    // SAFETY: distances of 0 are all zeros, and need not be written.
    unsafe { Box::new_zeroed().assume_init() }
}

/// Records by user index, for one device context.
pub struct UserIndexTable {
    /// Lower levels live as long as the table.
    levels: Box<Upper>,
    /// Whether readers need no barrier of their own.
    one_sided: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    readers: Vec<Arc<ReaderWord>>,
    retired: Vec<Retired>,
}

/// Odd during a visit.
type ReaderWord = CachePadded<AtomicU64>;

struct Retired {
    _record: Arc<QueueRecord>,
    /// Readers that were in a visit when they were last looked at, with the number of the visit.
    visited_by: Vec<(Arc<ReaderWord>, u64)>,
}

/// The index is in use, or not one of 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadUserIndex;

impl UserIndexTable {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            levels: empty_upper(),
            one_sided: barrier::can_order_all_threads(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets completions find a record.
    ///
    /// # Errors
    ///
    /// The index is in use, or not below [`USER_INDICES`].
    pub fn insert(&self, user_index: u32, record: Arc<QueueRecord>) -> Result<(), BadUserIndex> {
        if user_index >= USER_INDICES {
            return Err(BadUserIndex);
        }
        // Held, so that nobody else makes a level or takes the entry.
        let _state = self.state();
        let (upper, place) = split(user_index);
        let first = &self.levels[usize::from(upper)];
        let mut level = lower(first.load(Ordering::Relaxed));
        if ptr::eq(level, &raw const NO_LOWER) {
            level = Box::into_raw(Box::new([const { AtomicPtr::new(nobody()) }; LOWER_LEN]));
            first.store(distance(level), Ordering::Release);
        }
        // SAFETY: a level that this table made; it is freed by `drop` only.
        let entry = &unsafe { &*level }[usize::from(place)];
        if entry.load(Ordering::Relaxed) != nobody() {
            return Err(BadUserIndex);
        }
        entry.store(Arc::into_raw(record).cast_mut(), Ordering::Release);
        Ok(())
    }

    /// Takes a record out, so that no completion finds it any more, and drops the table's share of it as soon as no reader
    /// can be looking at it: at once, if none is in a visit, else with a later call of this or of
    /// [`collect`](Self::collect). Says whether this and all earlier ones are dropped; false too if there was no record.
    ///
    /// The order of an orderly end: the kernel destroys the queue, its completions are removed from the completion
    /// queues, then its record is removed here, then its number may be used again.
    pub fn remove(&self, user_index: u32) -> bool {
        if user_index >= USER_INDICES {
            return false;
        }
        let mut state = self.state();
        // Levels are made under the lock.
        let (upper, place) = split(user_index);
        let level = lower(self.levels[usize::from(upper)].load(Ordering::Relaxed));
        if ptr::eq(level, &raw const NO_LOWER) {
            return false;
        }
        // SAFETY: one that this table made.
        let raw = unsafe { &*level }[usize::from(place)].swap(nobody(), Ordering::AcqRel);
        if raw == nobody() {
            return false;
        }
        // SAFETY: `insert` made it of an `Arc`, and the swap gave it to us alone.
        let record = unsafe { Arc::from_raw(raw) };
        let visited_by = state
            .readers
            .iter()
            .map(|reader| (reader.clone(), visit::UNSEEN))
            .collect();
        state.retired.push(Retired {
            _record: record,
            visited_by,
        });
        self.collect_locked(state)
    }

    /// Drops what was removed and no reader can be looking at any more. Says whether nothing is left.
    pub fn collect(&self) -> bool {
        self.collect_locked(self.state())
    }

    fn collect_locked(&self, mut state: MutexGuard<'_, State>) -> bool {
        if state.retired.is_empty() {
            return true;
        }
        // After this, a reader whose word shows no visit, or another visit than before, has not seen what was removed:
        // either it marked its visit before the barrier, and we see the mark, or it looks up after, and finds nothing.
        if self.one_sided {
            if !barrier::order_all_threads() {
                return false;
            }
        } else {
            fence(Ordering::SeqCst);
        }
        let done: Vec<_> = state
            .retired
            .extract_if(.., |retired| {
                retired
                    .visited_by
                    .retain_mut(|(reader, seen)| visit::may_last(&***reader, seen));
                retired.visited_by.is_empty()
            })
            .collect();
        let empty = state.retired.is_empty();
        // Dropping memory may call a program's function, which may come back here.
        drop(state);
        drop(done);
        empty
    }

    /// A reader, for one completion queue.
    pub fn reader(self: &Arc<Self>) -> Reader {
        let word = Arc::new(CachePadded::new(AtomicU64::new(0)));
        self.state().readers.push(word.clone());
        Reader {
            levels: &raw const *self.levels,
            one_sided: self.one_sided,
            table: self.clone(),
            word,
            visits: 0,
        }
    }
}

impl Drop for UserIndexTable {
    fn drop(&mut self) {
        for first in self.levels.iter_mut() {
            let distance = *first.get_mut();
            if distance == 0 {
                continue;
            }
            // SAFETY: made by `insert` of a box, and nobody else has the table any more.
            let mut level = unsafe { Box::from_raw(lower(distance)) };
            for entry in level.iter_mut() {
                let record = *entry.get_mut();
                if record != nobody() {
                    // SAFETY: made by `insert` of an `Arc`, which the table still owns.
                    drop(unsafe { Arc::from_raw(record) });
                }
            }
        }
    }
}

impl fmt::Debug for UserIndexTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("UserIndexTable")
            .field("readers", &state.readers.len())
            .field("retired", &state.retired.len())
            .finish_non_exhaustive()
    }
}

/// Looks records up, for one completion queue at a time. What it finds stays until its visit ends.
pub struct Reader {
    /// The table's first level and whether readers need no barrier, at hand.
    levels: *const Upper,
    one_sided: bool,
    table: Arc<UserIndexTable>,
    word: Arc<ReaderWord>,
    /// Twice the visits that ended: what the word is between visits.
    visits: u64,
}

// SAFETY: the level is the table's, which is shared between threads and of which the reader has a share.
unsafe impl Send for Reader {}
// SAFETY: as above.
unsafe impl Sync for Reader {}

impl Reader {
    /// The table.
    pub fn table(&self) -> &Arc<UserIndexTable> {
        &self.table
    }

    /// Begins a visit that ends when the value is dropped.
    #[inline]
    pub fn visit(&mut self) -> Visit<'_> {
        self.begin();
        Visit {
            reader: self,
            _not_send: PhantomData,
        }
    }

    /// Begins a visit that lasts over several calls, until [`end`](Self::end). Beginning one that has begun changes nothing.
    #[inline]
    pub fn begin(&mut self) {
        visit::begin(&**self.word);
        if self.one_sided {
            barrier::ordered_by_other_threads();
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Whether a visit needs no barrier of its own, so that it may begin by [`begin_one_sided`](Self::begin_one_sided).
    pub(super) fn is_one_sided(&self) -> bool {
        self.one_sided
    }

    /// As [`begin`](Self::begin), of a reader that [needs no barrier](Self::is_one_sided).
    #[inline(always)]
    pub(super) fn begin_one_sided(&mut self) -> Mark {
        debug_assert!(self.one_sided);
        visit::begin(&**self.word);
        barrier::ordered_by_other_threads();
        Mark {
            word: &raw const **self.word,
            visits: self.visits,
        }
    }

    /// As [`end`](Self::end), without reading again what the beginning read.
    ///
    /// # Safety
    ///
    /// The mark is of this reader's visit that ends here.
    #[inline(always)]
    pub(super) unsafe fn end_one_sided(&mut self, mut mark: Mark) {
        // SAFETY: the reader's word, of which it has a share.
        let word = unsafe { &*mark.word };
        visit::end(word, &mut mark.visits);
        self.visits = mark.visits;
    }

    /// Whether a visit has begun and not ended.
    #[inline(always)]
    pub(super) fn is_visiting(&self) -> bool {
        visit::lasts(&**self.word)
    }

    /// Ends a visit; changes nothing that matters if there is none.
    #[inline]
    pub fn end(&mut self) {
        visit::end(&**self.word, &mut self.visits);
    }

    /// The record with an index; bits above the 24th are ignored.
    ///
    /// # Safety
    ///
    /// A visit has begun, and the record is not used after its end.
    #[inline]
    pub unsafe fn find<'a>(&self, user_index: u32) -> Option<&'a QueueRecord> {
        // SAFETY: passed on.
        unsafe { self.finder().find(user_index) }
    }

    /// What looks up, without the way to the table: for a loop over many completions.
    #[inline]
    pub(super) fn finder(&self) -> Finder {
        Finder(self.levels)
    }
}

/// What a visit that has begun must write when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    word: *const AtomicU64,
    visits: u64,
}

/// Looks records up during a visit of a [`Reader`].
#[derive(Clone, Copy)]
pub(super) struct Finder(*const Upper);

impl Finder {
    /// As [`Reader::find`].
    ///
    /// # Safety
    ///
    /// A visit of the reader has begun, and neither this nor the record is used after its end.
    #[inline(always)]
    pub(super) unsafe fn find<'a>(self, user_index: u32) -> Option<&'a QueueRecord> {
        // SAFETY: passed on.
        let found = unsafe { self.find_any(split(user_index)) };
        (!ptr::eq(found, &NOBODY)).then_some(found)
    }

    /// As [`find`](Self::find), of an index whose upper 16 bits, in the order of a completion, and lower 8 are apart. What
    /// nobody inserted is [nobody's](QueueRecord::nobodys).
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline(always)]
    pub(super) unsafe fn find_any<'a>(self, (upper, place): (u16, u8)) -> &'a QueueRecord {
        // SAFETY: the table's first level, which lives as long as the table, and the reader has a share of that.
        let levels = unsafe { &*self.0 };
        let level = lower(levels[usize::from(upper)].load(Ordering::Acquire));
        // SAFETY: the level of nothing, or one that the table made and keeps.
        let record = unsafe { &*level }[usize::from(place)].load(Ordering::Acquire);
        // SAFETY: nobody's, which lives for ever, or a record that the table owned when it was looked up in a visit; it is
        // not dropped before the visit ends, and the caller does not use it longer.
        unsafe { &*record }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
        let mut state = self.table.state();
        state
            .readers
            .retain(|reader| !Arc::ptr_eq(reader, &self.word));
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}

/// A visit to the table.
#[derive(Debug)]
pub struct Visit<'a> {
    reader: &'a mut Reader,
    _not_send: PhantomData<*const ()>,
}

impl Visit<'_> {
    /// The record with an index; bits above the 24th are ignored.
    #[inline]
    pub fn find(&self, user_index: u32) -> Option<&QueueRecord> {
        // SAFETY: the visit lasts as long as `self`, which the result borrows.
        unsafe { self.reader.find(user_index) }
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.reader.end();
    }
}

//! Tag matching: a list of tagged buffers beside a shared receive queue.
//!
//! The device keeps the list; it is changed by work requests on a queue pair of its own, whose completions arrive with the
//! messages. The program's side of it is bookkeeping: which places of the list are free, which changes wait for their
//! completion, and how many messages came that no tag met. That number is the list's *phase*: while the device knows of more
//! such messages than the program has told it of, it matches no tags that were added since
//! (rdma-core `Documentation/tag_matching.md`).
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the list and what is remembered of it |
//! | `post` | changes of it |
//! | `complete` | what completions about tags mean |

mod complete;
mod post;

use std::cell::UnsafeCell;
use std::fmt;

use super::lock::SpinLock;

pub(super) use complete::{InCompletion, TagCompletion};
pub use post::{TagChange, TagRequest};

/// Places that a list can have: completions name them by 16 bits, and one ends the queue of free places.
pub const MAX_TAGS: u32 = 0xffff;

/// How many messages may have met no tag, and the device was not told, before completions ask for that
/// (rdma-core providers/mlx5/cq.c `MLX5_TM_MAX_SYNC_DIFF`).
const MAX_LAG: i32 = 0x3fff;

/// The program's side of a list of tags.
pub struct TagList {
    lock: SpinLock,
    state: UnsafeCell<State>,
}

// SAFETY: the state is only touched with the lock held; without a lock the maker promised that there is one thread at a time.
unsafe impl Send for TagList {}
// SAFETY: as above.
unsafe impl Sync for TagList {}

/// What the lock guards.
#[derive(Debug)]
struct State {
    /// The list's places, and one more that ends the queue of free ones.
    tags: Box<[Tag]>,
    /// The queue of free places; there is none if both ends are the same.
    free_head: u16,
    free_tail: u16,
    /// Changes that will complete, in their order; a power of two of them.
    changes: Box<[Change]>,
    /// Changes that completed, and that were posted.
    completed: u32,
    posted: u32,
    /// Work requests of the queue pair for changes that are complete: its tail.
    done: u32,
    /// Messages that met no tag: those that completed, and those that the device was told of.
    unexpected: u32,
    told: u32,
}

/// A place of the list.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    wr_id: u64,
    addr: u64,
    length: u32,
    /// The next free place, of one that is free and not the last.
    next: u16,
    /// The phase that it was added in.
    phase: u16,
    /// Completions that it waits for. It is free when there is none.
    expected: u8,
}

/// A change that will complete.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    wr_id: u64,
    /// The queue pair's tail once it is complete.
    head: u32,
    /// The place that it is about.
    tag: Option<u16>,
}

impl TagList {
    /// An empty list of `tags` places, up to [`MAX_TAGS`]; of its changes, `changes` (a power of two) wait for their completion
    /// at most. If not `concurrent`, the maker promises that there is one thread at a time.
    ///
    /// # Panics
    ///
    /// If the numbers are not as said.
    pub fn new(tags: u32, changes: u32, concurrent: bool) -> Self {
        assert!(tags <= MAX_TAGS && changes.is_power_of_two());
        let tags = (0..=tags).map(|place| Tag {
            next: place.wrapping_add(1) as u16,
            ..Tag::default()
        });
        let tags: Box<[Tag]> = tags.collect();
        Self {
            lock: SpinLock::new(concurrent),
            state: UnsafeCell::new(State {
                free_head: 0,
                free_tail: (tags.len() - 1) as u16,
                tags,
                changes: vec![Change::default(); changes as usize].into(),
                completed: 0,
                posted: 0,
                done: 0,
                unexpected: 0,
                told: 0,
            }),
        }
    }

    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let _held = self.lock.lock();
        // SAFETY: the lock is held until the end; if it is disabled, the maker promised that there is one thread at a time,
        // and coming back here from within `f` panics.
        f(unsafe { &mut *self.state.get() })
    }
}

impl State {
    /// The place of a change, by the number of changes before it.
    fn change(&mut self, number: u32) -> &mut Change {
        let place = number as usize & (self.changes.len() - 1);
        &mut self.changes[place]
    }

    /// One completion less to wait for; the place is free after the last.
    fn release(&mut self, place: u16) {
        let last = self.free_tail;
        let Some(tag) = self.tags.get_mut(usize::from(place)) else {
            return;
        };
        if tag.expected == 0 {
            return;
        }
        tag.expected -= 1;
        if tag.expected == 0 {
            self.tags[usize::from(last)].next = place;
            self.free_tail = place;
        }
    }
}

impl fmt::Debug for TagList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagList").finish_non_exhaustive()
    }
}

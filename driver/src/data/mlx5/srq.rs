//! Shared receive queues.
//!
//! The device takes entries in the order of a linked list: each entry names the next. The poster fills the entry at the
//! list's head; entries come back in the order of completions, from as many pollers as there are completion queues, and
//! are put behind the list's tail when the list has run out (rdma-core 48 and later keep this order; what an entry is
//! linked to can be compared with theirs).
//!
//! A page fault on an entry's memory (ODP) gives the entry back unused. It is posted again under another index, and rests
//! in a wait queue first: the device may still prefetch it.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use wqe_format::mlx5::DataSegment;
use wqe_format::rxe::Sge;

use super::error::{PostError, Refused};
use super::lock::SpinLock;
use super::protocol::owner;
use super::record::KeepAlive;
use super::ring::{Unit, unit};
use super::rq::put_list;
use super::tags::TagList;
use crate::sys::barrier;

/// Where the scatter list of an entry begins, behind the link (`mlx5_wqe_srq_next_seg`).
const SCATTER: usize = 16;

/// What a shared receive queue is made of.
#[derive(Debug)]
pub struct SrqParts {
    /// Its entries.
    pub ring: NonNull<u8>,
    /// Entries in the ring, with those of the wait queue: a power of two up to 2^15.
    pub entries: u32,
    /// Entries in the list at first, a power of two: all, or half of them and the rest waits.
    pub list_entries: u32,
    /// An entry is 2 to the power of this many bytes, 32 or more.
    pub stride_shift: u32,
    /// Scatter elements of one entry: what fits behind the link.
    pub max_sge: u32,
    /// Its doorbell record: one big-endian counter.
    pub doorbell: NonNull<u32>,
    /// Whether posting and polling happen at the same time, so that they need a lock.
    pub concurrent: bool,
    /// The key that data is not scattered to; zero if the device has none.
    pub null_lkey: u32,
    /// The list of tags of a queue that has one.
    pub tags: Option<TagList>,
    /// Keeps the ring and the doorbell record.
    pub memory: Option<KeepAlive>,
}

/// A shared receive queue as its pollers know it.
pub struct SrqShared {
    ring: NonNull<u8>,
    stride_shift: u32,
    max_sge: u32,
    null_lkey: u32,
    doorbell: NonNull<u32>,
    wr_ids: Box<[AtomicU64]>,
    owners: Box<[AtomicU8]>,
    lock: SpinLock,
    list: UnsafeCell<List>,
    tags: Option<TagList>,
    _memory: Option<KeepAlive>,
}

/// What the lock guards.
#[derive(Debug)]
struct List {
    /// The entry after each: what the ring says, kept where the device cannot change it.
    next: Box<[u16]>,
    head: u16,
    tail: u16,
    /// First and last of the wait queue.
    waiting: Option<(u16, u16)>,
    /// Entries that can be in the list.
    reach: u32,
    counter: u16,
}

// SAFETY: the memory is the process's, not a thread's; `list` is only touched with the lock held, and posting to the
// ring's entries happens there too; without a lock the maker promised that there is one thread at a time.
unsafe impl Send for SrqShared {}
// SAFETY: as above; all else is atomic or never changes.
unsafe impl Sync for SrqShared {}

impl SrqShared {
    /// Start of the ring.
    #[inline]
    pub fn ring(&self) -> NonNull<u8> {
        self.ring
    }

    /// Entries in the ring: a power of two.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.owners.len() as u32
    }

    /// An entry is 2 to the power of this many bytes; its scatter list begins 16 bytes behind its start.
    #[inline]
    pub fn stride_shift(&self) -> u32 {
        self.stride_shift
    }

    /// Entries that the next receive is written to, and that ends the list.
    pub fn ends(&self) -> (u16, u16) {
        self.with_list(|list| (list.head, list.tail))
    }

    /// Scatter elements of one entry.
    #[inline]
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Its list of tags, if it has one.
    #[inline]
    pub fn tags(&self) -> Option<&TagList> {
        self.tags.as_ref()
    }

    /// The key that data is not scattered to, if there is one.
    #[inline]
    pub fn null_lkey(&self) -> u32 {
        self.null_lkey
    }

    #[inline]
    fn place(&self, entry: u32) -> usize {
        entry as usize & (self.owners.len() - 1)
    }

    /// The id of the work request in an entry.
    #[inline]
    pub fn wr_id(&self, entry: u32) -> u64 {
        // SAFETY: as many ids as owners, whose number is a power of two, so the masked index is below it.
        unsafe { self.wr_ids.get_unchecked(self.place(entry)) }.load(Ordering::Relaxed)
    }

    #[inline]
    fn owner(&self, entry: u32) -> &AtomicU8 {
        // SAFETY: as above.
        unsafe { self.owners.get_unchecked(self.place(entry)) }
    }

    /// Gives an entry back whose completion was taken. Any thread may; an entry that the device does not have is left
    /// alone, so that a wrong completion cannot put one into the list twice.
    #[inline]
    pub fn release(&self, entry: u32) {
        owner::release(self.owner(entry));
    }

    /// Posts an entry again that the device gave back because of a page fault (ODP), under another index.
    #[cold]
    pub fn repost_after_fault(&self, entry: u32) {
        let entry = self.place(entry) as u16;
        self.with_list(|list| {
            if self.owner(entry.into()).load(Ordering::Relaxed) != owner::DEVICE {
                return;
            }
            // All entries that are free go into the list, so that it is long before the faulted one is written over.
            for free in 0..list.reach as u16 {
                if self.take_free(free) {
                    list.append(self, free);
                }
            }
            list.reach = self.entries();
            self.owner(entry.into())
                .store(owner::LIST, Ordering::Relaxed);
            match list.waiting {
                // The faulted one waits, and the one that waited longest goes into the list.
                Some((first, last)) => {
                    list.link(self, last, entry);
                    let then = list.next[usize::from(first)];
                    list.append(self, first);
                    list.waiting = Some((then, entry));
                }
                None => list.append(self, entry),
            }
            let to = list.head;
            let wr_id = self.wr_id(entry.into());
            self.wr_ids[usize::from(to)].store(wr_id, Ordering::Relaxed);
            for at in (SCATTER..SCATTER + self.max_sge as usize * 16).step_by(16) {
                // SAFETY: within an entry of the ring.
                let from = unsafe { self.segment(entry, at) };
                // SAFETY: a segment of the ring that the device is done with.
                let segment = unsafe { from.read() };
                // SAFETY: as above, of an entry in the list, which is ours.
                let place = unsafe { self.segment(to, at) };
                // SAFETY: as above.
                unsafe { place.write(segment) };
                if segment == unit(DataSegment::TERMINATOR) {
                    break;
                }
            }
            list.give(self, to);
            self.ring_doorbell(list, 1);
        });
    }

    /// # Safety
    ///
    /// `at` is a multiple of 16 within the stride, `entry` is one of the ring.
    #[inline]
    unsafe fn segment(&self, entry: u16, at: usize) -> NonNull<Unit> {
        let offset = (usize::from(entry) << self.stride_shift) + at;
        // SAFETY: within the ring by the caller's promise.
        unsafe { self.ring.add(offset) }.cast()
    }

    /// Whether an entry was free; it is the list's then.
    #[inline]
    fn take_free(&self, entry: u16) -> bool {
        owner::take(self.owner(entry.into()))
    }

    #[inline]
    fn is_free(&self, entry: u16) -> bool {
        owner::is_free(self.owner(entry.into()))
    }

    #[inline]
    fn with_list<T>(&self, f: impl FnOnce(&mut List) -> T) -> T {
        let _held = self.lock.lock();
        // SAFETY: the lock is held until the end; if it is disabled, the maker promised that there is one thread at a time,
        // and coming back here from within `f` panics.
        f(unsafe { &mut *self.list.get() })
    }

    #[inline]
    fn ring_doorbell(&self, list: &mut List, posted: u16) {
        list.counter = list.counter.wrapping_add(posted);
        barrier::device_sees_wqe_before_doorbell_record();
        // SAFETY: the doorbell record is valid and aligned by the maker's promise.
        let word = unsafe { AtomicU32::from_ptr(self.doorbell.as_ptr()) };
        word.store(u32::from(list.counter).to_be(), Ordering::Relaxed);
    }
}

impl List {
    /// Makes an entry name the one after it.
    #[inline]
    fn link(&mut self, srq: &SrqShared, entry: u16, next: u16) {
        self.next[usize::from(entry)] = next;
        // SAFETY: within an entry of the ring.
        let segment = unsafe { srq.segment(entry, 0) };
        // `next_wqe_index` is the second 16-bit word of the entry.
        // SAFETY: still within the segment.
        let word = unsafe { segment.cast::<u16>().add(1) };
        // SAFETY: aligned, and the link of an entry that the device does not follow before its successor is posted.
        unsafe { word.write_volatile(next.to_be()) };
    }

    /// Puts an entry behind the list's tail.
    #[inline]
    fn append(&mut self, srq: &SrqShared, entry: u16) {
        self.link(srq, self.tail, entry);
        self.tail = entry;
    }

    /// Takes the entry at the head, which the device has from now on.
    #[inline]
    fn give(&mut self, srq: &SrqShared, entry: u16) {
        owner::give(srq.owner(entry.into()));
        self.head = self.next[usize::from(entry)];
    }

    /// Puts free entries into the list, which has one left: the one after the tail if it is free, else the
    /// nearest run of free ones after the head, else the first before it. Says whether there were any.
    #[inline]
    fn extend(&mut self, srq: &SrqShared) -> bool {
        let after = ((u32::from(self.tail) + 1) % self.reach) as u16;
        if srq.take_free(after) {
            self.append(srq, after);
            return true;
        }
        self.extend_by_run(srq)
    }

    fn extend_by_run(&mut self, srq: &SrqShared) -> bool {
        let reach = self.reach as u16;
        let run = |from: u16, to: u16| {
            let first = (from..to).find(|&entry| srq.is_free(entry))?;
            let end = (first..to).find(|&entry| !srq.is_free(entry)).unwrap_or(to);
            Some(first..end)
        };
        let Some(found) = run(self.head + 1, reach).or_else(|| run(0, self.head)) else {
            return false;
        };
        for entry in found {
            srq.take_free(entry);
            self.append(srq, entry);
        }
        true
    }
}

impl fmt::Debug for SrqShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrqShared")
            .field("entries", &self.owners.len())
            .field("stride_shift", &self.stride_shift)
            .finish_non_exhaustive()
    }
}

/// A receive work request, as a list of them is posted from.
pub trait RecvRequest {
    /// The program's number.
    fn wr_id(&self) -> u64;
    /// Its scatter list.
    fn sges(&self) -> &[Sge];
}

impl RecvRequest for (u64, &[Sge]) {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.0
    }

    #[inline]
    fn sges(&self) -> &[Sge] {
        self.1
    }
}

/// A shared receive queue, for posting. It has its own lock: pollers post again after page faults.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    shared: Arc<SrqShared>,
}

impl SharedReceiveQueue {
    /// A queue, whose ring's links are written here.
    ///
    /// # Panics
    ///
    /// If the numbers of entries are not powers of two as said, or `max_sge` does not fit the stride.
    ///
    /// # Safety
    ///
    /// The ring (`entries << stride_shift` bytes) and the doorbell record are readable and writable, aligned to 16 and 4
    /// bytes, as long as `memory` or any share of the queue exists. Nobody else but the device accesses them. If not
    /// `concurrent`, no two threads use the queue (post, poll completions that are about it) at the same time.
    pub unsafe fn new(parts: SrqParts) -> Self {
        let SrqParts {
            entries,
            list_entries,
            stride_shift,
            max_sge,
            ..
        } = parts;
        assert!(entries.is_power_of_two() && entries <= 1 << 15);
        assert!(list_entries.is_power_of_two() && list_entries <= entries);
        assert!((5..16).contains(&stride_shift));
        assert!((max_sge as usize) < (1 << stride_shift) / 16);
        let mut list = List {
            next: vec![0; entries as usize].into(),
            head: 0,
            tail: (list_entries - 1) as u16,
            waiting: (list_entries < entries)
                .then_some((list_entries as u16, (entries - 1) as u16)),
            reach: list_entries,
            counter: 0,
        };
        let shared = SrqShared {
            ring: parts.ring,
            stride_shift,
            max_sge,
            null_lkey: parts.null_lkey,
            doorbell: parts.doorbell,
            wr_ids: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            owners: (0..entries).map(|_| AtomicU8::new(owner::LIST)).collect(),
            lock: SpinLock::new(parts.concurrent),
            list: UnsafeCell::new(List {
                next: Box::default(),
                ..list
            }),
            tags: parts.tags,
            _memory: parts.memory,
        };
        // The last of the list and the last that waits have no successor yet.
        for entry in 0..entries - 1 {
            if entry != list_entries - 1 {
                list.link(&shared, entry as u16, entry as u16 + 1);
            }
        }
        shared.with_list(|empty| empty.next = list.next);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// What pollers know of it.
    pub fn shared(&self) -> &Arc<SrqShared> {
        &self.shared
    }

    /// Scatter elements of one work request.
    pub fn max_sge(&self) -> u32 {
        self.shared.max_sge
    }

    /// Posts work requests until one is refused or there is none; says how many were posted. The device is told once.
    ///
    /// # Errors
    ///
    /// The one that was refused and why; those before it are posted.
    #[inline]
    pub fn post<R: RecvRequest>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<u32, Refused<R>> {
        self.shared.with_list(|list| {
            let mut posted = 0;
            let mut result = Ok(());
            for request in requests {
                if let Err(error) = self.put(list, &request) {
                    result = Err(Refused { error, request });
                    break;
                }
                posted += 1;
            }
            if posted != 0 {
                self.shared.ring_doorbell(list, posted as u16);
            }
            result.map(|()| posted)
        })
    }

    #[inline]
    fn put(&self, list: &mut List, request: &impl RecvRequest) -> Result<(), PostError> {
        let srq = &*self.shared;
        let sges = request.sges();
        if sges.len() > srq.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if list.head == list.tail && !list.extend(srq) {
            return Err(PostError::QueueFull);
        }
        let entry = list.head;
        // SAFETY: within the entry: the stride holds the link and `max_sge` elements.
        let place = unsafe { srq.segment(entry, SCATTER) };
        // SAFETY: the entry at the head is ours.
        unsafe { put_list(place, sges, srq.max_sge) }?;
        srq.wr_ids[usize::from(entry)].store(request.wr_id(), Ordering::Relaxed);
        list.give(srq, entry);
        Ok(())
    }
}

//! Completion queues of mlx5 behind the API: who cleans them, and when.
//!
//! Completions of a queue pair that is gone, or that started over, must not be polled any more, and what
//! they hold of a shared receive queue has to go back. Only the poller may look into a completion queue,
//! so it is told what to clean and does it before it polls the next time. Until then the queue pair's
//! number stays taken, and one that was reset does not post.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cq::CqInner;
use super::pd::PdInner;
use crate::control::mlx5::cq::CqObject;
use crate::control::mlx5::qp::QpObject;
use crate::control::mlx5::srq::SrqObject;
use crate::data::mlx5::{Completion, CompletionQueue, SrqShared};
use crate::sys::Errno;

/// Completions that are taken out of the queue at once.
const BATCH: usize = 16;

/// What has to be cleaned.
#[derive(Clone, Debug)]
pub(super) struct Cleanup {
    /// What completions call the queue pair.
    pub(super) key: u32,
    pub(super) qp_num: u32,
    /// Where its receives came from.
    pub(super) srq: Option<Arc<SrqShared>>,
    /// Dropped by the last poller that has cleaned.
    pub(super) _done: Arc<Done>,
}

/// What happens when all pollers have cleaned.
#[derive(Debug)]
pub(super) enum Done {
    /// The queue pair's number is free again.
    Gone(#[expect(dead_code, reason = "owns the number and the rings")] QpObject),
    /// The queue pair, which makes no completions any more, is destroyed: its number is its kernel's, who would give it to
    /// the next one at once. What it uses stays until then.
    Silent(
        #[expect(dead_code, reason = "owns the queue pair and the rings")] QpObject,
        #[expect(dead_code, reason = "as above")] Box<(Arc<PdInner>, [Arc<CqInner>; 2])>,
    ),
    /// The shared receive queue's number is free again.
    SrqGone(#[expect(dead_code, reason = "owns the number and the ring")] SrqObject),
    /// The queue pair may be posted to.
    StartedOver(Arc<AtomicU32>),
}

impl Cleanup {
    /// Of a shared receive queue for XRC that the kernel has destroyed.
    pub(super) fn of_srq(key: u32, object: SrqObject) -> Self {
        Self {
            key,
            // Completions name the targets, which live on: what is out of the queue already is given away.
            qp_num: u32::MAX,
            srq: None,
            _done: Arc::new(Done::SrqGone(object)),
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Self::StartedOver(unclean) = self {
            unclean.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The kernel's completion queue, and what its poller has to clean.
#[derive(Debug)]
pub(super) struct Mlx5Cq {
    object: Mutex<CqObject>,
    has_cleanups: AtomicBool,
    /// `None` when nobody polls any more.
    cleanups: Mutex<Option<Vec<Cleanup>>>,
}

impl Mlx5Cq {
    pub(super) fn new(object: CqObject) -> Self {
        Self {
            object: Mutex::new(object),
            has_cleanups: AtomicBool::new(false),
            cleanups: Mutex::new(Some(Vec::new())),
        }
    }

    /// Whether there is something to clean.
    #[inline]
    pub(super) fn has_cleanups(&self) -> bool {
        self.has_cleanups.load(Ordering::Acquire)
    }

    /// Tells the poller to clean.
    pub(super) fn clean_later(&self, cleanup: Cleanup) {
        let mut cleanups = self.cleanups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = &mut *cleanups {
            list.push(cleanup);
            self.has_cleanups.store(true, Ordering::Release);
        }
    }

    /// The poller is gone, and its completions with it.
    pub(super) fn nobody_polls(&self) {
        let mut cleanups = self.cleanups.lock().unwrap_or_else(PoisonError::into_inner);
        let list = cleanups.take();
        drop(cleanups);
        drop(list);
    }

    /// Cleans what there is to clean.
    #[cold]
    pub(super) fn clean(&self, poller: &mut Mlx5Poller) {
        let mut cleanups = self.cleanups.lock().unwrap_or_else(PoisonError::into_inner);
        let list = cleanups.as_mut().map(std::mem::take).unwrap_or_default();
        self.has_cleanups.store(false, Ordering::Release);
        drop(cleanups);
        for cleanup in &list {
            poller.clean(cleanup);
        }
    }

    /// Changes the number of entries; answers how many there are.
    pub(super) fn resize(&self, poller: &mut Mlx5Poller, entries: u32) -> Result<u32, Errno> {
        let mut object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.resize(&mut poller.queue, entries)
    }
}

/// The poller's side of a completion queue.
#[derive(Debug)]
pub(super) struct Mlx5Poller {
    queue: CompletionQueue,
    /// Completions that are out of the queue and not given away yet.
    taken: [Completion; BATCH],
    next: usize,
    end: usize,
}

impl Mlx5Poller {
    pub(super) fn new(queue: CompletionQueue) -> Self {
        Self {
            queue,
            taken: [Completion::default(); BATCH],
            next: 0,
            end: 0,
        }
    }

    /// The next completion.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Completion> {
        if self.next == self.end {
            self.next = 0;
            self.end = self.queue.poll(&mut self.taken).min(BATCH);
        }
        let completion = self.taken[..self.end].get(self.next)?;
        self.next += 1;
        Some(*completion)
    }

    pub(super) fn arm(&self, solicited_only: bool) {
        self.queue.arm(solicited_only);
    }

    fn clean(&mut self, cleanup: &Cleanup) {
        self.queue.clean(cleanup.key, cleanup.srq.as_deref());
        let mut kept = self.next;
        for at in self.next..self.end {
            if self.taken[at].qp_num != cleanup.qp_num {
                self.taken[kept] = self.taken[at];
                kept += 1;
            }
        }
        self.end = kept;
    }

    /// The data path's queue, if no completions are out of it that were not given away.
    pub(super) fn queue(&mut self) -> Option<&mut CompletionQueue> {
        (self.next == self.end).then_some(&mut self.queue)
    }
}

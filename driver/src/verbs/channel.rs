//! Completion channels.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_abi::event::CompletionEvent;

use super::context::{Context, ContextInner, event_file};
use super::cq::CompletionQueue;
use super::event::read_record;
use super::id::ObjectId;
use crate::data::mlx5::cq::EventCount;
use crate::error::{Error, Result};
use crate::sys::Errno;
use crate::sys::fd::UverbsFd;

/// A file on which completion queues announce that they have completions, once for each
/// [`request_notify`](CompletionQueue::request_notify).
///
/// Events need no acknowledgement: they name queues by number, so destroying one waits for nobody.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(super) inner: Arc<ChannelInner>,
}

#[derive(Debug)]
pub(super) struct ChannelInner {
    pub(super) file: UverbsFd,
    context: Arc<ContextInner>,
    /// Queues of mlx5 tell the device how many of their events were taken.
    counts: Mutex<HashMap<ObjectId, EventCount>>,
}

impl ChannelInner {
    fn counts(&self) -> MutexGuard<'_, HashMap<ObjectId, EventCount>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts events of a queue from now on.
    pub(super) fn count_events(&self, id: ObjectId, count: EventCount) {
        self.counts().insert(id, count);
    }

    /// The queue is gone.
    pub(super) fn forget(&self, id: ObjectId) {
        self.counts().remove(&id);
    }
}

impl CompletionChannel {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let context = Arc::clone(&context.inner);
        let fd = context
            .uctx()
            .create_comp_channel()
            .map_err(|errno| Error::kernel("make a completion channel", errno))?;
        let file = event_file(context.uctx().fd().kernel(), fd);
        Ok(Self {
            inner: Arc::new(ChannelInner {
                file,
                context,
                counts: Mutex::default(),
            }),
        })
    }

    /// Makes a completion queue of at least `entries` entries that announces completions here.
    ///
    /// # Errors
    ///
    /// More entries than the device has.
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        self.completion_queue_on(entries, 0)
    }

    /// The same on a completion vector, which on hardware chooses the processor that is interrupted.
    ///
    /// # Errors
    ///
    /// More entries than the device has, or no such vector.
    pub fn completion_queue_on(&self, entries: u32, vector: u32) -> Result<CompletionQueue> {
        let context = Context {
            inner: Arc::clone(&self.inner.context),
        };
        CompletionQueue::new(&context, entries, Some(self), vector)
    }

    /// Waits for an event; answers which queue has completions.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the descriptor does not block and there is none.
    pub fn wait(&self) -> Result<ObjectId> {
        let failed = |errno| Error::kernel("read a completion event", errno);
        let mut bytes = [0; size_of::<CompletionEvent>()];
        let len = read_record(&self.inner.file, &mut bytes).map_err(failed)?;
        let (event, _) =
            CompletionEvent::parse(&bytes[..len]).ok_or_else(|| failed(Errno(libc::EIO)))?;
        let id = ObjectId(event.cq_handle);
        if let Some(count) = self.inner.counts().get(&id) {
            count.event_taken();
        }
        Ok(id)
    }

    /// Whether [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.inner
            .file
            .set_nonblocking(nonblocking)
            .map_err(|errno| Error::kernel("change the completion channel", errno))
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.file.as_raw_fd()
    }
}

//! Completion queues.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::udata::rxe as udata;

use std::os::fd::AsRawFd;

use super::advice;
use super::channel::{ChannelInner, CompletionChannel};
use super::completion::Completion;
use super::context::{Context, ContextInner, Family};
use super::id::ObjectId;
use crate::control::kernel::CreateCq;
use crate::data::rxe;
use crate::error::{Error, Result};
use crate::sys::mapping::SharedMapping;

/// A completion queue. Whoever has it polls it; queue pairs keep the kernel's side of it alive.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(super) inner: Arc<CqInner>,
    data: Data,
    entries: u32,
}

#[derive(Debug)]
pub(super) struct CqInner {
    pub(super) context: Arc<ContextInner>,
    pub(super) handle: handle::Cq,
    pub(super) id: ObjectId,
    _channel: Option<Arc<ChannelInner>>,
}

#[derive(Debug)]
enum Data {
    Rxe(rxe::CompletionQueue),
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // A destructor has nobody to tell. How many events were delivered does not matter: they name
            // the queue by a number that is not used again.
            let _ = self.context.uctx.destroy_cq(self.handle);
        }
    }
}

impl CompletionQueue {
    pub(super) fn new(
        context: &Context,
        entries: u32,
        channel: Option<&CompletionChannel>,
        comp_vector: u32,
    ) -> Result<Self> {
        let context = Arc::clone(&context.inner);
        let action = || format!("make a completion queue of {entries} entries");
        let id = ObjectId::next();
        let attr = CreateCq {
            cqe: entries,
            user_handle: id.0,
            comp_channel: channel.map(AsRawFd::as_raw_fd),
            comp_vector,
            async_event: Some(context.events_fd()),
            ..CreateCq::default()
        };
        let created = context
            .uctx
            .create_cq::<udata::CreateCqResp>(&attr)
            .map_err(|errno| advice::create(action(), errno))?;
        // From here on, an early return destroys the kernel's queue.
        let channel = channel.map(|channel| Arc::clone(&channel.inner));
        let inner = CqInner {
            context,
            handle: created.handle,
            id,
            _channel: channel,
        };
        let data = match inner.context.family {
            Family::Rxe => {
                let mapping = map(&inner.context, &created.udata.mi, action)?;
                Data::Rxe(rxe::CompletionQueue::new(mapping).map_err(|bad| unusable(action, bad))?)
            }
        };
        Ok(Self {
            inner: Arc::new(inner),
            data,
            entries: created.cqe,
        })
    }

    /// What events call it.
    pub fn id(&self) -> ObjectId {
        self.inner.id
    }

    /// Entries granted.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Takes the completions there are, in order. They are given back to the device when the iterator is
    /// dropped, with one store. A forked child gets none of its parent's.
    #[inline]
    pub fn poll(&mut self) -> Completions<'_> {
        Completions {
            ours: self.inner.context.is_ours(),
            id: self.inner.id,
            data: &mut self.data,
            taken: false,
        }
    }

    /// Waits for one completion by polling; gives other threads the processor meanwhile.
    ///
    /// # Panics
    ///
    /// In a forked child, which would wait for ever.
    pub fn spin(&mut self) -> Completion {
        assert!(
            self.inner.context.is_ours(),
            "the completion queue belongs to the parent process"
        );
        let mut tries = 0u32;
        loop {
            if let Some(completion) = self.poll().next() {
                return completion;
            }
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Asks for one event on the channel at the next completion, or at the next that the sender marked as
    /// solicited or that failed. Poll afterwards: what came before the request is not announced.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn request_notify(&self, solicited_only: bool) -> Result<()> {
        self.inner
            .context
            .uctx
            .req_notify_cq(self.inner.handle, solicited_only)
            .map_err(|errno| Error::kernel("request a completion event", errno))
    }

    /// Changes the number of entries; completions that are there stay.
    ///
    /// # Errors
    ///
    /// More completions are there than the new size holds, or more entries than the device has.
    pub fn resize(&mut self, entries: u32) -> Result<()> {
        let action = || format!("resize a completion queue to {entries} entries");
        let uctx = &self.inner.context.uctx;
        match &mut self.data {
            Data::Rxe(queue) => {
                let resized = uctx
                    .resize_cq::<udata::ResizeCqResp>(self.inner.handle, entries)
                    .map_err(|errno| advice::create(action(), errno))?;
                let mapping = map(&self.inner.context, &resized.udata.mi, action)?;
                queue
                    .replace(mapping)
                    .map_err(|bad| unusable(action, bad))?;
                self.entries = resized.cqe;
            }
        }
        Ok(())
    }
}

/// Completions of one [`CompletionQueue::poll`].
#[derive(Debug)]
pub struct Completions<'q> {
    /// The queue's memory does not exist in a forked child.
    ours: bool,
    id: ObjectId,
    data: &'q mut Data,
    taken: bool,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if !self.ours {
            return None;
        }
        match self.data {
            Data::Rxe(queue) => {
                let cqe = queue.peek()?;
                queue.step();
                self.taken = true;
                Some(Completion {
                    queue: self.id,
                    cqe,
                })
            }
        }
    }
}

impl Drop for Completions<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.taken {
            match self.data {
                Data::Rxe(queue) => queue.publish(),
            }
        }
    }
}

/// Maps a queue of rxe's.
pub(super) fn map(
    context: &ContextInner,
    info: &udata::MmapInfo,
    action: impl Fn() -> String,
) -> Result<SharedMapping> {
    if !info.is_present() {
        return Err(Error::refused(
            action(),
            "the kernel did not say where the queue is",
        ));
    }
    SharedMapping::map(context.uctx.fd(), info.size as usize, info.offset)
        .map_err(|errno| Error::kernel(action(), errno))
}

/// A queue whose header does not fit its memory.
pub(super) fn unusable(
    action: impl Fn() -> String,
    bad: wqe_format::rxe::queue::BadGeometry,
) -> Error {
    Error::refused(action(), format!("the kernel's queue is not usable: {bad}"))
}

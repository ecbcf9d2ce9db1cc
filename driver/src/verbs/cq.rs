//! Completion queues.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::udata::rxe as udata;

use std::os::fd::AsRawFd;

use super::advice;
use super::channel::{ChannelInner, CompletionChannel};
use super::completion::{self, Completion};
use super::context::{Context, ContextInner, Family};
use super::id::ObjectId;
use super::mlx5::{Mlx5Cq, Mlx5Poller};
use crate::control::kernel::CreateCq;
use crate::control::mlx5::cq::CqRequest;
use crate::data::{mlx5, rxe};
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
    pub(super) kernel: Kernel,
    channel: Option<Arc<ChannelInner>>,
}

/// The kernel's queue.
#[derive(Debug)]
pub(super) enum Kernel {
    Rxe,
    Mlx5(Mlx5Cq),
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each queue, and no second load to find it"
)]
enum Data {
    Rxe(rxe::CompletionQueue),
    Mlx5(Mlx5Poller),
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.forget(self.id);
        }
        // mlx5's object does it itself. A destructor has nobody to tell. How many events were delivered
        // does not matter: they name the queue by a number that is not used again.
        if matches!(self.kernel, Kernel::Rxe) && self.context.is_ours() {
            let _ = self.context.uctx().destroy_cq(self.handle);
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if let Kernel::Mlx5(kernel) = &self.inner.kernel {
            kernel.nobody_polls();
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
        let comp_channel = channel.map(AsRawFd::as_raw_fd);
        let async_event = Some(context.events_fd());
        let channel = channel.map(|channel| Arc::clone(&channel.inner));
        if let Family::Mlx5(mlx5) = &context.family {
            let request = CqRequest {
                cqe: entries,
                user_handle: id.0,
                comp_channel,
                comp_vector,
                async_event,
                ..CqRequest::default()
            };
            let (object, queue) = mlx5
                .create_cq(&request)
                .map_err(|errno| advice::create(action(), errno))?;
            if let Some(channel) = &channel {
                channel.count_events(id, queue.event_count());
            }
            let inner = CqInner {
                handle: object.handle(),
                id,
                kernel: Kernel::Mlx5(Mlx5Cq::new(object)),
                channel,
                context,
            };
            return Ok(Self {
                inner: Arc::new(inner),
                entries: queue.entries() - 1,
                data: Data::Mlx5(Mlx5Poller::new(queue)),
            });
        }
        let attr = CreateCq {
            cqe: entries,
            user_handle: id.0,
            comp_channel,
            comp_vector,
            async_event,
            ..CreateCq::default()
        };
        let created = context
            .uctx()
            .create_cq::<udata::CreateCqResp>(&attr)
            .map_err(|errno| advice::create(action(), errno))?;
        // From here on, an early return destroys the kernel's queue.
        let inner = CqInner {
            context,
            handle: created.handle,
            id,
            kernel: Kernel::Rxe,
            channel,
        };
        let mapping = map(&inner.context, &created.udata.mi, action)?;
        let queue = rxe::CompletionQueue::new(mapping).map_err(|bad| unusable(action, bad))?;
        Ok(Self {
            inner: Arc::new(inner),
            data: Data::Rxe(queue),
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
        let ours = self.inner.context.is_ours();
        if ours
            && let (Kernel::Mlx5(kernel), Data::Mlx5(poller)) = (&self.inner.kernel, &mut self.data)
            && kernel.has_cleanups()
        {
            kernel.clean(poller);
        }
        Completions {
            ours,
            id: self.inner.id,
            data: &mut self.data,
            taken: false,
        }
    }

    /// The queue of an mlx5 device itself, for programs that know that they have one. `None` on other
    /// devices, and while [`poll`](Self::poll) has completions that nobody took: it takes several at once.
    pub fn as_mlx5(&mut self) -> Option<&mut mlx5::CompletionQueue> {
        let (Kernel::Mlx5(kernel), Data::Mlx5(poller)) = (&self.inner.kernel, &mut self.data)
        else {
            return None;
        };
        if !self.inner.context.is_ours() {
            return None;
        }
        kernel.clean(poller);
        poller.queue()
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
        match &self.data {
            Data::Rxe(_) => self
                .inner
                .context
                .uctx()
                .req_notify_cq(self.inner.handle, solicited_only)
                .map_err(|errno| Error::kernel("request a completion event", errno)),
            Data::Mlx5(_) if !self.inner.context.is_ours() => Err(Error::refused(
                "request a completion event",
                "the queue belongs to the parent process",
            )),
            Data::Mlx5(poller) => {
                poller.arm(solicited_only);
                Ok(())
            }
        }
    }

    /// Changes the number of entries; completions that are there stay.
    ///
    /// # Errors
    ///
    /// More completions are there than the new size holds, or more entries than the device has.
    pub fn resize(&mut self, entries: u32) -> Result<()> {
        let action = || format!("resize a completion queue to {entries} entries");
        let uctx = self.inner.context.uctx();
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
            Data::Mlx5(poller) => {
                let Kernel::Mlx5(kernel) = &self.inner.kernel else {
                    return Ok(());
                };
                self.entries = kernel
                    .resize(poller, entries)
                    .map_err(|errno| advice::create(action(), errno))?;
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
                    data: completion::Data::Rxe(cqe),
                })
            }
            Data::Mlx5(poller) => Some(Completion {
                queue: self.id,
                data: completion::Data::Mlx5(poller.next()?),
            }),
        }
    }
}

impl Drop for Completions<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.taken {
            match self.data {
                Data::Rxe(queue) => queue.publish(),
                // the device was told when they were taken out of the queue
                Data::Mlx5(_) => {}
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
    SharedMapping::map(context.uctx().fd(), info.size as usize, info.offset)
        .map_err(|errno| Error::kernel(action(), errno))
}

/// A queue whose header does not fit its memory.
pub(super) fn unusable(
    action: impl Fn() -> String,
    bad: wqe_format::rxe::queue::BadGeometry,
) -> Error {
    Error::refused(action(), format!("the kernel's queue is not usable: {bad}"))
}

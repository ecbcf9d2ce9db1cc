//! Shared receive queues.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::types::{SrqAttrMask, SrqType};
use uverbs_abi::udata::rxe as udata;
use wqe_format::rxe::Sge;

use super::advice;
use super::completion::Completion;
use super::context::Family;
use super::cq::{self, CqInner, map, unusable};
use super::id::ObjectId;
use super::mlx5::Cleanup;
use super::mr::RegionSlice;
use super::pd::{PdInner, ProtectionDomain};
use super::post::PostError;
use super::token::{Token, Tokens};
use super::xrc::{SrqNumber, XrcdInner};
use crate::control::kernel::CreateSrq;
use crate::control::mlx5::srq::{SrqObject, SrqRequest};
use crate::control::mlx5::tags::Tags;
use crate::data::{mlx5, rxe};
use crate::error::{Error, Result};

/// A receive queue that several queue pairs take from.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(super) inner: Arc<SrqInner>,
    data: Data,
    tokens: Tokens,
    max_wr: u32,
}

#[derive(Debug)]
pub(super) struct SrqInner {
    pd: Arc<PdInner>,
    pub(super) handle: handle::Srq,
    id: ObjectId,
    kernel: Kernel,
    /// Of a queue for XRC or with tags.
    within: Option<Within>,
}

/// What a queue for XRC or with tags is made within.
#[derive(Debug)]
pub(super) struct Within {
    pub(super) kind: Named,
    /// Where its receives complete.
    pub(super) cq: Arc<CqInner>,
}

/// A queue that completions name, and not only the queue pairs that take from it.
#[derive(Debug)]
pub(super) enum Named {
    Xrc(Arc<XrcdInner>),
    Tags(Tags),
}

/// The kernel's queue.
#[derive(Debug)]
enum Kernel {
    Rxe,
    /// `None` only while it is dropped.
    Mlx5(Option<SrqObject>),
}

impl SrqInner {
    /// What pollers know of an mlx5 queue.
    pub(super) fn mlx5(&self) -> Option<&Arc<mlx5::SrqShared>> {
        match &self.kernel {
            Kernel::Rxe => None,
            Kernel::Mlx5(object) => Some(object.as_ref()?.queue().shared()),
        }
    }

    /// What peers call a queue for XRC.
    pub(super) fn number(&self) -> Option<SrqNumber> {
        match (&self.kernel, &self.within) {
            (
                Kernel::Mlx5(Some(object)),
                Some(Within {
                    kind: Named::Xrc(_),
                    ..
                }),
            ) => Some(SrqNumber(object.number())),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum Data {
    Rxe(rxe::RecvQueue),
    Mlx5(mlx5::SharedReceiveQueue),
}

/// Size and limit of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueAttributes {
    /// Receives that it holds.
    pub max_wr: u32,
    /// Scatter elements of each.
    pub max_sge: u32,
    /// An event comes once when fewer receives are left; 0 is off.
    pub limit: u32,
}

impl Within {
    fn request(&self) -> SrqRequest {
        let request = SrqRequest {
            cq: self.cq.handle,
            ..SrqRequest::default()
        };
        match &self.kind {
            Named::Xrc(domain) => SrqRequest {
                srq_type: SrqType::XRC,
                xrcd: domain.handle,
                ..request
            },
            Named::Tags(tags) => SrqRequest {
                srq_type: SrqType::TM,
                tags: *tags,
                ..request
            },
        }
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if !self.pd.context.is_ours() {
            return;
        }
        // As for completion queues: nobody to tell, nothing to wait for.
        match &mut self.kernel {
            Kernel::Rxe => {
                let _ = self.pd.context.uctx().destroy_srq(self.handle);
            }
            Kernel::Mlx5(object) => {
                // mlx5's object does it itself, unless completions can name it: they are cleaned first.
                let Some(within) = &self.within else {
                    return;
                };
                let Some(mut object) = object.take() else {
                    return;
                };
                if let Some(key) = object.key()
                    && object.destroy_in_kernel().is_ok()
                    && let cq::Kernel::Mlx5(queue) = &within.cq.kernel
                {
                    queue.clean_later(Cleanup::of_srq(key, object));
                }
            }
        }
    }
}

impl SharedReceiveQueue {
    pub(super) fn new(
        pd: &ProtectionDomain,
        attributes: SharedReceiveQueueAttributes,
        within: Option<Within>,
    ) -> Result<Self> {
        let SharedReceiveQueueAttributes {
            max_wr,
            max_sge,
            limit,
        } = attributes;
        let action = || format!("make a shared receive queue of {max_wr} receives");
        let pd = Arc::clone(&pd.inner);
        let id = ObjectId::next();
        if let Family::Mlx5(context) = &pd.context.family {
            let request = SrqRequest {
                pd: pd.handle,
                user_handle: id.0,
                max_wr,
                max_sge,
                srq_limit: limit,
                async_event: Some(pd.context.events_fd()),
                ..within.as_ref().map(Within::request).unwrap_or_default()
            };
            let (object, queue) = context
                .create_srq(&request)
                .map_err(|errno| advice::create(action(), errno))?;
            let max_wr = object.max_wr();
            let inner = SrqInner {
                handle: object.handle(),
                id,
                kernel: Kernel::Mlx5(Some(object)),
                pd,
                within,
            };
            return Ok(Self {
                inner: Arc::new(inner),
                data: Data::Mlx5(queue),
                tokens: Tokens::new(max_wr),
                max_wr,
            });
        }
        let attr = CreateSrq {
            pd: pd.handle,
            user_handle: id.0,
            max_wr,
            max_sge,
            srq_limit: limit,
            async_event: Some(pd.context.events_fd()),
            ..CreateSrq::default()
        };
        let created = pd
            .context
            .uctx()
            .create_srq::<udata::CreateSrqResp>(&attr)
            .map_err(|errno| advice::create(action(), errno))?;
        // From here on, an early return destroys the kernel's queue.
        let inner = SrqInner {
            pd,
            handle: created.handle,
            id,
            kernel: Kernel::Rxe,
            within: None,
        };
        let mapping = map(&inner.pd.context, &created.udata.mi, action)?;
        let queue = rxe::RecvQueue::new(mapping, created.max_sge, true)
            .map_err(|bad| unusable(action, bad))?;
        let tokens = Tokens::new(queue.capacity());
        Ok(Self {
            inner: Arc::new(inner),
            data: Data::Rxe(queue),
            tokens,
            max_wr: created.max_wr,
        })
    }

    /// What events call it.
    pub fn id(&self) -> ObjectId {
        self.inner.id
    }

    /// Whether the queue is of this process, not of one that it was forked from.
    pub(super) fn is_ours(&self) -> bool {
        self.inner.pd.context.is_ours()
    }

    /// What pollers know of an mlx5 queue.
    pub(super) fn mlx5(&self) -> Option<&Arc<mlx5::SrqShared>> {
        self.inner.mlx5()
    }

    /// Receives that it holds.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// What peers call it, if it is in an [`XrcDomain`](crate::XrcDomain).
    pub fn number(&self) -> Option<SrqNumber> {
        self.inner.number()
    }

    /// Posts a receive. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets its completion.
    ///
    /// # Errors
    ///
    /// The queue is full, or the buffer is a dma-buf.
    pub fn post(&mut self, buffer: RegionSlice) -> std::result::Result<Token, PostError> {
        if matches!(self.data, Data::Mlx5(_)) {
            // Which queue pairs will take it, and whether they may have data in completions, is not known here.
            buffer.check_polling_can_write()?;
        }
        let full = PostError::Refused(rxe::PostError::QueueFull);
        let token = self.tokens.next().ok_or(full)?;
        // SAFETY: `tokens` keeps the region registered, and it is never lent as a slice.
        unsafe { self.post_sges(token.wr_id(), &[buffer.sge()]) }?;
        self.tokens.keep(buffer);
        Ok(token)
    }

    /// Gives back the buffer of a completed receive; `None` if it was not posted here, or not safely.
    pub fn reclaim(&mut self, completion: &Completion) -> Option<RegionSlice> {
        self.tokens.reclaim(completion.wr_id())
    }

    /// Posts a receive into memory of the caller's.
    ///
    /// # Errors
    ///
    /// The queue is full, or there are more elements than it was made for.
    ///
    /// # Safety
    ///
    /// The elements' memory stays valid and is not used by anybody else until the receive completes. On mlx5, elements name it
    /// by its address in this process, unless all queue pairs that take from here were made without
    /// [data in completions](crate::QueuePairBuilder::data_in_completions).
    /// `wr_id` is below 2^63, unless nothing is posted safely.
    #[inline]
    pub unsafe fn post_sges(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
    ) -> std::result::Result<(), PostError> {
        if !self.inner.pd.context.is_ours() {
            return Err(PostError::ForkedChild);
        }
        match &mut self.data {
            Data::Rxe(queue) => Ok(queue.post(wr_id, sges)?),
            Data::Mlx5(queue) => match queue.post([(wr_id, sges)]) {
                Ok(_) => Ok(()),
                Err(refused) => Err(refused.error.into()),
            },
        }
    }

    /// Arms the limit: one event `SRQ_LIMIT_REACHED` comes when fewer receives than this are left.
    ///
    /// # Errors
    ///
    /// The limit is above the size.
    pub fn set_limit(&mut self, limit: u32) -> Result<()> {
        let action = || format!("set a shared receive queue's limit to {limit}");
        match &mut self.data {
            Data::Rxe(_) => self
                .inner
                .pd
                .context
                .uctx()
                .modify_srq_rxe(self.inner.handle, SrqAttrMask::LIMIT, 0, limit)
                .map(drop)
                .map_err(|errno| advice::create(action(), errno)),
            Data::Mlx5(_) => self
                .inner
                .pd
                .context
                .uctx()
                .modify_srq(self.inner.handle, SrqAttrMask::LIMIT, 0, limit)
                .map_err(|errno| advice::create(action(), errno)),
        }
    }

    /// Changes the number of receives that the queue holds; those posted stay.
    ///
    /// # Errors
    ///
    /// More are posted, or more than the device has.
    pub fn resize(&mut self, max_wr: u32) -> Result<()> {
        let action = || format!("resize a shared receive queue to {max_wr} receives");
        let context = &self.inner.pd.context;
        match &mut self.data {
            Data::Rxe(queue) => {
                let info = context
                    .uctx()
                    .modify_srq_rxe(self.inner.handle, SrqAttrMask::MAX_WR, max_wr, 0)
                    .map_err(|errno| advice::create(action(), errno))?;
                queue
                    .replace(map(context, &info, action)?)
                    .map_err(|bad| unusable(action, bad))?;
                self.tokens.grow(queue.capacity());
                self.max_wr = queue.capacity();
            }
            Data::Mlx5(_) => {
                return Err(Error::refused(
                    action(),
                    "this device cannot change the size of a shared receive queue",
                ));
            }
        }
        Ok(())
    }

    /// Size and limit as the kernel has them; the limit is 0 after its event.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn query(&self) -> Result<SharedReceiveQueueAttributes> {
        let answer = self
            .inner
            .pd
            .context
            .uctx()
            .query_srq(self.inner.handle)
            .map_err(|errno| Error::kernel("query a shared receive queue", errno))?;
        Ok(SharedReceiveQueueAttributes {
            max_wr: match &self.inner.kernel {
                // the kernel counts entries that programs do not have
                Kernel::Mlx5(Some(object)) => object.max_wr(),
                Kernel::Rxe | Kernel::Mlx5(None) => answer.max_wr,
            },
            max_sge: answer.max_sge,
            limit: answer.srq_limit,
        })
    }
}

//! Shared receive queues.

use std::os::fd::RawFd;
use std::sync::Arc;

use uverbs_abi::handle::{Cq, Pd, Srq, Xrcd};
use uverbs_abi::types::{SrqAttrMask, SrqType};
use uverbs_abi::udata::mlx5::{CreateSrq as DriverInput, CreateSrqResp};
use uverbs_abi::write::srq::QuerySrqResp;

use super::buffer::{Allocator, QueueBuffer, ResourceType};
use super::context::Mlx5Context;
use super::entry::{Dying, Entry, Kind};
use super::environment::QueueKind as Setting;
use super::geometry::SrqGeometry;
use super::placement::RingPlacement;
use super::tags::Tags;
use super::user_index;
use crate::control::kernel::CreateSrq as KernelRequest;
use crate::data::mlx5::{
    KeepAlive, QueueKind, QueueRecord, ReceiveSide, SharedReceiveQueue, SrqParts,
};
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;

/// A shared receive queue to make.
#[derive(Clone, Debug, Default)]
pub struct SrqRequest {
    /// Kind; a basic one by default.
    pub srq_type: SrqType,
    /// The protection domain.
    pub pd: Pd,
    /// The XRC domain of a queue for XRC.
    pub xrcd: Xrcd,
    /// Where its receives complete; of one with tags, the changes of its list too.
    pub cq: Cq,
    /// The list of tags of a queue that has one.
    pub tags: Tags,
    /// Comes back in events.
    pub user_handle: u64,
    /// Comes back with completions of a queue for XRC or with tags.
    pub cookie: usize,
    /// Receives asked for.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// An event comes when fewer receives are left.
    pub srq_limit: u32,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
    /// Whether the program vouches for one thread at a time.
    pub single_threaded: bool,
    /// The program's allocator.
    pub allocator: Option<Arc<dyn Allocator>>,
}

/// The kernel's part of a shared receive queue; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct SrqObject {
    context: Arc<Mlx5Context>,
    handle: Srq,
    number: u32,
    max_wr: u32,
    max_sge: u32,
    /// Where completions find a queue for XRC or with tags.
    entry: Option<Entry>,
    queue: SharedReceiveQueue,
    placement: RingPlacement,
    destroyed: bool,
}

impl Mlx5Context {
    /// Makes a shared receive queue, basic, for XRC or with tags; the last lacks the queue pair that its list is changed by
    /// (see [`connect_for_tags`](super::qp::QpObject::connect_for_tags)). `EINVAL` for more than the device can do,
    /// `EOPNOTSUPP` for other kinds.
    pub fn create_srq(
        self: &Arc<Self>,
        asked: &SrqRequest,
    ) -> Result<(SrqObject, SharedReceiveQueue), Errno> {
        let concurrent = !(asked.single_threaded || self.environment().single_threaded);
        // Whether completions name it, and not only the queue pairs that take from it.
        let (named, tags) = match asked.srq_type {
            SrqType::BASIC => (false, None),
            SrqType::XRC => (true, None),
            SrqType::TM => {
                let list = asked.tags.list(&self.limits().limits, concurrent)?;
                (true, Some(list))
            }
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let geometry = SrqGeometry::new(&self.limits().limits, asked.max_wr, asked.max_sge)?;
        let buffer = QueueBuffer::new(
            geometry.bytes(),
            ResourceType::SRQ,
            page_size(),
            &self.source(asked.allocator.as_ref(), Setting::Srq),
            self.huge_pages(),
        )?;
        let record = self.records().take(asked.allocator.as_ref())?;
        let by_index = self.names_queues_by_index();
        let index = (named && by_index)
            .then(|| self.indices().take())
            .transpose()?;
        let input = DriverInput {
            buf_addr: buffer.address(),
            db_addr: record.address(),
            uidx: match &index {
                Some(index) => index.get(),
                None if named => user_index::NONE,
                None => 0,
            },
            ..DriverInput::default()
        };
        let placement = RingPlacement {
            ring: buffer.address(),
            doorbell: record.address(),
            entries: geometry.wqe_cnt,
            shift: geometry.wqe_shift,
        };
        let (ring, doorbell) = (buffer.start(), record.words());
        let memory: KeepAlive = Box::new((buffer, record));
        let parts = SrqParts {
            ring,
            entries: geometry.wqe_cnt,
            list_entries: geometry.nwqes,
            stride_shift: geometry.wqe_shift,
            max_sge: geometry.max_gs,
            doorbell,
            concurrent,
            null_lkey: self.null_lkey(),
            tags,
            memory: Some(memory),
        };
        // SAFETY: ring and record are new, as long as the geometry says, at whole pages, and live in
        // `memory`. For one thread at a time the program gave its word.
        let queue = unsafe { SharedReceiveQueue::new(parts) };
        let request = KernelRequest {
            srq_type: asked.srq_type,
            pd: asked.pd,
            xrcd: asked.xrcd,
            cq: asked.cq,
            max_num_tags: asked.tags.max_num_tags,
            user_handle: asked.user_handle,
            // the kernel is told of the entries that wait too
            max_wr: geometry.wqe_cnt - 1,
            max_sge: geometry.max_gs,
            srq_limit: asked.srq_limit,
            async_event: asked.async_event,
        };
        let making = self.making(Kind::SharedQueue);
        // SAFETY: the ring and the record live as long as the object below has the queue, which
        // destroys the kernel's queue first.
        let created = unsafe {
            self.uctx()
                .create_srq_with::<_, CreateSrqResp>(&request, &input)
        }?;
        let mut object = SrqObject {
            context: self.clone(),
            handle: created.handle,
            number: created.udata.srqn,
            max_wr: geometry.max_post,
            max_sge: geometry.max_gs,
            entry: None,
            queue: queue.clone(),
            placement,
            destroyed: false,
        };
        if named || !by_index {
            // SAFETY: the queue keeps its ring.
            let record = unsafe {
                QueueRecord::new(
                    QueueKind::NamedSrq,
                    object.number,
                    asked.cookie,
                    None,
                    ReceiveSide::shared(queue.shared().clone()),
                    None,
                )
            };
            let custom = asked.allocator.is_some();
            let entry = making.enter(index, object.number, Arc::new(record), custom);
            // before the object, which takes it to destroy itself
            drop(making);
            object.entry = Some(entry?);
        }
        Ok((object, queue))
    }
}

impl SrqObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Srq {
        self.handle
    }

    /// The device's number, which peers name a queue for XRC by.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Receives that fit.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Scatter entries of each.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// What completions call a queue for XRC or with tags.
    pub fn key(&self) -> Option<u32> {
        self.entry.as_ref().map(Entry::key)
    }

    /// Where its memory is.
    pub fn placement(&self) -> &RingPlacement {
        &self.placement
    }

    /// The queue.
    pub fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
    }

    /// Sets the limit below which an event comes.
    pub fn set_limit(&self, limit: u32) -> Result<(), Errno> {
        self.modify(SrqAttrMask::LIMIT, 0, limit)
    }

    /// Changes what `mask` names. The device cannot change the size (`EINVAL`).
    pub fn modify(&self, mask: SrqAttrMask, max_wr: u32, limit: u32) -> Result<(), Errno> {
        self.context
            .uctx()
            .modify_srq(self.handle, mask, max_wr, limit)
    }

    /// Attributes: the limit from the device, the sizes as they were granted.
    pub fn query(&self) -> Result<QuerySrqResp, Errno> {
        let mut answer = self.context.uctx().query_srq(self.handle)?;
        answer.max_wr = self.max_wr;
        answer.max_sge = self.max_sge;
        Ok(answer)
    }

    /// [`destroy`](Self::destroy), after which completions still find the queue, and nobody else has its index, until the
    /// object is dropped.
    pub(crate) fn destroy_in_kernel(&mut self) -> Result<u32, Errno> {
        if self.destroyed {
            return Ok(0);
        }
        let events = self.context.uctx().destroy_srq(self.handle)?;
        self.destroyed = true;
        Ok(events)
    }

    /// Destroys it in the kernel. Nothing has happened if that fails, as it does while queue pairs use it.
    /// Completions of a queue for XRC are to be cleaned before the answer is dropped.
    pub fn destroy(&mut self) -> Result<Dying<'_>, Errno> {
        let making = self.context.making(Kind::SharedQueue);
        let events = if self.destroyed {
            0
        } else {
            self.context.uctx().destroy_srq(self.handle)?
        };
        self.destroyed = true;
        Ok(Dying::new(events, self.entry.as_mut(), making))
    }
}

impl Drop for SrqObject {
    fn drop(&mut self) {
        if !self.destroyed && self.context.is_ours() && self.destroy().is_err() {
            // The device may still read there.
            self.context
                .abandon((self.queue.clone(), self.entry.take()));
        }
    }
}

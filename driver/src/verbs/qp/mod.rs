//! Queue pairs.

mod attributes;
mod build;
mod recv;
mod send;
mod service;
mod state;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use uverbs_abi::handle;
use uverbs_abi::types::{QpAttrMask, QpCap, QpState};
use uverbs_abi::write::qp::QueryQpResp;

use super::completion::Completion;
use super::cq::CqInner;
use super::gid::Gid;
use super::id::ObjectId;
use super::mr::RegionSlice;
use super::pd::PdInner;
use super::srq::SrqInner;
use crate::error::{Error, Result};

pub use attributes::{Endpoint, Peer, QpAttributes, Timing};
pub use build::QueuePairBuilder;
pub use recv::RecvHalf;
pub use send::{SendBatch, SendHalf, WorkRequest};
pub use service::{Connected, Rc, Service, Uc, Ud};

/// A queue pair of service type `T`: [`Rc`], [`Uc`] or [`Ud`].
///
/// Which operations it has follows from the type; a datagram without a destination does not compile:
///
/// ```compile_fail
/// # fn f(mut qp: oxverbs::QueuePair<oxverbs::Ud>) {
/// let mut batch = qp.send_batch();
/// batch.send(1).empty();
/// # }
/// ```
#[derive(Debug)]
pub struct QueuePair<T> {
    send: SendHalf<T>,
    recv: RecvHalf<T>,
}

/// What both halves share.
#[derive(Debug)]
struct QpInner {
    pd: Arc<PdInner>,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    _srq: Option<Arc<SrqInner>>,
    handle: handle::Qp,
    qp_num: u32,
    id: ObjectId,
    cap: QpCap,
    /// The state that this library put it in; the kernel may have moved it to an error state since.
    state: AtomicU8,
    /// How often it was reset, upon which the halves take up the kernel's indices.
    resets: AtomicU32,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if self.pd.context.is_ours() {
            // As for completion queues: nobody to tell, nothing to wait for.
            let _ = self.pd.context.uctx.destroy_qp(self.handle);
        }
    }
}

impl QpInner {
    #[inline]
    fn state(&self) -> QpState {
        QpState(self.state.load(Ordering::Acquire))
    }
}

impl<T: Service> QueuePair<T> {
    /// Its number, for peers.
    pub fn qp_num(&self) -> u32 {
        self.shared().qp_num
    }

    /// What events call it.
    pub fn id(&self) -> ObjectId {
        self.shared().id
    }

    /// Capacity granted.
    pub fn cap(&self) -> QpCap {
        self.shared().cap
    }

    /// The state that the queue pair was last put in or queried to be in.
    pub fn state(&self) -> QpState {
        self.shared().state()
    }

    /// Attributes as the kernel has them.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn query(&self) -> Result<QueryQpResp> {
        let shared = self.shared();
        let answer = shared
            .pd
            .context
            .uctx
            .query_qp(shared.handle, QpAttrMask::STATE)
            .map_err(|errno| Error::kernel("query a queue pair", errno))?;
        shared.state.store(answer.qp_state.0, Ordering::Release);
        Ok(answer)
    }

    /// The half that sends.
    pub fn send_half(&mut self) -> &mut SendHalf<T> {
        &mut self.send
    }

    /// The half that receives.
    pub fn recv_half(&mut self) -> &mut RecvHalf<T> {
        &mut self.recv
    }

    /// Splits into halves that two threads may use at the same time, without a lock. The queue pair is
    /// destroyed with the second of them.
    pub fn split(self) -> (SendHalf<T>, RecvHalf<T>) {
        (self.send, self.recv)
    }

    /// Puts halves together again.
    ///
    /// # Errors
    ///
    /// Gives them back if they are not of one queue pair.
    #[allow(clippy::result_large_err, reason = "the halves themselves come back")]
    pub fn unsplit(
        send: SendHalf<T>,
        recv: RecvHalf<T>,
    ) -> std::result::Result<Self, (SendHalf<T>, RecvHalf<T>)> {
        if Arc::ptr_eq(&send.shared, &recv.shared) {
            Ok(Self { send, recv })
        } else {
            Err((send, recv))
        }
    }

    /// Begins a batch of sends, which one doorbell announces.
    #[inline]
    pub fn send_batch(&mut self) -> SendBatch<'_, T> {
        self.send.batch()
    }

    /// Gives back the buffer of a completed, safely posted work request of either half.
    pub fn reclaim(&mut self, completion: &Completion) -> Option<RegionSlice> {
        self.send
            .reclaim(completion)
            .or_else(|| self.recv.reclaim(completion))
    }

    fn shared(&self) -> &QpInner {
        &self.send.shared
    }
}

impl QueuePair<Ud> {
    /// Joins a multicast group; `lid` is its multicast LID on InfiniBand, 0 on RoCE.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the GID is no multicast one.
    pub fn join(&mut self, gid: Gid, lid: u16) -> Result<()> {
        let shared = self.shared();
        shared
            .pd
            .context
            .uctx
            .attach_mcast(shared.handle, gid.0, lid)
            .map_err(|errno| Error::kernel(format!("join the multicast group {gid}"), errno))
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    ///
    /// It has not joined.
    pub fn leave(&mut self, gid: Gid, lid: u16) -> Result<()> {
        let shared = self.shared();
        shared
            .pd
            .context
            .uctx
            .detach_mcast(shared.handle, gid.0, lid)
            .map_err(|errno| Error::kernel(format!("leave the multicast group {gid}"), errno))
    }
}

/// The marker of a service type in halves; neither half holds a value of it.
type Marker<T> = PhantomData<fn() -> T>;

//! Queue pairs.

mod attributes;
mod build;
mod describe;
mod ece;
mod flow;
mod operation;
mod pacing;
mod recv;
mod send;
mod service;
mod state;
mod tags;
mod xrc;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle;
use uverbs_abi::types::{QpAttrMask, QpCap, QpState};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp, QueryQpResp};

use super::completion::Completion;
use super::cq::{self, CqInner};
use super::gid::Gid;
use super::id::ObjectId;
use super::mlx5::{Cleanup, Done};
use super::mr::RegionSlice;
use super::pd::PdInner;
use super::post::PostError;
use super::srq::SrqInner;
use crate::control::mlx5::qp::QpObject;
use crate::data::mlx5;
use crate::error::{Error, Result};
use crate::sys::Errno;

pub use attributes::{Endpoint, Peer, QpAttributes, Timing};
pub use build::QueuePairBuilder;
pub use ece::Ece;
pub use flow::{FlowMatch, FlowRule};
pub use pacing::RateLimit;
pub use recv::RecvHalf;
pub use send::{SendBatch, SendHalf, WorkRequest};
pub use service::{Connected, Paired, RawPacket, Rc, Service, Uc, Ud, XrcInitiator};
use state::reliable_rts;
pub(super) use state::{Change, rtr, rts};

/// A queue pair of service type `T`: [`Rc`], [`Uc`], [`Ud`], [`RawPacket`] or [`XrcInitiator`].
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
    srq: Option<Arc<SrqInner>>,
    kernel: Kernel,
    handle: handle::Qp,
    qp_num: u32,
    id: ObjectId,
    cap: QpCap,
    /// Whether completions may carry small messages.
    data_in_completions: bool,
    /// The state that this library put it in; the kernel may have moved it to an error state since.
    state: AtomicU8,
    /// How often it was reset, upon which the halves take up the kernel's indices.
    resets: AtomicU32,
    /// How often its state was changed, upon which halves on mlx5 look at it.
    changes: AtomicU32,
}

/// The kernel's queue pair.
#[derive(Debug)]
enum Kernel {
    Rxe,
    Mlx5 {
        /// `None` only while it is dropped.
        object: Mutex<Option<QpObject>>,
        /// Resets after which pollers have still to clean.
        unclean: Arc<AtomicU32>,
    },
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if !self.pd.context.is_ours() {
            return;
        }
        // As for completion queues: nobody to tell, nothing to wait for.
        match &self.kernel {
            Kernel::Rxe => {
                let _ = self.pd.context.uctx().destroy_qp(self.handle);
            }
            Kernel::Mlx5 { object, .. } => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(mut object) = object else {
                    return;
                };
                let Some(key) = object.key() else {
                    return;
                };
                if object.lends_its_number() {
                    if object.silence().is_ok() {
                        let uses = (
                            Arc::clone(&self.pd),
                            [&self.send_cq, &self.recv_cq].map(Arc::clone),
                        );
                        self.clean_later(key, Done::Silent(object, Box::new(uses)));
                    }
                } else if object.destroy_in_kernel().is_ok() {
                    self.clean_later(key, Done::Gone(object));
                }
            }
        }
    }
}

impl QpInner {
    #[inline]
    fn state(&self) -> QpState {
        QpState(self.state.load(Ordering::Acquire))
    }

    /// Refuses a buffer for what is received or read that polling could not write to, if it may have to.
    #[inline]
    fn check_takes_data(&self, buffer: &RegionSlice) -> std::result::Result<(), PostError> {
        if self.data_in_completions {
            buffer.check_polling_can_write()?;
        }
        Ok(())
    }

    /// Lets the pollers clean completions of an mlx5 queue pair.
    fn clean_later(&self, key: u32, done: Done) {
        let srq = self.srq.as_ref().and_then(|srq| srq.mlx5()).cloned();
        let mut cleanup = Cleanup {
            key,
            qp_num: self.qp_num,
            srq,
            _done: Arc::new(done),
        };
        if let cq::Kernel::Mlx5(queue) = &self.recv_cq.kernel {
            queue.clean_later(cleanup.clone());
        }
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq)
            && let cq::Kernel::Mlx5(queue) = &self.send_cq.kernel
        {
            cleanup.srq = None;
            queue.clean_later(cleanup);
        }
    }

    /// Changes attributes in the kernel.
    fn modify(&self, modify: &ModifyQp) -> std::result::Result<(), Errno> {
        match &self.kernel {
            Kernel::Rxe => self.pd.context.uctx().modify_qp(modify),
            Kernel::Mlx5 { object, unclean } => {
                let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(object) = &mut *object else {
                    return Err(Errno(libc::EINVAL));
                };
                let change = object.modify(&ExModifyQp {
                    base: *modify,
                    ..ExModifyQp::default()
                })?;
                if change.resets()
                    && let Some(key) = object.key()
                {
                    unclean.fetch_add(1, Ordering::AcqRel);
                    self.clean_later(key, Done::StartedOver(Arc::clone(unclean)));
                }
                Ok(())
            }
        }
    }

    /// Notes the state that the queue pair is in now, for the halves.
    fn note_state(&self, state: QpState) {
        if state == QpState::RESET {
            self.resets.fetch_add(1, Ordering::AcqRel);
        }
        self.state.store(state.0, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether the pollers have cleaned what was before the last reset.
    fn is_clean(&self) -> bool {
        match &self.kernel {
            Kernel::Rxe => true,
            Kernel::Mlx5 { unclean, .. } => unclean.load(Ordering::Acquire) == 0,
        }
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
            .uctx()
            .query_qp(shared.handle, QpAttrMask::STATE)
            .map_err(|errno| Error::kernel("query a queue pair", errno))?;
        if answer.qp_state != shared.state() {
            shared.note_state(answer.qp_state);
        }
        Ok(answer)
    }

    /// The queues of an mlx5 device themselves, for programs that know that they have one: no operation
    /// goes through the choice of a device family. `None` on other devices.
    pub fn as_mlx5(&mut self) -> Option<Mlx5Queues<'_>> {
        Some(Mlx5Queues {
            send: self.send.mlx5(),
            recv: self.recv.mlx5(),
        })
        .filter(|queues| queues.send.is_some() || queues.recv.is_some())
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
            .uctx()
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
            .uctx()
            .detach_mcast(shared.handle, gid.0, lid)
            .map_err(|errno| Error::kernel(format!("leave the multicast group {gid}"), errno))
    }
}

/// Queues of an mlx5 queue pair. Who posts to them has read their documentation; safely posted requests
/// and these share the queue's numbers, so [`Token`](crate::Token)s should not be mixed with own ones.
#[derive(Debug)]
pub struct Mlx5Queues<'q> {
    /// Sends.
    pub send: Option<&'q mut mlx5::SendQueue>,
    /// Receives; none with a shared receive queue.
    pub recv: Option<&'q mut mlx5::RecvQueue>,
}

/// The marker of a service type in halves; neither half holds a value of it.
type Marker<T> = PhantomData<fn() -> T>;

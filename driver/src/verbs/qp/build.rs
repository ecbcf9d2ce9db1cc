//! Making queue pairs.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex};

use uverbs_abi::types::{QpCap, QpState, QpType};
use uverbs_abi::udata::rxe as udata;

use super::recv::{self, RecvHalf};
use super::send::{self, SendHalf};
use super::{Kernel, QpInner, QueuePair, Service};
use crate::control::kernel::CreateQp;
use crate::control::mlx5::qp::{MadeQp, QpRequest};
use crate::data::rxe;
use crate::error::{Error, Result};
use crate::verbs::advice;
use crate::verbs::context::Family;
use crate::verbs::cq::{CompletionQueue, CqInner, map, unusable};
use crate::verbs::id::ObjectId;
use crate::verbs::pd::{PdInner, ProtectionDomain};
use crate::verbs::srq::{SharedReceiveQueue, SrqInner};
use crate::verbs::token::Tokens;

/// A queue pair in the making. Defaults: 16 work requests of 1 element each way, no inline data.
#[derive(Debug)]
pub struct QueuePairBuilder<T> {
    pd: Arc<PdInner>,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    srq: Option<Arc<SrqInner>>,
    cap: QpCap,
    signal_all: bool,
    data_in_completions: bool,
    _service: PhantomData<fn() -> T>,
}

impl<T: Service> QueuePairBuilder<T> {
    pub(in crate::verbs) fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Self {
        Self {
            pd: Arc::clone(&pd.inner),
            send_cq: Arc::clone(&cq.inner),
            recv_cq: Arc::clone(&cq.inner),
            srq: None,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            signal_all: false,
            data_in_completions: true,
            _service: PhantomData,
        }
    }

    /// Receives complete on another queue than sends.
    #[must_use]
    pub fn recv_completion_queue(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = Arc::clone(&cq.inner);
        self
    }

    /// Receives come from a shared queue.
    #[must_use]
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(Arc::clone(&srq.inner));
        self
    }

    /// Sends that can be outstanding.
    #[must_use]
    pub fn max_send_wr(mut self, max: u32) -> Self {
        self.cap.max_send_wr = max;
        self
    }

    /// Receives that can be outstanding.
    #[must_use]
    pub fn max_recv_wr(mut self, max: u32) -> Self {
        self.cap.max_recv_wr = max;
        self
    }

    /// Gather elements of a send.
    #[must_use]
    pub fn max_send_sge(mut self, max: u32) -> Self {
        self.cap.max_send_sge = max;
        self
    }

    /// Scatter elements of a receive.
    #[must_use]
    pub fn max_recv_sge(mut self, max: u32) -> Self {
        self.cap.max_recv_sge = max;
        self
    }

    /// Bytes that a send may carry inline.
    #[must_use]
    pub fn max_inline(mut self, max: u32) -> Self {
        self.cap.max_inline_data = max;
        self
    }

    /// Every send makes a completion, signaled or not.
    #[must_use]
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Whether small messages that are received or read may come inside completions, from where polling copies them to their
    /// buffers, as with libmlx5 (on mlx5 only; on unless `MLX5_SCATTER_TO_CQE` is 0). Off, buffers may be dma-bufs.
    #[must_use]
    pub fn data_in_completions(mut self, on: bool) -> Self {
        self.data_in_completions = on;
        self
    }

    /// Makes it, in state RESET.
    ///
    /// # Errors
    ///
    /// More than the device has.
    pub fn create(self) -> Result<QueuePair<T>> {
        let Self {
            pd,
            send_cq,
            recv_cq,
            srq,
            mut cap,
            signal_all,
            data_in_completions,
            ..
        } = self;
        if T::QP_TYPE == QpType::XRC_INI {
            // it receives nothing, and a ring for that would be one that the kernel knows nothing of
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let action = || format!("make a {:?} queue pair of {cap:?}", T::QP_TYPE);
        if let Some(srq) = &srq
            && (srq.number().is_some() || T::QP_TYPE == QpType::XRC_INI)
        {
            return Err(Error::refused(
                action(),
                "XRC's shared receive queues are reached by targets of their domain, not by queue pairs",
            ));
        }
        let id = ObjectId::next();
        let context = Arc::clone(&pd.context);
        if let Family::Mlx5(mlx5) = &context.family {
            let request = QpRequest {
                pd: pd.handle,
                send_cq: send_cq.handle,
                recv_cq: recv_cq.handle,
                srq: srq
                    .as_ref()
                    .and_then(|srq| Some((srq.handle, Arc::clone(srq.mlx5()?)))),
                user_handle: id.0,
                cap,
                sq_sig_all: signal_all,
                no_scatter_to_cqe: !data_in_completions,
                async_event: Some(context.events_fd()),
                ..QpRequest::new(T::MLX5)
            };
            let MadeQp {
                object,
                send,
                receive,
            } = mlx5
                .create_qp(&request)
                .map_err(|errno| advice::create(action(), errno))?;
            let cap = *object.cap();
            let shared = Arc::new(QpInner {
                pd,
                send_cq,
                recv_cq,
                srq,
                handle: object.handle(),
                qp_num: object.number(),
                kernel: Kernel::Mlx5 {
                    object: Mutex::new(Some(object)),
                    unclean: Arc::default(),
                },
                id,
                cap,
                data_in_completions: data_in_completions && mlx5.environment().scatter_to_cqe,
                state: AtomicU8::new(QpState::RESET.0),
                resets: AtomicU32::new(0),
                changes: AtomicU32::new(0),
            });
            let send = send::Data::Mlx5 { sq: send, seen: 0 };
            let recv = recv::Data::Mlx5(receive, 0);
            return Ok(QueuePair {
                send: SendHalf::new(
                    Arc::clone(&shared),
                    send,
                    Tokens::new(cap.max_send_wr),
                    signal_all,
                ),
                recv: RecvHalf::new(shared, recv, Tokens::new(cap.max_recv_wr)),
            });
        }
        let Some(transport) = T::TRANSPORT else {
            return Err(Error::refused(
                action(),
                "this device has no such queue pairs",
            ));
        };
        let attr = CreateQp {
            qp_type: T::QP_TYPE,
            pd: pd.handle,
            send_cq: send_cq.handle,
            recv_cq: recv_cq.handle,
            srq: srq.as_ref().map(|srq| srq.handle),
            user_handle: id.0,
            cap,
            sq_sig_all: signal_all,
            async_event: Some(context.events_fd()),
            ..CreateQp::default()
        };
        let created = context
            .uctx()
            .create_qp::<udata::CreateQpResp>(&attr)
            .map_err(|errno| advice::create(action(), errno))?;
        let cap = created.cap;
        // From here on, an early return destroys the kernel's queue pair.
        let shared = Arc::new(QpInner {
            pd,
            send_cq,
            recv_cq,
            srq,
            kernel: Kernel::Rxe,
            handle: created.handle,
            qp_num: created.qp_num,
            id,
            cap,
            data_in_completions: false,
            state: AtomicU8::new(QpState::RESET.0),
            resets: AtomicU32::new(0),
            changes: AtomicU32::new(0),
        });
        let mapping = map(&context, &created.udata.sq_mi, action)?;
        let limits = rxe::SendLimits {
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
        };
        let sq =
            rxe::SendQueue::new(mapping, transport, limits).map_err(|bad| unusable(action, bad))?;
        let rq = if created.udata.rq_mi.is_present() {
            let mapping = map(&context, &created.udata.rq_mi, action)?;
            let rq = rxe::RecvQueue::new(mapping, cap.max_recv_sge, false);
            Some(rq.map_err(|bad| unusable(action, bad))?)
        } else {
            None
        };
        let send_tokens = Tokens::new(sq.capacity());
        let recv_tokens = Tokens::new(rq.as_ref().map_or(0, rxe::RecvQueue::capacity));
        let doorbell = rxe::Doorbell::new(created.handle);
        Ok(QueuePair {
            send: SendHalf::new(
                Arc::clone(&shared),
                send::Data::Rxe { sq, doorbell },
                send_tokens,
                signal_all,
            ),
            recv: RecvHalf::new(shared, recv::Data::Rxe(rq), recv_tokens),
        })
    }
}

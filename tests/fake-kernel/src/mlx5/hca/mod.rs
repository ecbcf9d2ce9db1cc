//! The device behind the kernel: it reads the program's rings and writes its completions.
//!
//! Nothing happens by itself. A test posts with some library, finds the queue pair by its number, takes
//! what was posted and writes the completions that it wants:
//!
//! ```
//! # fn example(kernel: &fake_kernel::FakeKernel, qpn: u32) -> Option<()> {
//! use fake_kernel::hca::Cqe;
//!
//! let hca = kernel.hca(0);
//! let qp = hca.qp(qpn)?;
//! for wqe in qp.take_sends() {
//!     if wqe.is_signaled() {
//!         hca.complete(qp.send_cq.as_ref()?, &Cqe::requester(&qp, &wqe)).ok()?;
//!     }
//! }
//! # Some(())
//! # }
//! ```
//!
//! The objects are shared: they stay after the program destroyed its own, and then refuse to touch memory.

pub mod compressed;
pub mod cq;
pub mod cqe;
pub(crate) mod memory;
pub mod qp;
pub mod srq;

use std::sync::Arc;

use uverbs_abi::types::EventType;

pub use compressed::Mini;
pub use cq::{Armed, Buffer, CompletionQueue, Refused};
pub use cqe::{Cqe, Received};
pub use qp::{QueuePair, Ring, SendWqe};
pub use srq::SharedReceiveQueue;

use super::exec;
pub use super::uar::UarPage;
use crate::FakeKernel;
use crate::core::objects::{CqKind, Object, QpKind, SrqKind};
use crate::state::State;

/// One device of a fake kernel of family [`Mlx5`](crate::Family::Mlx5).
#[derive(Clone, Debug)]
pub struct Hca {
    kernel: FakeKernel,
    device: usize,
}

impl Hca {
    pub(crate) fn new(kernel: FakeKernel, device: usize) -> Self {
        Self { kernel, device }
    }

    /// All queue pairs, by number.
    pub fn qps(&self) -> Vec<Arc<QueuePair>> {
        let st = self.kernel.lock();
        let qps = st.devices[self.device].qps.values();
        qps.filter_map(|qp| match &qp.kind {
            QpKind::Mlx5(qp) => Some(qp.clone()),
            QpKind::Rxe(_) => None,
        })
        .collect()
    }

    /// The queue pair with that number.
    pub fn qp(&self, qpn: u32) -> Option<Arc<QueuePair>> {
        match &self.kernel.lock().devices[self.device].qps.get(&qpn)?.kind {
            QpKind::Mlx5(qp) => Some(qp.clone()),
            QpKind::Rxe(_) => None,
        }
    }

    /// All completion queues, by number.
    pub fn cqs(&self) -> Vec<Arc<CompletionQueue>> {
        let st = self.kernel.lock();
        let cqs = st.devices[self.device].cqs.values();
        cqs.filter_map(|cq| match &cq.kind {
            CqKind::Mlx5(cq) => Some(cq.clone()),
            CqKind::Rxe(_) => None,
        })
        .collect()
    }

    /// The completion queue with that number.
    pub fn cq(&self, cqn: u32) -> Option<Arc<CompletionQueue>> {
        match &self.kernel.lock().devices[self.device].cqs.get(&cqn)?.kind {
            CqKind::Mlx5(cq) => Some(cq.clone()),
            CqKind::Rxe(_) => None,
        }
    }

    /// All shared receive queues, by number.
    pub fn srqs(&self) -> Vec<Arc<SharedReceiveQueue>> {
        let st = self.kernel.lock();
        let srqs = st.devices[self.device].srqs.values();
        srqs.filter_map(|srq| match &srq.kind {
            SrqKind::Mlx5(srq) => Some(srq.clone()),
            SrqKind::Rxe(_) => None,
        })
        .collect()
    }

    /// The shared receive queue with that number.
    pub fn srq(&self, srqn: u32) -> Option<Arc<SharedReceiveQueue>> {
        match &self.kernel.lock().devices[self.device]
            .srqs
            .get(&srqn)?
            .kind
        {
            SrqKind::Mlx5(srq) => Some(srq.clone()),
            SrqKind::Rxe(_) => None,
        }
    }

    /// The receive work queue with that number.
    pub fn wq(&self, number: u32) -> Option<Arc<QueuePair>> {
        let kernel = self.kernel.lock();
        let wq = kernel.devices[self.device].wqs.get(&number)?;
        Some(wq.queue.clone())
    }

    /// The number behind a handle of the context that was opened as `fd` (`qp_handle` and so on of the
    /// core's commands; in libibverbs `ibv_qp::handle`).
    pub fn number_of_handle(&self, fd: i32, handle: u32) -> Option<u32> {
        match self.kernel.lock().object(fd, handle).ok()? {
            Object::Pd(n)
            | Object::Mr(n)
            | Object::Mw(n)
            | Object::Cq(n)
            | Object::Qp(n)
            | Object::Srq(n)
            | Object::Wq(n)
            | Object::Ah(n) => Some(n),
            _ => None,
        }
    }

    /// The doorbell page with that number, in whichever context.
    pub fn uar(&self, page_id: u32) -> Option<Arc<UarPage>> {
        let st = self.kernel.lock();
        let mut contexts = st.contexts.values();
        contexts.find_map(|context| context.mlx5.uars.page(page_id))
    }

    /// Writes a completion, and sends the event that someone waits for.
    ///
    /// # Errors
    ///
    /// If there is no room (`CQ_ERR` is reported then, as the device does), or no queue any more.
    pub fn complete(&self, cq: &CompletionQueue, cqe: &Cqe) -> Result<(), Refused> {
        complete(&mut self.kernel.lock(), self.device, cq, cqe)
    }

    /// Sends a completion event, whether anyone waits or not. Says whether there is a channel.
    pub fn send_cq_event(&self, cq: &CompletionQueue) -> bool {
        send_cq_event(&mut self.kernel.lock(), self.device, cq)
    }

    /// Reports an asynchronous event of a queue pair.
    pub fn send_qp_event(&self, qp: &QueuePair, event: EventType) -> bool {
        self.kernel.lock().send_qp_event(self.device, qp.qpn, event)
    }

    /// Reports an asynchronous event of a shared receive queue, such as `SRQ_LIMIT_REACHED`.
    pub fn send_srq_event(&self, srq: &SharedReceiveQueue, event: EventType) -> bool {
        srq_event(&mut self.kernel.lock(), self.device, srq, event)
    }

    /// Reports the limit of a shared receive queue if fewer entries wait than it says; the limit is then
    /// off. Says whether it did.
    pub fn check_srq_limit(&self, srq: &SharedReceiveQueue) -> bool {
        check_srq_limit(&mut self.kernel.lock(), self.device, srq)
    }

    /// Lets the loopback device execute what was posted on all devices of the kernel: every queue pair goes on
    /// as far as it can, completions are written, events sent. Says whether anything happened.
    pub fn run(&self) -> bool {
        exec::run(&mut self.kernel.lock())
    }

    /// Reports an asynchronous event of a completion queue.
    pub fn send_cq_async_event(&self, cq: &CompletionQueue, event: EventType) -> bool {
        cq_async_event(&mut self.kernel.lock(), self.device, cq, event)
    }
}

fn srq_event(st: &mut State, device: usize, srq: &SharedReceiveQueue, event: EventType) -> bool {
    let Some(own) = st.devices[device].srqs.get(&srq.srqn) else {
        return false;
    };
    let (file, user_handle) = (own.async_file, own.user_handle);
    let sent = st.send_async(file, user_handle, event);
    if let Some(own) = st.devices[device].srqs.get_mut(&srq.srqn) {
        own.async_events += u32::from(sent);
    }
    sent
}

pub(crate) fn check_srq_limit(st: &mut State, device: usize, srq: &SharedReceiveQueue) -> bool {
    let Some(own) = st.devices[device].srqs.get_mut(&srq.srqn) else {
        return false;
    };
    if own.limit == 0 || u32::from(srq.waiting()) >= own.limit {
        return false;
    }
    own.limit = 0;
    srq_event(st, device, srq, EventType::SRQ_LIMIT_REACHED)
}

pub(crate) fn complete(
    st: &mut State,
    device: usize,
    cq: &CompletionQueue,
    cqe: &Cqe,
) -> Result<(), Refused> {
    let result = cq.push(cqe);
    match result {
        Ok(()) => {
            let fires = match cq.armed() {
                Some(Armed::Any) => true,
                Some(Armed::Solicited) => cqe.is_solicited,
                None => false,
            };
            if fires {
                send_cq_event(st, device, cq);
            }
        }
        Err(Refused::Overrun) => {
            cq_async_event(st, device, cq, EventType::CQ_ERR);
        }
        Err(Refused::Broken | Refused::Destroyed) => {}
    }
    result
}

pub(crate) fn send_cq_event(st: &mut State, device: usize, cq: &CompletionQueue) -> bool {
    cq.disarm();
    let Some(own) = st.devices[device].cqs.get_mut(&cq.cqn) else {
        return false;
    };
    let Some(file) = own.channel.and_then(|channel| st.files.get_mut(&channel)) else {
        return false;
    };
    own.completion_events += 1;
    file.push(&own.user_handle.to_ne_bytes());
    true
}

fn cq_async_event(st: &mut State, device: usize, cq: &CompletionQueue, event: EventType) -> bool {
    let Some(own) = st.devices[device].cqs.get(&cq.cqn) else {
        return false;
    };
    let (file, user_handle) = (own.async_file, own.user_handle);
    let sent = st.send_async(file, user_handle, event);
    if let Some(own) = st.devices[device].cqs.get_mut(&cq.cqn) {
        own.async_events += u32::from(sent);
    }
    sent
}

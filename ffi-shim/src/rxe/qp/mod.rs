//! Queue pairs: creation, state, destruction. Posting is in [`post`] and [`builder`].

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;

use oxverbs::ffi_core::rxe::{Doorbell, Draft, RecvQueue, SendLimits, SendQueue};
use oxverbs::ffi_core::uverbs_abi::handle::{Qp as QpHandle, Srq as SrqHandle};
use oxverbs::ffi_core::uverbs_abi::types::{QpAttrMask, QpCap, QpState, QpType};
use oxverbs::ffi_core::uverbs_abi::udata::rxe::CreateQpResp;
use oxverbs::ffi_core::wqe_format::rxe::Transport;
use oxverbs::ffi_core::{CreateQp, Errno, QpCreated, Uctx, UverbsFd};

use crate::abi::attr::{ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex};
use crate::abi::objects::{ibv_context, ibv_pd, ibv_qp};
use crate::common::destroyed;
use crate::common::events::Events;
use crate::common::memory::of_pd;
use crate::common::qp::{
    HEAD, PLAIN_ATTRIBUTES, attributes, caps, made_with, modification, offer_builder,
};
use crate::context::uctx;
use crate::door::control;
use crate::lock::Locked;
use crate::rxe::cq::{self, checked, map};
use crate::rxe::srq;

mod builder;
mod post;

pub(crate) use post::{bind_mw, post_recv, post_send};

/// A queue pair: room for the program's view, which differs between releases, and ours behind it.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Qp {
    head: [u64; HEAD / 8],
    transport: Transport,
    send: Locked<Send>,
    recv: Option<Locked<RecvQueue>>,
    doorbell: Doorbell,
    /// The context's descriptor, which outlives the queue pair.
    fd: *const UverbsFd,
    sq_sig_all: bool,
}

const _: () = assert!(offset_of!(Qp, transport) >= HEAD);

#[derive(Debug)]
struct Send {
    queue: SendQueue,
    /// The batch between `ibv_wr_start` and `ibv_wr_complete`.
    draft: Draft,
}

/// # Safety
///
/// A queue pair of ours (C1).
#[inline]
unsafe fn of<'a, T>(qp: *mut T) -> &'a Qp {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*qp.cast::<Qp>() }
}

impl Qp {
    #[inline]
    fn ring(&self) -> c_int {
        // SAFETY: the context is not closed before its queue pairs are destroyed (C2).
        let fd = unsafe { &*self.fd };
        self.doorbell.ring(fd).map_or_else(|errno| errno.0, |()| 0)
    }

    /// Gates the queues by the queue pair's state.
    fn entered(&self, state: QpState) {
        let mut send = self.send.lock();
        match state {
            QpState::RESET => send.queue.reset(),
            QpState::INIT | QpState::RTR => send.queue.set_accepting(false),
            _ => send.queue.set_accepting(true),
        }
        drop(send);
        if let Some(recv) = &self.recv {
            let mut recv = recv.lock();
            match state {
                QpState::RESET => recv.reset(),
                _ => recv.set_accepting(true),
            }
        }
    }
}

/// What both verbs of creation ask for.
struct Wanted<'a> {
    pd: *mut ibv_pd,
    init: &'a mut ibv_qp_init_attr,
    /// `send_ops_flags` of the extended verb.
    send_ops: Option<u64>,
}

fn create(context: *mut ibv_context, wanted: Wanted<'_>) -> Result<*mut Qp, Errno> {
    let Wanted { pd, init, send_ops } = wanted;
    let (qp_type, transport) = match init.qp_type {
        2 => (QpType::RC, Transport::Rc),
        3 => (QpType::UC, Transport::Uc),
        4 => (QpType::UD, Transport::Ud),
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    };
    if init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    let ops = builder::ops(transport, send_ops.unwrap_or(0)).ok_or(Errno(libc::EOPNOTSUPP))?;
    // SAFETY: an open context (C1).
    let uctx = unsafe { uctx(context) }?;
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    // SAFETY: a protection domain of ours (C1).
    let (_, pd_handle) = unsafe { of_pd(pd) };
    let srq: Option<SrqHandle> = if init.srq.is_null() {
        None
    } else {
        // SAFETY: a shared receive queue of ours (C1).
        Some(unsafe { srq::handle(init.srq) })
    };
    let place = Box::<Qp>::new_uninit();
    let made = uctx.create_qp::<CreateQpResp>(&CreateQp {
        qp_type,
        pd: pd_handle,
        // SAFETY: completion queues of ours (C1).
        send_cq: unsafe { cq::handle(init.send_cq) },
        // SAFETY: as above.
        recv_cq: unsafe { cq::handle(init.recv_cq) },
        srq,
        user_handle: place.as_ptr().expose_provenance() as u64,
        cap: QpCap {
            max_send_wr: init.cap.max_send_wr,
            // The kernel would check them against the device, though they mean nothing with an SRQ.
            max_recv_wr: if srq.is_some() {
                0
            } else {
                init.cap.max_recv_wr
            },
            max_send_sge: init.cap.max_send_sge,
            max_recv_sge: if srq.is_some() {
                0
            } else {
                init.cap.max_recv_sge
            },
            max_inline_data: init.cap.max_inline_data,
        },
        sq_sig_all: init.sq_sig_all != 0,
        async_event: (async_fd >= 0).then_some(async_fd),
        ..CreateQp::default()
    })?;
    let queues = queues(uctx, &made, transport, srq.is_some());
    let (send, recv) = match queues {
        Ok(queues) => queues,
        Err(errno) => {
            uctx.destroy_qp(made.handle)?;
            return Err(errno);
        }
    };
    init.cap = caps(&made.cap);
    let draft = send.begin();
    let qp = Qp {
        head: [0; HEAD / 8],
        transport,
        send: Locked::new(Send { queue: send, draft }),
        recv: recv.map(Locked::new),
        doorbell: Doorbell::new(made.handle),
        fd: uctx.fd(),
        sq_sig_all: init.sq_sig_all != 0,
    };
    let qp = Box::into_raw(Box::write(place, qp));
    // SAFETY: the head of the new object, zeroed, which is a valid `ibv_qp`.
    let base = unsafe { &mut *qp.cast::<ibv_qp>() };
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.handle = made.handle.0;
    base.qp_num = made.qp_num;
    base.state = c_uint::from(QpState::RESET.0);
    base.qp_type = init.qp_type;
    // SAFETY: the new object's own.
    unsafe { Events::of_qp(base).init() };
    if send_ops.is_some() {
        // SAFETY: the head of the new object.
        unsafe { offer_builder(qp, &ops) };
    }
    Ok(qp)
}

fn queues(
    uctx: &Uctx,
    made: &QpCreated<CreateQpResp>,
    transport: Transport,
    has_srq: bool,
) -> Result<(SendQueue, Option<RecvQueue>), Errno> {
    let limits = SendLimits {
        max_sge: made.cap.max_send_sge,
        max_inline: made.cap.max_inline_data,
    };
    let mapping = map(uctx, &made.udata.sq_mi)?;
    let send = checked(SendQueue::new(mapping, transport, limits))?;
    if has_srq {
        return Ok((send, None));
    }
    let mapping = map(uctx, &made.udata.rq_mi)?;
    let recv = checked(RecvQueue::new(mapping, made.cap.max_recv_sge, false))?;
    Ok((send, Some(recv)))
}

pub(crate) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut Qp {
    control("create_qp", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, _) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        create(
            context,
            Wanted {
                pd,
                init,
                send_ops: None,
            },
        )
    })
}

/// `IBV_QP_INIT_ATTR_PD`.
const ATTR_PD: u32 = 1 << 0;
/// `IBV_QP_INIT_ATTR_CREATE_FLAGS`.
const ATTR_CREATE_FLAGS: u32 = 1 << 2;
/// `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`.
const ATTR_SEND_OPS: u32 = 1 << 6;

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut Qp {
    control("create_qp_ex", || {
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        let mask = init.comp_mask;
        if mask & !(ATTR_PD | ATTR_CREATE_FLAGS | ATTR_SEND_OPS) != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if mask & ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if mask & ATTR_PD == 0 || init.pd.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let send_ops = (mask & ATTR_SEND_OPS != 0).then_some(init.send_ops_flags);
        let mut old = ibv_qp_init_attr {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
        };
        let wanted = Wanted {
            pd: init.pd,
            init: &mut old,
            send_ops,
        };
        let qp = create(context, wanted)?;
        init.cap = old.cap;
        Ok(qp)
    })
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    control("modify_qp", || {
        let mask = mask as u32;
        if mask & !PLAIN_ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let base = unsafe { &*qp };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(base.context) }?;
        let command = modification(QpHandle(base.handle), attr, mask);
        uctx.modify_qp(&command)?;
        if mask & 1 != 0 {
            // SAFETY: as above.
            unsafe { of(qp) }.entered(command.qp_state);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    control("query_qp", || {
        let mask = mask as u32;
        if mask & !PLAIN_ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let base = unsafe { &*qp };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(base.context) }?;
        let from = uctx.query_qp(QpHandle(base.handle), QpAttrMask(mask))?;
        let to = attributes(&from);
        let cap = to.cap;
        // SAFETY: the caller's memory.
        unsafe { attr.write(to) };
        // SAFETY: a queue pair of ours.
        let sq_sig_all = unsafe { of(qp) }.sq_sig_all;
        // SAFETY: the caller's memory.
        unsafe { init.write(made_with(base, cap, sq_sig_all)) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    control("destroy_qp", || {
        // SAFETY: a queue pair of ours (C1).
        let (context, handle) = {
            // SAFETY: a queue pair of ours (C1).
            let base = unsafe { &*qp };
            (base.context, QpHandle(base.handle))
        };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(context) }?;
        let reported = destroyed(uctx.destroy_qp(handle))?;
        // SAFETY: a live object, whose lock was initialised when it was made.
        unsafe { Events::of_qp(qp).wait(reported) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(qp.cast::<Qp>()) });
        Ok(())
    })
}

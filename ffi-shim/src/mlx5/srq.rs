//! Shared receive queues.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{SharedReceiveQueue, SrqShared};
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::mlx5_control::placement::RingPlacement;
use oxverbs::ffi_core::mlx5_control::srq::{SrqObject, SrqRequest};
use oxverbs::ffi_core::mlx5_control::tags::Tags;
use oxverbs::ffi_core::uverbs_abi::handle::{Srq as SrqHandle, Xrcd};
use oxverbs::ffi_core::uverbs_abi::types::{SrqAttrMask, SrqType};

use crate::abi::attr::{ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::abi::domain::verbs_xrcd;
use crate::abi::driver::verbs_srq;
use crate::abi::objects::{ibv_context, ibv_pd, ibv_qp, ibv_srq};
use crate::abi::work::{ibv_ops_wr, ibv_recv_wr};
use crate::common::destroyed;
use crate::common::events::Events;
use crate::common::memory::of_pd;
use crate::common::srq::{self, ATTR_PD, ATTR_TYPE};
use crate::context::family;
use crate::door::control;
use crate::mlx5::Mlx5;
use crate::mlx5::cq;
use crate::mlx5::domain::{self, Share};
use crate::mlx5::qp::{self, receive_list};

/// A shared receive queue: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Srq {
    ibv: verbs_srq,
    queue: SharedReceiveQueue,
    /// The queue pair that its list of tags is changed by; null if there is none.
    commands: *mut ibv_qp,
    /// Before the share: its memory may be from the domain's allocator.
    object: SrqObject,
    _domain: Option<Share>,
}

const _: () = assert!(offset_of!(Srq, queue) >= size_of::<verbs_srq>());

fn create(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_attr,
    kind: SrqRequest,
) -> Result<*mut Srq, Errno> {
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // SAFETY: a protection domain of ours (C1).
    let (_, pd_handle) = unsafe { of_pd(pd) };
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    let place = Box::<Srq>::new_uninit();
    let user_handle = place.as_ptr().expose_provenance();
    let (object, queue) = device.context().create_srq(&SrqRequest {
        pd: pd_handle,
        user_handle: user_handle as u64,
        cookie: user_handle,
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        srq_limit: attr.srq_limit,
        async_event: (async_fd >= 0).then_some(async_fd),
        // SAFETY: a protection domain of ours (C1).
        single_threaded: unsafe { domain::thread_register(pd) }.is_some(),
        // SAFETY: as above.
        allocator: unsafe { domain::allocator(pd) },
        ..kind
    })?;
    attr.max_wr = object.max_wr();
    attr.max_sge = object.max_sge();
    // SAFETY: all-zero is a valid `verbs_srq`.
    let mut ibv: verbs_srq = unsafe { std::mem::zeroed() };
    ibv.srq.context = context;
    ibv.srq.pd = pd;
    ibv.srq.handle = object.handle().0;
    ibv.srq_num = object.number();
    let srq = Srq {
        ibv,
        queue,
        commands: std::ptr::null_mut(),
        object,
        // SAFETY: a protection domain of ours (C1).
        _domain: unsafe { domain::share(pd) },
    };
    let srq = Box::into_raw(Box::write(place, srq));
    // SAFETY: the new object's own; libibverbs does it again for the old verb, with nobody waiting yet.
    let base = unsafe { &mut (*srq).ibv.srq };
    // SAFETY: as above.
    unsafe { Events::of_srq(base).init() };
    Ok(srq)
}

/// Number and memory of a queue, and the ends of its list.
///
/// # Safety
///
/// A queue of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn placement(srq: *mut ibv_srq) -> (u32, RingPlacement, (u16, u16)) {
    // SAFETY: the caller's promise.
    let ours = unsafe { of(srq) };
    (
        ours.object.number(),
        *ours.object.placement(),
        ours.queue.shared().ends(),
    )
}

pub(crate) unsafe extern "C" fn create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut Srq {
    control("create_srq", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, _) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        let srq = create(context, pd, &mut init.attr, SrqRequest::default())?;
        // SAFETY: the new object.
        unsafe { (*srq).ibv.srq.srq_context = init.srq_context };
        Ok(srq)
    })
}

/// `IBV_SRQ_INIT_ATTR_XRCD`.
const ATTR_XRCD: u32 = 4;
/// `IBV_SRQ_INIT_ATTR_CQ`.
const ATTR_CQ: u32 = 8;
/// `IBV_SRQ_INIT_ATTR_TM`.
const ATTR_TM: u32 = 16;

/// `enum ibv_srq_type`.
mod srq_type {
    pub(super) const BASIC: u32 = 0;
    pub(super) const XRC: u32 = 1;
    pub(super) const TM: u32 = 2;
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut Srq {
    control("create_srq_ex", || {
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        let has = |bit| init.comp_mask & bit != 0;
        let kind = if has(ATTR_TYPE) {
            init.srq_type
        } else {
            srq_type::BASIC
        };
        let request = match kind {
            srq_type::BASIC => SrqRequest::default(),
            srq_type::XRC => {
                let complete = has(ATTR_XRCD) && has(ATTR_CQ);
                if !complete || init.xrcd.is_null() || init.cq.is_null() {
                    return Err(Errno(libc::EINVAL));
                }
                SrqRequest {
                    srq_type: SrqType::XRC,
                    // SAFETY: an XRC domain of ours (C1).
                    xrcd: Xrcd(unsafe { (*init.xrcd.cast::<verbs_xrcd>()).handle }),
                    // SAFETY: a completion queue of ours (C1).
                    cq: unsafe { cq::handle(init.cq) },
                    ..SrqRequest::default()
                }
            }
            srq_type::TM => {
                // What a message's tag was is read from the completion.
                // SAFETY: not null then, a completion queue of ours (C1).
                let polled =
                    has(ATTR_CQ) && !init.cq.is_null() && unsafe { cq::is_extended(init.cq) };
                if !polled || !has(ATTR_TM) {
                    return Err(Errno(libc::EINVAL));
                }
                SrqRequest {
                    srq_type: SrqType::TM,
                    // SAFETY: a completion queue of ours (C1).
                    cq: unsafe { cq::handle(init.cq) },
                    tags: Tags {
                        max_num_tags: init.max_num_tags,
                        max_ops: init.max_ops,
                    },
                    ..SrqRequest::default()
                }
            }
            _ => return Err(Errno(libc::EINVAL)),
        };
        if !has(ATTR_PD) || init.pd.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let srq = create(context, init.pd, &mut init.attr, request)?;
        // SAFETY: the new object.
        let ibv = unsafe { &mut (*srq).ibv };
        ibv.srq.srq_context = init.srq_context;
        ibv.srq_type = kind;
        if kind == srq_type::XRC {
            ibv.xrcd = init.xrcd;
        }
        if kind != srq_type::BASIC {
            ibv.cq = init.cq.cast();
        }
        if kind == srq_type::TM {
            // SAFETY: the new object; protection domain and completion queue are ours (C1).
            let commands =
                unsafe { qp::create_for_tags(context, init.pd, init.cq, srq.cast(), init.max_ops) };
            match commands {
                // SAFETY: the new object.
                Ok(commands) => unsafe { (*srq).commands = commands },
                Err(errno) => {
                    // SAFETY: the new object, which nobody knows of.
                    drop(unsafe { Box::from_raw(srq) });
                    return Err(errno);
                }
            }
        }
        Ok(srq)
    })
}

/// # Safety
///
/// A shared receive queue of ours (C1).
#[inline(always)]
unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a Srq {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*srq.cast::<Srq>() }
}

/// Kernel handle of a shared receive queue, and what its pollers know.
///
/// # Safety
///
/// A shared receive queue of ours (C1).
pub(crate) unsafe fn shared(srq: *mut ibv_srq) -> (SrqHandle, Arc<SrqShared>) {
    // SAFETY: the caller's promise.
    let ours = unsafe { of(srq) };
    (ours.object.handle(), ours.queue.shared().clone())
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: a queue of ours (C1).
    let ours = unsafe { of(srq) };
    // SAFETY: the caller's memory.
    unsafe { number.write(ours.object.number()) };
    0
}

pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    control("modify_srq", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: a queue of ours (C1).
        unsafe { of(srq) }
            .object
            .modify(SrqAttrMask(mask as u32), attr.max_wr, attr.srq_limit)
    })
}

pub(crate) unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    control("query_srq", || {
        // SAFETY: a queue of ours (C1).
        let answer = unsafe { srq::query(srq) }?;
        // SAFETY: the caller's memory.
        unsafe { attr.write(answer) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    control("destroy_srq", || {
        // SAFETY: a queue of ours (C1), and nobody else uses it.
        let ours = unsafe { &mut *srq.cast::<Srq>() };
        // Before the queue that it receives from. If that cannot go, its list is not changed any more, as with libmlx5.
        if !ours.commands.is_null() {
            // SAFETY: made with the queue, and nobody else's.
            match unsafe { qp::destroy_qp(ours.commands) } {
                0 => ours.commands = std::ptr::null_mut(),
                errno => return Err(Errno(errno)),
            }
        }
        let dying = destroyed(ours.object.destroy())?;
        let reported = dying.as_ref().map(|dying| dying.events());
        if let Some(key) = dying.as_ref().and_then(|dying| dying.key()) {
            // SAFETY: null, or the completion queue that the queue was made with, which stays as long.
            unsafe { cq::clean(ours.ibv.cq.cast(), key, Some(ours.queue.shared())) };
        }
        drop(dying);
        let base = &raw mut ours.ibv.srq;
        // SAFETY: a live object, whose lock was initialised when it was made.
        unsafe { Events::of_srq(base).wait(reported) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(srq.cast::<Srq>()) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // The queue has its own lock, since completions give entries back to it.
    // SAFETY: a queue of ours (C1).
    let queue = &unsafe { of(srq) }.queue;
    // SAFETY: the caller's list.
    unsafe { receive_list(wr, bad, |list| queue.post(list)) }
}

pub(crate) unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: a queue of ours (C1).
    let ours = unsafe { of(srq) };
    let tags = ours.queue.shared().tags();
    let (Some(tags), false) = (tags, ours.commands.is_null()) else {
        // SAFETY: the caller's memory.
        unsafe { bad.write(wr) };
        return libc::EINVAL;
    };
    // SAFETY: the queue's own, and the caller's list.
    unsafe { qp::post_changes(ours.commands, tags, wr, bad) }
}

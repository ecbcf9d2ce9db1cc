//! Shared receive queues.

use std::ffi::c_int;
use std::mem::offset_of;

use oxverbs::ffi_core::rxe::RecvQueue;
use oxverbs::ffi_core::uverbs_abi::handle::Srq as SrqHandle;
use oxverbs::ffi_core::uverbs_abi::types::SrqAttrMask;
use oxverbs::ffi_core::uverbs_abi::udata::rxe::CreateSrqResp;
use oxverbs::ffi_core::{CreateSrq, Errno, PostError};

use crate::abi::attr::{ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::abi::driver::verbs_srq;
use crate::abi::objects::{ibv_context, ibv_pd, ibv_srq};
use crate::abi::work::ibv_recv_wr;
use crate::common::events::Events;
use crate::common::memory::of_pd;
use crate::common::srq::{self, ATTR_PD, ATTR_TYPE};
use crate::common::{as_sges, destroyed, slice};
use crate::context::uctx;
use crate::door::control;
use crate::lock::Locked;
use crate::rxe::cq::{checked, map};

/// A shared receive queue: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Srq {
    ibv: verbs_srq,
    queue: Locked<RecvQueue>,
}

const _: () = assert!(offset_of!(Srq, queue) >= 160);

/// `IBV_SRQ_MAX_WR`.
const MAX_WR: u32 = 1;
/// `IBV_SRQ_LIMIT`.
const LIMIT: u32 = 2;

fn create(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_attr,
) -> Result<*mut Srq, Errno> {
    // SAFETY: an open context (C1).
    let uctx = unsafe { uctx(context) }?;
    // SAFETY: a protection domain of ours (C1).
    let (_, pd_handle) = unsafe { of_pd(pd) };
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    let place = Box::<Srq>::new_uninit();
    let made = uctx.create_srq::<CreateSrqResp>(&CreateSrq {
        pd: pd_handle,
        user_handle: place.as_ptr().expose_provenance() as u64,
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        srq_limit: attr.srq_limit,
        async_event: (async_fd >= 0).then_some(async_fd),
        ..CreateSrq::default()
    })?;
    let queue = map(uctx, &made.udata.mi)
        .and_then(|mapping| checked(RecvQueue::new(mapping, made.max_sge, true)));
    let queue = match queue {
        Ok(queue) => queue,
        Err(errno) => {
            uctx.destroy_srq(made.handle)?;
            return Err(errno);
        }
    };
    attr.max_wr = made.max_wr;
    attr.max_sge = made.max_sge;
    // SAFETY: all-zero is a valid `verbs_srq`.
    let mut ibv: verbs_srq = unsafe { std::mem::zeroed() };
    ibv.srq.context = context;
    ibv.srq.pd = pd;
    ibv.srq.handle = made.handle.0;
    ibv.srq_num = made.udata.srq_num;
    let srq = Srq {
        ibv,
        queue: Locked::new(queue),
    };
    let srq = Box::into_raw(Box::write(place, srq));
    // SAFETY: the new object's own; libibverbs does it again for the old verb, with nobody waiting yet.
    let base = unsafe { &mut (*srq).ibv.srq };
    // SAFETY: as above.
    unsafe { Events::of_srq(base).init() };
    Ok(srq)
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
        let srq = create(context, pd, &mut init.attr)?;
        // SAFETY: the new object.
        unsafe { (*srq).ibv.srq.srq_context = init.srq_context };
        Ok(srq)
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut Srq {
    control("create_srq_ex", || {
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        // rxe has basic queues only, which need a protection domain.
        let basic = init.comp_mask & ATTR_TYPE == 0 || init.srq_type == 0;
        if init.comp_mask & !(ATTR_TYPE | ATTR_PD) != 0 || !basic {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if init.comp_mask & ATTR_PD == 0 || init.pd.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let srq = create(context, init.pd, &mut init.attr)?;
        // SAFETY: the new object.
        unsafe { (*srq).ibv.srq.srq_context = init.srq_context };
        Ok(srq)
    })
}

/// # Safety
///
/// A shared receive queue of ours (C1).
unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a Srq {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*srq.cast::<Srq>() }
}

/// Kernel handle of a shared receive queue.
///
/// # Safety
///
/// A shared receive queue of ours (C1).
pub(crate) unsafe fn handle(srq: *mut ibv_srq) -> SrqHandle {
    // SAFETY: the caller's promise.
    SrqHandle(unsafe { of(srq) }.ibv.srq.handle)
}

pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    control("modify_srq", || {
        let mask = mask as u32;
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a queue of ours (C1).
        let ours = unsafe { of(srq) };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(ours.ibv.srq.context) }?;
        let handle = SrqHandle(ours.ibv.srq.handle);
        // Nobody posts while the kernel carries the work requests over.
        let mut queue = ours.queue.lock();
        let info = uctx.modify_srq_rxe(handle, SrqAttrMask(mask), attr.max_wr, attr.srq_limit)?;
        if mask & MAX_WR != 0 {
            let mapping = map(uctx, &info)?;
            checked(queue.replace(mapping))?;
        }
        Ok(())
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
        // SAFETY: a queue of ours (C1).
        let base = unsafe { &raw mut (*srq.cast::<Srq>()).ibv.srq };
        // SAFETY: as above.
        let context = unsafe { (*base).context };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(context) }?;
        // SAFETY: as above.
        let reported = destroyed(uctx.destroy_srq(unsafe { handle(srq) }))?;
        // SAFETY: a live object, whose lock was initialised when it was made.
        unsafe { Events::of_srq(base).wait(reported) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(srq.cast::<Srq>()) });
        Ok(())
    })
}

/// Posts a list to a locked queue, up to the first work request that is refused.
///
/// # Safety
///
/// A C list of work requests, and `bad` writable (C1).
#[inline]
pub(crate) unsafe fn post_list(
    queue: &mut RecvQueue,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: null ends the list.
    while let Some(request) = unsafe { wr.as_ref() } {
        let posted = match usize::try_from(request.num_sge) {
            Ok(count) => {
                // SAFETY: `num_sge` elements by the verb's contract.
                let sges = unsafe { slice(request.sg_list.cast_const(), count) };
                queue.post(request.wr_id, as_sges(sges))
            }
            Err(_) => Err(PostError::TooManySges),
        };
        if let Err(error) = posted {
            // SAFETY: the caller's memory.
            unsafe { bad.write(wr) };
            return error.errno().0;
        }
        wr = request.next;
    }
    0
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue of ours (C1).
    let mut queue = unsafe { of(srq) }.queue.lock();
    // SAFETY: the caller's list.
    unsafe { post_list(&mut queue, wr, bad) }
}

//! Receive work queues and the tables that spread packets over them.

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::RecvQueue;
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::mlx5_control::placement::RingPlacement;
use oxverbs::ffi_core::mlx5_control::wq::{Striding, TableObject, WqObject, WqRequest};
use oxverbs::ffi_core::uverbs_abi::handle::{RwqIndTbl, Wq as WqHandle};
use oxverbs::ffi_core::uverbs_abi::types::WqFlags;
use oxverbs::ffi_core::uverbs_abi::write::wq::ExModifyWq;

use crate::abi::objects::ibv_context;
use crate::abi::work::ibv_recv_wr;
use crate::abi::wq::{
    ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_wq, ibv_wq_attr, ibv_wq_init_attr,
};
use crate::common::destroyed;
use crate::common::events::Events;
use crate::common::memory::of_pd;
use crate::common::slice;
use crate::context::family;
use crate::door::control;
use crate::lock::{Locked, QueueLock, Threads};
use crate::mlx5::domain::{self, Share};
use crate::mlx5::qp::receive_list;
use crate::mlx5::{Mlx5, cq};

/// A work queue: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Wq {
    ibv: ibv_wq,
    queue: Locked<RecvQueue, QueueLock>,
    /// Before the share: its memory may be from the domain's allocator.
    object: WqObject,
    _domain: Option<Share>,
}

const _: () = assert!(offset_of!(Wq, queue) >= size_of::<ibv_wq>());

/// `IBV_WQT_RQ`.
const RECEIVES: c_uint = 0;
/// `IBV_WQ_INIT_ATTR_FLAGS`.
const ATTR_FLAGS: u32 = 1;

/// Memory of a work queue.
///
/// # Safety
///
/// A work queue of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn placement(wq: *mut ibv_wq) -> RingPlacement {
    // SAFETY: the caller's promise.
    *unsafe { &*wq.cast::<Wq>() }.object.placement()
}

pub(crate) unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
) -> *mut Wq {
    // SAFETY: the caller's arguments.
    control("create_wq", || unsafe { create(context, init, None) })
}

/// # Safety
///
/// An open mlx5 device and attributes with objects of ours (C1).
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
    striding: Option<Striding>,
) -> Result<*mut Wq, Errno> {
    // SAFETY: the caller's attributes.
    let init = unsafe { &*init };
    if init.wq_type != RECEIVES
        || init.comp_mask & !ATTR_FLAGS != 0
        || init.pd.is_null()
        || init.cq.is_null()
    {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // SAFETY: a protection domain of ours (C1).
    let (_, pd) = unsafe { of_pd(init.pd) };
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    let place = Box::<Wq>::new_uninit();
    let cookie = place.as_ptr().expose_provenance();
    let (object, queue) = device.context().create_wq(&WqRequest {
        pd,
        // SAFETY: a completion queue of ours (C1).
        cq: unsafe { cq::handle(init.cq) },
        user_handle: cookie as u64,
        cookie,
        max_wr: init.max_wr,
        max_sge: init.max_sge,
        flags: if init.comp_mask & ATTR_FLAGS != 0 {
            // They have the kernel's numbers.
            WqFlags(init.create_flags)
        } else {
            WqFlags::default()
        },
        striding,
        async_event: (async_fd >= 0).then_some(async_fd),
        // SAFETY: a protection domain of ours (C1).
        allocator: unsafe { domain::allocator(init.pd) },
    })?;
    // SAFETY: as above.
    let threads = if unsafe { domain::thread_register(init.pd) }.is_some() {
        Threads::One
    } else {
        device.threads()
    };
    // SAFETY: all-zero is a valid `ibv_wq`; libibverbs initialises the lock in it after we return.
    let mut ibv: ibv_wq = unsafe { std::mem::zeroed() };
    ibv.context = context;
    ibv.pd = init.pd;
    ibv.cq = init.cq;
    ibv.wq_num = object.number();
    ibv.handle = object.handle().0;
    ibv.state = object.state().0;
    ibv.wq_type = init.wq_type;
    ibv.post_recv = Some(post_recv);
    let wq = Wq {
        ibv,
        queue: Locked::with(queue, QueueLock::new(threads)),
        object,
        // SAFETY: a protection domain of ours (C1).
        _domain: unsafe { domain::share(init.pd) },
    };
    Ok(Box::into_raw(Box::write(place, wq)))
}

/// # Safety
///
/// A work queue of ours (C1).
#[inline(always)]
unsafe fn of<'a>(wq: *mut ibv_wq) -> &'a Wq {
    // SAFETY: made by `create_wq`, which is where the program's pointer comes from.
    unsafe { &*wq.cast::<Wq>() }
}

pub(crate) unsafe extern "C" fn modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
    control("modify_wq", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: a queue of ours (C1), whose state one thread changes at a time (C2).
        let ours = unsafe { &mut *wq.cast::<Wq>() };
        let command = ExModifyWq {
            attr_mask: attr.attr_mask,
            wq_state: attr.wq_state,
            curr_wq_state: attr.curr_wq_state,
            flags: WqFlags(attr.flags),
            flags_mask: WqFlags(attr.flags_mask),
            ..ExModifyWq::default()
        };
        if ours.object.starts_over(&command) {
            if let Some(key) = ours.object.key() {
                // SAFETY: the queue's completion queue.
                unsafe { cq::clean(ours.ibv.cq, key, None) };
            }
            ours.object.start_over(&mut ours.queue.lock());
        }
        ours.object.modify(&command)?;
        ours.ibv.state = ours.object.state().0;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    control("destroy_wq", || {
        // SAFETY: a queue of ours (C1), and nobody else uses it.
        let ours = unsafe { &mut *wq.cast::<Wq>() };
        let dying = destroyed(ours.object.destroy())?;
        let reported = dying.as_ref().map(|dying| dying.events());
        if let Some(key) = dying.as_ref().and_then(|dying| dying.key()) {
            // SAFETY: the queue's completion queue, which stays as long.
            unsafe { cq::clean(ours.ibv.cq, key, None) };
        }
        drop(dying);
        // SAFETY: a live object, whose lock was initialised when it was made.
        unsafe { Events::of_wq(wq).wait(reported) };
        // SAFETY: made by `create_wq`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(wq.cast::<Wq>()) });
        Ok(())
    })
}

unsafe extern "C" fn post_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue of ours (C1).
    let mut queue = unsafe { of(wq) }.queue.lock();
    // SAFETY: the caller's list.
    unsafe { receive_list(wr, bad, |list| queue.post(list)) }
}

/// A table of work queues.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    ibv: ibv_rwq_ind_table,
    object: TableObject,
}

pub(crate) unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    init: *mut ibv_rwq_ind_table_init_attr,
) -> *mut Table {
    control("create_rwq_ind_table", || {
        // SAFETY: the caller's attributes.
        let init = unsafe { &*init };
        if init.comp_mask != 0 || init.log_ind_tbl_size > 31 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open mlx5 device (C1).
        let device = unsafe { family::<Mlx5>(context) }?;
        // SAFETY: as many pointers by the verb's contract.
        let queues = unsafe { slice(init.ind_tbl.cast_const(), 1 << init.log_ind_tbl_size) };
        let queues: Vec<WqHandle> = queues
            .iter()
            // SAFETY: work queues of ours (C1).
            .map(|wq| unsafe { of(*wq) }.object.handle())
            .collect();
        let object = device.context().create_rwq_ind_table(&queues)?;
        Ok(Box::into_raw(Box::new(Table {
            ibv: ibv_rwq_ind_table {
                context,
                ind_tbl_handle: object.handle().0 as c_int,
                ind_tbl_num: object.number() as c_int,
                comp_mask: 0,
            },
            object,
        })))
    })
}

/// Kernel handle of a table.
///
/// # Safety
///
/// A table of ours (C1).
pub(crate) unsafe fn table_handle(table: *mut Table) -> RwqIndTbl {
    // SAFETY: the caller's promise.
    unsafe { &*table }.object.handle()
}

pub(crate) unsafe extern "C" fn destroy_rwq_ind_table(table: *mut Table) -> c_int {
    control("destroy_rwq_ind_table", || {
        // SAFETY: a table of ours (C1), and nobody else uses it.
        destroyed(unsafe { &mut *table }.object.destroy())?;
        // SAFETY: made by `create_rwq_ind_table`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(table) });
        Ok(())
    })
}

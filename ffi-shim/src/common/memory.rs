//! Memory regions and windows.

use std::ffi::{c_int, c_uint, c_void};

use oxverbs::ffi_core::uverbs_abi::handle::{Mr, Mw, Pd};
use oxverbs::ffi_core::uverbs_abi::types::{
    AccessFlags, AdviseMrAdvice, AdviseMrFlags, MwType, Sge,
};
use oxverbs::ffi_core::{DmabufMr, Errno, UserMr};

use crate::abi::driver::{IBV_MR_TYPE_DMABUF_MR, IBV_MR_TYPE_MR, verbs_mr};
use crate::abi::objects::{ibv_context, ibv_mw, ibv_pd};
use crate::abi::work::ibv_sge;
use crate::common::{destroyed, slice};
use crate::context::uctx;
use crate::door::control;

/// `IBV_ACCESS_ZERO_BASED`.
pub(crate) const ACCESS_ZERO_BASED: u32 = 1 << 5;

/// The key that a window of type 1 gets by its next bind: the low byte is the program's part, which moves on.
pub(crate) fn next_window_key(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// Context and handle of a protection domain.
///
/// # Safety
///
/// It is one of ours (C1).
pub(crate) unsafe fn of_pd(pd: *mut ibv_pd) -> (*mut ibv_context, Pd) {
    // SAFETY: alive by the caller's promise.
    let pd = unsafe { &*pd };
    (pd.context, Pd(pd.handle))
}

pub(crate) fn new_mr(
    context: *mut ibv_context,
    keys: oxverbs::ffi_core::MrKeys,
    mr_type: c_uint,
    access: c_int,
) -> *mut verbs_mr {
    // SAFETY: all-zero is a valid `verbs_mr`.
    let mut mr: verbs_mr = unsafe { std::mem::zeroed() };
    mr.ibv_mr.context = context;
    mr.ibv_mr.handle = keys.handle.0;
    mr.ibv_mr.lkey = keys.lkey;
    mr.ibv_mr.rkey = keys.rkey;
    mr.mr_type = mr_type;
    mr.access = access;
    Box::into_raw(Box::new(mr))
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut verbs_mr {
    control("reg_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        let mr = UserMr {
            pd,
            start: addr.expose_provenance() as u64,
            length: length as u64,
            hca_va,
            access: AccessFlags(access as u32),
        };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        // SAFETY: what C programs register is theirs, and they know what it means.
        let keys = unsafe { uctx.reg_mr(&mr) }?;
        Ok(new_mr(context, keys, IBV_MR_TYPE_MR, access))
    })
}

pub(crate) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut verbs_mr {
    control("reg_dmabuf_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        let mr = DmabufMr {
            pd,
            offset,
            length: length as u64,
            iova,
            fd,
            access: AccessFlags(access as u32),
        };
        // SAFETY: an open context.
        let keys = unsafe { uctx(context) }?.reg_dmabuf_mr(&mr)?;
        Ok(new_mr(context, keys, IBV_MR_TYPE_DMABUF_MR, access))
    })
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut verbs_mr) -> c_int {
    control("dereg_mr", || {
        let (context, handle) = {
            // SAFETY: a region of ours (C1).
            let object = unsafe { &*mr };
            (object.ibv_mr.context, object.ibv_mr.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dereg_mr(Mr(handle)))?;
        // SAFETY: made by `new_mr`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    control("advise_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        // SAFETY: `count` elements by the verb's contract.
        let list = unsafe { slice(list.cast_const(), count as usize) };
        let list: Vec<Sge> = list
            .iter()
            .map(|sge| Sge {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey,
            })
            .collect();
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        uctx.advise_mr(pd, AdviseMrAdvice(advice), AdviseMrFlags(flags), &list)
    })
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_uint) -> *mut ibv_mw {
    control("alloc_mw", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, handle) = unsafe { of_pd(pd) };
        let kind = u8::try_from(mw_type).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: an open context.
        let keys = unsafe { uctx(context) }?.alloc_mw(handle, MwType(kind))?;
        Ok(Box::into_raw(Box::new(ibv_mw {
            context,
            pd,
            rkey: keys.rkey,
            handle: keys.handle.0,
            r#type: mw_type,
        })))
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    control("dealloc_mw", || {
        let (context, handle) = {
            // SAFETY: a window of ours (C1).
            let object = unsafe { &*mw };
            (object.context, object.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dealloc_mw(Mw(handle)))?;
        // SAFETY: made by `alloc_mw`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(mw) });
        Ok(())
    })
}

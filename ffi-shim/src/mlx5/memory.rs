//! Memory regions beyond ordinary ones: changed, imported, and the one without memory.

use std::ffi::{c_int, c_void};

use oxverbs::ffi_core::uverbs_abi::handle::{Mr, Pd};
use oxverbs::ffi_core::uverbs_abi::types::{AccessFlags, ReregMrFlags};
use oxverbs::ffi_core::{Errno, MrKeys, UserMr};

use crate::abi::driver::{IBV_MR_TYPE_IMPORTED_MR, IBV_MR_TYPE_NULL_MR, verbs_mr};
use crate::abi::objects::ibv_pd;
use crate::common::memory::{dereg_mr as dereg_any, new_mr, of_pd};
use crate::context::{family, uctx};
use crate::door::{control, guarded};
use crate::mlx5::Mlx5;

/// The region that swallows what is written to it and reads as zeroes. It has no object of the kernel.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut verbs_mr {
    control("alloc_null_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, _) = unsafe { of_pd(pd) };
        // SAFETY: an open mlx5 device.
        let device = unsafe { family::<Mlx5>(context) }?;
        let keys = MrKeys {
            handle: Mr(0),
            lkey: device.null_lkey().ok_or(Errno(libc::ENOTSUP))?,
            rkey: 0,
        };
        let mr = new_mr(context, keys, IBV_MR_TYPE_NULL_MR, 0);
        // SAFETY: the new object.
        let base = unsafe { &mut (*mr).ibv_mr };
        base.pd = pd;
        base.length = usize::MAX;
        Ok(mr)
    })
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut verbs_mr) -> c_int {
    // SAFETY: a region of ours (C1).
    if unsafe { (*mr).mr_type } != IBV_MR_TYPE_NULL_MR {
        // SAFETY: a region of ours (C1).
        return unsafe { dereg_any(mr) };
    }
    control("dereg_mr", || {
        // SAFETY: made by `alloc_null_mr`, and gone for the program.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}

/// `IBV_REREG_MR_CHANGE_PD`.
const CHANGE_PD: u32 = 2;

pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut verbs_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    control("rereg_mr", || {
        let flags = flags as u32;
        // SAFETY: a region of ours (C1).
        let base = unsafe { &raw mut (*mr).ibv_mr };
        let (context, handle) = {
            // SAFETY: as above.
            let base = unsafe { &*base };
            (base.context, base.handle)
        };
        let pd = if flags & CHANGE_PD != 0 {
            // SAFETY: a protection domain of ours (C1).
            unsafe { of_pd(pd) }.1
        } else {
            Pd(0)
        };
        let start = addr.expose_provenance() as u64;
        let range = UserMr {
            pd,
            start,
            length: length as u64,
            hca_va: start,
            access: AccessFlags(access as u32),
        };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(context) }?;
        // SAFETY: what C programs register is theirs, and they know what it means.
        let (lkey, rkey) = unsafe { uctx.rereg_mr(Mr(handle), ReregMrFlags(flags), &range) }?;
        // SAFETY: fields that only this verb writes; programs serialise it (C2).
        unsafe { (*base).lkey = lkey };
        // SAFETY: as above.
        unsafe { (*base).rkey = rkey };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut verbs_mr {
    control("import_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, _) = unsafe { of_pd(pd) };
        // SAFETY: an open context.
        let info = unsafe { uctx(context) }?.query_mr(Mr(handle))?;
        let keys = MrKeys {
            handle: Mr(handle),
            lkey: info.lkey,
            rkey: info.rkey,
        };
        let mr = new_mr(context, keys, IBV_MR_TYPE_IMPORTED_MR, 0);
        // SAFETY: the new object.
        let base = unsafe { &mut (*mr).ibv_mr };
        base.pd = pd;
        base.length = info.length as usize;
        Ok(mr)
    })
}

pub(crate) unsafe extern "C" fn unimport_mr(mr: *mut verbs_mr) {
    guarded("unimport_mr", || {
        // SAFETY: made by `import_mr`, and gone for the program; the kernel's object is another process'.
        drop(unsafe { Box::from_raw(mr) });
    });
}

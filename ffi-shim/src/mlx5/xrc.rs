//! XRC domains.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::handle::Xrcd;

use crate::abi::domain::{ibv_xrcd_init_attr, verbs_xrcd};
use crate::abi::objects::ibv_context;
use crate::common::destroyed;
use crate::context::uctx;
use crate::door::control;

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`, both of which must be given.
const ATTRIBUTES: u32 = 3;
/// `VERBS_XRCD_HANDLE`.
const HAS_HANDLE: u32 = 1;

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init: *mut ibv_xrcd_init_attr,
) -> *mut verbs_xrcd {
    control("open_xrcd", || {
        // SAFETY: the caller's attributes.
        let init = unsafe { &*init };
        if init.comp_mask & !ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if init.comp_mask != ATTRIBUTES {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open context (C1).
        let uctx = unsafe { uctx(context) }?;
        let handle = uctx.open_xrcd((init.fd != -1).then_some(init.fd), init.oflags)?;
        Ok(Box::into_raw(Box::new(verbs_xrcd {
            context,
            comp_mask: HAS_HANDLE,
            handle: handle.0,
        })))
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut verbs_xrcd) -> c_int {
    control("close_xrcd", || {
        let (context, handle) = {
            // SAFETY: a domain of ours (C1).
            let object = unsafe { &*xrcd };
            (object.context, object.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.close_xrcd(Xrcd(handle)))?;
        // SAFETY: made by `open_xrcd`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(xrcd) });
        Ok(())
    })
}

//! Device attributes and protection domains.

use std::ffi::c_int;

use oxverbs::ffi_core::uverbs_abi::handle::Pd;

use crate::abi::attr::ibv_device_attr_ex;
use crate::abi::objects::{ibv_context, ibv_pd};
use crate::common::destroyed;
use crate::common::device::{attributes, give_attributes, query};
use crate::context::uctx;
use crate::door::control;

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    control("query_device", || {
        // SAFETY: the caller's arguments.
        let (answer, ()) = unsafe { query(context, input, attr_size) }?;
        // SAFETY: the caller has `attr_size` bytes.
        unsafe { give_attributes(&attributes(&answer), attr, attr_size) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    control("alloc_pd", || {
        // SAFETY: an open context (C1).
        let (handle, ()) = unsafe { uctx(context) }?.alloc_pd()?;
        Ok(Box::into_raw(Box::new(ibv_pd {
            context,
            handle: handle.0,
        })))
    })
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    control("dealloc_pd", || {
        let (context, handle) = {
            // SAFETY: a protection domain of ours (C1).
            let object = unsafe { &*pd };
            (object.context, object.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dealloc_pd(Pd(handle)))?;
        // SAFETY: made by `alloc_pd`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(pd) });
        Ok(())
    })
}

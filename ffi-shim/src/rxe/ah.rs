//! Address handles.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::handle::Ah;
use oxverbs::ffi_core::uverbs_abi::udata::rxe::CreateAhResp;

use crate::abi::attr::ibv_ah_attr;
use crate::abi::objects::{ibv_ah, ibv_pd};
use crate::common::address::path;
use crate::common::destroyed;
use crate::common::memory::of_pd;
use crate::context::uctx;
use crate::door::control;
use crate::log;

/// An address handle and its number in datagrams.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AddressHandle {
    ibv: ibv_ah,
    pub(crate) ah_num: u32,
}

pub(crate) unsafe extern "C" fn create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut AddressHandle {
    control("create_ah", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd_handle) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        let mut ah = Box::new(AddressHandle {
            ibv: ibv_ah {
                context,
                pd,
                handle: 0,
            },
            ah_num: 0,
        });
        let user_handle = (&raw const *ah).expose_provenance() as u64;
        let (handle, answer) =
            uctx.create_ah::<CreateAhResp>(pd_handle, user_handle, &path(attr))?;
        ah.ibv.handle = handle.0;
        ah.ah_num = answer.ah_num;
        if answer.ah_num == 0 {
            // Before 5.16 the kernel wants the resolved path in each datagram.
            log::always(format_args!(
                "create_ah: this kernel's rxe does not number address handles (needs Linux 5.16)"
            ));
            uctx.destroy_ah(handle)?;
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(Box::into_raw(ah))
    })
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut AddressHandle) -> c_int {
    control("destroy_ah", || {
        let (context, handle) = {
            // SAFETY: an address handle of ours (C1).
            let object = unsafe { &*ah };
            (object.ibv.context, object.ibv.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.destroy_ah(Ah(handle)))?;
        // SAFETY: made by `create_ah`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(ah) });
        Ok(())
    })
}

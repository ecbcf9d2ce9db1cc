//! Memory on the device, dma-bufs, and two more of the kernel's objects: pages of doorbells for virtio queues, and rates.

use std::ffi::{c_int, c_uint, c_void};

use oxverbs::ffi_core::uverbs_abi::handle::mlx5::{Pp, Var};
use oxverbs::ffi_core::uverbs_abi::object::mlx5::{PpAllocFlags, RegDmabufFlags};
use oxverbs::ffi_core::uverbs_abi::types::AccessFlags;
use oxverbs::ffi_core::{DmabufMr, Errno};

use super::{EOPNOTSUPP, ours};
use crate::abi::domain::{ibv_alloc_dm_attr, ibv_dm};
use crate::abi::driver::{IBV_MR_TYPE_DMABUF_MR, verbs_mr};
use crate::abi::dv::{mlx5dv_alloc_dm_attr, mlx5dv_var};
use crate::abi::objects::{ibv_context, ibv_pd};
use crate::common::memory::{new_mr, of_pd};
use crate::context::uctx;
use crate::door::{control, guarded};
use crate::mlx5::dm;

/// `MLX5DV_DM_TYPE_MEMIC` (`MLX5_IB_UAPI_DM_TYPE_MEMIC`); the other kinds are for software steering.
const MEMIC: c_uint = 0;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
    dv: *const mlx5dv_alloc_dm_attr,
) -> *mut ibv_dm {
    control("mlx5dv_alloc_dm", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: the caller's attributes.
        let dv = unsafe { &*dv };
        if dv.comp_mask != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if dv.r#type != MEMIC {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: the caller's arguments.
        let made = unsafe { dm::alloc_dm(context, attr) };
        if made.is_null() {
            return Err(Errno::last());
        }
        Ok(made.cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_dm_map_op_addr(dm: *mut ibv_dm, op: u8) -> *mut c_void {
    control("mlx5dv_dm_map_op_addr", || {
        // SAFETY: device memory by the verb's contract.
        let context = unsafe { (*dm).context };
        // SAFETY: an open context.
        let device = unsafe { ours(context) }?;
        // SAFETY: of ours.
        unsafe { dm::map_op(dm, device.context().uctx(), op) }
    })
}

/// `MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT`.
const DATA_DIRECT: c_int = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
    mlx5_access: c_int,
) -> *mut verbs_mr {
    control("mlx5dv_reg_dmabuf_mr", || {
        // SAFETY: a protection domain by the verb's contract.
        let context = unsafe { (*pd).context };
        // SAFETY: an open context.
        let device = unsafe { ours(context) }?;
        if mlx5_access & !DATA_DIRECT != 0 {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: a protection domain of ours.
        let (_, handle) = unsafe { of_pd(pd) };
        let mr = DmabufMr {
            pd: handle,
            offset,
            length: length as u64,
            iova,
            fd,
            access: AccessFlags(access as u32),
        };
        let flags = RegDmabufFlags(mlx5_access as u32);
        let keys = device.context().uctx().reg_dmabuf_mr_mlx5(&mr, flags)?;
        let made = new_mr(context, keys, IBV_MR_TYPE_DMABUF_MR, access);
        // What libibverbs does for its own verbs.
        // SAFETY: the new object.
        let region = unsafe { &mut (*made).ibv_mr };
        region.pd = pd;
        region.length = length;
        Ok(made)
    })
}

/// A page for virtio queues: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct VirtioPage {
    pub(super) view: mlx5dv_var,
    pub(super) context: *mut ibv_context,
    pub(super) handle: Var,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_alloc_var(context: *mut ibv_context, flags: u32) -> *mut VirtioPage {
    control("mlx5dv_alloc_var", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // Pages for templates of PCI packets (release 63) are not made.
        if flags != 0 {
            return Err(EOPNOTSUPP);
        }
        let page = device.context().uctx().alloc_var()?;
        Ok(Box::into_raw(Box::new(VirtioPage {
            view: mlx5dv_var {
                page_id: page.page_id,
                length: page.mmap_length,
                mmap_off: page.mmap_offset as i64,
                comp_mask: 0,
            },
            context,
            handle: page.handle,
        })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_free_var(page: *mut VirtioPage) {
    guarded("mlx5dv_free_var", || {
        // SAFETY: made by `mlx5dv_alloc_var`, and gone for the program.
        let page = unsafe { Box::from_raw(page) };
        // SAFETY: its context is open.
        if let Ok(uctx) = unsafe { uctx(page.context) } {
            // Nobody is left to tell.
            let _ = uctx.destroy_var(page.handle);
        }
    });
}

/// A rate: its number, which the program reads, and ours behind it.
#[repr(C)]
#[derive(Debug)]
struct Rate {
    number: u16,
    context: *mut ibv_context,
    handle: Pp,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_pp_alloc(
    context: *mut ibv_context,
    size: usize,
    rate: *const c_void,
    flags: u32,
) -> *mut Rate {
    control("mlx5dv_pp_alloc", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: as many bytes by the verb's contract.
        let rate = unsafe { crate::common::slice(rate.cast::<u8>(), size) };
        let uctx = device.context().uctx();
        let (handle, number) = uctx.alloc_pp(rate, PpAllocFlags(flags))?;
        Ok(Box::into_raw(Box::new(Rate {
            number,
            context,
            handle,
        })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_pp_free(rate: *mut Rate) {
    guarded("mlx5dv_pp_free", || {
        // SAFETY: made by `mlx5dv_pp_alloc`, and gone for the program.
        let rate = unsafe { Box::from_raw(rate) };
        // SAFETY: its context is open.
        if let Ok(uctx) = unsafe { uctx(rate.context) } {
            // Nobody is left to tell.
            let _ = uctx.destroy_pp(rate.handle);
        }
    });
}

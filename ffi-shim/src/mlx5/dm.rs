//! Memory on the device that programs map (MEMIC).

use std::ffi::{c_int, c_uint, c_void};

use oxverbs::ffi_core::mlx5_control::dm::DmMapping;
use oxverbs::ffi_core::uverbs_abi::handle::Dm as DmHandle;
use oxverbs::ffi_core::uverbs_abi::types::AccessFlags;
use oxverbs::ffi_core::{DmMr, Errno};

use crate::abi::domain::{ibv_alloc_dm_attr, ibv_dm, verbs_dm};
use crate::abi::driver::{IBV_MR_TYPE_MR, verbs_mr};
use crate::abi::objects::{ibv_context, ibv_pd};
use crate::common::destroyed;
use crate::common::memory::{new_mr, of_pd};
use crate::context::{family, uctx};
use crate::door::{control, guarded};
use crate::mlx5::Mlx5;

/// Device memory, mapped.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    ibv: verbs_dm,
    mapping: DmMapping,
    /// Pages where stores are operations.
    #[cfg(feature = "drop-in")]
    operations: std::sync::Mutex<Vec<DmMapping>>,
}

fn new(context: *mut ibv_context, handle: DmHandle, mapping: DmMapping) -> *mut DeviceMemory {
    Box::into_raw(Box::new(DeviceMemory {
        ibv: verbs_dm {
            dm: ibv_dm {
                context,
                memcpy_to_dm: Some(memcpy_to_dm),
                memcpy_from_dm: Some(memcpy_from_dm),
                comp_mask: 0,
                handle: handle.0,
            },
            handle: handle.0,
        },
        mapping,
        #[cfg(feature = "drop-in")]
        operations: std::sync::Mutex::default(),
    }))
}

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut DeviceMemory {
    control("alloc_dm", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: an open mlx5 device (C1).
        let device = unsafe { family::<Mlx5>(context) }?.context();
        if attr.comp_mask != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let (handle, mapping) = device.alloc_dm(attr.length, attr.log_align_req)?;
        Ok(new(context, handle, mapping))
    })
}

/// An address at which a store is the operation `op` on device memory; it is mapped as long as the memory is.
///
/// # Safety
///
/// Device memory of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn map_op(
    dm: *mut ibv_dm,
    uctx: &oxverbs::ffi_core::Uctx,
    op: u8,
) -> Result<*mut c_void, Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { &*dm.cast::<DeviceMemory>() };
    let page = uctx.dm_map_op_addr(DmHandle(object.ibv.handle), op)?;
    let mapping = DmMapping::new(uctx, &page, object.mapping.len())?;
    let start = mapping.start().as_ptr();
    object
        .operations
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push(mapping);
    Ok(start.cast())
}

pub(crate) unsafe extern "C" fn import_dm(
    context: *mut ibv_context,
    handle: u32,
) -> *mut DeviceMemory {
    control("import_dm", || {
        // SAFETY: an open context (C1).
        let uctx = unsafe { uctx(context) }?;
        let (page, len) = uctx.query_dm(DmHandle(handle))?;
        let len = usize::try_from(len).map_err(|_| Errno(libc::EPROTO))?;
        let mapping = DmMapping::new(uctx, &page, len)?;
        Ok(new(context, DmHandle(handle), mapping))
    })
}

/// Start and length of device memory as it is mapped.
///
/// # Safety
///
/// Device memory of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn placement(dm: *mut ibv_dm) -> (*mut u8, usize) {
    // SAFETY: the caller's promise.
    let object = unsafe { &*dm.cast::<DeviceMemory>() };
    (object.mapping.start().as_ptr(), object.mapping.len())
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    control("free_dm", || {
        let (context, handle) = {
            // SAFETY: device memory of ours (C1).
            let object = unsafe { &*dm.cast::<DeviceMemory>() };
            (object.ibv.dm.context, object.ibv.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.free_dm(DmHandle(handle)))?;
        // SAFETY: made by `new`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(dm.cast::<DeviceMemory>()) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    guarded("unimport_dm", || {
        // SAFETY: made by `new`, and gone for the program; the kernel's object is another process'.
        drop(unsafe { Box::from_raw(dm.cast::<DeviceMemory>()) });
    });
}

/// Rights that a region over device memory can have (`IBV_ACCESS_*`): local and remote write, remote read, remote atomics,
/// zero-based, and the optional ones.
const ACCESS: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 0x3ff << 20;

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut verbs_mr {
    control("reg_dm_mr", || {
        if access & !ACCESS != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        let mr = DmMr {
            pd,
            // SAFETY: device memory of ours (C1).
            dm: DmHandle(unsafe { &*dm.cast::<DeviceMemory>() }.ibv.handle),
            offset,
            length: length as u64,
            access: AccessFlags(access),
        };
        // SAFETY: an open context.
        let keys = unsafe { uctx(context) }?.reg_dm_mr(&mr)?;
        Ok(new_mr(context, keys, IBV_MR_TYPE_MR, access as c_int))
    })
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: device memory of ours (C1).
    let mapping = unsafe { &(*dm.cast::<DeviceMemory>()).mapping };
    // SAFETY: `length` readable bytes by the verb's contract.
    match unsafe { mapping.write(offset, from.cast(), length) } {
        Ok(()) => 0,
        Err(Errno(number)) => number,
    }
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: device memory of ours (C1).
    let mapping = unsafe { &(*dm.cast::<DeviceMemory>()).mapping };
    // SAFETY: `length` writable bytes by the verb's contract.
    match unsafe { mapping.read(offset, to.cast(), length) } {
        Ok(()) => 0,
        Err(Errno(number)) => number,
    }
}

//! Memory on the device that programs map (MEMIC).

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use oxverbs::ffi_core::uverbs_abi::handle::Dm as DmHandle;
use oxverbs::ffi_core::uverbs_abi::types::AccessFlags;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};
use oxverbs::ffi_core::{DmMr, DmPage, Errno, SharedMapping, Uctx, page_size};

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
    mapping: SharedMapping,
    /// Bytes of the mapping in front of it.
    before: usize,
    len: usize,
}

fn map(uctx: &Uctx, page: &DmPage, len: usize) -> Result<(SharedMapping, usize), Errno> {
    let pages = page_size();
    let offset = mmap::offset(
        MmapCommand::DEVICE_MEM,
        page.page_index.into(),
        pages as u64,
    )
    .ok_or(Errno(libc::EPROTO))?;
    let before = page.start_offset as usize & (pages - 1);
    let end = before.checked_add(len).ok_or(Errno(libc::EINVAL))?;
    let mapping = SharedMapping::map(uctx.fd(), end.next_multiple_of(pages), offset)?;
    Ok((mapping, before))
}

fn new(
    context: *mut ibv_context,
    uctx: &Uctx,
    handle: DmHandle,
    page: &DmPage,
    len: usize,
) -> Result<*mut DeviceMemory, Errno> {
    let (mapping, before) = map(uctx, page, len)?;
    Ok(Box::into_raw(Box::new(DeviceMemory {
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
        before,
        len,
    })))
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
        if attr.comp_mask != 0 || attr.length as u64 > device.attributes().max_dm_size {
            return Err(Errno(libc::EINVAL));
        }
        let uctx = device.uctx();
        let (handle, page) = uctx.alloc_dm_mlx5(attr.length as u64, attr.log_align_req)?;
        new(context, uctx, handle, &page, attr.length).inspect_err(|_| {
            // Nobody is left to tell.
            let _ = uctx.free_dm(handle);
        })
    })
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
        new(context, uctx, DmHandle(handle), &page, len)
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
    let start = object.mapping.start().as_ptr().wrapping_add(object.before);
    (start, object.len)
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

/// The words of device memory from an offset on. The device takes accesses of four bytes only.
///
/// # Safety
///
/// Device memory of ours (C1), alive as long as the result is used.
unsafe fn words<'a>(dm: *mut ibv_dm, offset: u64, length: usize) -> Result<&'a [AtomicU32], Errno> {
    // SAFETY: the caller's promise.
    let ours = unsafe { &*dm.cast::<DeviceMemory>() };
    let offset = usize::try_from(offset).map_err(|_| Errno(libc::EFAULT))?;
    let end = offset.checked_add(length).ok_or(Errno(libc::EFAULT))?;
    if end > ours.len {
        return Err(Errno(libc::EFAULT));
    }
    if [offset, length, ours.before]
        .iter()
        .any(|n| !n.is_multiple_of(4))
    {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: within the mapping, which was made for `before` and `len` bytes.
    let start = unsafe { ours.mapping.start().add(ours.before + offset) };
    // SAFETY: as many words of the mapping, aligned; device memory, accessed by whole words.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), length / 4) })
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: device memory of ours (C1).
    match unsafe { words(dm, offset, length) } {
        Ok(words) => {
            for (index, word) in words.iter().enumerate() {
                // SAFETY: `length` readable bytes by the verb's contract.
                let at = unsafe { from.cast::<u32>().add(index) };
                // SAFETY: as above.
                word.store(unsafe { at.read_unaligned() }, Ordering::Relaxed);
            }
            0
        }
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
    match unsafe { words(dm, offset, length) } {
        Ok(words) => {
            for (index, word) in words.iter().enumerate() {
                // SAFETY: `length` writable bytes by the verb's contract.
                let at = unsafe { to.cast::<u32>().add(index) };
                // SAFETY: as above.
                unsafe { at.write_unaligned(word.load(Ordering::Relaxed)) };
            }
            0
        }
        Err(Errno(number)) => number,
    }
}

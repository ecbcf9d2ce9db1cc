//! What libibverbs and its providers agree on in private (`infiniband/driver.h`).
//!
//! `verbs_context` and `verbs_qp` differ between releases and have no struct here: see
//! [`super::release`].

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::layout;
use super::objects::{ibv_device, ibv_mr, ibv_srq};

/// `verbs_match_ent.kind`: end of the table.
pub const VERBS_MATCH_SENTINEL: u8 = 0;
/// `verbs_match_ent.kind`: PCI vendor and device.
pub const VERBS_MATCH_PCI: u8 = 1;
/// `verbs_match_ent.kind`: a shell pattern over `pci:…` or `rdma_device:…`.
pub const VERBS_MATCH_MODALIAS: u8 = 2;
/// `verbs_match_ent.kind`: the kernel's driver number.
pub const VERBS_MATCH_DRIVER_ID: u8 = 3;

/// `verbs_qp.comp_mask`: the queue pair is an `ibv_qp_ex`.
pub const VERBS_QP_EX: u32 = 1 << 1;

/// One way to recognise a device. `u` is C's union of a string and a driver number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct verbs_match_ent {
    pub driver_data: *mut c_void,
    pub u: match_key,
    pub vendor: u16,
    pub device: u16,
    pub kind: u8,
}
layout!(verbs_match_ent, 24, { driver_data @ 0, u @ 8, vendor @ 16, device @ 18, kind @ 20 });

/// The key of a [`verbs_match_ent`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union match_key {
    pub modalias: *const c_char,
    pub driver_id: u64,
}

impl std::fmt::Debug for match_key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("match_key").finish_non_exhaustive()
    }
}

/// A device that discovery found. Only the head is described: release 35 added a field further on.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_sysfs_dev {
    pub entry: [*mut c_void; 2],
    pub provider_data: *mut c_void,
    pub r#match: *const verbs_match_ent,
    pub flags: c_uint,
    pub sysfs_name: [c_char; 64],
    pub sysfs_cdev: libc::dev_t,
    pub ibdev_name: [c_char; 64],
}
layout!(verbs_sysfs_dev head, 176, {
    entry @ 0, provider_data @ 16, r#match @ 24, flags @ 32, sysfs_name @ 36, sysfs_cdev @ 104, ibdev_name @ 112
});

/// What a provider registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct verbs_device_ops {
    pub name: *const c_char,
    pub match_min_abi_version: u32,
    pub match_max_abi_version: u32,
    pub match_table: *const verbs_match_ent,
    pub static_providers: *mut c_void,
    pub match_device: Option<unsafe extern "C" fn(*mut verbs_sysfs_dev) -> bool>,
    pub alloc_context:
        Option<unsafe extern "C" fn(*mut ibv_device, c_int, *mut c_void) -> *mut c_void>,
    pub import_context: Option<unsafe extern "C" fn(*mut ibv_device, c_int) -> *mut c_void>,
    pub alloc_device: Option<unsafe extern "C" fn(*mut verbs_sysfs_dev) -> *mut verbs_device>,
    pub uninit_device: Option<unsafe extern "C" fn(*mut verbs_device)>,
}
layout!(verbs_device_ops, 72, {
    name @ 0, match_min_abi_version @ 8, match_max_abi_version @ 12, match_table @ 16, static_providers @ 24,
    match_device @ 32, alloc_context @ 40, import_context @ 48, alloc_device @ 56, uninit_device @ 64
});

/// A claimed device; the provider allocates it zeroed, libibverbs fills it.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_device {
    pub device: ibv_device,
    pub ops: *const verbs_device_ops,
    pub refcount: c_int,
    pub entry: [*mut c_void; 2],
    pub sysfs: *mut verbs_sysfs_dev,
    pub core_support: u64,
}
layout!(verbs_device, 712, { device @ 0, ops @ 664, refcount @ 672, entry @ 680, sysfs @ 696, core_support @ 704 });

/// A memory region with what `ibv_rereg_mr` and fork support need to know.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_mr {
    pub ibv_mr: ibv_mr,
    pub mr_type: c_uint,
    pub access: c_int,
}
layout!(verbs_mr, 56, { ibv_mr @ 0, mr_type @ 48, access @ 52 });

/// `verbs_mr.mr_type` of ordinary memory.
pub const IBV_MR_TYPE_MR: c_uint = 0;
/// `verbs_mr.mr_type` of the region that reads as zeroes and swallows writes.
pub const IBV_MR_TYPE_NULL_MR: c_uint = 1;
/// `verbs_mr.mr_type` of another process' region.
pub const IBV_MR_TYPE_IMPORTED_MR: c_uint = 2;
/// `verbs_mr.mr_type` of a dma-buf.
pub const IBV_MR_TYPE_DMABUF_MR: c_uint = 3;

/// A shared receive queue with what the extended verb asked for.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_srq {
    pub srq: ibv_srq,
    pub srq_type: c_uint,
    pub xrcd: *mut c_void,
    pub cq: *mut c_void,
    pub srq_num: u32,
}
layout!(verbs_srq, 160, { srq @ 0, srq_type @ 128, xrcd @ 136, cq @ 144, srq_num @ 152 });

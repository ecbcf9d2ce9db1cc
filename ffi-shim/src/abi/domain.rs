//! Domains and device memory: thread and parent domains, XRC domains, memory on the device.

use std::ffi::{c_int, c_uint, c_void};

use super::layout;
use super::objects::{ibv_context, ibv_pd};

/// Thread domain.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}
layout!(ibv_td, 8, { context @ 0 });

/// Argument of `ibv_alloc_td`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_td_init_attr {
    pub comp_mask: u32,
}
layout!(ibv_td_init_attr, 4, { comp_mask @ 0 });

/// A program's allocator: parent domain, its context, size, alignment, resource type.
pub type pd_alloc =
    unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
/// What frees the allocator's memory.
pub type pd_free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// Argument of `ibv_alloc_parent_domain`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_parent_domain_init_attr {
    pub pd: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub comp_mask: u32,
    pub alloc: Option<pd_alloc>,
    pub free: Option<pd_free>,
    pub pd_context: *mut c_void,
}
layout!(ibv_parent_domain_init_attr, 48, {
    pd @ 0, td @ 8, comp_mask @ 16, alloc @ 24, free @ 32, pd_context @ 40
});

/// An XRC domain with its kernel handle.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_xrcd {
    pub context: *mut ibv_context,
    pub comp_mask: u32,
    pub handle: u32,
}
layout!(verbs_xrcd head, 16, { comp_mask @ 8, handle @ 12 });

/// Argument of `ibv_open_xrcd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_xrcd_init_attr {
    pub comp_mask: u32,
    pub fd: c_int,
    pub oflags: c_int,
}
layout!(ibv_xrcd_init_attr, 12, { comp_mask @ 0, fd @ 4, oflags @ 8 });

/// Argument of `ibv_open_qp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_qp_open_attr {
    pub comp_mask: u32,
    pub qp_num: u32,
    pub xrcd: *mut verbs_xrcd,
    pub qp_context: *mut c_void,
    pub qp_type: c_uint,
}
layout!(ibv_qp_open_attr, 32, { comp_mask @ 0, qp_num @ 4, xrcd @ 8, qp_context @ 16, qp_type @ 24 });

/// Argument of `ibv_alloc_dm`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_alloc_dm_attr {
    pub length: usize,
    pub log_align_req: u32,
    pub comp_mask: u32,
}
layout!(ibv_alloc_dm_attr, 16, { length @ 0, log_align_req @ 8, comp_mask @ 12 });

/// Device memory.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_dm {
    pub context: *mut ibv_context,
    pub memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
    pub memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
    pub comp_mask: u32,
    pub handle: u32,
}
layout!(ibv_dm, 32, { context @ 0, memcpy_to_dm @ 8, memcpy_from_dm @ 16, comp_mask @ 24, handle @ 28 });

/// Device memory with its kernel handle, which older programs do not see in `ibv_dm`.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_dm {
    pub dm: ibv_dm,
    pub handle: u32,
}
layout!(verbs_dm, 40, { dm @ 0, handle @ 32 });

//! Receive work queues, the tables that spread packets over them, and flow rules.

use std::ffi::{c_int, c_uint, c_void};

use super::layout;
use super::objects::{ibv_context, ibv_cq, ibv_pd};
use super::work::ibv_recv_wr;

/// Work queue.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_wq {
    pub context: *mut ibv_context,
    pub wq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub wq_num: u32,
    pub handle: u32,
    pub state: c_uint,
    pub wq_type: c_uint,
    pub post_recv:
        Option<unsafe extern "C" fn(*mut ibv_wq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
    pub comp_mask: u32,
}
layout!(ibv_wq, 152, {
    context @ 0, wq_context @ 8, pd @ 16, cq @ 24, wq_num @ 32, handle @ 36, state @ 40, wq_type @ 44, post_recv @ 48,
    mutex @ 56, cond @ 96, events_completed @ 144, comp_mask @ 148
});

/// Argument of `ibv_create_wq`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_wq_init_attr {
    pub wq_context: *mut c_void,
    pub wq_type: c_uint,
    pub max_wr: u32,
    pub max_sge: u32,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub comp_mask: u32,
    pub create_flags: u32,
}
layout!(ibv_wq_init_attr, 48, {
    wq_context @ 0, wq_type @ 8, max_wr @ 12, max_sge @ 16, pd @ 24, cq @ 32, comp_mask @ 40, create_flags @ 44
});

/// Argument of `ibv_modify_wq`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_wq_attr {
    pub attr_mask: u32,
    pub wq_state: c_uint,
    pub curr_wq_state: c_uint,
    pub flags: u32,
    pub flags_mask: u32,
}
layout!(ibv_wq_attr, 20, { attr_mask @ 0, wq_state @ 4, curr_wq_state @ 8, flags @ 12, flags_mask @ 16 });

/// Indirection table.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_rwq_ind_table {
    pub context: *mut ibv_context,
    pub ind_tbl_handle: c_int,
    pub ind_tbl_num: c_int,
    pub comp_mask: u32,
}
layout!(ibv_rwq_ind_table, 24, { context @ 0, ind_tbl_handle @ 8, ind_tbl_num @ 12, comp_mask @ 16 });

/// Argument of `ibv_create_rwq_ind_table`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_rwq_ind_table_init_attr {
    pub log_ind_tbl_size: u32,
    pub ind_tbl: *mut *mut ibv_wq,
    pub comp_mask: u32,
}
layout!(ibv_rwq_ind_table_init_attr, 24, { log_ind_tbl_size @ 0, ind_tbl @ 8, comp_mask @ 16 });

/// Flow rule.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_flow {
    pub comp_mask: u32,
    pub context: *mut ibv_context,
    pub handle: u32,
}
layout!(ibv_flow, 24, { comp_mask @ 0, context @ 8, handle @ 16 });

/// Set of counters.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_counters {
    pub context: *mut ibv_context,
}
layout!(ibv_counters, 8, { context @ 0 });

/// Argument of `ibv_create_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_counters_init_attr {
    pub comp_mask: u32,
}
layout!(ibv_counters_init_attr, 4, { comp_mask @ 0 });

/// Argument of `ibv_attach_counters_point_flow`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_counter_attach_attr {
    pub counter_desc: c_uint,
    pub index: u32,
    pub comp_mask: u32,
}
layout!(ibv_counter_attach_attr, 12, { counter_desc @ 0, index @ 4, comp_mask @ 8 });

/// Argument of `ibv_create_flow`; `num_of_specs` specifications follow it, each beginning with type and size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_flow_attr {
    pub comp_mask: u32,
    pub r#type: c_uint,
    pub size: u16,
    pub priority: u16,
    pub num_of_specs: u8,
    pub port: u8,
    pub flags: u32,
}
layout!(ibv_flow_attr, 20, {
    comp_mask @ 0, r#type @ 4, size @ 8, priority @ 10, num_of_specs @ 12, port @ 13, flags @ 16
});

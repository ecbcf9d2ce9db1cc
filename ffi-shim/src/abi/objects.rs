//! The objects that applications hold pointers to (`infiniband/verbs.h`).
//!
//! Their layout has been the same in every release from 34 to 65; what follows them in the private
//! `verbs_*` structs is not, and is in [`super::release`].

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::layout;
use super::work::{cq_ex_ops, wr_ops};

/// A GID in network order; C's union also offers it as two big-endian 64-bit words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}
layout!(ibv_gid as "union ibv_gid", 16, { raw @ 0 });

/// One device as discovery reports it; the head of `verbs_device`.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_device {
    pub ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}
layout!(ibv_device, 664, { node_type @ 16, name @ 24, dev_name @ 88, dev_path @ 152, ibdev_path @ 408 });

/// The function table inside `ibv_context`: 32 slots, of which the inline functions of `verbs.h`
/// call eight; the rest are for programs built before 2011 and mirror the provider's table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_context_ops {
    pub slots: [*const c_void; 32],
}
layout!(ibv_context_ops, 256, {});

/// An open device; the last member of `verbs_context`.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}
layout!(ibv_context, 328, {
    device @ 0, ops @ 8, cmd_fd @ 264, async_fd @ 268, num_comp_vectors @ 272, mutex @ 280, abi_compat @ 320
});

/// Protection domain.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}
layout!(ibv_pd, 16, { context @ 0, handle @ 8 });

/// Memory region.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
layout!(ibv_mr, 48, { context @ 0, pd @ 8, addr @ 16, length @ 24, handle @ 32, lkey @ 36, rkey @ 40 });

/// Memory window.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub r#type: c_uint,
}
layout!(ibv_mw, 32, { context @ 0, pd @ 8, rkey @ 16, handle @ 20, r#type @ 24 });

/// Address handle.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}
layout!(ibv_ah, 24, { context @ 0, pd @ 8, handle @ 16 });

/// Completion channel; libibverbs makes and owns it.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}
layout!(ibv_comp_channel, 16, { context @ 0, fd @ 8, refcnt @ 12 });

/// Completion queue, legacy view.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}
layout!(ibv_cq, 128, {
    context @ 0, channel @ 8, cq_context @ 16, handle @ 24, cqe @ 28, mutex @ 32, cond @ 72,
    comp_events_completed @ 120, async_events_completed @ 124
});

/// Completion queue, extended view: an `ibv_cq` that goes on.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: c_uint,
    pub wr_id: u64,
    pub ops: cq_ex_ops,
}
layout!(ibv_cq_ex, 288, { comp_mask @ 128, status @ 132, wr_id @ 136 });

/// Shared receive queue.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}
layout!(ibv_srq, 128, {
    context @ 0, srq_context @ 8, pd @ 16, handle @ 24, mutex @ 32, cond @ 72, events_completed @ 120
});

/// Queue pair, legacy view.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}
layout!(ibv_qp, 160, {
    context @ 0, qp_context @ 8, pd @ 16, send_cq @ 24, recv_cq @ 32, srq @ 40, handle @ 48, qp_num @ 52,
    state @ 56, qp_type @ 60, mutex @ 64, cond @ 104, events_completed @ 152
});

/// Queue pair, extended view. Releases before 45 have fewer slots in `ops`
/// ([`super::release::Layout::wr_slots`]) and other fields in their place.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub ops: wr_ops,
}
layout!(ibv_qp_ex since 45, 360, { qp_base @ 0, comp_mask @ 160, wr_id @ 168, wr_flags @ 176 });

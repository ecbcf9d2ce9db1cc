//! Work requests, completions, and the function tables of the two extended interfaces.

use std::ffi::{c_int, c_uint, c_void};

use super::layout;
use super::objects::{ibv_ah, ibv_cq_ex, ibv_mr, ibv_mw, ibv_qp_ex};

/// One piece of a scatter or gather list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
layout!(ibv_sge, 16, { addr @ 0, length @ 8, lkey @ 12 });

/// One piece of an inline data list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_data_buf {
    pub addr: *const c_void,
    pub length: usize,
}
layout!(ibv_data_buf, 16, { addr @ 0, length @ 8 });

/// Target of READ and WRITE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct send_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Target and operands of the atomics.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct send_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// Addressee of a datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct send_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// The part of a send work request that depends on opcode and service type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union send_target {
    pub rdma: send_rdma,
    pub atomic: send_atomic,
    pub ud: send_ud,
}

impl std::fmt::Debug for send_target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("send_target").finish_non_exhaustive()
    }
}

/// What a memory window is bound to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}
layout!(ibv_mw_bind_info, 32, { mr @ 0, addr @ 8, length @ 16, mw_access_flags @ 24 });

/// `bind_mw` of a send work request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct send_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// `tso` of a send work request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct send_tso {
    pub hdr: *mut c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}

/// Send work request. C's unions are flattened: `imm_data` is also `invalidate_rkey`, and `bind_mw` stands where
/// [`tso`](Self::tso) does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: send_target,
    pub remote_srqn: u32,
    pub bind_mw: send_bind_mw,
}
layout!(ibv_send_wr, 128, {
    wr_id @ 0, next @ 8, sg_list @ 16, num_sge @ 24, opcode @ 28, send_flags @ 32, imm_data @ 36, wr @ 40,
    wr.rdma.remote_addr @ 40, wr.rdma.rkey @ 48,
    wr.atomic.remote_addr @ 40, wr.atomic.compare_add @ 48, wr.atomic.swap @ 56, wr.atomic.rkey @ 64,
    wr.ud.ah @ 40, wr.ud.remote_qpn @ 48, wr.ud.remote_qkey @ 52,
    bind_mw @ 80, bind_mw.mw @ 80, bind_mw.rkey @ 88, bind_mw.bind_info @ 96
});

impl ibv_send_wr {
    /// The union member of segmentation offload.
    #[inline]
    pub fn tso(&self) -> send_tso {
        const { assert!(size_of::<send_tso>() <= size_of::<send_bind_mw>()) };
        // SAFETY: within `bind_mw`, which is aligned alike; both members are plain numbers and pointers, so any bytes
        // are valid.
        unsafe { (&raw const self.bind_mw).cast::<send_tso>().read() }
    }
}

/// Receive work request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}
layout!(ibv_recv_wr, 32, { wr_id @ 0, next @ 8, sg_list @ 16, num_sge @ 24 });

/// A change of a list of tags.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_ops_wr {
    pub wr_id: u64,
    pub next: *mut ibv_ops_wr,
    pub opcode: c_uint,
    pub flags: c_int,
    pub tm: ibv_ops_wr_tm,
}
layout!(ibv_ops_wr, 72, { wr_id @ 0, next @ 8, opcode @ 16, flags @ 20, tm @ 24 });

/// `tm` of [`ibv_ops_wr`], which has no name in C; nor has what it ends with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_ops_wr_tm {
    pub unexpected_cnt: u32,
    pub handle: u32,
    pub recv_wr_id: u64,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub tag: u64,
    pub mask: u64,
}

/// Argument of `ibv_bind_mw`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}
layout!(ibv_mw_bind, 48, { wr_id @ 0, send_flags @ 8, bind_info @ 16 });

/// Work completion. `imm_data` is also `invalidated_rkey`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
layout!(ibv_wc, 48, {
    wr_id @ 0, status @ 8, opcode @ 12, vendor_err @ 16, byte_len @ 20, imm_data @ 24, qp_num @ 28, src_qp @ 32,
    wc_flags @ 36, pkey_index @ 40, slid @ 42, sl @ 44, dlid_path_bits @ 45
});

/// Argument of `start_poll`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}
layout!(ibv_poll_cq_attr, 4, { comp_mask @ 0 });

/// What `read_tm_info` gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_wc_tm_info {
    pub tag: u64,
    pub r#priv: u32,
}
layout!(ibv_wc_tm_info, 16, { tag @ 0, r#priv @ 8 });

/// Slots of `ibv_cq_ex`, in C's order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cq_ex_ops {
    pub start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    pub read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
    pub read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut c_void)>,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
}
layout!(cq_ex_ops in "ibv_cq_ex" at 144, 144, {
    start_poll @ 0, next_poll @ 8, end_poll @ 16, read_opcode @ 24, read_vendor_err @ 32, read_byte_len @ 40,
    read_imm_data @ 48, read_qp_num @ 56, read_src_qp @ 64, read_wc_flags @ 72, read_slid @ 80, read_sl @ 88,
    read_dlid_path_bits @ 96, read_completion_ts @ 104, read_cvlan @ 112, read_flow_tag @ 120, read_tm_info @ 128,
    read_completion_wallclock_ns @ 136
});

/// A builder of `ibv_qp_ex` without arguments of its own.
pub type wr_plain = unsafe extern "C" fn(*mut ibv_qp_ex);
/// A builder with a remote key and address.
pub type wr_remote = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64);
/// A builder with one 32-bit argument: immediate data in network order, a key, or an SRQ number.
pub type wr_word = unsafe extern "C" fn(*mut ibv_qp_ex, u32);

/// Slots of `ibv_qp_ex`, in C's order: 20 before release 44, 21 in it, 22 since 45.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct wr_ops {
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
    pub wr_bind_mw:
        Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Option<wr_word>,
    pub wr_rdma_read: Option<wr_remote>,
    pub wr_rdma_write: Option<wr_remote>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_send: Option<wr_plain>,
    pub wr_send_imm: Option<wr_word>,
    pub wr_send_inv: Option<wr_word>,
    pub wr_send_tso: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16)>,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
    pub wr_set_xrc_srqn: Option<wr_word>,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
    pub wr_set_inline_data_list:
        Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
    pub wr_start: Option<wr_plain>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
    pub wr_abort: Option<wr_plain>,
    pub wr_atomic_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    pub wr_flush: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8)>,
}
layout!(wr_ops in "ibv_qp_ex" at 184 since 45, 176, {
    wr_atomic_cmp_swp @ 0, wr_atomic_fetch_add @ 8, wr_bind_mw @ 16, wr_local_inv @ 24, wr_rdma_read @ 32,
    wr_rdma_write @ 40, wr_rdma_write_imm @ 48, wr_send @ 56, wr_send_imm @ 64, wr_send_inv @ 72, wr_send_tso @ 80,
    wr_set_ud_addr @ 88, wr_set_xrc_srqn @ 96, wr_set_inline_data @ 104, wr_set_inline_data_list @ 112,
    wr_set_sge @ 120, wr_set_sge_list @ 128, wr_start @ 136, wr_complete @ 144, wr_abort @ 152,
    wr_atomic_write @ 160, wr_flush @ 168
});

//! What programs hand to libmlx5's own interface and get from it (`infiniband/mlx5dv.h`, rdma-core 65).
//!
//! Structs of the caller's grew at the end; an older program does not set the bits of what it has no room for.

use std::ffi::{c_int, c_uint, c_void};

use super::domain::ibv_dm;
use super::objects::{ibv_ah, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use super::protection::{
    mlx5dv_mkey_err, mlx5dv_sig_block_attr, mlx5dv_sig_block_domain, mlx5dv_sig_crc,
    mlx5dv_sig_err, mlx5dv_sig_t10dif,
};
use super::work::ibv_sge;
use super::wq::ibv_wq;
use super::{CLayout, StructLayout, layout};

/// Every struct of this file and of `protection`.
pub const STRUCTS: &[StructLayout] = &[
    mlx5dv_sw_parsing_caps::LAYOUT,
    mlx5dv_cqe_comp_caps::LAYOUT,
    mlx5dv_striding_rq_caps::LAYOUT,
    mlx5dv_dci_streams_caps::LAYOUT,
    mlx5dv_sig_caps::LAYOUT,
    mlx5dv_crypto_caps::LAYOUT,
    mlx5dv_ooo_recv_wrs_caps::LAYOUT,
    mlx5dv_reg::LAYOUT,
    mlx5dv_context::LAYOUT,
    mlx5dv_qp::LAYOUT,
    mlx5dv_cq::LAYOUT,
    mlx5dv_srq::LAYOUT,
    mlx5dv_rwq::LAYOUT,
    mlx5dv_dm::LAYOUT,
    mlx5dv_ah::LAYOUT,
    mlx5dv_pd::LAYOUT,
    mlx5dv_obj::LAYOUT,
    mlx5dv_cq_init_attr::LAYOUT,
    mlx5dv_qp_init_attr::LAYOUT,
    mlx5dv_wq_init_attr::LAYOUT,
    mlx5dv_mkey_init_attr::LAYOUT,
    mlx5dv_mkey::LAYOUT,
    mlx5dv_mr_interleaved::LAYOUT,
    mlx5dv_mkey_conf_attr::LAYOUT,
    mlx5dv_qp_ex::LAYOUT,
    mlx5dv_sig_t10dif::LAYOUT,
    mlx5dv_sig_crc::LAYOUT,
    mlx5dv_sig_block_domain::LAYOUT,
    mlx5dv_sig_block_attr::LAYOUT,
    mlx5dv_sig_err::LAYOUT,
    mlx5dv_mkey_err::LAYOUT,
    mlx5dv_clock_info::LAYOUT,
    mlx5dv_devx_umem_in::LAYOUT,
    mlx5dv_devx_uar::LAYOUT,
    mlx5dv_var::LAYOUT,
    mlx5dv_context_attr::LAYOUT,
    mlx5dv_alloc_dm_attr::LAYOUT,
    mlx5dv_flow_matcher_attr::LAYOUT,
    mlx5dv_flow_action_attr::LAYOUT,
    mlx5dv_steering_anchor_attr::LAYOUT,
];

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sw_parsing_caps {
    pub sw_parsing_offloads: u32,
    pub supported_qpts: u32,
}
layout!(mlx5dv_sw_parsing_caps, 8, { sw_parsing_offloads @ 0, supported_qpts @ 4 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_cqe_comp_caps {
    pub max_num: u32,
    pub supported_format: u32,
}
layout!(mlx5dv_cqe_comp_caps, 8, { max_num @ 0, supported_format @ 4 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_striding_rq_caps {
    pub min_single_stride_log_num_of_bytes: u32,
    pub max_single_stride_log_num_of_bytes: u32,
    pub min_single_wqe_log_num_of_strides: u32,
    pub max_single_wqe_log_num_of_strides: u32,
    pub supported_qpts: u32,
}
layout!(mlx5dv_striding_rq_caps, 20, {
    min_single_stride_log_num_of_bytes @ 0, max_single_stride_log_num_of_bytes @ 4,
    min_single_wqe_log_num_of_strides @ 8, max_single_wqe_log_num_of_strides @ 12, supported_qpts @ 16
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_dci_streams_caps {
    pub max_log_num_concurent: u8,
    pub max_log_num_errored: u8,
}
layout!(mlx5dv_dci_streams_caps, 2, { max_log_num_concurent @ 0, max_log_num_errored @ 1 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_caps {
    pub block_size: u64,
    pub block_prot: u32,
    pub t10dif_bg: u16,
    pub crc_type: u16,
}
layout!(mlx5dv_sig_caps, 16, { block_size @ 0, block_prot @ 8, t10dif_bg @ 12, crc_type @ 14 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_crypto_caps {
    pub failed_selftests: u16,
    pub crypto_engines: u8,
    pub wrapped_import_method: u8,
    pub log_max_num_deks: u8,
    pub flags: u32,
}
layout!(mlx5dv_crypto_caps, 12, {
    failed_selftests @ 0, crypto_engines @ 2, wrapped_import_method @ 3, log_max_num_deks @ 4, flags @ 8
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_ooo_recv_wrs_caps {
    pub max_rc: u32,
    pub max_xrc: u32,
    pub max_dct: u32,
    pub max_ud: u32,
    pub max_uc: u32,
}
layout!(mlx5dv_ooo_recv_wrs_caps since 56, 20, {
    max_rc @ 0, max_xrc @ 4, max_dct @ 8, max_ud @ 12, max_uc @ 16
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_reg {
    pub value: u32,
    pub mask: u32,
}
layout!(mlx5dv_reg, 8, { value @ 0, mask @ 4 });

/// What `mlx5dv_query_device` tells.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_context {
    pub version: u8,
    pub flags: u64,
    pub comp_mask: u64,
    pub cqe_comp_caps: mlx5dv_cqe_comp_caps,
    pub sw_parsing_caps: mlx5dv_sw_parsing_caps,
    pub striding_rq_caps: mlx5dv_striding_rq_caps,
    pub tunnel_offloads_caps: u32,
    pub max_dynamic_bfregs: u32,
    pub max_clock_info_update_nsec: u64,
    pub flow_action_flags: u32,
    pub dc_odp_caps: u32,
    pub hca_core_clock: *mut c_void,
    pub num_lag_ports: u8,
    pub sig_caps: mlx5dv_sig_caps,
    pub dci_streams_caps: mlx5dv_dci_streams_caps,
    pub max_wr_memcpy_length: usize,
    pub crypto_caps: mlx5dv_crypto_caps,
    pub max_dc_rd_atom: u64,
    pub max_dc_init_rd_atom: u64,
    pub reg_c0: mlx5dv_reg,
    pub ooo_recv_wrs_caps: mlx5dv_ooo_recv_wrs_caps,
}
layout!(mlx5dv_context since 56, 200, {
    version @ 0, flags @ 8, comp_mask @ 16, cqe_comp_caps @ 24, sw_parsing_caps @ 32, striding_rq_caps @ 40,
    tunnel_offloads_caps @ 60, max_dynamic_bfregs @ 64, max_clock_info_update_nsec @ 72, flow_action_flags @ 80,
    dc_odp_caps @ 84, hca_core_clock @ 88, num_lag_ports @ 96, sig_caps @ 104, dci_streams_caps @ 120,
    max_wr_memcpy_length @ 128, crypto_caps @ 136, max_dc_rd_atom @ 152, max_dc_init_rd_atom @ 160, reg_c0 @ 168,
    ooo_recv_wrs_caps @ 176
});

/// A ring as `mlx5dv_init_obj` shows it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ring {
    pub buf: *mut c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}

/// A doorbell register; `size` is 0 if work requests may not be copied into it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct register {
    pub reg: *mut c_void,
    pub size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_qp {
    pub dbrec: *mut u32,
    pub sq: ring,
    pub rq: ring,
    pub bf: register,
    pub comp_mask: u64,
    pub uar_mmap_offset: i64,
    pub tirn: u32,
    pub tisn: u32,
    pub rqn: u32,
    pub sqn: u32,
    pub tir_icm_addr: u64,
}
layout!(mlx5dv_qp, 96, {
    dbrec @ 0, sq.buf @ 8, sq.wqe_cnt @ 16, sq.stride @ 20, rq.buf @ 24, rq.wqe_cnt @ 32, rq.stride @ 36,
    bf.reg @ 40, bf.size @ 48, comp_mask @ 56, uar_mmap_offset @ 64, tirn @ 72, tisn @ 76, rqn @ 80, sqn @ 84,
    tir_icm_addr @ 88
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_cq {
    pub buf: *mut c_void,
    pub dbrec: *mut u32,
    pub cqe_cnt: u32,
    pub cqe_size: u32,
    pub cq_uar: *mut c_void,
    pub cqn: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_cq, 48, {
    buf @ 0, dbrec @ 8, cqe_cnt @ 16, cqe_size @ 20, cq_uar @ 24, cqn @ 32, comp_mask @ 40
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_srq {
    pub buf: *mut c_void,
    pub dbrec: *mut u32,
    pub stride: u32,
    pub head: u32,
    pub tail: u32,
    pub comp_mask: u64,
    pub srqn: u32,
}
layout!(mlx5dv_srq, 48, {
    buf @ 0, dbrec @ 8, stride @ 16, head @ 20, tail @ 24, comp_mask @ 32, srqn @ 40
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_rwq {
    pub buf: *mut c_void,
    pub dbrec: *mut u32,
    pub wqe_cnt: u32,
    pub stride: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_rwq, 32, { buf @ 0, dbrec @ 8, wqe_cnt @ 16, stride @ 20, comp_mask @ 24 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_dm {
    pub buf: *mut c_void,
    pub length: u64,
    pub comp_mask: u64,
    pub remote_va: u64,
}
layout!(mlx5dv_dm, 32, { buf @ 0, length @ 8, comp_mask @ 16, remote_va @ 24 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_ah {
    pub av: *mut c_void,
    pub comp_mask: u64,
}
layout!(mlx5dv_ah, 16, { av @ 0, comp_mask @ 8 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_pd {
    pub pdn: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_pd, 16, { pdn @ 0, comp_mask @ 8 });

/// An object of verbs and where the program wants to have it described.
#[repr(C)]
#[derive(Debug)]
pub struct pair<I, O> {
    pub r#in: *mut I,
    pub out: *mut O,
}

#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_obj {
    pub qp: pair<ibv_qp, mlx5dv_qp>,
    pub cq: pair<ibv_cq, mlx5dv_cq>,
    pub srq: pair<ibv_srq, mlx5dv_srq>,
    pub rwq: pair<ibv_wq, mlx5dv_rwq>,
    pub dm: pair<ibv_dm, mlx5dv_dm>,
    pub ah: pair<ibv_ah, mlx5dv_ah>,
    pub pd: pair<ibv_pd, mlx5dv_pd>,
    /// Since release 54; out is the kernel's handle alone.
    pub devx: pair<c_void, u32>,
}
layout!(mlx5dv_obj since 56, 128, {
    qp.r#in @ 0, qp.out @ 8, cq.r#in @ 16, cq.out @ 24, srq.r#in @ 32, srq.out @ 40, rwq.r#in @ 48, rwq.out @ 56,
    dm.r#in @ 64, dm.out @ 72, ah.r#in @ 80, ah.out @ 88, pd.r#in @ 96, pd.out @ 104, devx.r#in @ 112, devx.out @ 120
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_cq_init_attr {
    pub comp_mask: u64,
    pub cqe_comp_res_format: u8,
    pub flags: u32,
    pub cqe_size: u16,
}
layout!(mlx5dv_cq_init_attr, 24, { comp_mask @ 0, cqe_comp_res_format @ 8, flags @ 12, cqe_size @ 16 });

/// `dct_access_key`, or two bytes of `mlx5dv_dci_streams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union dc_attr {
    pub dct_access_key: u64,
    pub dci_streams: [u8; 2],
}

impl std::fmt::Debug for dc_attr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("dc_attr").finish_non_exhaustive()
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_dc_init_attr {
    pub dc_type: c_uint,
    pub u: dc_attr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_qp_init_attr {
    pub comp_mask: u64,
    pub create_flags: u32,
    pub dc_init_attr: mlx5dv_dc_init_attr,
    pub send_ops_flags: u64,
}
layout!(mlx5dv_qp_init_attr, 40, {
    comp_mask @ 0, create_flags @ 8, dc_init_attr.dc_type @ 16, send_ops_flags @ 32
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_striding_rq_init_attr {
    pub single_stride_log_num_of_bytes: u32,
    pub single_wqe_log_num_of_strides: u32,
    pub two_byte_shift_en: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_wq_init_attr {
    pub comp_mask: u64,
    pub striding_rq_attrs: mlx5dv_striding_rq_init_attr,
}
layout!(mlx5dv_wq_init_attr, 24, {
    comp_mask @ 0, striding_rq_attrs.single_stride_log_num_of_bytes @ 8,
    striding_rq_attrs.single_wqe_log_num_of_strides @ 12, striding_rq_attrs.two_byte_shift_en @ 16
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_mkey_init_attr {
    pub pd: *mut ibv_pd,
    pub create_flags: u32,
    pub max_entries: u16,
}
layout!(mlx5dv_mkey_init_attr, 16, { pd @ 0, create_flags @ 8, max_entries @ 12 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_mkey {
    pub lkey: u32,
    pub rkey: u32,
}
layout!(mlx5dv_mkey, 8, { lkey @ 0, rkey @ 4 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_mr_interleaved {
    pub addr: u64,
    pub bytes_count: u32,
    pub bytes_skip: u32,
    pub lkey: u32,
}
layout!(mlx5dv_mr_interleaved, 24, { addr @ 0, bytes_count @ 8, bytes_skip @ 12, lkey @ 16 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_mkey_conf_attr {
    pub conf_flags: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_mkey_conf_attr, 16, { conf_flags @ 0, comp_mask @ 8 });

/// A program's function for memory: bytes, its own pointer.
pub type plain_alloc = unsafe extern "C" fn(usize, *mut c_void) -> *mut c_void;
/// What frees it.
pub type plain_free = unsafe extern "C" fn(*mut c_void, *mut c_void);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_ctx_allocators {
    pub alloc: Option<plain_alloc>,
    pub free: Option<plain_free>,
    pub data: *mut c_void,
}
layout!(mlx5dv_ctx_allocators, 24, { alloc @ 0, free @ 8, data @ 16 });

/// An element of a schedule.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sched_attr {
    pub parent: *const c_void,
    pub flags: u32,
    pub bw_share: u32,
    pub max_avg_bw: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_sched_attr, 32, { parent @ 0, flags @ 8, bw_share @ 12, max_avg_bw @ 16, comp_mask @ 24 });

type Mqp = *mut mlx5dv_qp_ex;

/// The functions by which inline functions of `mlx5dv.h` build work requests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_qp_ex {
    pub comp_mask: u64,
    pub wr_set_dc_addr: Option<unsafe extern "C" fn(Mqp, *mut ibv_ah, u32, u64)>,
    pub wr_mr_interleaved: Option<
        unsafe extern "C" fn(Mqp, *mut mlx5dv_mkey, u32, u32, u16, *const mlx5dv_mr_interleaved),
    >,
    pub wr_mr_list: Option<unsafe extern "C" fn(Mqp, *mut mlx5dv_mkey, u32, u16, *const ibv_sge)>,
    pub wr_mkey_configure:
        Option<unsafe extern "C" fn(Mqp, *mut mlx5dv_mkey, u8, *const mlx5dv_mkey_conf_attr)>,
    pub wr_set_mkey_access_flags: Option<unsafe extern "C" fn(Mqp, u32)>,
    pub wr_set_mkey_layout_list: Option<unsafe extern "C" fn(Mqp, u16, *const ibv_sge)>,
    pub wr_set_mkey_layout_interleaved:
        Option<unsafe extern "C" fn(Mqp, u32, u16, *const mlx5dv_mr_interleaved)>,
    pub wr_set_mkey_sig_block: Option<unsafe extern "C" fn(Mqp, *const mlx5dv_sig_block_attr)>,
    pub wr_raw_wqe: Option<unsafe extern "C" fn(Mqp, *const c_void)>,
    pub wr_set_dc_addr_stream: Option<unsafe extern "C" fn(Mqp, *mut ibv_ah, u32, u64, u16)>,
    pub wr_memcpy: Option<unsafe extern "C" fn(Mqp, u32, u64, u32, u64, usize)>,
    pub wr_set_mkey_crypto: Option<unsafe extern "C" fn(Mqp, *const c_void)>,
}
layout!(mlx5dv_qp_ex, 104, {
    comp_mask @ 0, wr_set_dc_addr @ 8, wr_mr_interleaved @ 16, wr_mr_list @ 24, wr_mkey_configure @ 32,
    wr_set_mkey_access_flags @ 40, wr_set_mkey_layout_list @ 48, wr_set_mkey_layout_interleaved @ 56,
    wr_set_mkey_sig_block @ 64, wr_raw_wqe @ 72, wr_set_dc_addr_stream @ 80, wr_memcpy @ 88,
    wr_set_mkey_crypto @ 96
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_clock_info {
    pub nsec: u64,
    pub last_cycles: u64,
    pub frac: u64,
    pub mult: u32,
    pub shift: u32,
    pub mask: u64,
}
layout!(mlx5dv_clock_info, 40, {
    nsec @ 0, last_cycles @ 8, frac @ 16, mult @ 24, shift @ 28, mask @ 32
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_devx_umem_in {
    pub addr: *mut c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: c_int,
}
layout!(mlx5dv_devx_umem_in, 48, {
    addr @ 0, size @ 8, access @ 16, pgsz_bitmap @ 24, comp_mask @ 32, dmabuf_fd @ 40
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_devx_uar {
    pub reg_addr: *mut c_void,
    pub base_addr: *mut c_void,
    pub page_id: u32,
    pub mmap_off: i64,
    pub comp_mask: u64,
}
layout!(mlx5dv_devx_uar, 40, { reg_addr @ 0, base_addr @ 8, page_id @ 16, mmap_off @ 24, comp_mask @ 32 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_var {
    pub page_id: u32,
    pub length: u32,
    pub mmap_off: i64,
    pub comp_mask: u64,
}
layout!(mlx5dv_var, 24, { page_id @ 0, length @ 4, mmap_off @ 8, comp_mask @ 16 });

/// What `mlx5dv_open_device` is asked; the last field is since release 57.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_context_attr {
    pub flags: u32,
    pub comp_mask: u64,
}
layout!(mlx5dv_context_attr head, 16, { flags @ 0, comp_mask @ 8 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_alloc_dm_attr {
    pub r#type: c_uint,
    pub comp_mask: u64,
}
layout!(mlx5dv_alloc_dm_attr, 16, { r#type @ 0, comp_mask @ 8 });

/// `match_mask` points to a size and as many bytes. The last field is since release 57.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_flow_matcher_attr {
    pub r#type: c_uint,
    pub flags: u32,
    pub priority: u16,
    pub match_criteria_enable: u8,
    pub match_mask: *const usize,
    pub comp_mask: u64,
    pub ft_type: c_uint,
}
layout!(mlx5dv_flow_matcher_attr, 40, {
    r#type @ 0, flags @ 4, priority @ 8, match_criteria_enable @ 10, match_mask @ 16, comp_mask @ 24, ft_type @ 32
});

/// An action of a rule, up to release 59; the longer one of 60 begins alike. C's union holds pointers, or a number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_flow_action_attr {
    pub r#type: c_uint,
    pub object: *mut c_void,
}
layout!(mlx5dv_flow_action_attr head, 16, { r#type @ 0 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_steering_anchor_attr {
    pub ft_type: c_uint,
    pub priority: u16,
    pub comp_mask: u64,
}
layout!(mlx5dv_steering_anchor_attr, 16, { ft_type @ 0, priority @ 4, comp_mask @ 8 });

//! C structures of `infiniband/verbs.h`, the public and stable part of libibverbs' ABI.

use std::ffi::c_void;

pub(crate) type Ptr = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CSge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUd {
    pub(crate) ah: Ptr,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union CWrUnion {
    pub(crate) rdma: CRdma,
    pub(crate) atomic: CAtomic,
    pub(crate) ud: CUd,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CBindInfo {
    pub(crate) mr: Ptr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CBind {
    pub(crate) mw: Ptr,
    pub(crate) rkey: u32,
    pub(crate) info: CBindInfo,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CSendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut CSendWr,
    pub(crate) sg_list: *mut CSge,
    pub(crate) num_sge: i32,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    /// Immediate data in big-endian, or the key to invalidate.
    pub(crate) ex: u32,
    pub(crate) wr: CWrUnion,
    pub(crate) xrc_srq_num: u32,
    pub(crate) bind: CBind,
}
const _: () = assert!(size_of::<CSendWr>() == 128);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CRecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut CRecvWr,
    pub(crate) sg_list: *mut CSge,
    pub(crate) num_sge: i32,
}
const _: () = assert!(size_of::<CRecvWr>() == 32);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CWc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) ex: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
const _: () = assert!(size_of::<CWc>() == 48);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CQpInit {
    pub(crate) qp_context: Ptr,
    pub(crate) send_cq: Ptr,
    pub(crate) recv_cq: Ptr,
    pub(crate) srq: Ptr,
    pub(crate) cap: CCap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: i32,
}
const _: () = assert!(size_of::<CQpInit>() == 64);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CAh {
    pub(crate) dgid: [u64; 2],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}
const _: () = assert!(size_of::<CAh>() == 32);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CQpAttr {
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) cap: CCap,
    pub(crate) ah_attr: CAh,
    pub(crate) alt_ah_attr: CAh,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}
const _: () = assert!(size_of::<CQpAttr>() == 144);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CSrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CSrqInit {
    pub(crate) srq_context: Ptr,
    pub(crate) attr: CSrqAttr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CMwBind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    pub(crate) info: CBindInfo,
}
const _: () = assert!(size_of::<CMwBind>() == 48);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CEvent {
    pub(crate) element: Ptr,
    pub(crate) event_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CDeviceAttr {
    pub(crate) fw_ver: [u8; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) device_cap_flags: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_sge_rd: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_ee_rd_atom: u32,
    pub(crate) max_res_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    pub(crate) max_ee_init_rd_atom: u32,
    pub(crate) atomic_cap: u32,
    pub(crate) max_ee: u32,
    pub(crate) max_rdd: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_raw_ipv6_qp: u32,
    pub(crate) max_raw_ethy_qp: u32,
    pub(crate) max_mcast_grp: u32,
    pub(crate) max_mcast_qp_attach: u32,
    pub(crate) max_total_mcast_qp_attach: u32,
    pub(crate) max_ah: u32,
    pub(crate) max_fmr: u32,
    pub(crate) max_map_per_fmr: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}
const _: () = assert!(size_of::<CDeviceAttr>() == 232);

/// `ibv_port_attr` as it was before it grew, which the exported `ibv_query_port` fills.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CPortAttr {
    pub(crate) state: u32,
    pub(crate) max_mtu: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gid_tbl_len: u32,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    pub(crate) active_speed_ex: u32,
}

/// Byte offsets of fields that the suite reads of libibverbs' own objects.
pub(crate) mod offset {
    pub(crate) const CONTEXT_OPS: usize = 8;
    pub(crate) const CONTEXT_ASYNC_FD: usize = 268;
    pub(crate) const QP_NUM: usize = 52;
    pub(crate) const CQ_CQE: usize = 28;
    pub(crate) const MR_LKEY: usize = 36;
    pub(crate) const MR_RKEY: usize = 40;
    pub(crate) const MW_RKEY: usize = 16;
    pub(crate) const CHANNEL_FD: usize = 8;
}

/// Slots of `ibv_context_ops`, which the header's inline functions call.
pub(crate) mod slot {
    pub(crate) const ALLOC_MW: usize = 7;
    pub(crate) const BIND_MW: usize = 8;
    pub(crate) const DEALLOC_MW: usize = 9;
    pub(crate) const POLL_CQ: usize = 11;
    pub(crate) const REQ_NOTIFY_CQ: usize = 12;
    pub(crate) const POST_SRQ_RECV: usize = 20;
    pub(crate) const POST_SEND: usize = 25;
    pub(crate) const POST_RECV: usize = 26;
}

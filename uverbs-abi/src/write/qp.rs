//! Queue pairs.

use zerocopy::IntoBytes;

use crate::types::{AccessFlags, CreateQpFlags, QpAttrMask, QpCap, QpState, QpType};
use crate::{Reserved, handle};

abi_structs! {
    /// Makes a queue pair.
    "ib_uverbs_create_qp" CreateQp [56] {
        0 response: u64,
        8 user_handle: u64,
        16 pd_handle: handle::Pd,
        20 send_cq_handle: handle::Cq,
        24 recv_cq_handle: handle::Cq,
        28 srq_handle: handle::Srq,
        32 max_send_wr: u32,
        36 max_recv_wr: u32,
        40 max_send_sge: u32,
        44 max_recv_sge: u32,
        48 max_inline_data: u32,
        52 sq_sig_all: u8,
        53 qp_type: QpType,
        54 is_srq: u8,
        55 reserved: Reserved<1>,
    }

    /// Answer to [`CreateQp`] and [`OpenQp`].
    "ib_uverbs_create_qp_resp" CreateQpResp [32] {
        0 qp_handle: handle::Qp,
        4 qpn: u32,
        8 max_send_wr: u32,
        12 max_recv_wr: u32,
        16 max_send_sge: u32,
        20 max_recv_sge: u32,
        24 max_inline_data: u32,
        28 reserved: Reserved<4>,
    }

    /// Makes a queue pair with flags.
    "ib_uverbs_ex_create_qp" ExCreateQp [64] {
        0 user_handle: u64,
        8 pd_handle: handle::Pd,
        12 send_cq_handle: handle::Cq,
        16 recv_cq_handle: handle::Cq,
        20 srq_handle: handle::Srq,
        24 max_send_wr: u32,
        28 max_recv_wr: u32,
        32 max_send_sge: u32,
        36 max_recv_sge: u32,
        40 max_inline_data: u32,
        44 sq_sig_all: u8,
        45 qp_type: QpType,
        46 is_srq: u8,
        47 reserved: Reserved<1>,
        /// Bit 0: `rwq_ind_tbl_handle` counts.
        48 comp_mask: u32,
        52 create_flags: CreateQpFlags,
        56 rwq_ind_tbl_handle: handle::RwqIndTbl,
        60 source_qpn: u32,
    }

    /// Answer to [`ExCreateQp`].
    "ib_uverbs_ex_create_qp_resp" ExCreateQpResp [40] {
        0 base: CreateQpResp,
        32 comp_mask: u32,
        36 response_length: u32,
    }

    /// Opens an XRC target queue pair of another process.
    "ib_uverbs_open_qp" OpenQp [32] {
        0 response: u64,
        8 user_handle: u64,
        /// The handle of the XRC domain (C: `pd_handle`).
        16 pd_handle: u32,
        20 qpn: u32,
        24 qp_type: QpType,
        25 reserved: Reserved<7>,
    }

    /// A path.
    "ib_uverbs_qp_dest" QpDest [32] {
        0 dgid: [u8; 16],
        16 flow_label: u32,
        20 dlid: u16,
        22 reserved: Reserved<2>,
        24 sgid_index: u8,
        25 hop_limit: u8,
        26 traffic_class: u8,
        27 sl: u8,
        28 src_path_bits: u8,
        29 static_rate: u8,
        30 is_global: u8,
        31 port_num: u8,
    }

    /// Asks for a queue pair's attributes.
    "ib_uverbs_query_qp" QueryQp [16] {
        0 response: u64,
        8 qp_handle: handle::Qp,
        12 attr_mask: QpAttrMask,
    }

    /// Answer to [`QueryQp`].
    "ib_uverbs_query_qp_resp" QueryQpResp [128] {
        0 dest: QpDest,
        32 alt_dest: QpDest,
        64 max_send_wr: u32,
        68 max_recv_wr: u32,
        72 max_send_sge: u32,
        76 max_recv_sge: u32,
        80 max_inline_data: u32,
        84 qkey: u32,
        88 rq_psn: u32,
        92 sq_psn: u32,
        96 dest_qp_num: u32,
        100 qp_access_flags: AccessFlags,
        104 pkey_index: u16,
        106 alt_pkey_index: u16,
        108 qp_state: QpState,
        109 cur_qp_state: QpState,
        110 path_mtu: u8,
        111 path_mig_state: u8,
        112 sq_draining: u8,
        113 max_rd_atomic: u8,
        114 max_dest_rd_atomic: u8,
        115 min_rnr_timer: u8,
        116 port_num: u8,
        117 timeout: u8,
        118 retry_cnt: u8,
        119 rnr_retry: u8,
        120 alt_port_num: u8,
        121 alt_timeout: u8,
        122 sq_sig_all: u8,
        123 reserved: Reserved<5>,
    }

    /// Changes a queue pair's attributes.
    "ib_uverbs_modify_qp" ModifyQp [112] {
        0 dest: QpDest,
        32 alt_dest: QpDest,
        64 qp_handle: handle::Qp,
        /// Which of the rest counts.
        68 attr_mask: QpAttrMask,
        72 qkey: u32,
        76 rq_psn: u32,
        80 sq_psn: u32,
        84 dest_qp_num: u32,
        88 qp_access_flags: AccessFlags,
        92 pkey_index: u16,
        94 alt_pkey_index: u16,
        96 qp_state: QpState,
        97 cur_qp_state: QpState,
        98 path_mtu: u8,
        99 path_mig_state: u8,
        100 en_sqd_async_notify: u8,
        101 max_rd_atomic: u8,
        102 max_dest_rd_atomic: u8,
        103 min_rnr_timer: u8,
        104 port_num: u8,
        105 timeout: u8,
        106 retry_cnt: u8,
        107 rnr_retry: u8,
        108 alt_port_num: u8,
        109 alt_timeout: u8,
        110 reserved: Reserved<2>,
    }

    /// Changes a queue pair's attributes, the rate limit too.
    "ib_uverbs_ex_modify_qp" ExModifyQp [120] {
        0 base: ModifyQp,
        112 rate_limit: u32,
        116 reserved: Reserved<4>,
    }

    /// Answer to [`ExModifyQp`].
    "ib_uverbs_ex_modify_qp_resp" ExModifyQpResp [8] {
        0 comp_mask: u32,
        4 response_length: u32,
    }

    /// Destroys a queue pair.
    "ib_uverbs_destroy_qp" DestroyQp [16] {
        0 response: u64,
        8 qp_handle: handle::Qp,
        12 reserved: Reserved<4>,
    }

    /// Answer to [`DestroyQp`].
    "ib_uverbs_destroy_qp_resp" DestroyQpResp [4] {
        0 events_reported: u32,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_CREATE_QP" 24: CreateQp => CreateQpResp;
    "IB_USER_VERBS_EX_CMD_CREATE_QP" 24 extended: ExCreateQp => ExCreateQpResp;
    "IB_USER_VERBS_CMD_QUERY_QP" 25: QueryQp => QueryQpResp;
    "IB_USER_VERBS_CMD_MODIFY_QP" 26: ModifyQp => ();
    "IB_USER_VERBS_EX_CMD_MODIFY_QP" 26 extended: ExModifyQp => ExModifyQpResp;
    "IB_USER_VERBS_CMD_DESTROY_QP" 27: DestroyQp => DestroyQpResp;
    "IB_USER_VERBS_CMD_OPEN_QP" 40: OpenQp => CreateQpResp;
}

impl ExCreateQp {
    /// The older command, which ends before the flags and begins with the response's address.
    pub fn legacy(&self) -> CreateQp {
        const LEN: usize = core::mem::offset_of!(ExCreateQp, comp_mask);
        const START: usize = core::mem::offset_of!(CreateQp, user_handle);
        let mut legacy = CreateQp::default();
        legacy.as_mut_bytes()[START..].copy_from_slice(&self.as_bytes()[..LEN]);
        legacy
    }
}

/// Answers that have the capacity among their fields.
macro_rules! has_capacity {
    ($($response:ty),*) => {$(
        impl $response {
            /// The capacity granted.
            pub fn cap(&self) -> QpCap {
                QpCap {
                    max_send_wr: self.max_send_wr,
                    max_recv_wr: self.max_recv_wr,
                    max_send_sge: self.max_send_sge,
                    max_recv_sge: self.max_recv_sge,
                    max_inline_data: self.max_inline_data,
                }
            }
        }
    )*};
}

has_capacity!(CreateQpResp, QueryQpResp);

//! Shared receive queues.

use crate::types::{SrqAttrMask, SrqType};
use crate::{Reserved, handle};

abi_structs! {
    /// Makes a shared receive queue.
    "ib_uverbs_create_srq" CreateSrq [32] {
        0 response: u64,
        8 user_handle: u64,
        16 pd_handle: handle::Pd,
        20 max_wr: u32,
        24 max_sge: u32,
        28 srq_limit: u32,
    }

    /// Makes a shared receive queue of any kind.
    "ib_uverbs_create_xsrq" CreateXsrq [48] {
        0 response: u64,
        8 user_handle: u64,
        16 srq_type: SrqType,
        20 pd_handle: handle::Pd,
        24 max_wr: u32,
        28 max_sge: u32,
        32 srq_limit: u32,
        36 max_num_tags: u32,
        40 xrcd_handle: handle::Xrcd,
        44 cq_handle: handle::Cq,
    }

    /// Answer to [`CreateSrq`] and [`CreateXsrq`].
    "ib_uverbs_create_srq_resp" CreateSrqResp [16] {
        0 srq_handle: handle::Srq,
        4 max_wr: u32,
        8 max_sge: u32,
        12 srqn: u32,
    }

    /// Changes a shared receive queue.
    "ib_uverbs_modify_srq" ModifySrq [16] {
        0 srq_handle: handle::Srq,
        4 attr_mask: SrqAttrMask,
        8 max_wr: u32,
        12 srq_limit: u32,
    }

    /// Asks for a shared receive queue's attributes.
    "ib_uverbs_query_srq" QuerySrq [16] {
        0 response: u64,
        8 srq_handle: handle::Srq,
        12 reserved: Reserved<4>,
    }

    /// Answer to [`QuerySrq`].
    "ib_uverbs_query_srq_resp" QuerySrqResp [16] {
        0 max_wr: u32,
        4 max_sge: u32,
        8 srq_limit: u32,
        12 reserved: Reserved<4>,
    }

    /// Destroys a shared receive queue.
    "ib_uverbs_destroy_srq" DestroySrq [16] {
        0 response: u64,
        8 srq_handle: handle::Srq,
        12 reserved: Reserved<4>,
    }

    /// Answer to [`DestroySrq`].
    "ib_uverbs_destroy_srq_resp" DestroySrqResp [4] {
        0 events_reported: u32,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_CREATE_SRQ" 32: CreateSrq => CreateSrqResp;
    "IB_USER_VERBS_CMD_MODIFY_SRQ" 33: ModifySrq => ();
    "IB_USER_VERBS_CMD_QUERY_SRQ" 34: QuerySrq => QuerySrqResp;
    "IB_USER_VERBS_CMD_DESTROY_SRQ" 35: DestroySrq => DestroySrqResp;
    "IB_USER_VERBS_CMD_CREATE_XSRQ" 39: CreateXsrq => CreateSrqResp;
}

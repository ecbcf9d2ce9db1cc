//! Work queues and indirection tables.

use crate::types::{WqFlags, WqType};
use crate::{Reserved, handle};

abi_structs! {
    /// Makes a work queue.
    "ib_uverbs_ex_create_wq" ExCreateWq [40] {
        /// None is defined.
        0 comp_mask: u32,
        4 wq_type: WqType,
        8 user_handle: u64,
        16 pd_handle: handle::Pd,
        20 cq_handle: handle::Cq,
        24 max_wr: u32,
        28 max_sge: u32,
        32 create_flags: WqFlags,
        36 reserved: Reserved<4>,
    }

    /// Answer to [`ExCreateWq`].
    "ib_uverbs_ex_create_wq_resp" ExCreateWqResp [24] {
        0 comp_mask: u32,
        4 response_length: u32,
        8 wq_handle: handle::Wq,
        12 max_wr: u32,
        16 max_sge: u32,
        20 wqn: u32,
    }

    /// Destroys a work queue.
    "ib_uverbs_ex_destroy_wq" ExDestroyWq [8] {
        /// None is defined.
        0 comp_mask: u32,
        4 wq_handle: handle::Wq,
    }

    /// Answer to [`ExDestroyWq`].
    "ib_uverbs_ex_destroy_wq_resp" ExDestroyWqResp [16] {
        0 comp_mask: u32,
        4 response_length: u32,
        8 events_reported: u32,
        12 reserved: Reserved<4>,
    }

    /// Changes a work queue.
    "ib_uverbs_ex_modify_wq" ExModifyWq [24] {
        /// Bits 0 to 2: state, current state, flags.
        0 attr_mask: u32,
        4 wq_handle: handle::Wq,
        8 wq_state: u32,
        12 curr_wq_state: u32,
        16 flags: WqFlags,
        20 flags_mask: WqFlags,
    }

    /// Makes an indirection table; the handles of `1 << log_ind_tbl_size` work queues follow, with one
    /// more handle of 0 if there is only one.
    "ib_uverbs_ex_create_rwq_ind_table" ExCreateRwqIndTable [8] {
        /// None is defined.
        0 comp_mask: u32,
        /// At most 13.
        4 log_ind_tbl_size: u32,
    }

    /// Answer to [`ExCreateRwqIndTable`].
    "ib_uverbs_ex_create_rwq_ind_table_resp" ExCreateRwqIndTableResp [16] {
        0 comp_mask: u32,
        4 response_length: u32,
        8 ind_tbl_handle: handle::RwqIndTbl,
        12 ind_tbl_num: u32,
    }

    /// Destroys an indirection table.
    "ib_uverbs_ex_destroy_rwq_ind_table" ExDestroyRwqIndTable [8] {
        /// None is defined.
        0 comp_mask: u32,
        4 ind_tbl_handle: handle::RwqIndTbl,
    }
}

write_commands! {
    "IB_USER_VERBS_EX_CMD_CREATE_WQ" 52 extended: ExCreateWq => ExCreateWqResp;
    "IB_USER_VERBS_EX_CMD_MODIFY_WQ" 53 extended: ExModifyWq => ();
    "IB_USER_VERBS_EX_CMD_DESTROY_WQ" 54 extended: ExDestroyWq => ExDestroyWqResp;
    "IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL" 55 extended: ExCreateRwqIndTable => ExCreateRwqIndTableResp;
    "IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL" 56 extended: ExDestroyRwqIndTable => ();
}

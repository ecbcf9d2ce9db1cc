//! Completion queues.

use crate::types::CreateCqFlags;
use crate::{Reserved, handle};

abi_structs! {
    /// Makes a completion queue.
    "ib_uverbs_create_cq" CreateCq [32] {
        0 response: u64,
        8 user_handle: u64,
        16 cqe: u32,
        20 comp_vector: u32,
        /// A completion channel's descriptor, or -1.
        24 comp_channel: i32,
        28 reserved: Reserved<4>,
    }

    /// Answer to [`CreateCq`].
    "ib_uverbs_create_cq_resp" CreateCqResp [8] {
        0 cq_handle: handle::Cq,
        4 cqe: u32,
    }

    /// Makes a completion queue with flags.
    "ib_uverbs_ex_create_cq" ExCreateCq [32] {
        0 user_handle: u64,
        8 cqe: u32,
        12 comp_vector: u32,
        /// A completion channel's descriptor, or -1.
        16 comp_channel: i32,
        /// None is defined.
        20 comp_mask: u32,
        24 flags: CreateCqFlags,
        28 reserved: Reserved<4>,
    }

    /// Answer to [`ExCreateCq`].
    "ib_uverbs_ex_create_cq_resp" ExCreateCqResp [16] {
        0 base: CreateCqResp,
        8 comp_mask: u32,
        12 response_length: u32,
    }

    /// Changes the size of a completion queue.
    "ib_uverbs_resize_cq" ResizeCq [16] {
        0 response: u64,
        8 cq_handle: handle::Cq,
        12 cqe: u32,
    }

    /// Answer to [`ResizeCq`].
    "ib_uverbs_resize_cq_resp" ResizeCqResp [8] {
        0 cqe: u32,
        4 reserved: Reserved<4>,
    }

    /// Arms a completion queue.
    "ib_uverbs_req_notify_cq" ReqNotifyCq [8] {
        0 cq_handle: handle::Cq,
        /// 0 or 1.
        4 solicited_only: u32,
    }

    /// When an event comes: after so many completions or so many microseconds.
    "ib_uverbs_cq_moderation" CqModeration [4] {
        0 cq_count: u16,
        2 cq_period: u16,
    }

    /// Changes a completion queue.
    "ib_uverbs_ex_modify_cq" ExModifyCq [16] {
        0 cq_handle: handle::Cq,
        /// Bit 0: `attr` counts.
        4 attr_mask: u32,
        8 attr: CqModeration,
        12 reserved: Reserved<4>,
    }

    /// Destroys a completion queue.
    "ib_uverbs_destroy_cq" DestroyCq [16] {
        0 response: u64,
        8 cq_handle: handle::Cq,
        12 reserved: Reserved<4>,
    }

    /// Answer to [`DestroyCq`].
    "ib_uverbs_destroy_cq_resp" DestroyCqResp [8] {
        0 comp_events_reported: u32,
        4 async_events_reported: u32,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_CREATE_CQ" 18: CreateCq => CreateCqResp;
    "IB_USER_VERBS_EX_CMD_CREATE_CQ" 18 extended: ExCreateCq => ExCreateCqResp;
    "IB_USER_VERBS_CMD_RESIZE_CQ" 19: ResizeCq => ResizeCqResp;
    "IB_USER_VERBS_CMD_REQ_NOTIFY_CQ" 23: ReqNotifyCq => ();
    "IB_USER_VERBS_CMD_DESTROY_CQ" 20: DestroyCq => DestroyCqResp;
    "IB_USER_VERBS_EX_CMD_MODIFY_CQ" 57 extended: ExModifyCq => ();
}

//! Posting and polling through the kernel.
//!
//! Hardware drivers do not use these; rxe uses [`PostSend`] with no work request in it as its doorbell,
//! always as plain `write()`. Work requests and their scatter lists follow the request struct.

use crate::types::WrOpcode;
use crate::{Reserved, handle};

abi_structs! {
    /// Posts send work requests; with `wr_count` 0, rxe's doorbell.
    "ib_uverbs_post_send" PostSend [24] {
        0 response: u64,
        8 qp_handle: handle::Qp,
        12 wr_count: u32,
        16 sge_count: u32,
        20 wqe_size: u32,
    }

    /// Answer to [`PostSend`].
    "ib_uverbs_post_send_resp" PostSendResp [4] {
        /// Number of the first work request that was refused, from 1; 0 if none was.
        0 bad_wr: u32,
    }

    /// Posts receive work requests.
    "ib_uverbs_post_recv" PostRecv [24] {
        0 response: u64,
        8 qp_handle: handle::Qp,
        12 wr_count: u32,
        16 sge_count: u32,
        20 wqe_size: u32,
    }

    /// Answer to [`PostRecv`].
    "ib_uverbs_post_recv_resp" PostRecvResp [4] {
        /// Number of the first work request that was refused, from 1; 0 if none was.
        0 bad_wr: u32,
    }

    /// Posts receive work requests to a shared receive queue.
    "ib_uverbs_post_srq_recv" PostSrqRecv [24] {
        0 response: u64,
        8 srq_handle: handle::Srq,
        12 wr_count: u32,
        16 sge_count: u32,
        20 wqe_size: u32,
    }

    /// Answer to [`PostSrqRecv`].
    "ib_uverbs_post_srq_recv_resp" PostSrqRecvResp [4] {
        /// Number of the first work request that was refused, from 1; 0 if none was.
        0 bad_wr: u32,
    }

    /// A send work request.
    "ib_uverbs_send_wr" SendWr [56] {
        0 wr_id: u64,
        8 num_sge: u32,
        12 opcode: WrOpcode,
        16 send_flags: u32,
        /// Immediate data in network order, or the key to invalidate in host order.
        20 ex: [u8; 4],
        /// By operation: remote address and key; remote address, two operands and key; or address
        /// handle, queue pair number and queue key, each of 32 bits.
        24 wr: [u64; 4],
    }

    /// A receive work request.
    "ib_uverbs_recv_wr" RecvWr [16] {
        0 wr_id: u64,
        8 num_sge: u32,
        12 reserved: Reserved<4>,
    }

    /// Polls a completion queue.
    "ib_uverbs_poll_cq" PollCq [16] {
        0 response: u64,
        8 cq_handle: handle::Cq,
        /// How many completions there is room for.
        12 ne: u32,
    }

    /// Answer to [`PollCq`]; completions follow.
    "ib_uverbs_poll_cq_resp" PollCqResp [8] {
        0 count: u32,
        4 reserved: Reserved<4>,
    }

    /// A completion; the same bytes as libibverbs' `ibv_wc`.
    "ib_uverbs_wc" Wc [48] {
        0 wr_id: u64,
        8 status: u32,
        12 opcode: u32,
        16 vendor_err: u32,
        20 byte_len: u32,
        /// Immediate data in network order, or the invalidated key in host order.
        24 ex: [u8; 4],
        28 qp_num: u32,
        32 src_qp: u32,
        36 wc_flags: u32,
        40 pkey_index: u16,
        42 slid: u16,
        44 sl: u8,
        45 dlid_path_bits: u8,
        46 port_num: u8,
        47 reserved: Reserved<1>,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_POLL_CQ" 21: PollCq => PollCqResp;
    "IB_USER_VERBS_CMD_POST_SEND" 28: PostSend => PostSendResp;
    "IB_USER_VERBS_CMD_POST_RECV" 29: PostRecv => PostRecvResp;
    "IB_USER_VERBS_CMD_POST_SRQ_RECV" 36: PostSrqRecv => PostSrqRecvResp;
}

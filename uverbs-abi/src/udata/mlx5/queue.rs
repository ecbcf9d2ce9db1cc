//! Completion queues, shared receive queues, queue pairs.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{RxHashFields, RxHashFunction};
use crate::Reserved;

flag_sets! {
    /// Which fields of [`CreateCq`] count, and how the queue is made.
    "mlx5_ib_create_cq_flags" CreateCqFlags(u16) {
        /// Completions of 128 bytes are padded to whole cache lines.
        "MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD" CQE_128B_PAD = 1 << 0,
        /// [`CreateCq::uar_page_index`] is set.
        "MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX" UAR_PAGE_INDEX = 1 << 1,
        /// Timestamps are nanoseconds.
        "MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS" REAL_TIME_TS = 1 << 2,
    }

    /// Of [`CreateSrq::flags`].
    "mlx5_ib_create_srq_flags" CreateSrqFlags(u32) {
        "MLX5_SRQ_FLAG_SIGNATURE" SIGNATURE = 1 << 0,
    }

    /// Of [`CreateQp::flags`] and [`CreateQpRss::flags`].
    "mlx5_ib_create_qp_flags" CreateQpFlags(u32) {
        "MLX5_QP_FLAG_SIGNATURE" SIGNATURE = 1 << 0,
        /// Small payloads arrive inside the completion.
        "MLX5_QP_FLAG_SCATTER_CQE" SCATTER_CQE = 1 << 1,
        "MLX5_QP_FLAG_TUNNEL_OFFLOADS" TUNNEL_OFFLOADS = 1 << 2,
        /// [`CreateQp::bfreg_index`] is one of the context's registers.
        "MLX5_QP_FLAG_BFREG_INDEX" BFREG_INDEX = 1 << 3,
        /// A dynamically connected target.
        "MLX5_QP_FLAG_TYPE_DCT" TYPE_DCT = 1 << 4,
        /// A dynamically connected initiator.
        "MLX5_QP_FLAG_TYPE_DCI" TYPE_DCI = 1 << 5,
        "MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC" TIR_ALLOW_SELF_LB_UC = 1 << 6,
        "MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC" TIR_ALLOW_SELF_LB_MC = 1 << 7,
        /// As [`SCATTER_CQE`](Self::SCATTER_CQE), where not all sends are signalled too.
        "MLX5_QP_FLAG_ALLOW_SCATTER_CQE" ALLOW_SCATTER_CQE = 1 << 8,
        "MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE" PACKET_BASED_CREDIT_MODE = 1 << 9,
        /// [`CreateQp::bfreg_index`] is the page of a UAR object.
        "MLX5_QP_FLAG_UAR_PAGE_INDEX" UAR_PAGE_INDEX = 1 << 10,
        /// [`CreateQp::dci_streams`] is set.
        "MLX5_QP_FLAG_DCI_STREAM" DCI_STREAM = 1 << 11,
    }

    /// Fields that are valid, of [`CreateQpResp::comp_mask`].
    "mlx5_ib_create_qp_resp_mask" CreateQpRespMask(u32) {
        "MLX5_IB_CREATE_QP_RESP_MASK_TIRN" TIRN = 1 << 0,
        "MLX5_IB_CREATE_QP_RESP_MASK_TISN" TISN = 1 << 1,
        "MLX5_IB_CREATE_QP_RESP_MASK_RQN" RQN = 1 << 2,
        "MLX5_IB_CREATE_QP_RESP_MASK_SQN" SQN = 1 << 3,
        "MLX5_IB_CREATE_QP_RESP_MASK_TIR_ICM_ADDR" TIR_ICM_ADDR = 1 << 4,
    }

    /// Of [`ModifyQp::comp_mask`].
    "mlx5_ib_modify_qp_mask" ModifyQpMask(u32) {
        /// Payload may be placed out of order. Not before 6.13.
        "MLX5_IB_MODIFY_QP_OOO_DP" OOO_DP = 1 << 0,
    }
}

/// The key of the hash that spreads received packets; 40 bytes for Toeplitz, the rest zero.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct RxHashKey(pub [u8; 128]);

impl Default for RxHashKey {
    fn default() -> Self {
        Self([0; 128])
    }
}

impl fmt::Debug for RxHashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self
            .0
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        write!(f, "{:02x?}", &self.0[..end])
    }
}

abi_structs! {
    /// Request of create_cq.
    "mlx5_ib_create_cq" CreateCq [32] {
        /// Address of the ring.
        0 buf_addr: u64,
        /// Address of the doorbell record.
        8 db_addr: u64,
        /// 64 or 128.
        16 cqe_size: u32,
        /// 1 to compress completions.
        20 cqe_comp_en: u8,
        /// One bit of [`CqeCompFormat`](super::CqeCompFormat).
        21 cqe_comp_res_format: u8,
        22 flags: CreateCqFlags,
        /// Where the queue is armed; without the flag the kernel takes the context's first page. Pages
        /// beyond 65535 go by an attribute of the method, since 6.6.
        24 uar_page_index: u16,
        26 reserved0: Reserved<2>,
        28 reserved1: Reserved<4>,
    }

    /// Response of create_cq.
    "mlx5_ib_create_cq_resp" CreateCqResp [8] {
        /// The device's number of the queue.
        0 cqn: u32,
        4 reserved: Reserved<4>,
    }

    /// Request of resize_cq.
    "mlx5_ib_resize_cq" ResizeCq [16] {
        /// Address of the new ring.
        0 buf_addr: u64,
        /// 64 or 128.
        8 cqe_size: u16,
        10 reserved0: Reserved<2>,
        12 reserved1: Reserved<4>,
    }

    /// Request of create_srq.
    "mlx5_ib_create_srq" CreateSrq [32] {
        /// Address of the ring.
        0 buf_addr: u64,
        /// Address of the doorbell record.
        8 db_addr: u64,
        16 flags: CreateSrqFlags,
        20 reserved0: Reserved<4>,
        /// What completions call the queue.
        24 uidx: u32,
        28 reserved1: Reserved<4>,
    }

    /// Response of create_srq.
    "mlx5_ib_create_srq_resp" CreateSrqResp [8] {
        /// The device's number of the queue.
        0 srqn: u32,
        4 reserved: Reserved<4>,
    }

    /// Logarithms of streams of a dynamically connected initiator.
    "mlx5_ib_create_qp_dci_streams" DciStreams [2] {
        0 log_num_concurent: u8,
        1 log_num_errored: u8,
    }

    /// Request of create_qp.
    "mlx5_ib_create_qp" CreateQp [56] {
        /// Address of the ring: receives, then sends. Of receives only, if
        /// [`sq_buf_addr`](Self::sq_buf_addr) is another one.
        0 buf_addr: u64,
        /// Address of the doorbell record.
        8 db_addr: u64,
        /// Basic blocks of the send queue.
        16 sq_wqe_count: u32,
        20 rq_wqe_count: u32,
        /// Logarithm of the bytes of a receive WQE.
        24 rq_wqe_shift: u32,
        28 flags: CreateQpFlags,
        /// What completions call the queue pair.
        32 uidx: u32,
        /// Where sends are rung; what it counts says [`flags`](Self::flags).
        36 bfreg_index: u32,
        /// Address of the send queue, of raw packet and underlay queue pairs; of a dynamically
        /// connected target its `access_key`.
        40 sq_buf_addr: u64,
        48 ece_options: u32,
        52 dci_streams: DciStreams,
        54 reserved: Reserved<2>,
    }

    /// Request of create_qp for one that spreads packets over an indirection table.
    "mlx5_ib_create_qp_rss" CreateQpRss [152] {
        0 rx_hash_fields_mask: RxHashFields,
        8 rx_hash_function: RxHashFunction,
        9 rx_key_len: u8,
        10 reserved: Reserved<6>,
        16 rx_hash_key: RxHashKey,
        144 comp_mask: u32,
        148 flags: CreateQpFlags,
    }

    /// Response of create_qp.
    "mlx5_ib_create_qp_resp" CreateQpResp [40] {
        /// The register that the kernel chose, if the program did not.
        0 bfreg_index: u32,
        4 ece_options: u32,
        8 comp_mask: CreateQpRespMask,
        12 tirn: u32,
        16 tisn: u32,
        20 rqn: u32,
        24 sqn: u32,
        28 reserved1: Reserved<4>,
        32 tir_icm_addr: u64,
    }

    /// How much may be sent at once under a rate limit.
    "mlx5_ib_burst_info" BurstInfo [8] {
        /// Bytes.
        0 max_burst_sz: u32,
        /// Bytes.
        4 typical_pkt_sz: u16,
        6 reserved: Reserved<2>,
    }

    /// Request of modify_qp, extended.
    "mlx5_ib_modify_qp" ModifyQp [16] {
        0 comp_mask: ModifyQpMask,
        4 burst_info: BurstInfo,
        12 ece_options: u32,
    }

    /// Response of modify_qp, extended.
    "mlx5_ib_modify_qp_resp" ModifyQpResp [16] {
        0 response_length: u32,
        /// The number of a dynamically connected target, which it gets when it becomes ready to
        /// receive.
        4 dctn: u32,
        8 ece_options: u32,
        12 reserved: Reserved<4>,
    }
}

//! Receive work queues and indirection tables.

use crate::Reserved;

flag_sets! {
    /// Which fields of [`CreateWq`] count.
    "mlx5_ib_create_wq_mask" CreateWqMask(u32) {
        "MLX5_IB_CREATE_WQ_STRIDING_RQ" STRIDING_RQ = 1 << 0,
    }

    /// Of [`CreateWq::flags`].
    "mlx5_ib_create_wq_flags" CreateWqFlags(u32) {
        "MLX5_WQ_FLAG_SIGNATURE" SIGNATURE = 1 << 0,
    }
}

abi_structs! {
    /// Request of create_wq.
    "mlx5_ib_create_wq" CreateWq [48] {
        /// Address of the ring.
        0 buf_addr: u64,
        /// Address of the doorbell record.
        8 db_addr: u64,
        16 rq_wqe_count: u32,
        /// Logarithm of the bytes of a WQE.
        20 rq_wqe_shift: u32,
        /// What completions call the queue.
        24 user_index: u32,
        28 flags: CreateWqFlags,
        32 comp_mask: CreateWqMask,
        36 single_stride_log_num_of_bytes: u32,
        40 single_wqe_log_num_of_strides: u32,
        /// 1 to write payload 2 bytes into a stride, so that the IP header is aligned.
        44 two_byte_shift_en: u32,
    }

    /// Response of create_wq.
    "mlx5_ib_create_wq_resp" CreateWqResp [8] {
        0 response_length: u32,
        4 reserved: Reserved<4>,
    }

    /// Response of create_rwq_ind_tbl.
    "mlx5_ib_create_rwq_ind_tbl_resp" CreateRwqIndTblResp [8] {
        0 response_length: u32,
        4 reserved: Reserved<4>,
    }

    /// Request of modify_wq.
    "mlx5_ib_modify_wq" ModifyWq [8] {
        0 comp_mask: u32,
        4 reserved: Reserved<4>,
    }
}

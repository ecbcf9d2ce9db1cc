//! The software RoCE driver `rdma_rxe` (`uapi rdma/rdma_user_rxe.h`).
//!
//! It answers where the queues of a new object can be mapped: rxe's rings are kernel memory that
//! the program maps from the device file. An all-zero [`MmapInfo`] means that there is no such queue, or
//! that the kernel answered less than it should; both are for the caller to tell apart.

use crate::Reserved;

abi_structs! {
    /// A range of the device file that holds one queue.
    "mminfo" MmapInfo [16] {
        /// For mmap(2).
        0 offset: u64,
        /// Bytes to map.
        8 size: u32,
        12 pad: Reserved<4>,
    }

    /// Response of create_cq.
    "rxe_create_cq_resp" CreateCqResp [16] {
        0 mi: MmapInfo,
    }

    /// Response of resize_cq.
    "rxe_resize_cq_resp" ResizeCqResp [16] {
        0 mi: MmapInfo,
    }

    /// Response of create_qp.
    "rxe_create_qp_resp" CreateQpResp [32] {
        /// All zero if the queue pair receives from a shared receive queue.
        0 rq_mi: MmapInfo,
        16 sq_mi: MmapInfo,
    }

    /// Response of create_srq.
    "rxe_create_srq_resp" CreateSrqResp [24] {
        0 mi: MmapInfo,
        16 srq_num: u32,
        20 reserved: Reserved<4>,
    }

    /// Request of modify_srq.
    "rxe_modify_srq_cmd" ModifySrqCmd [8] {
        /// Address of an [`MmapInfo`] of the caller's that the kernel writes when it makes a new queue.
        0 mmap_info_addr: u64,
    }

    /// Response of create_ah.
    "rxe_create_ah_resp" CreateAhResp [8] {
        /// What a datagram names instead of an address vector; 0 from kernels that want the vector.
        0 ah_num: u32,
        4 reserved: Reserved<4>,
    }
}

impl MmapInfo {
    /// Whether there is anything to map.
    pub fn is_present(&self) -> bool {
        self.size != 0
    }
}

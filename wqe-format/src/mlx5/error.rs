//! Completions in error.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::cqe::{OpOwn, SopDropQpn, numbers};

/// An entry of opcode REQ_ERR or RESP_ERR (mlx5dv.h `struct mlx5_err_cqe`; the hardware's own byte is in Linux
/// include/linux/mlx5/device.h).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_err_cqe")]
pub struct ErrorCqe {
    /// Not defined; field dumps show left-over data here.
    pub reserved_0: [u8; 32],
    /// User's index or shared receive queue, as in [`Cqe64::srqn_uidx`](super::Cqe64::srqn_uidx).
    pub srqn_uidx: U32,
    /// Not defined.
    pub reserved_36: [u8; 16],
    /// The hardware's own reason.
    pub hw_error_syndrome: u8,
    /// What kind of reason that is.
    pub hw_syndrome_type: u8,
    /// The vendor's reason: `vendor_err` of a work completion.
    pub vendor_err_synd: u8,
    /// What went wrong.
    pub syndrome: Syndrome,
    /// Opcode of the send request, and queue pair.
    pub s_wqe_opcode_qpn: SopDropQpn,
    /// The request.
    pub wqe_counter: U16,
    /// Check sum.
    pub signature: u8,
    /// Kind and owner.
    pub op_own: OpOwn,
}

const _: () = {
    assert!(size_of::<ErrorCqe>() == 64);
    assert!(offset_of!(ErrorCqe, srqn_uidx) == 32);
    assert!(offset_of!(ErrorCqe, hw_error_syndrome) == 52);
    assert!(offset_of!(ErrorCqe, vendor_err_synd) == 54);
    assert!(offset_of!(ErrorCqe, syndrome) == 55);
    assert!(offset_of!(ErrorCqe, s_wqe_opcode_qpn) == 56);
    assert!(offset_of!(ErrorCqe, wqe_counter) == 60);
    assert!(offset_of!(ErrorCqe, op_own) == 63);
};

/// An entry of opcode SIG_ERR: a signature of a key's data was not what it had to be (Linux include/linux/mlx5/device.h
/// `struct mlx5_sig_err_cqe`; type and domain are in rdma-core providers/mlx5/cq.c `struct mlx5_sigerr_cqe`). It names the
/// key, and no queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_sig_err_cqe")]
pub struct SignatureErrorCqe {
    /// Not defined.
    pub reserved_0: [u8; 16],
    /// Guard and application tag, or the first half of a CRC, as expected.
    pub expected_trans_sig: U32,
    /// The same as found.
    pub actual_trans_sig: U32,
    /// Reference tag, or the second half of a CRC, as expected.
    pub expected_ref_tag: U32,
    /// The same as found.
    pub actual_ref_tag: U32,
    /// What was wrong: reference tag (bit 11), application tag (12), guard or CRC (13).
    pub syndrome: U16,
    /// 0 in the low three bits: of a block.
    pub sig_type: u8,
    /// In the low three bits: 0 on the wire, 1 in memory.
    pub domain: u8,
    /// The key.
    pub mkey: U32,
    /// Bytes before the block.
    pub err_offset: U64,
    /// Not defined.
    pub reserved_48: [u8; 14],
    /// Check sum.
    pub signature: u8,
    /// Kind and owner.
    pub op_own: OpOwn,
}

const _: () = {
    assert!(size_of::<SignatureErrorCqe>() == 64);
    assert!(offset_of!(SignatureErrorCqe, expected_trans_sig) == 16);
    assert!(offset_of!(SignatureErrorCqe, syndrome) == 32);
    assert!(offset_of!(SignatureErrorCqe, mkey) == 36);
    assert!(offset_of!(SignatureErrorCqe, err_offset) == 40);
    assert!(offset_of!(SignatureErrorCqe, op_own) == 63);
};

impl ErrorCqe {
    /// [`vendor_err_synd`](Self::vendor_err_synd) of a page fault on demand-paged memory (mlx5dv.h
    /// `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`).
    #[doc(alias = "MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT")]
    pub const VENDOR_ODP_PAGE_FAULT: u8 = 0x93;

    /// Whether the request of a shared receive queue met a page fault and is to be posted again: it makes no work completion.
    #[inline]
    pub const fn is_odp_page_fault(&self) -> bool {
        self.syndrome.0 == Syndrome::REMOTE_ABORTED_ERR.0
            && self.vendor_err_synd == Self::VENDOR_ODP_PAGE_FAULT
    }
}

/// What went wrong (mlx5dv.h `MLX5_CQE_SYNDROME_*`). Any number is a value.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Syndrome(pub u8);

numbers! { Syndrome:
    LOCAL_LENGTH_ERR = 0x01, "local length error", "The buffer is too short, or the message too long.";
    LOCAL_QP_OP_ERR = 0x02, "local QP operation error", "The request itself is wrong.";
    LOCAL_PROT_ERR = 0x04, "local protection error", "A local key does not allow it.";
    WR_FLUSH_ERR = 0x05, "work request flushed error", "The queue pair was in the error state already.";
    MW_BIND_ERR = 0x06, "memory window bind error", "A window could not be bound.";
    BAD_RESP_ERR = 0x10, "bad response error", "The peer's answer made no sense.";
    LOCAL_ACCESS_ERR = 0x11, "local access error", "A peer's write met a protection error here.";
    REMOTE_INVAL_REQ_ERR = 0x12, "remote invalid request error", "The peer could not do such a request.";
    REMOTE_ACCESS_ERR = 0x13, "remote access error", "The peer's key does not allow it.";
    REMOTE_OP_ERR = 0x14, "remote operation error", "The peer failed.";
    TRANSPORT_RETRY_EXC_ERR = 0x15, "transport retry counter exceeded", "The peer does not answer.";
    RNR_RETRY_EXC_ERR = 0x16, "RNR retry counter exceeded", "The peer never had a receive posted.";
    REMOTE_ABORTED_ERR = 0x22, "remote aborted error", "The peer gave up.";
}

impl Syndrome {
    /// `IBV_WC_SUCCESS`.
    pub const WC_SUCCESS: u32 = 0;

    /// The number of libibverbs' `enum ibv_wc_status`; `IBV_WC_GENERAL_ERR` for unknown syndromes.
    #[inline]
    pub const fn wc_status(self) -> u32 {
        match self {
            Self::LOCAL_LENGTH_ERR => 1,
            Self::LOCAL_QP_OP_ERR => 2,
            Self::LOCAL_PROT_ERR => 4,
            Self::WR_FLUSH_ERR => 5,
            Self::MW_BIND_ERR => 6,
            Self::BAD_RESP_ERR => 7,
            Self::LOCAL_ACCESS_ERR => 8,
            Self::REMOTE_INVAL_REQ_ERR => 9,
            Self::REMOTE_ACCESS_ERR => 10,
            Self::REMOTE_OP_ERR => 11,
            Self::TRANSPORT_RETRY_EXC_ERR => 12,
            Self::RNR_RETRY_EXC_ERR => 13,
            Self::REMOTE_ABORTED_ERR => 16,
            _ => 21,
        }
    }
}

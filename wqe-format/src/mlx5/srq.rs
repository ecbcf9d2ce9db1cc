//! Receive work requests of shared and striding queues.
//!
//! An ordinary receive request is [`DataSegment`](super::DataSegment)s only: the slot full, or ended by
//! [`TERMINATOR`](super::DataSegment::TERMINATOR).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::data::DataSegment;

/// The link that starts each slot of a shared receive queue (mlx5dv.h `struct mlx5_wqe_srq_next_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_srq_next_seg")]
pub struct SrqNextSegment {
    /// Must be 0.
    pub reserved_0: [u8; 2],
    /// The slot that follows this one.
    pub next_wqe_index: U16,
    /// See [`signature`](super::signature); 0 without.
    pub signature: u8,
    /// Must be 0.
    pub reserved_5: [u8; 11],
}

const _: () = {
    assert!(size_of::<SrqNextSegment>() == 16);
    assert!(offset_of!(SrqNextSegment, next_wqe_index) == 2);
    assert!(offset_of!(SrqNextSegment, signature) == 4);
};

impl SrqNextSegment {
    /// A link.
    #[inline]
    pub const fn new(next_wqe_index: u16) -> Self {
        Self {
            reserved_0: [0; 2],
            next_wqe_index: U16::new(next_wqe_index),
            signature: 0,
            reserved_5: [0; 11],
        }
    }
}

/// The 16 bytes before the scatter list of a receive queue with signatures (rdma-core `providers/mlx5/wqe.h`,
/// `struct mlx5_rwqe_sig`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_rwqe_sig")]
pub struct RecvSignatureSegment {
    /// Must be 0.
    pub reserved_0: [u8; 4],
    /// See [`signature`](super::signature).
    pub signature: u8,
    /// Must be 0.
    pub reserved_5: [u8; 11],
}

const _: () = {
    assert!(size_of::<RecvSignatureSegment>() == 16);
    assert!(offset_of!(RecvSignatureSegment, signature) == 4);
};

/// A receive request of a striding queue: one buffer of many strides (mlx5dv.h `struct mlx5_mprq_wqe`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_mprq_wqe")]
pub struct MprqWqe {
    /// Link; unused in a cyclic queue.
    pub nseg: SrqNextSegment,
    /// The buffer.
    pub dseg: DataSegment,
}

const _: () = assert!(size_of::<MprqWqe>() == 32);

/// [`Cqe64::byte_cnt`](super::Cqe64::byte_cnt) of a striding queue (DPDK `mlx5_prm.h`, `MLX5_MPRQ_*`). The stride where the
/// message starts is in [`wqe_counter`](super::Cqe64::wqe_counter) of raw packets.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct StridingByteCount {
    /// No message: the device skipped these strides.
    pub filler: bool,
    /// Reserved.
    __: bool,
    /// Strides that were consumed.
    #[bits(14)]
    pub strides: u16,
    /// Bytes of the message.
    pub byte_cnt: u16,
}

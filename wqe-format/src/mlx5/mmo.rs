//! Memory-to-memory operations.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ctrl::CtrlSegment;
use super::data::DataSegment;

/// Where the operation keeps its state (rdma-core `providers/mlx5/wqe.h`, `struct mlx5_mmo_metadata_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_mmo_metadata_seg")]
pub struct MmoSegment {
    /// Control bits; 0 for a copy.
    pub mmo_control_31_0: U32,
    /// Key of the opaque memory.
    pub local_key: U32,
    /// Its address.
    pub local_address: U64,
}

const _: () = {
    assert!(size_of::<MmoSegment>() == 16);
    assert!(offset_of!(MmoSegment, local_key) == 4);
    assert!(offset_of!(MmoSegment, local_address) == 8);
};

impl MmoSegment {
    /// Opaque memory of a copy.
    #[inline]
    pub const fn new(local_address: u64, local_key: u32) -> Self {
        Self {
            mmo_control_31_0: U32::ZERO,
            local_key: U32::new(local_key),
            local_address: U64::new(local_address),
        }
    }
}

/// A whole copy request (`struct mlx5_mmo_wqe`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_mmo_wqe")]
pub struct MmoWqe {
    /// Control.
    pub ctrl: CtrlSegment,
    /// State.
    pub mmo_meta: MmoSegment,
    /// From here. A length of 0 means 2^31.
    pub src: DataSegment,
    /// To here.
    pub dest: DataSegment,
}

const _: () = assert!(size_of::<MmoWqe>() == 64);

//! The remote address segment of RDMA and atomic requests.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where the peer's memory is (mlx5dv.h `struct mlx5_wqe_raddr_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_raddr_seg")]
pub struct RaddrSegment {
    /// Remote address.
    pub raddr: U64,
    /// Remote key.
    pub rkey: U32,
    /// Must be 0.
    pub reserved: U32,
}

const _: () = {
    assert!(size_of::<RaddrSegment>() == 16);
    assert!(offset_of!(RaddrSegment, rkey) == 8);
};

impl RaddrSegment {
    /// A remote address.
    #[inline]
    pub const fn new(raddr: u64, rkey: u32) -> Self {
        Self {
            raddr: U64::new(raddr),
            rkey: U32::new(rkey),
            reserved: U32::ZERO,
        }
    }
}

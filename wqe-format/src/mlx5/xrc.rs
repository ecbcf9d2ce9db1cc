//! The XRC segment: which shared receive queue of the peer.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The remote shared receive queue (rdma-core `providers/mlx5/wqe.h`, `struct mlx5_wqe_xrc_seg`). It follows the control
/// segment of every request on an XRC initiator.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_xrc_seg")]
pub struct XrcSegment {
    /// The queue's number.
    pub xrc_srqn: U32,
    /// Must be 0.
    pub reserved: [u8; 12],
}

const _: () = assert!(size_of::<XrcSegment>() == 16);

impl XrcSegment {
    /// A shared receive queue's number.
    #[inline]
    pub const fn new(srqn: u32) -> Self {
        Self {
            xrc_srqn: U32::new(srqn),
            reserved: [0; 12],
        }
    }
}

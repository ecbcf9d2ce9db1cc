//! The Ethernet segment of raw packets.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Checksums that the device computes (`cs_flags`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct ChecksumFlags(pub u8);

impl ChecksumFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Of the inner IP header (Linux include/linux/mlx5/qp.h `MLX5_ETH_WQE_L3_INNER_CSUM`).
    pub const L3_INNER: Self = Self(1 << 4);
    /// Of the inner TCP or UDP header (`MLX5_ETH_WQE_L4_INNER_CSUM`).
    pub const L4_INNER: Self = Self(1 << 5);
    /// Of the IP header (mlx5dv.h `MLX5_ETH_WQE_L3_CSUM`).
    pub const L3: Self = Self(1 << 6);
    /// Of the TCP or UDP header (mlx5dv.h `MLX5_ETH_WQE_L4_CSUM`).
    pub const L4: Self = Self(1 << 7);

    /// What `IBV_SEND_IP_CSUM` asks for.
    pub const L3_AND_L4: Self = Self(Self::L3.0 | Self::L4.0);

    /// Both sets of flags.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Offloads, segment size and the first bytes of the packet (mlx5dv.h `struct mlx5_wqe_eth_seg`).
///
/// The packet's header starts at [`inline_hdr_start`](Self::inline_hdr_start), runs on over
/// [`inline_hdr`](Self::inline_hdr) and, with TSO, into the following units.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_eth_seg")]
pub struct EthSegment {
    /// Must be 0.
    pub reserved_0: U32,
    /// Checksums.
    pub cs_flags: ChecksumFlags,
    /// Must be 0.
    pub reserved_5: u8,
    /// Payload bytes of each TSO packet; 0 without TSO.
    pub mss: U16,
    /// Must be 0 (metadata for steering on newer devices).
    pub reserved_8: U32,
    /// Length of the inline header.
    pub inline_hdr_sz: U16,
    /// First two bytes of it.
    pub inline_hdr_start: [u8; 2],
    /// Its next 16 bytes, if it is longer.
    pub inline_hdr: [u8; 16],
}

const _: () = {
    assert!(size_of::<EthSegment>() == 32);
    assert!(offset_of!(EthSegment, cs_flags) == 4);
    assert!(offset_of!(EthSegment, mss) == 6);
    assert!(offset_of!(EthSegment, inline_hdr_sz) == 12);
    assert!(offset_of!(EthSegment, inline_hdr_start) == 14);
    assert!(offset_of!(EthSegment, inline_hdr) == 16);
};

impl EthSegment {
    /// Where the inline header starts in the segment.
    pub const INLINE_HEADER_OFFSET: usize = offset_of!(Self, inline_hdr_start);
    /// Bytes of header that the 32 bytes hold.
    pub const INLINE_HEADER_MAX: usize = size_of::<Self>() - Self::INLINE_HEADER_OFFSET;
    /// Bytes of header that devices with L2 inline mode demand (rdma-core `MLX5_ETH_L2_INLINE_HEADER_SIZE`).
    pub const L2_HEADER: u16 = 18;

    /// A segment for a header of `inline_hdr_sz` bytes, which are not filled in.
    #[inline]
    pub const fn new(cs_flags: ChecksumFlags, mss: u16, inline_hdr_sz: u16) -> Self {
        Self {
            reserved_0: U32::ZERO,
            cs_flags,
            reserved_5: 0,
            mss: U16::new(mss),
            reserved_8: U32::ZERO,
            inline_hdr_sz: U16::new(inline_hdr_sz),
            inline_hdr_start: [0; 2],
            inline_hdr: [0; 16],
        }
    }
}

/// Sixteen bytes of zero between datagram and Ethernet segment on the queue of an IPoIB interface (rdma-core
/// `providers/mlx5/wqe.h`, `struct mlx5_wqe_eth_pad`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_eth_pad")]
pub struct EthPadSegment {
    /// Must be 0.
    pub reserved: [u8; 16],
}

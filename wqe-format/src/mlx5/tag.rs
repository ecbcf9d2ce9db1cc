//! Tag matching: changes of a list of tags, posted to a queue pair beside the shared receive queue.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A change of the list (mlx5dv.h `struct mlx5_wqe_tm_seg`): 32 bytes behind the control segment of TAG_MATCHING. A
/// [`DataSegment`](super::DataSegment) follows when a tag is appended.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_tm_seg")]
pub struct TagSegment {
    /// Operation (bits 7 to 4): 0 none, 1 append, 2 remove.
    pub opcode: u8,
    /// [`SW_CNT`](Self::SW_CNT), [`CQE_REQ`](Self::CQE_REQ).
    pub flags: u8,
    /// The tag's place in the list.
    pub index: U16,
    /// Must be 0.
    pub reserved_4: [u8; 2],
    /// Software's count of unexpected messages.
    pub sw_cnt: U16,
    /// Must be 0.
    pub reserved_8: [u8; 8],
    /// Tag.
    pub append_tag: U64,
    /// Bits of it that count.
    pub append_mask: U64,
}

const _: () = {
    assert!(size_of::<TagSegment>() == 32);
    assert!(offset_of!(TagSegment, index) == 2);
    assert!(offset_of!(TagSegment, sw_cnt) == 6);
    assert!(offset_of!(TagSegment, append_tag) == 16);
    assert!(offset_of!(TagSegment, append_mask) == 24);
};

impl TagSegment {
    /// Nothing, but for the flags (rdma-core `providers/mlx5/mlx5.h`, `MLX5_TM_OPCODE_*`, shifted by 4 in `srq.c`).
    pub const NOP: u8 = 0x00;
    /// A tag is added.
    pub const APPEND: u8 = 0x10;
    /// A tag is taken out.
    pub const REMOVE: u8 = 0x20;
    /// In [`flags`](Self::flags): [`sw_cnt`](Self::sw_cnt) is valid.
    pub const SW_CNT: u8 = 1 << 6;
    /// In [`flags`](Self::flags): make a completion.
    pub const CQE_REQ: u8 = 1 << 7;
}

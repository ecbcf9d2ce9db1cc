//! Layouts of memory keys: lists of buffers, and patterns that repeat.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One buffer of a key's layout (mlx5dv.h `struct mlx5_wqe_umr_klm_seg`): key, length, memory.
///
/// Padding entries are all 0, but for the key, which does not matter then.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_umr_klm_seg")]
pub struct KlmSegment {
    /// Length, up to 2 GiB.
    pub byte_count: U32,
    /// Key of the buffer.
    pub mkey: U32,
    /// Address in it.
    pub address: U64,
}

const _: () = {
    assert!(size_of::<KlmSegment>() == 16);
    assert!(offset_of!(KlmSegment, mkey) == 4);
    assert!(offset_of!(KlmSegment, address) == 8);
};

impl KlmSegment {
    /// A buffer.
    #[inline]
    pub const fn new(address: u64, byte_count: u32, mkey: u32) -> Self {
        Self {
            byte_count: U32::new(byte_count),
            mkey: U32::new(mkey),
            address: U64::new(address),
        }
    }
}

/// Head of a pattern that repeats (mlx5dv.h `struct mlx5_wqe_umr_repeat_block_seg`); [`RepeatEntrySegment`]s follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_umr_repeat_block_seg")]
pub struct RepeatBlockSegment {
    /// Bytes of one turn: the sum of the entries'.
    pub byte_count: U32,
    /// [`OP`](Self::OP).
    pub op: U32,
    /// Turns.
    pub repeat_count: U32,
    /// Must be 0.
    pub reserved: U16,
    /// Number of entries.
    pub num_ent: U16,
}

const _: () = {
    assert!(size_of::<RepeatBlockSegment>() == 16);
    assert!(offset_of!(RepeatBlockSegment, op) == 4);
    assert!(offset_of!(RepeatBlockSegment, repeat_count) == 8);
    assert!(offset_of!(RepeatBlockSegment, num_ent) == 14);
};

impl RepeatBlockSegment {
    /// The mark that tells a repeat block from a [`KlmSegment`]: it stands where that has its key (rdma-core
    /// `providers/mlx5/qp.c`).
    pub const OP: u32 = 0x400;

    /// A head.
    #[inline]
    pub const fn new(byte_count: u32, repeat_count: u32, num_ent: u16) -> Self {
        Self {
            byte_count: U32::new(byte_count),
            op: U32::new(Self::OP),
            repeat_count: U32::new(repeat_count),
            reserved: U16::ZERO,
            num_ent: U16::new(num_ent),
        }
    }
}

/// One buffer of a pattern (mlx5dv.h `struct mlx5_wqe_umr_repeat_ent_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_umr_repeat_ent_seg")]
pub struct RepeatEntrySegment {
    /// How far the next turn's bytes are.
    pub stride: U16,
    /// Bytes of each turn.
    pub byte_count: U16,
    /// Key.
    pub memkey: U32,
    /// Address of the first turn's bytes.
    pub va: U64,
}

const _: () = {
    assert!(size_of::<RepeatEntrySegment>() == 16);
    assert!(offset_of!(RepeatEntrySegment, byte_count) == 2);
    assert!(offset_of!(RepeatEntrySegment, memkey) == 4);
    assert!(offset_of!(RepeatEntrySegment, va) == 8);
};

impl RepeatEntrySegment {
    /// A buffer.
    #[inline]
    pub const fn new(va: u64, byte_count: u16, stride: u16, memkey: u32) -> Self {
        Self {
            stride: U16::new(stride),
            byte_count: U16::new(byte_count),
            memkey: U32::new(memkey),
            va: U64::new(va),
        }
    }
}

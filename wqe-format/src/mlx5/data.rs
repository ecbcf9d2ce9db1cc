//! Data segments: pointers to memory, or the bytes themselves.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The key of the entry that ends a scatter list (mlx5dv.h `MLX5_INVALID_LKEY`).
#[doc(alias = "MLX5_INVALID_LKEY")]
pub const INVALID_LKEY: u32 = 0x100;

/// The longest buffer that one data segment describes: 31 bits, because bit 31 marks inline data. A count of 0 means 2^31.
pub const MAX_BYTE_COUNT: u32 = 0x7fff_ffff;

/// A buffer (mlx5dv.h `struct mlx5_wqe_data_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_data_seg")]
pub struct DataSegment {
    /// Length; 0 means 2^31.
    pub byte_count: U32,
    /// Local key.
    pub lkey: U32,
    /// Address.
    pub addr: U64,
}

const _: () = {
    assert!(size_of::<DataSegment>() == 16);
    assert!(offset_of!(DataSegment, lkey) == 4);
    assert!(offset_of!(DataSegment, addr) == 8);
};

impl DataSegment {
    /// Ends a scatter list that is shorter than its slot.
    pub const TERMINATOR: Self = Self {
        byte_count: U32::ZERO,
        lkey: U32::new(INVALID_LKEY),
        addr: U64::ZERO,
    };

    /// A buffer. The caller skips those of length 0 and refuses those longer than [`MAX_BYTE_COUNT`]: here bit 31 is cut off,
    /// so that a pointer never reads as inline data.
    #[inline]
    pub const fn new(addr: u64, length: u32, lkey: u32) -> Self {
        Self {
            byte_count: U32::new(length & MAX_BYTE_COUNT),
            lkey: U32::new(lkey),
            addr: U64::new(addr),
        }
    }

    /// Whether this entry ends a scatter list.
    #[inline]
    pub const fn is_terminator(&self) -> bool {
        self.byte_count.get() == 0 && self.lkey.get() == INVALID_LKEY
    }

    /// Whether these bytes are in truth the header of inline data.
    #[inline]
    pub const fn is_inline(&self) -> bool {
        self.byte_count.get() & InlineHeader::MARK != 0
    }
}

/// The 4 bytes before inline data (mlx5dv.h `struct mlx5_wqe_inl_data_seg`). The segment is padded to 16 bytes.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "mlx5_wqe_inl_data_seg")]
pub struct InlineHeader {
    /// Set: data follow. Clear: this is a [`DataSegment`].
    pub inline: bool,
    /// Length of the data.
    #[bits(31)]
    pub byte_count: u32,
}

const _: () = assert!(size_of::<InlineHeader>() == 4);

impl InlineHeader {
    /// The mark of inline data (mlx5dv.h `MLX5_INLINE_SEG`).
    #[doc(alias = "MLX5_INLINE_SEG")]
    pub const MARK: u32 = 0x8000_0000;

    /// The header of `length` bytes.
    #[inline]
    pub const fn of_length(length: u32) -> Self {
        Self::from_bits(U32::new(length | Self::MARK))
    }

    /// Units of 16 bytes that header and `length` bytes of data take.
    #[inline]
    pub const fn units(length: u32) -> u32 {
        // 4 + length, rounded up; no overflow for any length.
        (length >> 4) + (((length & 15) + 4 + 15) >> 4)
    }
}

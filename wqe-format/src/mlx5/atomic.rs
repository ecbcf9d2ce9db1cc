//! Operands of atomic requests. They follow the remote address; a data segment for the old value follows them.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Operands of compare-and-swap and fetch-and-add of 8 bytes (mlx5dv.h `struct mlx5_wqe_atomic_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_atomic_seg")]
pub struct AtomicSegment {
    /// The new value, or what is added.
    pub swap_add: U64,
    /// What the old value is compared with; 0 for fetch-and-add.
    pub compare: U64,
}

const _: () = {
    assert!(size_of::<AtomicSegment>() == 16);
    assert!(offset_of!(AtomicSegment, compare) == 8);
};

impl AtomicSegment {
    /// Operands of compare-and-swap.
    #[inline]
    pub const fn compare_swap(compare: u64, swap: u64) -> Self {
        Self {
            swap_add: U64::new(swap),
            compare: U64::new(compare),
        }
    }

    /// The operand of fetch-and-add.
    #[inline]
    pub const fn fetch_add(add: u64) -> Self {
        Self::compare_swap(0, add)
    }
}

/// Operands of a masked compare-and-swap of 8 bytes (rdma-core `providers/mlx5/wqe.h`,
/// `struct mlx5_wqe_masked_atomic_seg`): 32 bytes, two units.
///
/// The bits of `compare_mask` are compared; if they agree, those of `swap_mask` are replaced. No rdma-core release sends
/// this; the layout agrees with UCX's, the effect is unproven on hardware.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_masked_atomic_seg")]
pub struct MaskedAtomic8Segment {
    /// The new value.
    pub swap: U64,
    /// What the old value is compared with.
    pub compare: U64,
    /// Bits that are replaced.
    pub swap_mask: U64,
    /// Bits that are compared.
    pub compare_mask: U64,
}

const _: () = {
    assert!(size_of::<MaskedAtomic8Segment>() == 32);
    assert!(offset_of!(MaskedAtomic8Segment, swap_mask) == 16);
    assert!(offset_of!(MaskedAtomic8Segment, compare_mask) == 24);
};

impl MaskedAtomic8Segment {
    /// Operands.
    #[inline]
    pub const fn new(compare: u64, compare_mask: u64, swap: u64, swap_mask: u64) -> Self {
        Self {
            swap: U64::new(swap),
            compare: U64::new(compare),
            swap_mask: U64::new(swap_mask),
            compare_mask: U64::new(compare_mask),
        }
    }
}

/// Operands of a masked fetch-and-add of 8 bytes (UCX `uct_ib_mlx5_masked_fadd64_seg`). Unproven on hardware.
///
/// A set bit of `field_boundary` is the most significant bit of a field: no carry leaves it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MaskedFetchAdd8Segment {
    /// What is added.
    pub add: U64,
    /// Most significant bits of the fields.
    pub field_boundary: U64,
}

const _: () = assert!(size_of::<MaskedFetchAdd8Segment>() == 16);

impl MaskedFetchAdd8Segment {
    /// Operands; `field_boundary` 0 is one field of 64 bits.
    #[inline]
    pub const fn new(add: u64, field_boundary: u64) -> Self {
        Self {
            add: U64::new(add),
            field_boundary: U64::new(field_boundary),
        }
    }
}

/// Operands of a masked compare-and-swap of 4 bytes (UCX `uct_ib_mlx5_masked_cswap32_seg`). Unproven on hardware.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MaskedAtomic4Segment {
    /// The new value.
    pub swap: U32,
    /// What the old value is compared with.
    pub compare: U32,
    /// Bits that are replaced.
    pub swap_mask: U32,
    /// Bits that are compared.
    pub compare_mask: U32,
}

const _: () = assert!(size_of::<MaskedAtomic4Segment>() == 16);

impl MaskedAtomic4Segment {
    /// Operands.
    #[inline]
    pub const fn new(compare: u32, compare_mask: u32, swap: u32, swap_mask: u32) -> Self {
        Self {
            swap: U32::new(swap),
            compare: U32::new(compare),
            swap_mask: U32::new(swap_mask),
            compare_mask: U32::new(compare_mask),
        }
    }
}

/// Operands of a masked fetch-and-add of 4 bytes (UCX `uct_ib_mlx5_masked_fadd32_seg`). Unproven on hardware.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MaskedFetchAdd4Segment {
    /// What is added.
    pub add: U32,
    /// Most significant bits of the fields.
    pub field_boundary: U32,
    /// Must be 0.
    pub reserved: [u8; 8],
}

const _: () = assert!(size_of::<MaskedFetchAdd4Segment>() == 16);

impl MaskedFetchAdd4Segment {
    /// Operands; `field_boundary` 0 is one field of 32 bits.
    #[inline]
    pub const fn new(add: u32, field_boundary: u32) -> Self {
        Self {
            add: U32::new(add),
            field_boundary: U32::new(field_boundary),
            reserved: [0; 8],
        }
    }
}

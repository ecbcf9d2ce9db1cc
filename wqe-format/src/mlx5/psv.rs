//! Segments of signatures and encryption; `protection` says what those of signatures mean.
//!
//! Layouts: rdma-core `providers/mlx5/wqe.h`.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sets a signature's state (`struct mlx5_wqe_set_psv_seg`): the only segment of SET_PSV, behind the control segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_set_psv_seg")]
pub struct SetPsvSegment {
    /// Which.
    pub psv_index: U32,
    /// Error, if any.
    pub syndrome: U16,
    /// Must be 0.
    pub reserved_6: [u8; 2],
    /// Signature so far: guard, tags (T10-DIF) or CRC.
    pub transient_signature: U64,
}

const _: () = {
    assert!(size_of::<SetPsvSegment>() == 16);
    assert!(offset_of!(SetPsvSegment, syndrome) == 4);
    assert!(offset_of!(SetPsvSegment, transient_signature) == 8);
};

/// One side's inline part of a byte stream format (`struct mlx5_bsf_inl`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_bsf_inl")]
pub struct BsfInline {
    /// Valid (bit 15), refresh (bit 14).
    pub vld_refresh: U16,
    /// Application tag.
    pub dif_apptag: U16,
    /// Reference tag.
    pub dif_reftag: U32,
    /// T10-DIF: 1 CRC, 2 IP checksum.
    pub sig_type: u8,
    /// Repeat (bit 7), seed (bit 3).
    pub rp_inv_seed: u8,
    /// Must be 0.
    pub reserved_10: [u8; 3],
    /// Increment the reference tag (bit 6); what is checked.
    pub dif_inc_ref_guard_check: u8,
    /// Bits of the application tag that are checked.
    pub dif_app_bitmask_check: U16,
}

impl BsfInline {
    /// All bytes 0: it says nothing.
    pub const ZERO: Self = Self {
        vld_refresh: U16::ZERO,
        dif_apptag: U16::ZERO,
        dif_reftag: U32::ZERO,
        sig_type: 0,
        rp_inv_seed: 0,
        reserved_10: [0; 3],
        dif_inc_ref_guard_check: 0,
        dif_app_bitmask_check: U16::ZERO,
    };
}

/// Byte stream format of a key (`struct mlx5_bsf`): it follows the layout in a UMR request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_bsf")]
pub struct BsfSegment {
    /// Size (bits 7 and 6), selector of the block size (bits 5 and 4).
    pub bsf_size_sbs: u8,
    /// Bytes of the signature that are checked.
    pub check_byte_mask: u8,
    /// Wire: bytes that are copied, or block selector.
    pub wire: u8,
    /// Memory: block selector.
    pub mem: u8,
    /// Length of the data without signatures.
    pub raw_data_size: U32,
    /// Wire: format (top byte) and signature.
    pub w_bfs_psv: U32,
    /// Memory: format (top byte) and signature.
    pub m_bfs_psv: U32,
    /// Length of what is generated or passed through.
    pub t_init_gen_pro_size: U32,
    /// Length of the epilogue.
    pub rsvd_epi_size: U32,
    /// Wire: transaction format and signature.
    pub w_tfs_psv: U32,
    /// Memory: transaction format and signature.
    pub m_tfs_psv: U32,
    /// Wire.
    pub w_inl: BsfInline,
    /// Memory.
    pub m_inl: BsfInline,
}

const _: () = {
    assert!(size_of::<BsfInline>() == 16);
    assert!(size_of::<BsfSegment>() == 64);
    assert!(offset_of!(BsfSegment, w_inl) == 32);
};

impl BsfSegment {
    /// The class of one with inline part.
    pub(super) const WITH_INLINE: u8 = 2;

    /// Size of the format in bits 7 and 6 of [`bsf_size_sbs`](Self::bsf_size_sbs): 0 basic (16 bytes), 1 extended (32),
    /// 2 with inline part (64), 3 signature and encryption.
    pub const fn size_class(&self) -> u8 {
        self.bsf_size_sbs >> 6
    }
}

/// Encryption of a key's data (`struct mlx5_crypto_bsf`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_crypto_bsf")]
pub struct CryptoBsfSegment {
    /// Size (bits 7 and 6) and type (1 encryption) of the format.
    pub bsf_size_type: u8,
    /// Which comes first, encryption or signature.
    pub enc_order: u8,
    /// Must be 0.
    pub reserved_2: u8,
    /// 0 AES-XTS.
    pub enc_standard: u8,
    /// Length of the data.
    pub raw_data_size: U32,
    /// Size of the blocks.
    pub bs_pointer: u8,
    /// Must be 0.
    pub reserved_9: [u8; 7],
    /// First tweak.
    pub xts_init_tweak: [u8; 16],
    /// Number of the key (low 24 bits).
    pub rsvd_dek_ptr: U32,
    /// Must be 0.
    pub reserved_36: [u8; 4],
    /// Tag of the key.
    pub keytag: [u8; 8],
    /// Must be 0.
    pub reserved_48: [u8; 16],
}

const _: () = assert!(size_of::<CryptoBsfSegment>() == 64);

//! User-mode memory registration: what a work request changes of a memory key.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How the key is changed (`flags` of [`UmrCtrlSegment`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct UmrFlags(pub u8);

impl UmrFlags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The window's queue pair must be this one (mlx5dv.h `MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN`).
    pub const CHECK_QPN: Self = Self(1 << 3);
    /// The translation starts at an offset (`MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET`).
    pub const TRANSLATION_OFFSET: Self = Self(1 << 4);
    /// Fail unless the key is free (`MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE`).
    pub const CHECK_FREE: Self = Self(1 << 5);
    /// Fail if the key is free. mlx5dv.h has no name for it; the kernel's is `MLX5_UMR_CHECK_NOT_FREE`
    /// (include/linux/mlx5/device.h).
    pub const CHECK_NOT_FREE: Self = Self(1 << 6);
    /// The layout follows in the request (`MLX5_WQE_UMR_CTRL_FLAG_INLINE`).
    pub const INLINE: Self = Self(1 << 7);

    /// Both sets of flags.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Which parts of the key change (mlx5dv.h `MLX5_WQE_UMR_CTRL_MKEY_MASK_*`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct MkeyMask(pub U64);

macro_rules! mkey_mask {
    ($($name:ident = $bit:literal, $text:literal, $doc:literal;)*) => {
        impl MkeyMask {
            $(#[doc = $doc] pub const $name: Self = Self(U64::new(1 << $bit));)*

            /// Every part with its name.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

mkey_mask! {
    LEN = 0, "len", "Length.";
    START_ADDR = 6, "start_addr", "Start address.";
    SIG_ERR = 9, "sig_err", "Signature error counter.";
    BSF_ENABLE = 12, "bsf_enable", "Whether there is a byte stream format.";
    MKEY = 13, "mkey", "Low byte of the key.";
    QPN = 14, "qpn", "Queue pair.";
    ACCESS_LOCAL_WRITE = 18, "access_local_write", "Local write.";
    ACCESS_REMOTE_READ = 19, "access_remote_read", "Remote read.";
    ACCESS_REMOTE_WRITE = 20, "access_remote_write", "Remote write.";
    ACCESS_ATOMIC = 21, "access_atomic", "Remote atomics.";
    FREE = 29, "free", "Whether the key is free.";
}

impl MkeyMask {
    /// Nothing.
    pub const NONE: Self = Self(U64::ZERO);

    /// All parts of both.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(U64::new(self.0.get() | other.0.get()))
    }

    /// Whether all parts of `other` are in it.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0.get() & other.0.get() == other.0.get()
    }
}

/// What follows, and which parts of the key change (mlx5dv.h `struct mlx5_wqe_umr_ctrl_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_umr_ctrl_seg")]
pub struct UmrCtrlSegment {
    /// How.
    pub flags: UmrFlags,
    /// Must be 0.
    pub reserved_1: [u8; 3],
    /// Length of the layout in units of 16 bytes, padded to a multiple of four.
    pub klm_octowords: U16,
    /// Length of the byte stream format in units of 16 bytes; or the translation's offset.
    #[doc(alias = "translation_offset")]
    pub bsf_octowords: U16,
    /// Which parts.
    pub mkey_mask: MkeyMask,
    /// Must be 0.
    pub reserved_16: [u8; 32],
}

const _: () = {
    assert!(size_of::<UmrCtrlSegment>() == 48);
    assert!(offset_of!(UmrCtrlSegment, klm_octowords) == 4);
    assert!(offset_of!(UmrCtrlSegment, bsf_octowords) == 6);
    assert!(offset_of!(UmrCtrlSegment, mkey_mask) == 8);
    assert!(offset_of!(UmrCtrlSegment, reserved_16) == 16);
};

impl UmrCtrlSegment {
    /// A change of `mask`, with a layout of `klm_octowords` units.
    #[inline]
    pub const fn new(flags: UmrFlags, klm_octowords: u16, mask: MkeyMask) -> Self {
        Self {
            flags,
            reserved_1: [0; 3],
            klm_octowords: U16::new(klm_octowords),
            bsf_octowords: U16::ZERO,
            mkey_mask: mask,
            reserved_16: [0; 32],
        }
    }
}

/// Access that a key grants (mlx5dv.h `MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct MkeyAccess(pub u8);

impl MkeyAccess {
    /// None.
    pub const NONE: Self = Self(0);
    /// Local read.
    pub const LOCAL_READ: Self = Self(1 << 2);
    /// Local write.
    pub const LOCAL_WRITE: Self = Self(1 << 3);
    /// Remote read.
    pub const REMOTE_READ: Self = Self(1 << 4);
    /// Remote write.
    pub const REMOTE_WRITE: Self = Self(1 << 5);
    /// Remote atomics.
    pub const ATOMIC: Self = Self(1 << 6);

    /// Both sets.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is granted.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Queue pair and variant byte of a key.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "qpn_mkey")]
pub struct QpnMkey {
    /// The queue pair that may use the key; 0xffffff for all.
    #[bits(24)]
    pub qpn: u32,
    /// Low byte of the key, which its user chooses.
    pub variant: u8,
}

impl QpnMkey {
    /// Any queue pair.
    pub const ANY_QP: u32 = 0xff_ffff;

    /// The word for `qpn` and the low byte of `key`.
    #[inline]
    pub const fn of(qpn: u32, key: u32) -> Self {
        Self::from_bits(U32::new(qpn << 8 | key & 0xff))
    }
}

/// The key's new state (mlx5dv.h `struct mlx5_wqe_mkey_context_seg`). Only the parts named in
/// [`UmrCtrlSegment::mkey_mask`] are read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_mkey_context_seg")]
pub struct MkeyContextSegment {
    /// [`FREE`](Self::FREE) or 0.
    pub free: u8,
    /// Must be 0.
    pub reserved_1: u8,
    /// Access.
    pub access_flags: MkeyAccess,
    /// Small fence on UMR and start of the key's use.
    pub sf: u8,
    /// Queue pair and variant.
    pub qpn_mkey: QpnMkey,
    /// Must be 0.
    pub reserved_8: U32,
    /// Flags (see [`BSF_ENABLE`](Self::BSF_ENABLE)) and protection domain.
    pub flags_pd: U32,
    /// Start address.
    pub start_addr: U64,
    /// Length.
    pub len: U64,
    /// Length of the byte stream format in units of 16 bytes.
    pub bsf_octword_size: U32,
    /// Must be 0.
    pub reserved_36: [U32; 4],
    /// Length of the translation in units of 16 bytes.
    pub translations_octword_size: U32,
    /// Must be 0.
    pub reserved_56: [u8; 3],
    /// Page size as a power of two.
    pub log_page_size: u8,
    /// Must be 0.
    pub reserved_60: U32,
}

const _: () = {
    assert!(size_of::<MkeyContextSegment>() == 64);
    assert!(offset_of!(MkeyContextSegment, access_flags) == 2);
    assert!(offset_of!(MkeyContextSegment, qpn_mkey) == 4);
    assert!(offset_of!(MkeyContextSegment, flags_pd) == 12);
    assert!(offset_of!(MkeyContextSegment, start_addr) == 16);
    assert!(offset_of!(MkeyContextSegment, len) == 24);
    assert!(offset_of!(MkeyContextSegment, bsf_octword_size) == 32);
    assert!(offset_of!(MkeyContextSegment, translations_octword_size) == 52);
    assert!(offset_of!(MkeyContextSegment, log_page_size) == 59);
};

impl MkeyContextSegment {
    /// The key is free: nobody can use it (mlx5dv.h `MLX5_WQE_MKEY_CONTEXT_FREE`).
    #[doc(alias = "MLX5_WQE_MKEY_CONTEXT_FREE")]
    pub const FREE: u8 = 1 << 6;
    /// In [`flags_pd`](Self::flags_pd): there is a byte stream format (rdma-core `providers/mlx5/wqe.h`,
    /// `MLX5_WQE_MKEY_CONTEXT_FLAGS_BSF_ENABLE`).
    pub const BSF_ENABLE: u32 = 1 << 30;
    /// In [`flags_pd`](Self::flags_pd): where the one-bit signature error counter stands
    /// (`MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_SHIFT`).
    pub const SIG_ERR_COUNT_SHIFT: u32 = 26;

    /// A free key; nothing else of it changes.
    pub const FREED: Self = {
        let mut it = Self::ZERO;
        it.free = Self::FREE;
        it
    };

    /// All bytes 0.
    pub const ZERO: Self = Self {
        free: 0,
        reserved_1: 0,
        access_flags: MkeyAccess::NONE,
        sf: 0,
        qpn_mkey: QpnMkey::from_bits(U32::ZERO),
        reserved_8: U32::ZERO,
        flags_pd: U32::ZERO,
        start_addr: U64::ZERO,
        len: U64::ZERO,
        bsf_octword_size: U32::ZERO,
        reserved_36: [U32::ZERO; 4],
        translations_octword_size: U32::ZERO,
        reserved_56: [0; 3],
        log_page_size: 0,
        reserved_60: U32::ZERO,
    };

    /// A key with access, owner, address and length.
    #[inline]
    pub const fn new(access: MkeyAccess, qpn: u32, key: u32, start_addr: u64, len: u64) -> Self {
        let mut it = Self::ZERO;
        it.access_flags = access;
        it.qpn_mkey = QpnMkey::of(qpn, key);
        it.start_addr = U64::new(start_addr);
        it.len = U64::new(len);
        it
    }
}

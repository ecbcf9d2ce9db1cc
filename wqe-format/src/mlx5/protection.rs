//! Signatures over blocks of a memory key's data: what they are in memory and on the wire, and how a work request says so.
//!
//! Numbers: rdma-core's `providers/mlx5/wqe.h` and public `infiniband/mlx5dv.h`, which explains the words.

use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::psv::{BsfInline, BsfSegment, SetPsvSegment};

/// Bytes of data that one signature is over (`enum mlx5dv_block_size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_block_size")]
pub enum BlockSize {
    /// 512.
    B512,
    /// 520.
    B520,
    /// 4048.
    B4048,
    /// 4096.
    B4096,
    /// 4160.
    B4160,
}

impl BlockSize {
    /// The device's number for it.
    pub const fn selector(self) -> u8 {
        match self {
            Self::B512 => 1,
            Self::B520 => 2,
            Self::B4096 => 3,
            Self::B4160 => 4,
            Self::B4048 => 6,
        }
    }
}

/// How a T10-DIF guard is computed (`enum mlx5dv_sig_t10dif_bg_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_sig_t10dif_bg_type")]
pub enum Guard {
    /// The CRC that T10 defines.
    Crc,
    /// The checksum of IP.
    Checksum,
}

/// Tags whose value of all ones says that the block is not to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// None.
    Never,
    /// The application tag (`MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE`).
    AppTag,
    /// Both the application and the reference tag (`MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE`).
    BothTags,
}

/// Polynomial of a CRC (`enum mlx5dv_sig_crc_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_sig_crc_type")]
pub enum CrcKind {
    /// CRC32.
    Crc32,
    /// CRC32C.
    Crc32c,
    /// CRC64 of XP10.
    Crc64Xp10,
}

/// A signature of 8 bytes behind each block, or of 4 with the shorter CRCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSignature {
    /// Guard, application tag and reference tag (`struct mlx5dv_sig_t10dif`).
    #[doc(alias = "mlx5dv_sig_t10dif")]
    T10Dif {
        /// How the guard is computed.
        guard: Guard,
        /// Whether the computation starts from all ones instead of zero.
        ones: bool,
        /// Application tag.
        app_tag: u16,
        /// Reference tag of the first block.
        ref_tag: u32,
        /// Whether the reference tag is one more in each next block.
        counts: bool,
        /// Which blocks are not checked.
        escape: Escape,
    },
    /// A CRC (`struct mlx5dv_sig_crc`).
    #[doc(alias = "mlx5dv_sig_crc")]
    Crc {
        /// Its polynomial.
        kind: CrcKind,
        /// Whether the computation starts from all ones instead of zero.
        ones: bool,
    },
}

/// The signatures of memory, or those of the wire (`struct mlx5dv_sig_block_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_sig_block_domain")]
pub struct SignatureDomain {
    /// What each is over.
    pub block: BlockSize,
    /// What it is.
    pub signature: BlockSignature,
}

impl SignatureDomain {
    /// What the state of the computation is before the first block, as [`SetPsvSegment`] has it.
    pub const fn transient(&self) -> u64 {
        match self.signature {
            BlockSignature::T10Dif {
                ones,
                app_tag,
                ref_tag,
                ..
            } => {
                let seed: u64 = if ones { 0xffff << 48 } else { 0 };
                seed | (app_tag as u64) << 32 | ref_tag as u64
            }
            BlockSignature::Crc { ones: false, .. } => 0,
            BlockSignature::Crc { kind, .. } => match kind {
                CrcKind::Crc64Xp10 => u64::MAX,
                CrcKind::Crc32 | CrcKind::Crc32c => (u32::MAX as u64) << 32,
            },
        }
    }

    /// Format of the stream, in the top byte: CRCs have it here, T10-DIF has [`BsfInline`].
    const fn format(&self) -> u32 {
        let BlockSignature::Crc { kind, ones } = self.signature else {
            return 0;
        };
        // `MLX5_BFS_*`: the polynomial; a computation for each block; it starts from zero.
        let base = match kind {
            CrcKind::Crc32 => 0x20,
            CrcKind::Crc32c => 0x40,
            CrcKind::Crc64Xp10 => 0x50,
        };
        (base | 0x2 | !ones as u32) << 24
    }

    /// The inline part, which says something of T10-DIF only.
    const fn inline(&self) -> BsfInline {
        let mut it = BsfInline::ZERO;
        let BlockSignature::T10Dif {
            guard,
            ones,
            app_tag,
            ref_tag,
            counts,
            escape,
        } = self.signature
        else {
            return it;
        };
        // `MLX5_BSF_INL_VALID`, `MLX5_BSF_REFRESH_DIF`
        it.vld_refresh = U16::new(1 << 15 | 1 << 14);
        it.dif_apptag = U16::new(app_tag);
        it.dif_reftag = U32::new(ref_tag);
        // `MLX5_T10DIF_CRC`, `MLX5_T10DIF_IPCS`
        it.sig_type = match guard {
            Guard::Crc => 1,
            Guard::Checksum => 2,
        };
        // `MLX5_BSF_REPEAT_BLOCK`, `MLX5_BSF_SEED`
        it.rp_inv_seed = 1 << 7 | (ones as u8) << 3;
        // `MLX5_BSF_INC_REFTAG`, `MLX5_BSF_APPTAG_ESCAPE`, `MLX5_BSF_APPREF_ESCAPE`
        it.dif_inc_ref_guard_check = (counts as u8) << 6
            | match escape {
                Escape::Never => 0,
                Escape::AppTag => 1,
                Escape::BothTags => 2,
            };
        it.dif_app_bitmask_check = U16::new(u16::MAX);
        it
    }

    /// Which bytes of the signatures are the same in this domain and in another with blocks alike (`MLX5DV_SIG_MASK_*`);
    /// `None` if the blocks are not alike.
    fn same_bytes(&self, other: &Self) -> Option<u8> {
        use BlockSignature::{Crc, T10Dif};
        if self.block != other.block {
            return None;
        }
        match (self.signature, other.signature) {
            (Crc { kind, .. }, Crc { kind: with, .. }) if kind == with => Some(match kind {
                CrcKind::Crc32 | CrcKind::Crc32c => 0xf0,
                CrcKind::Crc64Xp10 => 0xff,
            }),
            (
                T10Dif {
                    guard,
                    ones,
                    app_tag,
                    ref_tag,
                    ..
                },
                T10Dif {
                    guard: other_guard,
                    ones: other_ones,
                    app_tag: other_app_tag,
                    ref_tag: other_ref_tag,
                    ..
                },
            ) => {
                let if_so = |same: bool, bytes: u8| if same { bytes } else { 0 };
                Some(
                    if_so((guard, ones) == (other_guard, other_ones), 0xc0)
                        | if_so(app_tag == other_app_tag, 0x30)
                        | if_so(ref_tag == other_ref_tag, 0x0f),
                )
            }
            _ => None,
        }
    }
}

/// What is done about signatures when data go through a key (`struct mlx5dv_sig_block_attr`): where both domains have
/// some, they are checked and passed on or made anew; where one has, they are checked and taken out, or put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_sig_block_attr")]
pub struct SignatureRule {
    /// In memory.
    pub memory: Option<SignatureDomain>,
    /// On the wire.
    pub wire: Option<SignatureDomain>,
    /// Which bytes are checked, one bit each.
    pub check_mask: u8,
    /// Which bytes are passed on instead of made anew, if blocks are alike; without it those that are the same.
    pub copy_mask: Option<u8>,
}

impl BsfSegment {
    /// The format of a rule, whose states are `memory` and `wire`, with data of any length. `None` if bytes are to be passed
    /// on between blocks that are not alike.
    pub fn of(rule: &SignatureRule, memory: u32, wire: u32) -> Option<Self> {
        let with_state = |domain: &SignatureDomain, psv: u32| {
            U32::new(domain.format() | psv & SetPsvSegment::INDEX_MASK)
        };
        let mut it = Self {
            bsf_size_sbs: Self::WITH_INLINE << 6,
            raw_data_size: U32::MAX_VALUE,
            ..Self::default()
        };
        if rule.memory.is_some() || rule.wire.is_some() {
            it.check_byte_mask = rule.check_mask;
        }
        if let Some(domain) = &rule.memory {
            it.m_inl = domain.inline();
            it.m_bfs_psv = with_state(domain, memory);
            it.mem = domain.block.selector();
        }
        let Some(domain) = &rule.wire else {
            return Some(it);
        };
        it.w_inl = domain.inline();
        it.w_bfs_psv = with_state(domain, wire);
        let same = rule.memory.and_then(|memory| memory.same_bytes(domain));
        match (same, rule.copy_mask) {
            (Some(same), asked) => {
                // `MLX5_BSF_SBS_SHIFT`
                it.bsf_size_sbs |= 1 << 4;
                it.wire = asked.unwrap_or(same);
            }
            (None, None) => it.wire = domain.block.selector(),
            (None, Some(_)) => return None,
        }
        Some(it)
    }
}

impl SetPsvSegment {
    /// Bits that a state's number has.
    const INDEX_MASK: u32 = 0xff_ffff;

    /// Gives a state its first value.
    pub const fn new(psv_index: u32, transient_signature: u64) -> Self {
        Self {
            psv_index: U32::new(psv_index),
            syndrome: U16::ZERO,
            reserved_6: [0; 2],
            transient_signature: U64::new(transient_signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const T10DIF: SignatureDomain = SignatureDomain {
        block: BlockSize::B520,
        signature: BlockSignature::T10Dif {
            guard: Guard::Checksum,
            ones: true,
            app_tag: 0x0102,
            ref_tag: 0x0304_0506,
            counts: true,
            escape: Escape::BothTags,
        },
    };
    const CRC: SignatureDomain = SignatureDomain {
        block: BlockSize::B4096,
        signature: BlockSignature::Crc {
            kind: CrcKind::Crc32c,
            ones: false,
        },
    };

    /// Bytes by `struct mlx5_bsf` of `providers/mlx5/wqe.h`, with that header's numbers.
    #[test]
    fn formats_are_wqe_hs() {
        let rule = SignatureRule {
            memory: Some(T10DIF),
            wire: Some(CRC),
            check_mask: 0xc3,
            copy_mask: None,
        };
        let mut bytes = [0; 64];
        // With inline part; not the same blocks.
        bytes[..4].copy_from_slice(&[2 << 6, 0xc3, 3, 2]);
        bytes[4..8].fill(0xff);
        bytes[8..12].copy_from_slice(&[0x43, 0x0a, 0x0b, 0x0c]);
        bytes[12..16].copy_from_slice(&[0, 1, 2, 3]);
        bytes[48..60].copy_from_slice(&[0xc0, 0, 1, 2, 3, 4, 5, 6, 2, 0x88, 0, 0]);
        bytes[60..].copy_from_slice(&[0, 0x42, 0xff, 0xff]);
        let segment = BsfSegment::of(&rule, 0x01_0203, 0x0a_0b0c).unwrap();
        assert_eq!(segment.as_bytes(), bytes);
        let copies = SignatureRule {
            copy_mask: Some(1),
            ..rule
        };
        assert_eq!(BsfSegment::of(&copies, 1, 2), None);
    }

    /// Blocks alike: what is the same is passed on, or what was asked for.
    #[test]
    fn what_is_the_same_is_passed_on() {
        let mut wire = T10DIF;
        if let BlockSignature::T10Dif { ref_tag, .. } = &mut wire.signature {
            *ref_tag += 1;
        }
        let rule = |memory, wire, copy_mask| SignatureRule {
            memory: Some(memory),
            wire: Some(wire),
            check_mask: 0xff,
            copy_mask,
        };
        let passed = |rule| {
            let segment = BsfSegment::of(&rule, 1, 2).unwrap();
            (segment.bsf_size_sbs, segment.wire)
        };
        assert_eq!(passed(rule(T10DIF, wire, None)), (0x90, 0xf0));
        assert_eq!(passed(rule(T10DIF, T10DIF, None)), (0x90, 0xff));
        assert_eq!(passed(rule(CRC, CRC, None)), (0x90, 0xf0));
        assert_eq!(passed(rule(CRC, CRC, Some(0x11))), (0x90, 0x11));
        let other_block = SignatureDomain {
            block: BlockSize::B512,
            ..CRC
        };
        assert_eq!(passed(rule(CRC, other_block, None)), (0x80, 1));
    }

    #[test]
    fn states_begin_as_programs_say() {
        assert_eq!(T10DIF.transient(), 0xffff_0102_0304_0506);
        let seeded = |kind| SignatureDomain {
            block: BlockSize::B512,
            signature: BlockSignature::Crc { kind, ones: true },
        };
        assert_eq!(seeded(CrcKind::Crc32).transient(), 0xffff_ffff_0000_0000);
        assert_eq!(seeded(CrcKind::Crc64Xp10).transient(), u64::MAX);
        assert_eq!(CRC.transient(), 0);
        assert_eq!(
            SetPsvSegment::new(0x01_0203, 4).as_bytes(),
            [0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]
        );
    }
}

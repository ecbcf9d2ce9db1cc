//! What one signature is: computed, written down, compared.
//!
//! T10-DIF is 8 bytes of guard, application tag and reference tag (T10 SBC-3, 4.18); CRCs are those that
//! mlx5dv_wr_set_mkey_sig_block(3) names, of 4 bytes or 8. Fields are big-endian; that a card has CRCs in this order too is
//! unproven.

use crc::{CRC_16_T10_DIF, CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc};

use crate::wire::check;

static T10: Crc<u16> = Crc::<u16>::new(&CRC_16_T10_DIF);
static ISO: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
static XP10: Crc<u64> = Crc::<u64>::new(&CRC_64_NVME);

/// What signatures of a domain are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Guard and tags.
    Dif(Dif),
    /// The shorter CRC of Ethernet, or the one of iSCSI; all ones at the start, or zeros.
    Crc32 { iscsi: bool, ones: bool },
    /// The longer CRC.
    Crc64 { ones: bool },
}

/// How guard and tags are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dif {
    /// The check sum of IP instead of a CRC.
    pub(super) is_sum: bool,
    pub(super) ones: bool,
    pub(super) app_tag: u16,
    /// Of the first block.
    pub(super) ref_tag: u32,
    /// One more in each next block.
    pub(super) counts: bool,
    /// A block with an application tag of all ones is not looked at ..
    pub(super) app_escapes: bool,
    /// .. or only if its reference tag is all ones too.
    pub(super) both_escape: bool,
}

/// What was wrong with a signature, the first of its fields that was: its bit in the syndrome.
pub(super) mod wrong {
    pub(in super::super) const REF_TAG: u16 = 1 << 11;
    pub(in super::super) const APP_TAG: u16 = 1 << 12;
    pub(in super::super) const GUARD: u16 = 1 << 13;
}

impl Kind {
    /// Bytes of one.
    pub(super) fn len(&self) -> usize {
        match self {
            Kind::Crc32 { .. } => 4,
            Kind::Dif(_) | Kind::Crc64 { .. } => 8,
        }
    }

    /// The signature of a block, its bytes first.
    pub(super) fn of(&self, number: u64, block: &[u8]) -> [u8; 8] {
        let start = |ones: bool| if ones { u64::MAX } else { 0 };
        match self {
            Kind::Dif(dif) => {
                let start = start(dif.ones) as u16;
                let guard = if dif.is_sum {
                    !check::fold(check::add(block, start.into()))
                } else {
                    let mut digest = T10.digest_with_initial(start);
                    digest.update(block);
                    digest.finalize()
                };
                let counted = if dif.counts { number as u32 } else { 0 };
                let tag = dif.ref_tag.wrapping_add(counted);
                (u64::from(guard) << 48 | u64::from(dif.app_tag) << 32 | u64::from(tag))
                    .to_be_bytes()
            }
            Kind::Crc32 { iscsi, ones } => {
                let crc = if *iscsi { &CASTAGNOLI } else { &ISO };
                let mut digest = crc.digest_with_initial(start(*ones) as u32);
                digest.update(block);
                (u64::from(digest.finalize()) << 32).to_be_bytes()
            }
            Kind::Crc64 { ones } => {
                let mut digest = XP10.digest_with_initial(start(*ones));
                digest.update(block);
                digest.finalize().to_be_bytes()
            }
        }
    }

    /// Whether a block with this signature is not looked at.
    fn escapes(&self, found: [u8; 8]) -> bool {
        let Kind::Dif(dif) = self else {
            return false;
        };
        let app = found[2..4] == [0xff; 2];
        let reference = found[4..] == [0xff; 4];
        dif.app_escapes && app || dif.both_escape && app && reference
    }

    /// The first field that is not what it has to be (a bit of [`wrong`]); `mask` has a bit for each byte that counts, the
    /// highest for the first.
    pub(super) fn compare(&self, computed: [u8; 8], found: [u8; 8], mask: u8) -> Option<u16> {
        if self.escapes(found) {
            return None;
        }
        let differs = |from: usize, to: usize| {
            (from..to).any(|at| mask << at & 0x80 != 0 && computed[at] != found[at])
        };
        match self {
            Kind::Dif(_) if differs(0, 2) => Some(wrong::GUARD),
            Kind::Dif(_) if differs(2, 4) => Some(wrong::APP_TAG),
            Kind::Dif(_) if differs(4, 8) => Some(wrong::REF_TAG),
            Kind::Crc32 { .. } if differs(0, 4) => Some(wrong::GUARD),
            Kind::Crc64 { .. } if differs(0, 8) => Some(wrong::GUARD),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIF: Dif = Dif {
        is_sum: false,
        ones: false,
        app_tag: 0x0102,
        ref_tag: 0xffff_fffe,
        counts: true,
        app_escapes: false,
        both_escape: false,
    };

    /// Check values of the catalogue of parametrised CRC algorithms, for the bytes "123456789"; a block of zeros is RFC 3720's
    /// (B.4).
    #[test]
    fn sums_are_the_catalogue_s() {
        let check = |kind: Kind| u64::from_be_bytes(kind.of(0, b"123456789"));
        let crc32 = |iscsi| Kind::Crc32 { iscsi, ones: true };
        assert_eq!(check(crc32(false)) >> 32, 0xcbf4_3926);
        assert_eq!(check(crc32(true)) >> 32, 0xe306_9283);
        assert_eq!(check(Kind::Crc64 { ones: true }), 0xae8b_1486_0a79_9888);
        assert_eq!(check(Kind::Dif(DIF)) >> 48, 0xd0db);
        let zeros = crc32(true).of(0, &[0; 32]);
        assert_eq!(zeros[..4], [0x8a, 0x91, 0x36, 0xaa]);
        // RFC 1071 3: the sum of these is ddf2.
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        let summed = Kind::Dif(Dif {
            is_sum: true,
            ..DIF
        });
        assert_eq!(summed.of(0, &words)[..2], (!0xddf2_u16).to_be_bytes());
    }

    #[test]
    fn tags_count_and_fields_are_compared_by_their_bytes() {
        let kind = Kind::Dif(DIF);
        let third = kind.of(2, b"123456789");
        assert_eq!(third[2..], [1, 2, 0, 0, 0, 0]);
        let with = |at: usize| {
            let mut found = third;
            found[at] ^= 1;
            found
        };
        assert_eq!(kind.compare(third, third, 0xff), None);
        assert_eq!(kind.compare(third, with(1), 0xff), Some(wrong::GUARD));
        assert_eq!(kind.compare(third, with(1), 0xbf), None);
        assert_eq!(kind.compare(third, with(3), 0xff), Some(wrong::APP_TAG));
        assert_eq!(kind.compare(third, with(7), 0x01), Some(wrong::REF_TAG));
        assert_eq!(kind.compare(third, with(7), 0xfe), None);
        let escaping = Kind::Dif(Dif {
            app_escapes: true,
            ..DIF
        });
        let escaped = [0, 0, 0xff, 0xff, 9, 9, 9, 9];
        assert_eq!(escaping.compare(third, escaped, 0xff), None);
        assert_eq!(kind.compare(third, escaped, 0xff), Some(wrong::GUARD));
        let both = Kind::Dif(Dif {
            both_escape: true,
            ..DIF
        });
        assert_eq!(both.compare(third, escaped, 0xff), Some(wrong::GUARD));
        let escaped = [0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(both.compare(third, escaped, 0xff), None);
    }
}

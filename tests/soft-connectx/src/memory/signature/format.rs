//! How a key's data are laid out: in memory and on the wire, with signatures or without (rdma-core's `providers/mlx5/wqe.h`
//! `struct mlx5_bsf`).

use wqe_format::mlx5::{BsfInline, BsfSegment};

use super::kind::{Dif, Kind};

/// One side of a key's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    /// Bytes that one signature is over.
    pub(super) block: u64,
    pub(super) kind: Kind,
    /// The number of its state.
    state: u32,
}

/// The layout of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(super) memory: Option<Domain>,
    pub(super) wire: Option<Domain>,
    /// Bytes of signatures that are checked, a bit for each.
    pub(super) check: u8,
    /// Bytes that go from one side to the other as they are, where both have blocks of a kind.
    pub(super) copy: u8,
}

/// Size class of a format with inline parts (`MLX5_BSF_SIZE_WITH_INLINE`).
const WITH_INLINE: u8 = 2;
/// Both sides have blocks of one size (`MLX5_BSF_SBS_SHIFT`).
const SAME_BLOCKS: u8 = 1 << 4;

/// Bytes of a block, by the device's number (see [`BlockSize`](wqe_format::mlx5::BlockSize)).
fn block(selector: u8) -> Option<u64> {
    Some(match selector {
        1 => 512,
        2 => 520,
        3 => 4096,
        4 => 4160,
        6 => 4048,
        _ => return None,
    })
}

impl Domain {
    /// Of one side; `None` if it makes no sense.
    fn of(selector: u8, format: u32, inline: &BsfInline) -> Option<Domain> {
        let block = block(selector)?;
        let ones = format >> 24 & 1 == 0;
        let kind = match (format >> 24) as u8 & !1 {
            // `MLX5_BFS_CRC32_BASE`, `_CRC32C_BASE`, `_CRC64_XP10_BASE`, each for every block anew.
            0x22 => Kind::Crc32 { iscsi: false, ones },
            0x42 => Kind::Crc32 { iscsi: true, ones },
            0x52 => Kind::Crc64 { ones },
            0 => Kind::Dif(dif(inline)?),
            _ => return None,
        };
        Some(Domain {
            block,
            kind,
            state: format & 0xff_ffff,
        })
    }

    /// Where the signature of a block is.
    pub(super) fn signature(&self, number: u64) -> u64 {
        (number.saturating_mul(self.whole())).saturating_add(self.block)
    }

    /// Bytes of a block and its signature.
    pub(super) fn whole(&self) -> u64 {
        self.block + self.kind.len() as u64
    }
}

fn dif(inline: &BsfInline) -> Option<Dif> {
    const VALID: u16 = 1 << 15;
    let how = inline.dif_inc_ref_guard_check;
    let is_sum = match inline.sig_type {
        1 => false,
        2 => true,
        _ => return None,
    };
    (inline.vld_refresh.get() & VALID != 0).then_some(Dif {
        is_sum,
        ones: inline.rp_inv_seed & 1 << 3 != 0,
        app_tag: inline.dif_apptag.get(),
        ref_tag: inline.dif_reftag.get(),
        counts: how & 1 << 6 != 0,
        app_escapes: how & 1 != 0,
        both_escape: how & 2 != 0,
    })
}

impl Format {
    /// What a segment says; `None` if it makes no sense here.
    pub(crate) fn of(segment: &BsfSegment) -> Option<Format> {
        if segment.bsf_size_sbs >> 6 != WITH_INLINE {
            return None;
        }
        let is_same = segment.bsf_size_sbs & SAME_BLOCKS != 0;
        let (m, w) = (segment.m_bfs_psv.get(), segment.w_bfs_psv.get());
        let memory = match segment.mem {
            0 => None,
            selector => Some(Domain::of(selector, m, &segment.m_inl)?),
        };
        // Where blocks are the same, the byte says what is copied.
        let selector = if is_same { segment.mem } else { segment.wire };
        let wire = match selector {
            0 => None,
            selector => Some(Domain::of(selector, w, &segment.w_inl)?),
        };
        Some(Format {
            memory,
            wire,
            check: segment.check_byte_mask,
            copy: if is_same { segment.wire } else { 0 },
        })
    }

    /// The states that it uses.
    pub(crate) fn states(&self) -> impl Iterator<Item = u32> {
        [self.memory, self.wire]
            .into_iter()
            .flatten()
            .map(|it| it.state)
    }

    /// Whether signatures are passed on, at least in part.
    pub(super) fn passes_on(&self) -> bool {
        self.copy != 0
    }
}

/// Where a byte of the data is on a side with such signatures; the last address, where there is none.
pub(super) fn spread(data: u64, domain: Option<&Domain>) -> u64 {
    domain.map_or(data, |it| {
        data.saturating_add(data / it.block * (it.whole() - it.block))
    })
}

/// Bytes of data in front of a place on a side with such signatures.
pub(super) fn gathered(place: u64, domain: Option<&Domain>) -> u64 {
    domain.map_or(place, |it| {
        let (blocks, rest) = (place / it.whole(), place % it.whole());
        blocks * it.block + rest.min(it.block)
    })
}

//! Mini entries of compressed completions: 8 bytes for what differs from the title.
//!
//! Sources: Linux include/linux/mlx5/device.h (`struct mlx5_mini_cqe8`), DPDK `mlx5_prm.h` (same name, and the formats that
//! Linux does not use), UCX `ib_mlx5.h` (`uct_ib_mlx5_mini_cqe8_t`, requester). Unproven on hardware.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::cqe::{Cqe64, HeaderTypes, SopDropQpn, numbers};

/// Which fields a mini entry of a receive has (`mini_cqe_res_format` of the queue). Any number is a value.
///
/// A mini entry of a send request has one format only: see [`MiniCqe::send_wqe_counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MiniFormat(pub u8);

numbers! { MiniFormat:
    HASH = 0, "hash", "Hash of the headers (mlx5dv.h `MLX5DV_CQE_RES_FORMAT_HASH`).";
    CSUM = 1, "checksum", "Checksum of the payload (`MLX5DV_CQE_RES_FORMAT_CSUM`).";
    FTAG_STRIDX = 2, "flow tag and stride", "Flow tag and stride (DPDK `MLX5_CQE_RESP_FORMAT_FTAG_STRIDX`).";
    CSUM_STRIDX = 3, "checksum and stride", "Checksum and stride (`MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX`).";
    L34H_STRIDX = 4, "header types and stride", "Header types and stride (DPDK `MLX5_CQE_RESP_FORMAT_L34H_STRIDX`; to the \
        device this is number 0 of the extended formats).";
}

impl MiniFormat {
    /// The format for one bit of `enum mlx5dv_cqe_comp_res_format`, if it is one that mlx5dv knows.
    #[doc(alias = "mlx5dv_cqe_comp_res_format")]
    pub const fn from_mlx5dv(bit: u32) -> Option<Self> {
        match bit {
            1 => Some(Self::HASH),
            2 => Some(Self::CSUM),
            4 => Some(Self::CSUM_STRIDX),
            _ => None,
        }
    }

    /// Whether mini entries name their stride; without, requests are counted up from the title's.
    #[inline]
    pub const fn has_stride_index(self) -> bool {
        matches!(
            self,
            Self::FTAG_STRIDX | Self::CSUM_STRIDX | Self::L34H_STRIDX
        )
    }
}

/// One mini entry. What its bytes mean depends on the title and the queue's [`MiniFormat`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_mini_cqe8")]
pub struct MiniCqe {
    /// First half.
    pub info: [u8; 4],
    /// Second half: bytes, and with [`MiniFormat::FTAG_STRIDX`] the tag's high byte.
    pub byte_cnt: U32,
}

const _: () = assert!(size_of::<MiniCqe>() == 8);

impl MiniCqe {
    /// Of a receive, [`MiniFormat::HASH`].
    pub const fn hash(rx_hash_result: u32, byte_cnt: u32) -> Self {
        Self {
            info: rx_hash_result.to_be_bytes(),
            byte_cnt: U32::new(byte_cnt),
        }
    }

    /// Of a receive, [`MiniFormat::CSUM`] and [`MiniFormat::CSUM_STRIDX`] (without stride: 0).
    pub const fn checksum(check_sum: u16, stride_index: u16, byte_cnt: u32) -> Self {
        Self {
            info: halves(check_sum.to_be_bytes(), stride_index),
            byte_cnt: U32::new(byte_cnt),
        }
    }

    /// Of a receive, [`MiniFormat::FTAG_STRIDX`]: 24 bits of tag and of length.
    pub const fn flow_tag(tag: u32, stride_index: u16, byte_cnt: u32) -> Self {
        Self {
            info: halves((tag as u16).to_be_bytes(), stride_index),
            byte_cnt: U32::new((tag >> 16) << 24 | byte_cnt & 0xff_ffff),
        }
    }

    /// Of a receive, [`MiniFormat::L34H_STRIDX`]; `header_types` is laid out as [`Cqe64::l4_hdr_type_etc`].
    pub const fn header_types(header_types: u8, stride_index: u16, byte_cnt: u32) -> Self {
        Self {
            info: halves([header_types, 0], stride_index),
            byte_cnt: U32::new(byte_cnt),
        }
    }

    /// Of a send request.
    pub const fn send(wqe_counter: u16, opcode: u8, byte_cnt: u32) -> Self {
        let [high, low] = wqe_counter.to_be_bytes();
        Self {
            info: [high, low, opcode, 0],
            byte_cnt: U32::new(byte_cnt),
        }
    }

    /// First basic block of a send request.
    #[inline]
    pub const fn send_wqe_counter(&self) -> U16 {
        let [high, low, ..] = self.info;
        U16::from_bytes([high, low])
    }

    /// Opcode of a send request. Linux and UCX (which uses it) have it in byte 2; DPDK, which does not use it, declares byte 3.
    #[inline]
    pub const fn send_opcode(&self) -> u8 {
        let [_, _, opcode, _] = self.info;
        opcode
    }

    /// The stride of a receive, where the format has one.
    #[inline]
    pub const fn stride_index(&self) -> U16 {
        let [_, _, high, low] = self.info;
        U16::from_bytes([high, low])
    }

    /// Puts a receive's fields into a copy of the title. `wqe_counter` is not among them, unless the format has strides.
    #[inline]
    pub(super) const fn merge_responder(&self, format: MiniFormat, cqe: &mut Cqe64) {
        let [b0, b1, b2, b3] = self.info;
        cqe.byte_cnt = self.byte_cnt;
        match format {
            MiniFormat::HASH => cqe.rx_hash_result = U32::from_bytes([b0, b1, b2, b3]),
            MiniFormat::CSUM | MiniFormat::CSUM_STRIDX => {
                cqe.check_sum = U16::from_bytes([b0, b1]);
            }
            MiniFormat::FTAG_STRIDX => {
                let word = self.byte_cnt.get();
                cqe.byte_cnt = U32::new(word & 0xff_ffff);
                let sop = cqe.sop_drop_qpn.into_bits().get() & 0xff00_0000;
                cqe.sop_drop_qpn = SopDropQpn::from_bits(U32::new(
                    sop | word >> 24 << 16 | (b0 as u32) << 8 | b1 as u32,
                ));
            }
            MiniFormat::L34H_STRIDX => {
                cqe.l4_hdr_type_etc = HeaderTypes::from_bits(b0);
            }
            _ => {}
        }
        if format.has_stride_index() {
            cqe.wqe_counter = U16::from_bytes([b2, b3]);
        }
    }
}

const fn halves(first: [u8; 2], second: u16) -> [u8; 4] {
    let [b2, b3] = second.to_be_bytes();
    [first[0], first[1], b2, b3]
}

/// An entry of the queue that holds mini entries.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MiniArray(pub [MiniCqe; MiniArray::LEN]);

const _: () = assert!(size_of::<MiniArray>() == size_of::<Cqe64>());

impl MiniArray {
    /// Mini entries in an entry of a basic block. An enhanced block has one fewer: its last 8 bytes hold count and turn.
    pub const LEN: usize = 8;

    /// The `i`th, modulo [`LEN`](Self::LEN).
    #[inline]
    pub const fn get(&self, i: u32) -> MiniCqe {
        self.0[i as usize % Self::LEN]
    }
}

//! The address vector of datagrams and dynamically connected requests.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The destination's number, with the mark of the 48-byte form.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "dqp_dct")]
pub struct DqpDct {
    /// The vector has 48 bytes; without, it ends after 16 (mlx5dv.h `MLX5_EXTENDED_UD_AV`).
    pub extended: bool,
    /// Reserved.
    #[bits(7)]
    __: u8,
    /// Queue pair (UD) or target (DC).
    #[bits(24)]
    pub qpn: u32,
}

/// Rate and service level.
#[bitfield(u8, order = Msb)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "stat_rate_sl")]
pub struct StatRateSl {
    /// Static rate, in the device's numbers.
    #[bits(4)]
    pub stat_rate: u8,
    /// Service level. On Ethernet libmlx5 puts the 3 bits of the priority in bits 3 to 1.
    #[bits(4)]
    pub sl: u8,
}

/// Global route: whether there is one, source address and flow.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "grh_gid_fl")]
pub struct GrhGidFl {
    /// Reserved.
    __: bool,
    /// A global route header is sent (InfiniBand; not set on Ethernet, where there always is one).
    pub grh: bool,
    /// Reserved.
    #[bits(2)]
    __: u8,
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Flow label.
    #[bits(20)]
    pub flow_label: u32,
}

/// Address vector (mlx5dv.h `struct mlx5_wqe_av`, which is all of `struct mlx5_wqe_datagram_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_av")]
#[doc(alias = "mlx5_wqe_datagram_seg")]
pub struct DatagramSegment {
    /// Q_Key in the first 4 bytes (UD), or the DC access key.
    pub key: U64,
    /// Destination.
    pub dqp_dct: DqpDct,
    /// Rate and service level.
    pub stat_rate_sl: StatRateSl,
    /// Force loopback (bit 7) and source path bits (InfiniBand).
    pub fl_mlid: u8,
    /// Remote LID (InfiniBand), or UDP source port (RoCE v2).
    pub rlid: U16,
    /// Must be 0.
    pub reserved: [u8; 4],
    /// Remote MAC (RoCE).
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Global route.
    pub grh_gid_fl: GrhGidFl,
    /// Remote GID.
    pub rgid: [u8; 16],
}

const _: () = {
    assert!(size_of::<DatagramSegment>() == 48);
    assert!(offset_of!(DatagramSegment, dqp_dct) == 8);
    assert!(offset_of!(DatagramSegment, stat_rate_sl) == 12);
    assert!(offset_of!(DatagramSegment, fl_mlid) == 13);
    assert!(offset_of!(DatagramSegment, rlid) == 14);
    assert!(offset_of!(DatagramSegment, rmac) == 20);
    assert!(offset_of!(DatagramSegment, tclass) == 26);
    assert!(offset_of!(DatagramSegment, grh_gid_fl) == 28);
    assert!(offset_of!(DatagramSegment, rgid) == 32);
};

impl DatagramSegment {
    /// Bytes of a vector without [`extended`](DqpDct::extended), which ends before the [`reserved`](Self::reserved) ones.
    /// For devices that say so (mlx5_ifc.h `compact_address_vector`); libmlx5 writes none, UCX does on InfiniBand.
    pub const COMPACT: usize = 16;

    /// The vector, kept in an address handle, for one destination of a datagram.
    #[inline]
    pub const fn to_qp(mut self, qpn: u32, qkey: u32) -> Self {
        self.key = U64::new((qkey as u64) << 32);
        self.with_destination(qpn)
    }

    /// The vector for one target of a dynamically connected request.
    #[inline]
    pub const fn to_dct(mut self, dctn: u32, access_key: u64) -> Self {
        self.key = U64::new(access_key);
        self.with_destination(dctn)
    }

    #[inline]
    const fn with_destination(mut self, number: u32) -> Self {
        // The kernel's numbers have 24 bits; a datagram to 0xffffff is multicast.
        self.dqp_dct = DqpDct::from_bits(U32::new(number & 0xff_ffff | 0x8000_0000));
        self
    }

    /// The Q_Key, where [`key`](Self::key) is one.
    #[inline]
    pub const fn qkey(&self) -> u32 {
        (self.key.get() >> 32) as u32
    }
}

/// UDP source port of RoCE v2 for a flow label: the label's 20 bits folded into 14, in the dynamic range
/// (IBTA annex 17; libibverbs `ibv_flow_label_to_udp_sport`).
pub const fn udp_source_port(flow_label: u32) -> u16 {
    let label = flow_label & 0xf_ffff;
    (label & 0x3fff) as u16 ^ ((label & 0xf_c000) >> 14) as u16 | 0xc000
}

//! The control segment: the first 16 bytes of every send work request.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::opcode::Opcode;

/// First word: what to do, and where the request starts.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "opmod_idx_opcode")]
pub struct OpmodIdxOpcode {
    /// Opcode modifier.
    pub opmod: u8,
    /// Number of the request's first basic block, modulo 2^16 whatever the queue's size.
    pub index: u16,
    /// Opcode.
    pub opcode: u8,
}

/// Second word: whose request, and how long.
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "qpn_ds")]
pub struct QpnDs {
    /// Number of the queue pair or send queue.
    #[bits(24)]
    pub qpn: u32,
    /// Reserved.
    #[bits(2)]
    __: u8,
    /// Length in units of 16 bytes, this segment included.
    #[bits(6)]
    pub ds: u8,
}

/// Fence mode, completion mode, solicited event (`fm_ce_se`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
#[doc(alias = "fm_ce_se")]
pub struct CtrlFlags(pub u8);

impl CtrlFlags {
    /// Nothing asked for.
    pub const NONE: Self = Self(0);
    /// The receiver's completion is a solicited event.
    #[doc(alias = "MLX5_WQE_CTRL_SOLICITED")]
    pub const SOLICITED: Self = Self(0x02);
    /// Make a completion.
    #[doc(alias = "MLX5_WQE_CTRL_CQ_UPDATE")]
    pub const CQ_UPDATE: Self = Self(0x08);
    /// Wait for the memory-key work of earlier requests.
    #[doc(alias = "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE")]
    pub const SMALL_FENCE: Self = Self(0x20);
    /// Wait for earlier reads and atomics.
    #[doc(alias = "MLX5_WQE_CTRL_FENCE")]
    pub const FENCE: Self = Self(0x80);

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

    /// The fence mode, bits 7 to 5.
    #[inline]
    pub const fn fence_mode(self) -> u8 {
        self.0 >> 5
    }

    /// The completion mode, bits 3 and 2: 0 on error only, 1 on the first error, 2 always, 3 always with an event.
    #[inline]
    pub const fn completion_mode(self) -> u8 {
        self.0 >> 2 & 3
    }
}

/// The control segment (mlx5dv.h `struct mlx5_wqe_ctrl_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_wqe_ctrl_seg")]
pub struct CtrlSegment {
    /// What to do, and where the request starts.
    pub opmod_idx_opcode: OpmodIdxOpcode,
    /// Whose request, and how long.
    pub qpn_ds: QpnDs,
    /// See [`signature`](super::signature); 0 without.
    pub signature: u8,
    /// DCI stream channel, big-endian.
    pub dci_stream_channel_id: [u8; 2],
    /// Fences, completion, event.
    pub fm_ce_se: CtrlFlags,
    /// Immediate data as it goes on the wire, the key to invalidate, or the memory key of a UMR.
    pub imm: U32,
}

const _: () = {
    assert!(size_of::<CtrlSegment>() == 16);
    assert!(offset_of!(CtrlSegment, qpn_ds) == 4);
    assert!(offset_of!(CtrlSegment, signature) == 8);
    assert!(offset_of!(CtrlSegment, dci_stream_channel_id) == 9);
    assert!(offset_of!(CtrlSegment, fm_ce_se) == 11);
    assert!(offset_of!(CtrlSegment, imm) == 12);
};

impl CtrlSegment {
    /// The longest request, in units of 16 bytes: `ds` has 6 bits.
    pub const MAX_DS: u8 = 63;

    /// A segment without signature, stream and immediate data.
    ///
    /// `index` is the number of the first basic block; `ds` the length in units of 16 bytes. Bits that do not fit are cut off.
    #[inline]
    pub const fn new(opcode: Opcode, index: u16, qpn: u32, ds: u8, flags: CtrlFlags) -> Self {
        Self {
            opmod_idx_opcode: OpmodIdxOpcode::from_bits(U32::new(
                (index as u32) << 8 | opcode.0 as u32,
            )),
            qpn_ds: QpnDs::from_bits(U32::new(qpn << 8 | (ds & Self::MAX_DS) as u32)),
            signature: 0,
            dci_stream_channel_id: [0; 2],
            fm_ce_se: flags,
            imm: U32::ZERO,
        }
    }

    /// With an opcode modifier.
    #[inline]
    pub const fn with_opmod(mut self, opmod: u8) -> Self {
        let word = self.opmod_idx_opcode.into_bits().get();
        self.opmod_idx_opcode =
            OpmodIdxOpcode::from_bits(U32::new(word & 0xff_ffff | (opmod as u32) << 24));
        self
    }

    /// With immediate data, or a key as a number.
    ///
    /// libibverbs' `imm_data` is already in the order of the wire: it goes in by `U32::from_bytes(imm.to_ne_bytes())`.
    #[inline]
    pub const fn with_imm(mut self, imm: U32) -> Self {
        self.imm = imm;
        self
    }

    /// With a DCI stream channel.
    #[inline]
    pub const fn with_dci_stream(mut self, channel: u16) -> Self {
        self.dci_stream_channel_id = channel.to_be_bytes();
        self
    }

    /// With a signature, see [`signature::of_wqe`](super::signature::of_wqe).
    #[inline]
    pub const fn with_signature(mut self, signature: u8) -> Self {
        self.signature = signature;
        self
    }

    /// What to do.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.opmod_idx_opcode.into_bits().get() as u8)
    }

    /// The opcode modifier.
    #[inline]
    pub const fn opmod(&self) -> u8 {
        (self.opmod_idx_opcode.into_bits().get() >> 24) as u8
    }

    /// Number of the first basic block.
    #[inline]
    pub const fn index(&self) -> u16 {
        (self.opmod_idx_opcode.into_bits().get() >> 8) as u16
    }

    /// The queue's number.
    #[inline]
    pub const fn qpn(&self) -> u32 {
        self.qpn_ds.into_bits().get() >> 8
    }

    /// Length in units of 16 bytes.
    #[inline]
    pub const fn ds(&self) -> u8 {
        self.qpn_ds.into_bits().get() as u8 & Self::MAX_DS
    }

    /// The first 8 bytes as one word, to be stored as it is in a doorbell register: its bytes in memory are the segment's.
    #[inline]
    pub const fn doorbell(&self) -> u64 {
        let high = self.opmod_idx_opcode.into_bits().get() as u64;
        let low = self.qpn_ds.into_bits().get() as u64;
        (high << 32 | low).to_be()
    }
}

//! Completion queue entries.
//!
//! An entry has 64 bytes, or 128 of which the last 64 are these and the first 64 can hold scattered data.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::{ErrorCqe, SignatureErrorCqe, Syndrome};
use super::opcode::Opcode;

/// The last byte: what completed, how data are scattered, and whose the entry is.
#[bitfield(u8, order = Msb)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "op_own")]
pub struct OpOwn {
    /// See [`CqeOpcode`].
    #[bits(4)]
    pub raw_opcode: u8,
    /// See [`CqeFormat`].
    #[bits(2)]
    pub raw_format: u8,
    /// The sender asked for an event.
    pub solicited: bool,
    /// Changes with each turn around the queue.
    pub owner: bool,
}

impl OpOwn {
    /// What a fresh queue is filled with: invalid, owner 0.
    pub const INVALID: Self = Self::from_bits(0xf0);

    /// A value.
    #[inline]
    pub const fn of(opcode: CqeOpcode, format: CqeFormat, solicited: bool, owner: bool) -> Self {
        Self::from_bits(
            (opcode.0 & 0xf) << 4 | (format.0 & 3) << 2 | (solicited as u8) << 1 | owner as u8,
        )
    }

    /// What completed.
    #[inline]
    pub const fn opcode(self) -> CqeOpcode {
        CqeOpcode(self.into_bits() >> 4)
    }

    /// How data are scattered.
    #[inline]
    pub const fn format(self) -> CqeFormat {
        CqeFormat(self.into_bits() >> 2 & 3)
    }

    /// Whether software may read an entry at `consumer_index` of a queue of `2^log_size` entries: the owner bit is that of
    /// the turn, and the opcode is not that of a fresh queue.
    #[inline]
    pub const fn is_software_owned(self, consumer_index: u32, log_size: u32) -> bool {
        let turn = consumer_index >> (log_size & 31) & 1;
        self.into_bits() & 1 == turn as u8 && self.into_bits() & 0xf0 != 0xf0
    }
}

/// What an entry is about (mlx5dv.h `MLX5_CQE_*`). Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CqeOpcode(pub u8);

macro_rules! numbers {
    ($type:ident: $($name:ident = $value:literal, $text:literal, $doc:literal;)*) => {
        impl $type {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The name, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use numbers;

numbers! { CqeOpcode:
    REQ = 0, "REQ", "A send request; [`Cqe64::send_opcode`] says which.";
    RESP_WR_IMM = 1, "RESP_WR_IMM", "A receive, by a write with immediate data.";
    RESP_SEND = 2, "RESP_SEND", "A receive.";
    RESP_SEND_IMM = 3, "RESP_SEND_IMM", "A receive with immediate data.";
    RESP_SEND_INV = 4, "RESP_SEND_INV", "A receive that invalidated a key.";
    RESIZE_CQ = 5, "RESIZE_CQ", "The last entry before a resized queue.";
    NO_PACKET = 6, "NO_PACKET", "A tag operation without a packet.";
    SIG_ERR = 12, "SIG_ERR", "A signature error of a memory key.";
    REQ_ERR = 13, "REQ_ERR", "A send request failed, see [`ErrorCqe`].";
    RESP_ERR = 14, "RESP_ERR", "A receive failed, see [`ErrorCqe`].";
    INVALID = 15, "INVALID", "Not written yet.";
}

impl CqeOpcode {
    /// Whether the entry is about a receive, without error.
    #[inline]
    pub const fn is_responder(self) -> bool {
        1 <= self.0 && self.0 <= 4
    }

    /// Whether the entry is an [`ErrorCqe`].
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 == Self::REQ_ERR.0 || self.0 == Self::RESP_ERR.0
    }
}

/// Where an entry's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CqeFormat(pub u8);

numbers! { CqeFormat:
    NONE = 0, "none", "In the posted buffers.";
    INLINE_32 = 1, "inline 32", "In the entry's first 32 bytes (`MLX5_INLINE_SCATTER_32`).";
    INLINE_64 = 2, "inline 64", "In the 64 bytes before the entry (`MLX5_INLINE_SCATTER_64`).";
    COMPRESSED = 3, "compressed", "The entry starts a compressed block, see [`compressed`](super::compressed).";
}

/// Service level, global route and number of the sender (`flags_rqpn`).
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "flags_rqpn")]
pub struct FlagsRqpn {
    /// Reserved.
    #[bits(2)]
    __: u8,
    /// Not 0: a global route header came, and which (1 GRH or IPv6, 2 IPv4).
    #[bits(2)]
    pub grh: u8,
    /// Service level.
    #[bits(4)]
    pub sl: u8,
    /// The sender's queue pair.
    #[bits(24)]
    pub rqpn: u32,
}

/// What the device found about the headers of a raw packet (`hds_ip_ext`).
#[bitfield(u8, order = Msb)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "hds_ip_ext")]
pub struct HdsIpExt {
    /// Header and data were split.
    pub hds: bool,
    /// IP options, fragments and the like.
    #[bits(4)]
    pub ip_ext: u8,
    /// The TCP or UDP checksum is right.
    pub l4_ok: bool,
    /// The IP checksum is right.
    pub l3_ok: bool,
    /// The Ethernet header is right.
    pub l2_ok: bool,
}

/// Which headers a raw packet has (`l4_hdr_type_etc`).
#[bitfield(u8, order = Msb)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "l4_hdr_type_etc")]
pub struct HeaderTypes {
    /// Reserved.
    __: bool,
    /// 0 none, 1 TCP, 2 UDP, 3 TCP with an empty acknowledgment, 4 TCP with one (Linux include/linux/mlx5/device.h
    /// `CQE_L4_HDR_TYPE_*`).
    #[bits(3)]
    pub l4: u8,
    /// 0 none, 1 IPv6, 2 IPv4 (mlx5dv.h `MLX5_CQE_L3_HDR_TYPE_*`).
    #[bits(2)]
    pub l3: u8,
    /// Reserved here.
    __: bool,
    /// The device took a VLAN tag off.
    pub vlan_stripped: bool,
}

/// IPv6 in [`HeaderTypes::l3`].
pub const L3_IPV6: u8 = 1;
/// IPv4 in [`HeaderTypes::l3`].
pub const L3_IPV4: u8 = 2;

/// What the device was doing and with which queue (`sop_drop_qpn`).
#[bitfield(u32, order = Msb, repr = U32, from = U32::new, into = U32::get)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[doc(alias = "sop_drop_qpn")]
#[doc(alias = "s_wqe_opcode_qpn")]
pub struct SopDropQpn {
    /// Opcode of the send request; the number of dropped packets of a raw receive.
    pub sop: u8,
    /// The queue pair. A raw receive has its flow's tag here.
    #[bits(24)]
    pub qpn: u32,
}

/// An entry (mlx5dv.h `struct mlx5_cqe64`).
///
/// The first 32 bytes differ by kind: fields of a packet (named here), the state of a tag list
/// ([`tag_state`](Self::tag_state)), a tag header, or scattered data ([`inline_32`](Self::inline_32)).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "mlx5_cqe64")]
pub struct Cqe64 {
    /// Not defined.
    pub reserved_0: [u8; 2],
    /// Index of the request in a striding queue, when the queue works out of order.
    pub wqe_id: U16,
    /// Large-receive fields and others of the Ethernet driver.
    pub reserved_4: [u8; 8],
    /// Hash of a raw packet's headers.
    pub rx_hash_result: U32,
    /// What the hash is over.
    pub rx_hash_type: u8,
    /// Destination path bits (low 7) of InfiniBand.
    pub ml_path: u8,
    /// Not defined.
    pub reserved_18: [u8; 2],
    /// Checksum of a raw packet's payload.
    pub check_sum: U16,
    /// Source LID.
    pub slid: U16,
    /// Sender.
    pub flags_rqpn: FlagsRqpn,
    /// Headers that are right.
    pub hds_ip_ext: HdsIpExt,
    /// Headers that are there.
    pub l4_hdr_type_etc: HeaderTypes,
    /// VLAN tag that was taken off.
    pub vlan_info: U16,
    /// Version 1: the user's index of the queue that was posted to (low 24 bits). Version 0: number of the shared receive
    /// queue, or 0.
    pub srqn_uidx: U32,
    /// Immediate data as on the wire, the invalidated key, or the partition key's index in the low 16 bits.
    pub imm_inval_pkey: U32,
    /// Application (tag matching) number.
    pub app: u8,
    /// Application operation, see [`tag_operation`].
    pub app_op: u8,
    /// Application data: the tag's index.
    pub app_info: U16,
    /// Bytes.
    pub byte_cnt: U32,
    /// When it completed: the device's clock, or seconds and nanoseconds where the queue has real-time stamps.
    pub timestamp: U64,
    /// Operation and queue pair.
    pub sop_drop_qpn: SopDropQpn,
    /// The request: its first basic block (send), its slot (receive), the stride (striding queue).
    pub wqe_counter: U16,
    /// Check sum, where the queue has them; turn in the low bits with enhanced compression.
    #[doc(alias = "validity_iteration_count")]
    pub signature: u8,
    /// Kind and owner.
    pub op_own: OpOwn,
}

const _: () = {
    assert!(size_of::<Cqe64>() == 64);
    assert!(offset_of!(Cqe64, wqe_id) == 2);
    assert!(offset_of!(Cqe64, rx_hash_result) == 12);
    assert!(offset_of!(Cqe64, ml_path) == 17);
    assert!(offset_of!(Cqe64, check_sum) == 20);
    assert!(offset_of!(Cqe64, slid) == 22);
    assert!(offset_of!(Cqe64, flags_rqpn) == 24);
    assert!(offset_of!(Cqe64, hds_ip_ext) == 28);
    assert!(offset_of!(Cqe64, vlan_info) == 30);
    assert!(offset_of!(Cqe64, srqn_uidx) == 32);
    assert!(offset_of!(Cqe64, imm_inval_pkey) == 36);
    assert!(offset_of!(Cqe64, app) == 40);
    assert!(offset_of!(Cqe64, app_info) == 42);
    assert!(offset_of!(Cqe64, byte_cnt) == 44);
    assert!(offset_of!(Cqe64, timestamp) == 48);
    assert!(offset_of!(Cqe64, sop_drop_qpn) == 56);
    assert!(offset_of!(Cqe64, wqe_counter) == 60);
    assert!(offset_of!(Cqe64, signature) == 62);
    assert!(offset_of!(Cqe64, op_own) == 63);
};

impl Cqe64 {
    /// Offset of [`op_own`](Self::op_own), which is read first.
    pub const OP_OWN_OFFSET: usize = offset_of!(Self, op_own);
    /// Low bits of [`srqn_uidx`](Self::srqn_uidx) that are the index or number.
    pub const USER_INDEX_MASK: u32 = 0xff_ffff;

    /// What completed.
    #[inline]
    pub const fn opcode(&self) -> CqeOpcode {
        self.op_own.opcode()
    }

    /// Where the data are.
    #[inline]
    pub const fn format(&self) -> CqeFormat {
        self.op_own.format()
    }

    /// The user's index (version 1).
    #[inline]
    pub const fn user_index(&self) -> u32 {
        self.srqn_uidx.get() & Self::USER_INDEX_MASK
    }

    /// The queue pair's number.
    #[inline]
    pub const fn qpn(&self) -> u32 {
        self.sop_drop_qpn.into_bits().get() & 0xff_ffff
    }

    /// The send request's opcode.
    #[inline]
    pub const fn send_opcode(&self) -> Opcode {
        Opcode((self.sop_drop_qpn.into_bits().get() >> 24) as u8)
    }

    /// A raw packet's flow tag: all 24 bits.
    #[inline]
    pub const fn flow_tag(&self) -> u32 {
        self.qpn()
    }

    /// The sender's queue pair.
    #[inline]
    pub const fn src_qp(&self) -> u32 {
        self.flags_rqpn.into_bits().get() & 0xff_ffff
    }

    /// Service level.
    #[inline]
    pub const fn sl(&self) -> u8 {
        (self.flags_rqpn.into_bits().get() >> 24) as u8 & 0xf
    }

    /// Whether a global route header came.
    #[inline]
    pub const fn has_grh(&self) -> bool {
        self.flags_rqpn.into_bits().get() >> 28 & 3 != 0
    }

    /// Destination path bits.
    #[inline]
    pub const fn dlid_path_bits(&self) -> u8 {
        self.ml_path & 0x7f
    }

    /// Index of the partition key.
    #[inline]
    pub const fn pkey_index(&self) -> u16 {
        self.imm_inval_pkey.get() as u16
    }

    /// Whether both checksums of an IPv4 packet are right: what `IBV_WC_IP_CSUM_OK` says.
    #[inline]
    pub const fn is_ip_checksum_ok(&self) -> bool {
        self.hds_ip_ext.into_bits() & 6 == 6 && self.l4_hdr_type_etc.into_bits() >> 2 & 3 == L3_IPV4
    }

    /// The error that the entry reports, if it does.
    #[inline]
    pub fn error(&self) -> Option<ErrorCqe> {
        self.opcode().is_error().then(|| self.as_error())
    }

    /// The entry read as an error.
    #[inline]
    pub fn as_error(&self) -> ErrorCqe {
        zerocopy::transmute!(*self)
    }

    /// The entry read as an error of a key's signature.
    #[inline]
    pub fn as_signature_error(&self) -> SignatureErrorCqe {
        zerocopy::transmute!(*self)
    }

    /// Status that libibverbs gives the completion (`enum ibv_wc_status`); `None` for kinds that make no work completion.
    pub fn wc_status(&self) -> Option<u32> {
        match self.opcode() {
            CqeOpcode::RESIZE_CQ | CqeOpcode::SIG_ERR | CqeOpcode::INVALID => None,
            opcode if opcode.is_error() => Some(self.as_error().syndrome.wc_status()),
            CqeOpcode(0..=6) => Some(Syndrome::WC_SUCCESS),
            _ => None,
        }
    }

    /// The entry's first 32 bytes: data that were scattered into it.
    #[inline]
    pub fn inline_32(&self) -> [u8; 32] {
        let bytes: [u8; 64] = zerocopy::transmute!(*self);
        let mut data = [0; 32];
        data.copy_from_slice(&bytes[..32]);
        data
    }

    /// The state of a tag list, of kinds that have it.
    pub fn tag_state(&self) -> TagState {
        let bytes: [[u8; 12]; 1] = [{
            let all: [u8; 64] = zerocopy::transmute!(*self);
            let mut first = [0; 12];
            first.copy_from_slice(&all[..12]);
            first
        }];
        TagState {
            success: bytes[0][0] & 0x80 != 0,
            hw_phase_cnt: u16::from_be_bytes([bytes[0][4], bytes[0][5]]),
        }
    }
}

/// An entry of a queue with entries of 128 bytes.
///
/// What is read is [`cqe`](Self::cqe), in the second half; compressed blocks stand there too. The first half holds data with
/// [`CqeFormat::INLINE_64`], and a raw packet's route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe128 {
    /// Scattered data.
    pub data: [u8; 64],
    /// The entry.
    pub cqe: Cqe64,
}

const _: () = {
    assert!(size_of::<Cqe128>() == 128);
    assert!(offset_of!(Cqe128, cqe) == 64);
};

impl Cqe128 {
    /// Data that were scattered into the entry, as far as its format has room for them: the first 32 bytes of
    /// [`cqe`](Self::cqe), or [`data`](Self::data).
    ///
    /// libmlx5 before release 64 reads them from the wrong place when a send request brought them: 32 bytes from the
    /// entry's start, 64 from one byte in front of it.
    pub fn inline(&self) -> Option<&[u8]> {
        match self.cqe.format() {
            CqeFormat::INLINE_32 => self.cqe.as_bytes().get(..32),
            CqeFormat::INLINE_64 => Some(&self.data),
            _ => None,
        }
    }
}

/// State of a tag list in a completion (mlx5dv.h `struct mlx5_tm_cqe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5_tm_cqe")]
pub struct TagState {
    /// The operation succeeded (`MLX5_TMC_SUCCESS`).
    pub success: bool,
    /// The device's count of changes.
    pub hw_phase_cnt: u16,
}

/// Operations in [`Cqe64::app_op`] of tag matching (rdma-core `providers/mlx5/cq.c`).
#[allow(missing_docs, reason = "the field's names")]
pub mod tag_operation {
    pub const CONSUMED: u8 = 0x1;
    pub const EXPECTED: u8 = 0x2;
    pub const UNEXPECTED: u8 = 0x3;
    pub const NO_TAG: u8 = 0x4;
    pub const APPEND: u8 = 0x5;
    pub const REMOVE: u8 = 0x6;
    pub const NOOP: u8 = 0x7;
    pub const CONSUMED_SW_RNDV: u8 = 0x9;
    pub const CONSUMED_MSG: u8 = 0xa;
    pub const CONSUMED_MSG_SW_RNDV: u8 = 0xb;
    pub const MSG_COMPLETION_CANCELED: u8 = 0xc;
}

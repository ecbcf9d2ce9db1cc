//! The bytes of completions.

use wqe_format::mlx5::{
    Cqe64, CqeFormat, CqeOpcode, ErrorCqe, FlagsRqpn, HdsIpExt, HeaderTypes, OpOwn, Opcode,
    SignatureErrorCqe, SopDropQpn, Syndrome, tag_operation,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// `vendor_err_synd` of flushed requests, as ConnectX cards have it.
const FLUSHED: u8 = 0xf9;

/// A completion; the owner bit is set when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cqe {
    pub(crate) bytes: [u8; 64],
    /// What goes in front of it in an entry of 128 bytes.
    pub(crate) data: Option<[u8; 64]>,
    /// Whether it is one that a wait for solicited completions ends with.
    pub(crate) solicited: bool,
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) qpn: u32,
    /// What the user knows the queue by: of the queue pair, or of the XRC SRQ.
    pub(crate) user_index: u32,
    pub(crate) counter: u16,
}

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Send,
    SendImm(u32),
    SendInv(u32),
    WriteImm(u32),
}

/// What a completion says of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    /// See [`tag_operation`].
    pub(crate) operation: u8,
    /// The tag's place in the list.
    pub(crate) index: u16,
    /// The header of a message that met one.
    pub(crate) header: Option<[u8; 16]>,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) qpn: u32,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    /// Low bits of the destination LID.
    pub(crate) path: u8,
    /// The partition key that the packet had; the kernel's general service queue pair looks for it.
    pub(crate) pkey: u16,
    /// 0 none, 1 a global route header, 2 IPv4, 3 IPv6 (mlx5_ib `mlx5_cqe_is_ipv6`: `flags_rqpn` bits 28 and 29).
    pub(crate) grh: u8,
}

/// What the device found in a raw packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawPacket {
    /// Of the flow that it belongs to.
    pub(crate) flow_tag: u32,
    pub(crate) hash: u32,
    /// What the hash is over.
    pub(crate) hash_kind: u8,
    /// The ones' complement sum of its IP packet.
    pub(crate) sum: u16,
    /// Kinds of its headers.
    pub(crate) l3: u8,
    pub(crate) l4: u8,
    pub(crate) l3_ok: bool,
    pub(crate) l4_ok: bool,
    /// The tag that was taken off.
    pub(crate) vlan: Option<u16>,
}

/// Strides of a request that a packet took, or that were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strode {
    pub(crate) first: u16,
    pub(crate) count: u16,
    /// No packet is in them.
    pub(crate) filler: bool,
}

/// A signature of a key's data was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) key: u32,
    pub(crate) syndrome: u16,
    /// 0 on the wire, 1 in memory.
    pub(crate) domain: u8,
    /// What was found behind the block ..
    pub(crate) expected: u64,
    /// .. and what its data say.
    pub(crate) actual: u64,
    /// Bytes of data before the block.
    pub(crate) offset: u64,
}

fn success(owner: Owner, opcode: CqeOpcode, byte_count: u32, timestamp: u64) -> Cqe64 {
    Cqe64 {
        srqn_uidx: U32::new(owner.user_index & Cqe64::USER_INDEX_MASK),
        byte_cnt: U32::new(byte_count),
        timestamp: U64::new(timestamp),
        sop_drop_qpn: SopDropQpn::from_bits(U32::new(owner.qpn)),
        wqe_counter: U16::new(owner.counter),
        op_own: OpOwn::of(opcode, CqeFormat::NONE, false, false),
        ..Cqe64::default()
    }
}

fn finish(cqe: Cqe64, solicited: bool) -> Cqe {
    Cqe {
        bytes: zerocopy::transmute!(cqe),
        data: None,
        solicited,
    }
}

impl Cqe {
    /// A signature was wrong: no request is done by that.
    pub(crate) fn mistaken(mistake: &Mistake) -> Cqe {
        let halves = |value: u64| (U32::new((value >> 32) as u32), U32::new(value as u32));
        let (expected_trans_sig, expected_ref_tag) = halves(mistake.expected);
        let (actual_trans_sig, actual_ref_tag) = halves(mistake.actual);
        let cqe = SignatureErrorCqe {
            expected_trans_sig,
            actual_trans_sig,
            expected_ref_tag,
            actual_ref_tag,
            syndrome: U16::new(mistake.syndrome),
            domain: mistake.domain,
            mkey: U32::new(mistake.key),
            err_offset: U64::new(mistake.offset),
            op_own: OpOwn::of(CqeOpcode::SIG_ERR, CqeFormat::NONE, false, false),
            ..SignatureErrorCqe::default()
        };
        Cqe {
            bytes: zerocopy::transmute!(cqe),
            data: None,
            solicited: false,
        }
    }

    /// A send request is done; `byte_count` is what came back.
    pub(crate) fn sent(owner: Owner, opcode: Opcode, byte_count: u32, timestamp: u64) -> Cqe {
        let mut cqe = success(owner, CqeOpcode::REQ, byte_count, timestamp);
        let word = u32::from(opcode.0) << 24 | owner.qpn;
        cqe.sop_drop_qpn = SopDropQpn::from_bits(U32::new(word));
        finish(cqe, false)
    }

    /// A message came in.
    pub(crate) fn received(
        owner: Owner,
        what: Received,
        byte_count: u32,
        source: Option<Source>,
        timestamp: u64,
    ) -> Cqe {
        let (opcode, word) = match what {
            Received::Send => {
                let pkey = source.map_or(0, |source| source.pkey);
                (CqeOpcode::RESP_SEND, pkey.into())
            }
            Received::SendImm(imm) => (CqeOpcode::RESP_SEND_IMM, imm),
            Received::SendInv(key) => (CqeOpcode::RESP_SEND_INV, key),
            Received::WriteImm(imm) => (CqeOpcode::RESP_WR_IMM, imm),
        };
        let mut cqe = success(owner, opcode, byte_count, timestamp);
        cqe.imm_inval_pkey = U32::new(word);
        if let Some(source) = source {
            let flags = u32::from(source.grh & 3) << 28
                | u32::from(source.sl & 0xf) << 24
                | source.qpn & 0xff_ffff;
            cqe.flags_rqpn = FlagsRqpn::from_bits(U32::new(flags));
            cqe.slid = U16::new(source.slid);
            cqe.ml_path = source.path & 0x7f;
        }
        finish(cqe, false)
    }

    /// A raw packet came in.
    pub(crate) fn raw(owner: Owner, byte_count: u32, packet: &RawPacket, timestamp: u64) -> Cqe {
        let mut cqe = success(owner, CqeOpcode::RESP_SEND, byte_count, timestamp);
        let tag = packet.flow_tag & 0xff_ffff;
        cqe.sop_drop_qpn = SopDropQpn::from_bits(U32::new(tag));
        cqe.rx_hash_result = U32::new(packet.hash);
        cqe.rx_hash_type = packet.hash_kind;
        cqe.check_sum = U16::new(packet.sum);
        cqe.hds_ip_ext = HdsIpExt::new()
            .with_l2_ok(true)
            .with_l3_ok(packet.l3_ok)
            .with_l4_ok(packet.l4_ok);
        cqe.l4_hdr_type_etc = HeaderTypes::new()
            .with_l3(packet.l3)
            .with_l4(packet.l4)
            .with_vlan_stripped(packet.vlan.is_some());
        cqe.vlan_info = U16::new(packet.vlan.unwrap_or(0));
        finish(cqe, false)
    }

    /// Says which strides of which request it is about. The count of strides stands above that of bytes.
    pub(crate) fn strode(mut self, request: u16, strode: Strode) -> Cqe {
        let count = u16::from(strode.filler) << 15 | strode.count & 0x7fff;
        self.bytes[2..4].copy_from_slice(&request.to_be_bytes());
        self.bytes[44..46].copy_from_slice(&count.to_be_bytes());
        self.bytes[60..62].copy_from_slice(&strode.first.to_be_bytes());
        self
    }

    /// A request failed: of the send queue with its opcode, or of the receive queue.
    pub(crate) fn failed(owner: Owner, sent: Option<Opcode>, syndrome: Syndrome) -> Cqe {
        let opcode = match sent {
            Some(_) => CqeOpcode::REQ_ERR,
            None => CqeOpcode::RESP_ERR,
        };
        let word = u32::from(sent.map_or(0, |opcode| opcode.0)) << 24 | owner.qpn;
        let cqe = ErrorCqe {
            srqn_uidx: U32::new(owner.user_index & Cqe64::USER_INDEX_MASK),
            vendor_err_synd: if syndrome == Syndrome::WR_FLUSH_ERR {
                FLUSHED
            } else {
                0
            },
            syndrome,
            s_wqe_opcode_qpn: SopDropQpn::from_bits(U32::new(word)),
            wqe_counter: U16::new(owner.counter),
            op_own: OpOwn::of(opcode, CqeFormat::NONE, false, false),
            ..ErrorCqe::default()
        };
        Cqe {
            bytes: zerocopy::transmute!(cqe),
            data: None,
            solicited: true,
        }
    }

    /// A list of tags was changed, or could not be; `phase` is the device's.
    pub(crate) fn changed(
        owner: Owner,
        operation: u8,
        success: bool,
        phase: u16,
        timestamp: u64,
    ) -> Cqe {
        let cqe = self::success(owner, CqeOpcode::NO_PACKET, 0, timestamp);
        let mut cqe = finish(cqe, false).tagged(&Tagged {
            operation,
            index: 0,
            header: None,
        });
        // mlx5dv.h `struct mlx5_tm_cqe`: the mark of success, 31 bits, the phase.
        cqe.bytes[0] = u8::from(success) << 7;
        cqe.bytes[4..6].copy_from_slice(&phase.to_be_bytes());
        cqe
    }

    /// Adds what it says of tags.
    pub(crate) fn tagged(mut self, tagged: &Tagged) -> Cqe {
        // `app`, of tag matching; `app_op`, `app_info`.
        self.bytes[40] = 1;
        self.bytes[41] = tagged.operation;
        self.bytes[42..44].copy_from_slice(&tagged.index.to_be_bytes());
        if let Some(header) = tagged.header {
            self.bytes[..16].copy_from_slice(&header);
        }
        // That a tag was met and its data are still to come has no packet of its own (rdma-core providers/mlx5/cq.c knows
        // the operation of such entries only).
        if tagged.operation == tag_operation::CONSUMED {
            self.bytes[63] = self.bytes[63] & 0xf | CqeOpcode::NO_PACKET.0 << 4;
        }
        self
    }

    /// The last entry of a queue whose entries go elsewhere from now on.
    pub(crate) fn resized() -> Cqe {
        let cqe = Cqe64 {
            op_own: OpOwn::of(CqeOpcode::RESIZE_CQ, CqeFormat::NONE, false, false),
            ..Cqe64::default()
        };
        finish(cqe, false)
    }

    /// Sets the solicited mark.
    pub(crate) fn solicited(mut self, solicited: bool) -> Cqe {
        self.solicited |= solicited;
        self.bytes[63] = self.bytes[63] & !2 | u8::from(solicited) << 1;
        self
    }

    /// Puts data into the entry, if they fit: 32 bytes over the fields that only datagrams need, or 64 in front.
    pub(crate) fn scatter(&mut self, data: &[u8], room: usize) -> bool {
        if data.len() > room {
            return false;
        }
        let format = if room == 64 {
            let mut front = [0; 64];
            front[..data.len()].copy_from_slice(data);
            self.data = Some(front);
            CqeFormat::INLINE_64
        } else {
            self.bytes[..data.len()].copy_from_slice(data);
            CqeFormat::INLINE_32
        };
        self.bytes[63] = self.bytes[63] & !0xc | format.0 << 2;
        true
    }

    #[cfg(test)]
    pub(crate) fn view(&self) -> Cqe64 {
        zerocopy::transmute!(self.bytes)
    }
}

//! Segments and completions in words, for dumps.

use core::fmt;

use super::cqe::{Cqe64, CqeFormat, CqeOpcode};
use super::ctrl::{CtrlFlags, CtrlSegment};
use super::data::DataSegment;
use super::datagram::DatagramSegment;
use super::error::{ErrorCqe, Syndrome};
use super::eth::ChecksumFlags;
use super::opcode::Opcode;
use super::request::Segment;
use super::tag::TagSegment;
use super::umr::{MkeyAccess, MkeyContextSegment, MkeyMask, UmrCtrlSegment, UmrFlags};

/// Writes the names of set bits, and what is left as a number.
macro_rules! flags {
    ($type:ident: $($flag:ident, $name:literal;)*) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut rest = self.0;
                let mut separator = "";
                $(if self.0 & Self::$flag.0 != 0 {
                    write!(f, "{separator}{}", $name)?;
                    separator = "|";
                    rest &= !Self::$flag.0;
                })*
                if rest != 0 || self.0 == 0 {
                    write!(f, "{separator}{rest:#x}")?;
                }
                Ok(())
            }
        }
    };
}

flags! { CtrlFlags:
    CQ_UPDATE, "signaled";
    SOLICITED, "solicited";
    FENCE, "fence";
    SMALL_FENCE, "small fence";
}
flags! { ChecksumFlags:
    L3, "L3";
    L4, "L4";
    L3_INNER, "inner L3";
    L4_INNER, "inner L4";
}
flags! { UmrFlags:
    INLINE, "inline";
    CHECK_NOT_FREE, "check not free";
    CHECK_FREE, "check free";
    TRANSLATION_OFFSET, "translation offset";
    CHECK_QPN, "check qpn";
}
flags! { MkeyAccess:
    LOCAL_READ, "local read";
    LOCAL_WRITE, "local write";
    REMOTE_READ, "remote read";
    REMOTE_WRITE, "remote write";
    ATOMIC, "atomic";
}

impl fmt::Display for MkeyMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.get();
        let mut separator = "";
        for (part, name) in Self::NAMES {
            if self.contains(*part) {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest &= !part.0.get();
            }
        }
        if rest != 0 || self.0.get() == 0 {
            write!(f, "{separator}{rest:#x}")?;
        }
        Ok(())
    }
}

/// A name, or the number.
macro_rules! named {
    ($($type:ident, $what:literal;)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($what, " {:#04x}"), self.0),
                }
            }
        }
    )*};
}

named! {
    Opcode, "opcode";
    CqeOpcode, "completion";
    CqeFormat, "format";
    Syndrome, "syndrome";
}

impl fmt::Display for CtrlSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.opcode())?;
        if self.opmod() != 0 {
            write!(f, " modifier {:#x}", self.opmod())?;
        }
        write!(
            f,
            " qp {:#x}, block {:#x}, ds {} ({} bytes), flags {}",
            self.qpn(),
            self.index(),
            self.ds(),
            u16::from(self.ds()) * 16,
            self.fm_ce_se
        )?;
        if self.signature != 0 {
            write!(f, ", signature {:#04x}", self.signature)?;
        }
        if self.dci_stream_channel_id != [0; 2] {
            let channel = u16::from_be_bytes(self.dci_stream_channel_id);
            write!(f, ", stream {channel:#x}")?;
        }
        let imm = self.imm.get();
        match self.opcode() {
            Opcode::SEND_IMM | Opcode::RDMA_WRITE_IMM => write!(f, ", immediate {imm:#x}"),
            Opcode::SEND_INVAL => write!(f, ", invalidates key {imm:#x}"),
            Opcode::UMR => write!(f, ", key {imm:#x}"),
            _ if imm != 0 => write!(f, ", imm {imm:#x}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for DataSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_terminator() {
            return f.write_str("end of list");
        }
        write!(
            f,
            "{} bytes at {:#x}, key {:#x}",
            self.byte_count.get(),
            self.addr.get(),
            self.lkey.get()
        )?;
        if self.byte_count.get() == 0 {
            f.write_str(" (0 means 2^31 bytes)")?;
        }
        Ok(())
    }
}

impl fmt::Display for DatagramSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m0, m1, m2, m3, m4, m5] = self.rmac;
        write!(
            f,
            "to qp {:#x}, key {:#x}, rate {} sl {}, lid or UDP port {:#x}, \
             mac {m0:02x}:{m1:02x}:{m2:02x}:{m3:02x}:{m4:02x}:{m5:02x}, gid {}, from gid {}, flow {:#x}, class {:#x}, hops {}",
            self.dqp_dct.qpn(),
            self.key.get(),
            self.stat_rate_sl.stat_rate(),
            self.stat_rate_sl.sl(),
            self.rlid.get(),
            core::net::Ipv6Addr::from(self.rgid),
            self.grh_gid_fl.sgid_index(),
            self.grh_gid_fl.flow_label(),
            self.tclass,
            self.hop_limit,
        )
    }
}

impl fmt::Display for UmrCtrlSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "flags {}, layout {} units, signature {} units, changes {}",
            self.flags,
            self.klm_octowords.get(),
            self.bsf_octowords.get(),
            self.mkey_mask
        )
    }
}

impl fmt::Display for MkeyContextSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.free & Self::FREE != 0 {
            f.write_str("free, ")?;
        }
        write!(
            f,
            "access {}, qp {:#x} variant {:#04x}, {:#x}+{:#x}, flags and pd {:#x}",
            self.access_flags,
            self.qpn_mkey.qpn(),
            self.qpn_mkey.variant(),
            self.start_addr.get(),
            self.len.get(),
            self.flags_pd.get()
        )
    }
}

impl fmt::Display for TagSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.opcode {
            Self::NOP => f.write_str("no change")?,
            Self::APPEND => f.write_str("append")?,
            Self::REMOVE => f.write_str("remove")?,
            other => write!(f, "operation {other:#x}")?,
        }
        write!(
            f,
            " index {:#x}, flags {:#x}, count {}, tag {:#x} mask {:#x}",
            self.index.get(),
            self.flags,
            self.sw_cnt.get(),
            self.append_tag.get(),
            self.append_mask.get()
        )
    }
}

/// At most this many bytes are printed.
const SHOWN: usize = 64;

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        if self.0.len() > SHOWN {
            f.write_str("…")?;
        }
        Ok(())
    }
}

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raddr(it) => write!(f, "remote: {:#x}, key {:#x}", it.raddr.get(), it.rkey.get()),
            Self::Atomic(it) => write!(
                f,
                "atomic: swap or add {:#x}, compare {:#x}",
                it.swap_add.get(),
                it.compare.get()
            ),
            Self::MaskedAtomic8(it) => write!(
                f,
                "masked atomic: swap {:#x} mask {:#x}, compare {:#x} mask {:#x}",
                it.swap.get(),
                it.swap_mask.get(),
                it.compare.get(),
                it.compare_mask.get()
            ),
            Self::MaskedAtomic4(it) => write!(
                f,
                "masked atomic of 4 bytes: swap {:#x} mask {:#x}, compare {:#x} mask {:#x}",
                it.swap.get(),
                it.swap_mask.get(),
                it.compare.get(),
                it.compare_mask.get()
            ),
            Self::MaskedFetchAdd8(it) => write!(
                f,
                "masked add: {:#x}, boundaries {:#x}",
                it.add.get(),
                it.field_boundary.get()
            ),
            Self::MaskedFetchAdd4(it) => write!(
                f,
                "masked add of 4 bytes: {:#x}, boundaries {:#x}",
                it.add.get(),
                it.field_boundary.get()
            ),
            Self::Datagram(it) => write!(f, "address: {it}"),
            Self::Xrc(it) => write!(f, "xrc: shared receive queue {:#x}", it.xrc_srqn.get()),
            Self::Eth(it, header) => write!(
                f,
                "ethernet: checksums {}, mss {}, header of {} bytes {}",
                it.cs_flags,
                it.mss.get(),
                it.inline_hdr_sz.get(),
                Hex(header)
            ),
            Self::Data(it) => write!(f, "data: {it}"),
            Self::Inline(data) => write!(f, "inline: {} bytes {}", data.len(), Hex(data)),
            Self::UmrCtrl(it) => write!(f, "umr: {it}"),
            Self::MkeyContext(it) => write!(f, "key: {it}"),
            Self::Klm(it) => write!(
                f,
                "layout: {} bytes at {:#x}, key {:#x}",
                it.byte_count.get(),
                it.address.get(),
                it.mkey.get()
            ),
            Self::RepeatBlock(it) => write!(
                f,
                "layout: {} times {} bytes of {} entries",
                it.repeat_count.get(),
                it.byte_count.get(),
                it.num_ent.get()
            ),
            Self::RepeatEntry(it) => write!(
                f,
                "layout: {} bytes every {} at {:#x}, key {:#x}",
                it.byte_count.get(),
                it.stride.get(),
                it.va.get(),
                it.memkey.get()
            ),
            Self::Bsf(it) => write!(
                f,
                "signature: size class {}, check {:#04x}, {} bytes, wire {:#x}, memory {:#x}",
                it.size_class(),
                it.check_byte_mask,
                it.raw_data_size.get(),
                it.w_bfs_psv.get(),
                it.m_bfs_psv.get()
            ),
            Self::CryptoBsf(it) => write!(
                f,
                "encryption: standard {:#x}, order {:#x}, {} bytes, key object {:#x}",
                it.enc_standard,
                it.enc_order,
                it.raw_data_size.get(),
                it.rsvd_dek_ptr.get() & 0xff_ffff
            ),
            Self::Mmo(it) => write!(
                f,
                "memory operation: state at {:#x}, key {:#x}",
                it.local_address.get(),
                it.local_key.get()
            ),
            Self::SetPsv(it) => write!(
                f,
                "signature state: {:#x}, syndrome {:#x}, value {:#x}",
                it.psv_index.get(),
                it.syndrome.get(),
                it.transient_signature.get()
            ),
            Self::Tag(it) => write!(f, "tag: {it}"),
            Self::Padding(n) => write!(f, "padding: {n} bytes"),
            Self::Unknown(bytes) => {
                write!(f, "not understood: {} bytes {}", bytes.len(), Hex(bytes))
            }
        }
    }
}

impl fmt::Display for ErrorCqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (syndrome {:#04x}, ibv_wc_status {}, vendor {:#04x}, hw {:#04x}/{:#04x}), qp {:#x}, user index {:#x}",
            self.op_own.opcode(),
            self.syndrome,
            self.syndrome.0,
            self.syndrome.wc_status(),
            self.vendor_err_synd,
            self.hw_error_syndrome,
            self.hw_syndrome_type,
            self.s_wqe_opcode_qpn.qpn(),
            self.srqn_uidx.get() & Cqe64::USER_INDEX_MASK,
        )?;
        if self.op_own.opcode() == CqeOpcode::REQ_ERR {
            write!(f, ", request {}", Opcode(self.s_wqe_opcode_qpn.sop()))?;
        }
        write!(
            f,
            ", counter {:#x}, owner {}",
            self.wqe_counter.get(),
            u8::from(self.op_own.owner())
        )
    }
}

impl fmt::Display for Cqe64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = self.error() {
            return write!(f, "{error}");
        }
        let opcode = self.opcode();
        if opcode == CqeOpcode::INVALID {
            return f.write_str("INVALID: not written");
        }
        write!(f, "{opcode}")?;
        match self.format() {
            CqeFormat::NONE => {}
            format => write!(f, ", {format}")?,
        }
        if opcode == CqeOpcode::REQ {
            write!(f, ", request {}", self.send_opcode())?;
        }
        write!(
            f,
            ", qp {:#x}, user index {:#x}, counter {:#x}, {} bytes",
            self.qpn(),
            self.user_index(),
            self.wqe_counter.get(),
            self.byte_cnt.get()
        )?;
        match opcode {
            CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM => {
                write!(f, ", immediate {:#x}", self.imm_inval_pkey.get())?;
            }
            CqeOpcode::RESP_SEND_INV => {
                write!(f, ", invalidated key {:#x}", self.imm_inval_pkey.get())?;
            }
            _ => {}
        }
        if opcode.is_responder() {
            write!(f, ", from qp {:#x}", self.src_qp())?;
            if self.has_grh() {
                f.write_str(" with global route")?;
            }
        }
        if self.op_own.solicited() {
            f.write_str(", solicited")?;
        }
        write!(
            f,
            ", time {:#x}, owner {}",
            self.timestamp.get(),
            u8::from(self.op_own.owner())
        )
    }
}

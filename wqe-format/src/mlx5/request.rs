//! Reading work requests: which segments a request has.
//!
//! Made for dumps, tests and software devices. Any bytes can be read: what is cut short or makes no sense comes out as
//! [`Segment::Unknown`], and the reading ends.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::atomic::{
    AtomicSegment, MaskedAtomic4Segment, MaskedAtomic8Segment, MaskedFetchAdd4Segment,
    MaskedFetchAdd8Segment,
};
use super::ctrl::CtrlSegment;
use super::data::{DataSegment, InlineHeader};
use super::datagram::DatagramSegment;
use super::eth::EthSegment;
use super::klm::{KlmSegment, RepeatBlockSegment, RepeatEntrySegment};
use super::mmo::MmoSegment;
use super::opcode::{Opcode, opmod};
use super::psv::{BsfSegment, CryptoBsfSegment, SetPsvSegment};
use super::raddr::RaddrSegment;
use super::tag::TagSegment;
use super::umr::{MkeyContextSegment, UmrCtrlSegment, UmrFlags};
use super::xrc::XrcSegment;
use super::{DS_UNIT, SEND_WQE_BB};

/// What stands between the control segment and the rest, which only the queue knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Nothing: RC, UC.
    Connected,
    /// An address: UD, DC.
    Datagram,
    /// A shared receive queue: XRC.
    Xrc,
    /// An Ethernet segment: raw packets.
    RawEthernet,
}

impl Service {
    /// A guess from the request itself.
    ///
    /// Enough for a dump: an address is known by its mark and its reserved bytes, an XRC segment by 12 bytes of zero where
    /// other segments have an address.
    pub fn guess(request: &[u8]) -> Self {
        let Some(ctrl) = first::<CtrlSegment>(request) else {
            return Self::Connected;
        };
        let body = request.get(DS_UNIT..).unwrap_or_default();
        let zeros = |range: core::ops::Range<usize>| {
            body.get(range)
                .is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
        };
        match ctrl.opcode() {
            Opcode::TSO | Opcode::ENHANCED_MPSW => Self::RawEthernet,
            Opcode::UMR
            | Opcode::MMO
            | Opcode::NOP
            | Opcode::SET_PSV
            | Opcode::DUMP
            | Opcode::TAG_MATCHING => Self::Connected,
            _ if ctrl.ds() >= 4
                && body.get(8).is_some_and(|byte| byte & 0x80 != 0)
                && zeros(16..20) =>
            {
                Self::Datagram
            }
            _ if ctrl.ds() >= 3 && zeros(4..16) && !zeros(0..4) => Self::Xrc,
            _ => Self::Connected,
        }
    }
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Segment<'a> {
    /// Where the peer's memory is.
    Raddr(RaddrSegment),
    /// Operands.
    Atomic(AtomicSegment),
    /// Operands.
    MaskedAtomic8(MaskedAtomic8Segment),
    /// Operands.
    MaskedAtomic4(MaskedAtomic4Segment),
    /// Operands.
    MaskedFetchAdd8(MaskedFetchAdd8Segment),
    /// Operands.
    MaskedFetchAdd4(MaskedFetchAdd4Segment),
    /// Destination.
    Datagram(DatagramSegment),
    /// Shared receive queue.
    Xrc(XrcSegment),
    /// Offloads, and the packet's first bytes. The segment's own copy of them is as long as 16 or 32 bytes of it were there.
    Eth(EthSegment, &'a [u8]),
    /// A buffer.
    Data(DataSegment),
    /// The data themselves.
    Inline(&'a [u8]),
    /// What changes of a key.
    UmrCtrl(UmrCtrlSegment),
    /// The key.
    MkeyContext(MkeyContextSegment),
    /// Part of its layout.
    Klm(KlmSegment),
    /// Head of a repeating layout.
    RepeatBlock(RepeatBlockSegment),
    /// Part of it.
    RepeatEntry(RepeatEntrySegment),
    /// Its signature.
    Bsf(BsfSegment),
    /// Its encryption.
    CryptoBsf(CryptoBsfSegment),
    /// A memory operation's state.
    Mmo(MmoSegment),
    /// A signature's state.
    SetPsv(SetPsvSegment),
    /// A change of a tag list.
    Tag(TagSegment),
    /// Zeros that fill up.
    Padding(usize),
    /// What is not understood: the rest of the request.
    Unknown(&'a [u8]),
}

/// A send request that was copied out of its ring.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    ctrl: CtrlSegment,
    body: &'a [u8],
}

impl<'a> SendRequest<'a> {
    /// The request that `bytes` starts with; `None` when there are less than 16 bytes or its length is 0.
    ///
    /// The request may be cut short: then its segments end with [`Segment::Unknown`] or early.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let ctrl = first::<CtrlSegment>(bytes)?;
        let length = usize::from(ctrl.ds()) * DS_UNIT;
        if length == 0 {
            return None;
        }
        Some(Self {
            ctrl,
            body: &bytes[DS_UNIT..bytes.len().min(length)],
        })
    }

    /// The control segment.
    pub const fn ctrl(&self) -> CtrlSegment {
        self.ctrl
    }

    /// What follows it.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Bytes that the request says it has.
    pub const fn len(&self) -> usize {
        self.ctrl.ds() as usize * DS_UNIT
    }

    /// Always false: a request has a control segment.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Whether bytes are missing.
    pub const fn is_truncated(&self) -> bool {
        self.body.len() + DS_UNIT < self.len()
    }

    /// Bytes of ring that the request takes: whole basic blocks.
    pub const fn ring_len(&self) -> usize {
        self.len().next_multiple_of(SEND_WQE_BB)
    }

    /// Its segments.
    pub const fn segments(&self, service: Service) -> Segments<'a> {
        Segments {
            rest: self.body,
            opcode: self.ctrl.opcode(),
            opmod: self.ctrl.opmod(),
            stage: match service {
                Service::Connected => Stage::Operation,
                Service::Datagram => Stage::Datagram,
                Service::Xrc => Stage::Xrc,
                Service::RawEthernet => Stage::Eth,
            },
        }
    }
}

/// The segments of a request, see [`SendRequest::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
    opcode: Opcode,
    opmod: u8,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Datagram,
    Xrc,
    Eth,
    Operation,
    Atomic,
    MkeyContext(UmrCtrlSegment),
    /// A key's layout: units that are left, and units of signature behind it.
    Klm(u16, u16),
    Repeat {
        entries: u16,
        units: u16,
        bsf: u16,
    },
    Bsf(u16),
    Data,
}

impl<'a> Segments<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }

    fn take_bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(bytes)
    }

    fn unknown(&mut self) -> Segment<'a> {
        Segment::Unknown(core::mem::take(&mut self.rest))
    }

    /// The first 16 bytes of an address vector are all of it if they do not say otherwise: then there is no global route.
    fn address_vector(&mut self) -> Option<DatagramSegment> {
        let base = self.take_bytes(DatagramSegment::COMPACT)?;
        let mut vector = [0; size_of::<DatagramSegment>()];
        vector[..base.len()].copy_from_slice(base);
        let compact: DatagramSegment = zerocopy::transmute!(vector);
        if !compact.dqp_dct.extended() {
            return Some(compact);
        }
        let rest = self.take_bytes(vector.len() - base.len())?;
        vector[base.len()..].copy_from_slice(rest);
        Some(zerocopy::transmute!(vector))
    }

    fn eth(&mut self) -> Option<Segment<'a>> {
        let bytes = self.rest;
        let length = bytes.get(12..14)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        // The segment ends where a unit ends behind its header, of which two bytes are in the first unit.
        let units = 1 + length
            .saturating_sub(EthSegment::INLINE_HEADER_MAX - DS_UNIT)
            .div_ceil(DS_UNIT);
        let segment = self.take_bytes(units * DS_UNIT)?;
        let header = &segment[EthSegment::INLINE_HEADER_OFFSET..];
        let header = &header[..length.min(header.len())];
        let mut copy = [0; size_of::<EthSegment>()];
        let n = segment.len().min(copy.len());
        copy[..n].copy_from_slice(&segment[..n]);
        self.stage = Stage::Data;
        Some(Segment::Eth(zerocopy::transmute!(copy), header))
    }

    fn operation(&mut self) -> Option<Segment<'a>> {
        self.stage = Stage::Data;
        match self.opcode {
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM | Opcode::RDMA_READ => {
                self.take().map(Segment::Raddr)
            }
            Opcode::ATOMIC_CS
            | Opcode::ATOMIC_FA
            | Opcode::ATOMIC_MASKED_CS
            | Opcode::ATOMIC_MASKED_FA => {
                self.stage = Stage::Atomic;
                self.take().map(Segment::Raddr)
            }
            Opcode::UMR => {
                let ctrl = self.take()?;
                self.stage = Stage::MkeyContext(ctrl);
                Some(Segment::UmrCtrl(ctrl))
            }
            Opcode::MMO => self.take().map(Segment::Mmo),
            Opcode::SET_PSV => self.take().map(Segment::SetPsv),
            Opcode::TAG_MATCHING => self.take().map(Segment::Tag),
            Opcode::SEND
            | Opcode::SEND_IMM
            | Opcode::SEND_INVAL
            | Opcode::TSO
            | Opcode::ENHANCED_MPSW
            | Opcode::DUMP
            | Opcode::NOP => self.data(),
            _ => None,
        }
    }

    fn atomic(&mut self) -> Option<Segment<'a>> {
        self.stage = Stage::Data;
        match (self.opcode, self.opmod) {
            (Opcode::ATOMIC_MASKED_CS, opmod::EXTENDED_ATOMIC_4) => {
                self.take().map(Segment::MaskedAtomic4)
            }
            (Opcode::ATOMIC_MASKED_CS, _) => self.take().map(Segment::MaskedAtomic8),
            (Opcode::ATOMIC_MASKED_FA, opmod::EXTENDED_ATOMIC_4) => {
                self.take().map(Segment::MaskedFetchAdd4)
            }
            (Opcode::ATOMIC_MASKED_FA, _) => self.take().map(Segment::MaskedFetchAdd8),
            _ => self.take().map(Segment::Atomic),
        }
    }

    fn mkey_context(&mut self, ctrl: UmrCtrlSegment) -> Option<Segment<'a>> {
        let context = self.take()?;
        self.stage = if ctrl.flags.contains(UmrFlags::INLINE) {
            let bsf = if ctrl.flags.contains(UmrFlags::TRANSLATION_OFFSET) {
                0
            } else {
                ctrl.bsf_octowords.get()
            };
            Stage::Klm(ctrl.klm_octowords.get(), bsf)
        } else {
            Stage::Data
        };
        Some(Segment::MkeyContext(context))
    }

    fn klm(&mut self, units: u16, bsf: u16) -> Option<Segment<'a>> {
        if units == 0 {
            self.stage = Stage::Bsf(bsf);
            return self.bsf(bsf);
        }
        let klm: KlmSegment = first(self.rest)?;
        if klm.mkey.get() == RepeatBlockSegment::OP {
            let head: RepeatBlockSegment = self.take()?;
            self.stage = Stage::Repeat {
                entries: head.num_ent.get(),
                units: units - 1,
                bsf,
            };
            return Some(Segment::RepeatBlock(head));
        }
        if let Some(padding) = self.padding(units) {
            self.stage = Stage::Bsf(bsf);
            return Some(padding);
        }
        self.stage = Stage::Klm(units - 1, bsf);
        self.take().map(Segment::Klm)
    }

    fn repeat(&mut self, entries: u16, units: u16, bsf: u16) -> Option<Segment<'a>> {
        if units == 0 {
            self.stage = Stage::Bsf(bsf);
            return self.bsf(bsf);
        }
        if entries == 0 {
            self.stage = Stage::Klm(units, bsf);
            return self.klm(units, bsf);
        }
        self.stage = Stage::Repeat {
            entries: entries - 1,
            units: units - 1,
            bsf,
        };
        self.take().map(Segment::RepeatEntry)
    }

    /// `units` of zeros, if that is all there is.
    fn padding(&mut self, units: u16) -> Option<Segment<'a>> {
        let length = usize::from(units) * DS_UNIT;
        let bytes = self.rest.get(..length)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return None;
        }
        self.rest = &self.rest[length..];
        Some(Segment::Padding(length))
    }

    fn bsf(&mut self, units: u16) -> Option<Segment<'a>> {
        const UNITS: u16 = (size_of::<BsfSegment>() / DS_UNIT) as u16;
        if units == 0 {
            self.stage = Stage::Data;
            return self.data();
        }
        if units < UNITS {
            return None;
        }
        self.stage = Stage::Bsf(units - UNITS);
        let bsf: BsfSegment = self.take()?;
        // The type, in the low bits, is 1 for encryption; the block size selector of the other kind is in bits 5 and 4.
        Some(if bsf.bsf_size_sbs & 0xf == 1 {
            Segment::CryptoBsf(zerocopy::transmute!(bsf))
        } else {
            Segment::Bsf(bsf)
        })
    }

    fn data(&mut self) -> Option<Segment<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let segment: DataSegment = match self.rest.first_chunk::<DS_UNIT>() {
            Some(bytes) => zerocopy::transmute!(*bytes),
            None => return None,
        };
        if !segment.is_inline() {
            return self.take().map(Segment::Data);
        }
        let length = segment.byte_count.get() & !InlineHeader::MARK;
        let whole = (InlineHeader::units(length) as usize).checked_mul(DS_UNIT)?;
        let bytes = self.take_bytes(whole)?;
        bytes.get(4..4 + length as usize).map(Segment::Inline)
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let segment = match self.stage {
            Stage::Datagram => {
                self.stage = Stage::Operation;
                self.address_vector().map(Segment::Datagram)
            }
            Stage::Xrc => {
                self.stage = Stage::Operation;
                self.take().map(Segment::Xrc)
            }
            Stage::Eth => self.eth(),
            Stage::Operation => self.operation(),
            Stage::Atomic => self.atomic(),
            Stage::MkeyContext(ctrl) => self.mkey_context(ctrl),
            Stage::Klm(units, bsf) => self.klm(units, bsf),
            Stage::Repeat {
                entries,
                units,
                bsf,
            } => self.repeat(entries, units, bsf),
            Stage::Bsf(units) => self.bsf(units),
            Stage::Data => self.data(),
        };
        match segment {
            Some(segment) => Some(segment),
            None if self.rest.is_empty() => None,
            None => Some(self.unknown()),
        }
    }
}

/// The scatter list of a receive: up to its terminator, or as much as there is.
pub fn scatter_list(slot: &[u8]) -> impl Iterator<Item = DataSegment> + '_ {
    slot.chunks_exact(DS_UNIT)
        .filter_map(first::<DataSegment>)
        .take_while(|segment| !segment.is_terminator())
}

fn first<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

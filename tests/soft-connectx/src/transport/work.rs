//! Work requests of send queues, taken apart.

use wqe_format::mlx5::request::{Segment, SendRequest, Service};
use wqe_format::mlx5::{
    CtrlFlags, CtrlSegment, DatagramSegment, EthSegment, Opcode, TagSegment, XrcSegment, opmod,
};

use crate::checks::allowed::Word;
use crate::device::Device;
use crate::memory::{self, Fault, Place, Range, Right, Who, signature};
use crate::resources::{QpKind, Resources};

/// Where in a [`RaddrSegment`](wqe_format::mlx5::RaddrSegment) its reserved word is.
const RESERVED_OF_REMOTE: usize = 12;

/// A part of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Inline(Vec<u8>),
    Memory { key: u32, va: u64, len: u64 },
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Piece::Inline(bytes) => bytes.len() as u64,
            Piece::Memory { len, .. } => *len,
        }
    }
}

/// Operands of an atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Operands {
    pub(super) swap_add: u64,
    pub(super) compare: u64,
    pub(super) swap_mask: u64,
    /// Of compare-and-swap; of fetch-and-add where fields end.
    pub(super) compare_mask: u64,
    /// Bytes of the operand; 0 of operations without masks, which have 8.
    pub(super) width: u8,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) opcode: Opcode,
    pub(super) opmod: u8,
    pub(super) flags: CtrlFlags,
    pub(super) imm: u32,
    /// Of datagrams and dynamic connections.
    pub(super) destination: Option<DatagramSegment>,
    /// Of extended connections.
    pub(super) srqn: Option<u32>,
    /// Address and key at the peer.
    pub(super) remote: Option<(u64, u32)>,
    pub(super) operands: Option<Operands>,
    pub(super) ethernet: Option<EthSegment>,
    /// The change of a list of tags.
    pub(super) tag: Option<TagSegment>,
    /// The VLAN tag that a raw packet is to get.
    pub(super) insert_vlan: Option<u16>,
    pub(super) data: Vec<Piece>,
    /// Whether a bit is set that must not be.
    pub(super) sets_reserved: bool,
    /// Reserved words that are not zero and may be left over, and where in it they are.
    pub(super) leaves: Vec<(Word, usize)>,
    /// All its bytes.
    pub(super) bytes: Vec<u8>,
}

/// Whether a queue of this kind takes this opcode.
fn is_offered(kind: QpKind, opcode: Opcode) -> bool {
    let is_atomic = matches!(
        opcode,
        Opcode::ATOMIC_CS | Opcode::ATOMIC_FA | Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA
    );
    let is_send = matches!(opcode, Opcode::SEND | Opcode::SEND_IMM);
    let is_write = matches!(opcode, Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM);
    match kind {
        _ if opcode == Opcode::NOP => true,
        QpKind::Rc | QpKind::Xrc | QpKind::Dci => {
            is_send
                || is_write
                || is_atomic
                || matches!(
                    opcode,
                    Opcode::SEND_INVAL
                        | Opcode::RDMA_READ
                        | Opcode::UMR
                        | Opcode::SET_PSV
                        | Opcode::MMO
                )
                || kind == QpKind::Rc && opcode == Opcode::TAG_MATCHING
        }
        QpKind::Uc => is_send || is_write || opcode == Opcode::UMR,
        QpKind::Ud | QpKind::Gsi | QpKind::Smi => is_send,
        QpKind::RegUmr => opcode == Opcode::UMR,
        QpKind::RawSend => matches!(opcode, Opcode::SEND | Opcode::TSO),
        QpKind::Dct | QpKind::RawReceive => false,
    }
}

/// Whether it concerns nobody else.
fn is_local(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::NOP | Opcode::UMR | Opcode::SET_PSV | Opcode::MMO | Opcode::TAG_MATCHING
    )
}

impl Request {
    /// Of the device's own, which nothing tells a program of.
    pub(super) fn own(opcode: Opcode) -> Request {
        Request {
            opcode,
            opmod: 0,
            flags: CtrlFlags::NONE,
            imm: 0,
            destination: None,
            srqn: None,
            remote: None,
            operands: None,
            ethernet: None,
            tag: None,
            insert_vlan: None,
            data: Vec::new(),
            sets_reserved: false,
            leaves: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Takes a request of a queue of this kind apart; `None` if it makes no sense there.
    pub(super) fn parse(kind: QpKind, bytes: &[u8]) -> Option<Request> {
        if kind != QpKind::RawSend {
            return Request::parse_plain(kind, bytes);
        }
        // Where an inline header's length and first bytes stand there may be a tag to be inserted instead
        // (`MLX5_ETH_WQE_INSERT_VLAN` of Linux include/linux/mlx5/qp.h).
        const LENGTH: usize = size_of::<CtrlSegment>() + 12;
        match bytes.get(LENGTH..).and_then(|it| it.first_chunk::<4>()) {
            Some(&[kind_of_insert, _, a, b]) if kind_of_insert & 0x80 != 0 => {
                let mut plain = bytes.to_vec();
                plain[LENGTH..LENGTH + 4].fill(0);
                let mut request = Request::parse_plain(kind, &plain)?;
                request.insert_vlan = Some(u16::from_be_bytes([a, b]));
                request.bytes = bytes.get(..request.bytes.len())?.to_vec();
                Some(request)
            }
            _ => Request::parse_plain(kind, bytes),
        }
    }

    fn parse_plain(kind: QpKind, bytes: &[u8]) -> Option<Request> {
        let request = SendRequest::new(bytes)?;
        let ctrl = request.ctrl();
        let opcode = ctrl.opcode();
        if !is_offered(kind, opcode) {
            return None;
        }
        let is_local = is_local(opcode);
        let service = match kind {
            _ if is_local => Service::Connected,
            QpKind::Ud | QpKind::Gsi | QpKind::Smi | QpKind::Dci => Service::Datagram,
            QpKind::Xrc => Service::Xrc,
            QpKind::RawSend => Service::RawEthernet,
            _ => Service::Connected,
        };
        let mut it = Request {
            opcode,
            opmod: ctrl.opmod(),
            flags: ctrl.fm_ce_se,
            imm: ctrl.imm.get(),
            bytes: bytes.get(..request.len())?.to_vec(),
            ..Request::own(opcode)
        };
        // A key's change is taken apart where it is done.
        if matches!(opcode, Opcode::UMR | Opcode::SET_PSV) {
            return Some(it);
        }
        let masked = |width| Operands {
            width,
            swap_mask: u64::MAX,
            ..Operands::default()
        };
        for segment in request.segments(service) {
            match segment {
                Segment::Datagram(segment) => {
                    if segment.reserved != [0; 4] {
                        let at = size_of::<CtrlSegment>() + DatagramSegment::COMPACT;
                        it.leaves.push((Word::Vector, at));
                    }
                    it.destination = Some(segment);
                }
                Segment::Xrc(segment) => {
                    it.sets_reserved |= segment.reserved != [0; 12];
                    it.srqn = Some(segment.xrc_srqn.get() & 0xff_ffff);
                }
                Segment::Raddr(segment) => {
                    let before = match service {
                        Service::Datagram => size_of::<DatagramSegment>(),
                        Service::Xrc => size_of::<XrcSegment>(),
                        Service::Connected | Service::RawEthernet => 0,
                    };
                    let at = size_of::<CtrlSegment>() + before + RESERVED_OF_REMOTE;
                    if segment.reserved.get() != 0 {
                        it.leaves.push((Word::Remote, at));
                    }
                    it.remote = Some((segment.raddr.get(), segment.rkey.get()));
                }
                Segment::Atomic(segment) => {
                    it.operands = Some(Operands {
                        swap_add: segment.swap_add.get(),
                        compare: segment.compare.get(),
                        ..Operands::default()
                    });
                }
                Segment::MaskedAtomic8(segment) if it.opmod == opmod::EXTENDED_ATOMIC_8 => {
                    it.operands = Some(Operands {
                        swap_add: segment.swap.get(),
                        compare: segment.compare.get(),
                        swap_mask: segment.swap_mask.get(),
                        compare_mask: segment.compare_mask.get(),
                        width: 8,
                    });
                }
                Segment::MaskedAtomic4(segment) => {
                    it.operands = Some(Operands {
                        swap_add: segment.swap.get().into(),
                        compare: segment.compare.get().into(),
                        swap_mask: segment.swap_mask.get().into(),
                        compare_mask: segment.compare_mask.get().into(),
                        width: 4,
                    });
                }
                Segment::MaskedFetchAdd8(segment) if it.opmod == opmod::EXTENDED_ATOMIC_8 => {
                    it.operands = Some(Operands {
                        swap_add: segment.add.get(),
                        compare_mask: segment.field_boundary.get(),
                        ..masked(8)
                    });
                }
                Segment::MaskedFetchAdd4(segment) => {
                    it.operands = Some(Operands {
                        swap_add: segment.add.get().into(),
                        compare_mask: segment.field_boundary.get().into(),
                        ..masked(4)
                    });
                }
                Segment::Eth(segment, header) => {
                    it.ethernet = Some(segment);
                    it.data.push(Piece::Inline(header.to_vec()));
                }
                Segment::Tag(segment) => {
                    it.sets_reserved |= segment.reserved_4 != [0; 2];
                    it.tag = Some(segment);
                }
                Segment::Inline(bytes) => it.data.push(Piece::Inline(bytes.to_vec())),
                Segment::Data(segment) => it.data.push(Piece::Memory {
                    key: segment.lkey.get(),
                    va: segment.addr.get(),
                    len: match segment.byte_count.get() {
                        // A tag for messages without data.
                        0 if opcode == Opcode::TAG_MATCHING => 0,
                        0 => 1 << 31,
                        len => len.into(),
                    },
                }),
                Segment::Mmo(_) | Segment::Padding(_) => {}
                // A request without effect may have anything behind it.
                _ if opcode == Opcode::NOP => break,
                _ => return None,
            }
        }
        it.is_complete(service).then_some(it)
    }

    fn is_complete(&self, service: Service) -> bool {
        let needs_remote = matches!(
            self.opcode,
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM | Opcode::RDMA_READ
        );
        let has_service = match service {
            Service::Datagram => self.destination.is_some(),
            Service::Xrc => self.srqn.is_some(),
            Service::RawEthernet => self.ethernet.is_some(),
            Service::Connected => true,
        } || self.opcode == Opcode::NOP;
        let is_read = self.opcode == Opcode::RDMA_READ || self.is_atomic();
        let has_inline = self.data.iter().any(|it| matches!(it, Piece::Inline(_)));
        has_service
            && (!needs_remote || self.remote.is_some())
            && (!self.is_atomic() || self.operands.is_some() && self.remote.is_some())
            && !(is_read && has_inline)
    }

    pub(super) fn is_atomic(&self) -> bool {
        matches!(
            self.opcode,
            Opcode::ATOMIC_CS
                | Opcode::ATOMIC_FA
                | Opcode::ATOMIC_MASKED_CS
                | Opcode::ATOMIC_MASKED_FA
        )
    }

    /// Whether it concerns nobody else.
    pub(super) fn is_local(&self) -> bool {
        is_local(self.opcode)
    }

    /// Whether something comes back.
    pub(super) fn is_read(&self) -> bool {
        self.opcode == Opcode::RDMA_READ || self.is_atomic()
    }

    /// Counts its data as they are on the wire, where those of some keys have signatures.
    pub(super) fn spread(&mut self, resources: &Resources) {
        for piece in &mut self.data {
            if let Piece::Memory { key, va, len } = piece {
                signature::on_wire(resources, *key, va, len);
            }
        }
    }

    /// Bytes of its data.
    pub(super) fn len(&self) -> u64 {
        self.data.iter().map(Piece::len).sum()
    }

    /// Whether some of its data lie in memory on the device.
    pub(super) fn is_on_device(&self, device: &Device, who: &Who) -> bool {
        !device.memic.is_empty()
            && self.data.iter().any(|piece| match *piece {
                Piece::Memory { key, va, len } => {
                    let range = Range { key, va, len };
                    memory::pieces(&device.resources, who, range, Right::LocalRead).is_ok_and(
                        |found| found.iter().any(|(it, _)| matches!(it, Place::Memic(_))),
                    )
                }
                Piece::Inline(_) => false,
            })
    }

    /// `len` bytes of its data from `offset` on.
    pub(super) fn gather(
        &self,
        device: &Device,
        who: &Who,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(len);
        self.each(offset, len as u64, |piece, from, count| {
            match piece {
                Piece::Inline(data) => {
                    let from = from as usize;
                    let part = data.get(from..from + count as usize);
                    bytes.extend(part.ok_or(Fault::Bounds)?);
                }
                Piece::Memory { key, va, .. } => {
                    let start = bytes.len();
                    bytes.resize(start + count as usize, 0);
                    let from = (*key, va.wrapping_add(from));
                    memory::read(device, who, from, Right::LocalRead, &mut bytes[start..])?;
                }
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Puts what came back into its memory.
    pub(super) fn scatter(
        &self,
        device: &Device,
        who: &Who,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        self.each(offset, bytes.len() as u64, |piece, from, count| {
            let Piece::Memory { key, va, .. } = piece else {
                return Err(Fault::Rights);
            };
            let (now, later) = rest.split_at(count as usize);
            rest = later;
            let to = (*key, va.wrapping_add(from));
            memory::write(device, who, to, Right::LocalWrite, now)
        })
    }

    /// Calls `act` with the pieces of a range: piece, offset in it, length.
    fn each(
        &self,
        offset: u64,
        len: u64,
        mut act: impl FnMut(&Piece, u64, u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut skip, mut left) = (offset, len);
        for piece in &self.data {
            if left == 0 {
                break;
            }
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let count = left.min(piece.len() - skipped);
            if count > 0 {
                act(piece, skipped, count)?;
                left -= count;
            }
        }
        if left == 0 {
            Ok(())
        } else {
            Err(Fault::Bounds)
        }
    }
}

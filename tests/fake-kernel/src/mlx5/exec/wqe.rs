//! A send work request taken apart, by the offsets of `infiniband/mlx5dv.h`.

use uverbs_abi::types::QpType;

use crate::mlx5::hca::SendWqe;

/// Opcodes of `infiniband/mlx5dv.h` that are executed.
pub(crate) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVAL: u8 = 0x01;
    pub(crate) const RDMA_WRITE: u8 = 0x08;
    pub(crate) const RDMA_WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const TSO: u8 = 0x0e;
    pub(crate) const RDMA_READ: u8 = 0x10;
    pub(crate) const ATOMIC_CS: u8 = 0x11;
    pub(crate) const ATOMIC_FA: u8 = 0x12;
    pub(crate) const ATOMIC_MASKED_CS: u8 = 0x14;
    pub(crate) const ATOMIC_MASKED_FA: u8 = 0x15;
    pub(crate) const UMR: u8 = 0x25;
    /// With `MLX5_OPC_MOD_MMO_DMA`, a copy.
    pub(crate) const MMO: u8 = 0x2f;
}

/// A part of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Inline(Vec<u8>),
    Memory { address: u64, length: u32, key: u32 },
}

/// Where a datagram goes (`struct mlx5_wqe_av`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Of datagrams; of dynamic connections the low half of the access key.
    pub(crate) qkey: u32,
    /// The access key of dynamic connections.
    pub(crate) dc_key: u64,
    pub(crate) qpn: u32,
    pub(crate) lid: u16,
    pub(crate) sl: u8,
    /// Whether there is a global route header, on InfiniBand.
    pub(crate) has_grh: bool,
    pub(crate) sgid_index: u8,
    pub(crate) gid: [u8; 16],
}

/// Operands, of which each operation uses its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
    pub(crate) swap_mask: u64,
    pub(crate) compare_mask: u64,
    /// Bytes: 8, or of extended atomics 4.
    pub(crate) width: u8,
}

/// A change of a key (`struct mlx5_wqe_umr_ctrl_seg` and what follows).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUpdate {
    /// The key as it was.
    pub(crate) key: u32,
    pub(crate) flags: u8,
    /// The new low byte.
    pub(crate) tag: u8,
    pub(crate) is_free: bool,
    pub(crate) access: u8,
    /// Queue pair that alone may use it, or 0xffffff.
    pub(crate) qpn: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Key and address behind it.
    pub(crate) target: Option<(u32, u64)>,
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) opcode: u8,
    pub(crate) is_solicited: bool,
    pub(crate) imm: u32,
    pub(crate) destination: Option<Destination>,
    pub(crate) srqn: Option<u32>,
    /// Address and key at the other side.
    pub(crate) remote: Option<(u64, u32)>,
    pub(crate) atomic: Atomic,
    pub(crate) update: Option<KeyUpdate>,
    pub(crate) data: Vec<Piece>,
}

impl Request {
    /// Bytes of the data.
    pub(crate) fn length(&self) -> u64 {
        let length = |piece: &Piece| match piece {
            Piece::Inline(bytes) => bytes.len() as u64,
            Piece::Memory { length, .. } => u64::from(*length),
        };
        self.data.iter().map(length).sum()
    }
}

/// Reads segments one behind the other.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(n)?;
        self.0 = later;
        Some(now)
    }
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    (u64::from(be32(bytes, at)) << 32) | u64::from(be32(bytes, at + 4))
}

/// Takes a work request apart; `None` where its segments do not make sense.
pub(crate) fn parse(wqe: &SendWqe, qp_type: QpType, is_initiator: bool) -> Option<Request> {
    let segments = wqe.segments();
    let mut rest = Cursor(segments);
    let control = rest.take(16)?;
    let opcode = wqe.opcode();
    let mut request = Request {
        opcode,
        is_solicited: control[11] & 0x02 != 0,
        imm: wqe.imm(),
        destination: None,
        srqn: None,
        remote: None,
        atomic: Atomic::default(),
        update: None,
        data: Vec::new(),
    };
    let is_local = matches!(opcode, opcode::NOP | opcode::UMR);
    if (qp_type == QpType::UD || is_initiator) && !is_local {
        request.destination = Some(destination(rest.take(48)?));
    }
    if qp_type == QpType::XRC_INI && !is_local {
        request.srqn = Some(be32(rest.take(16)?, 0));
    }
    if qp_type == QpType::RAW_PACKET && !is_local {
        request.data.push(Piece::Inline(ethernet(&mut rest)?));
    }
    let is_atomic = (opcode::ATOMIC_CS..=opcode::ATOMIC_MASKED_FA).contains(&opcode);
    let is_remote = matches!(
        opcode,
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM | opcode::RDMA_READ
    );
    if is_atomic || is_remote {
        let segment = rest.take(16)?;
        request.remote = Some((be64(segment, 0), be32(segment, 8)));
    }
    if is_atomic {
        request.atomic = atomic(opcode, wqe.opmod(), &mut rest)?;
    }
    if opcode == opcode::MMO {
        // `struct mlx5_mmo_metadata_seg`: where the device keeps the state of the copy.
        rest.take(16)?;
    }
    match opcode {
        opcode::NOP => return Some(request),
        opcode::UMR => {
            request.update = Some(key_update(wqe.imm(), &mut rest)?);
            return Some(request);
        }
        _ => {}
    }
    while let Some(segment) = rest.take(16) {
        let word = be32(segment, 0);
        if word & 0x8000_0000 != 0 {
            let length = (word & 0x7fff_ffff) as usize;
            let mut bytes = segment[4..].to_vec();
            if length > bytes.len() {
                let more = (length - bytes.len()).next_multiple_of(16);
                bytes.extend_from_slice(rest.take(more)?);
            }
            bytes.truncate(length);
            request.data.push(Piece::Inline(bytes));
        } else {
            request.data.push(Piece::Memory {
                // 0 stands for 2^31.
                length: if word == 0 { 1 << 31 } else { word },
                key: be32(segment, 4),
                address: be64(segment, 8),
            });
        }
    }
    Some(request)
}

fn destination(av: &[u8]) -> Destination {
    let grh = be32(av, 28);
    let mut gid = [0; 16];
    gid.copy_from_slice(&av[32..48]);
    Destination {
        qkey: be32(av, 0),
        dc_key: be64(av, 0),
        qpn: be32(av, 8) & 0xff_ffff,
        sl: av[12] & 0xf,
        lid: be16(av, 14),
        has_grh: grh & (1 << 30) != 0,
        sgid_index: (grh >> 20) as u8,
        gid,
    }
}

/// The header that `struct mlx5_wqe_eth_seg` holds.
fn ethernet(rest: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let segment = rest.take(16)?;
    let length = usize::from(be16(segment, 12));
    let mut bytes = segment[14..16].to_vec();
    if length > 2 {
        bytes.extend_from_slice(rest.take((length - 2).next_multiple_of(16))?);
    }
    bytes.truncate(length);
    Some(bytes)
}

/// `opmod` of extended atomics: this bit, and the logarithm of the bytes less 2.
const EXTENDED: u8 = 8;

fn atomic(opcode: u8, opmod: u8, rest: &mut Cursor<'_>) -> Option<Atomic> {
    let mut operands = Atomic {
        swap_mask: u64::MAX,
        compare_mask: u64::MAX,
        width: 8,
        ..Atomic::default()
    };
    let segment = rest.take(16)?;
    let is_masked = matches!(opcode, opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA);
    match opmod {
        0 if !is_masked => {}
        EXTENDED if is_masked => {
            operands.width = 4;
            let word = |at| u64::from(be32(segment, at));
            operands.swap_add = word(0);
            if opcode == opcode::ATOMIC_MASKED_FA {
                operands.compare_mask = word(4);
            } else {
                operands.compare = word(4);
                operands.swap_mask = word(8);
                operands.compare_mask = word(12);
            }
            return Some(operands);
        }
        opmod if is_masked && opmod == EXTENDED + 1 => {}
        _ => return None,
    }
    operands.swap_add = be64(segment, 0);
    match opcode {
        opcode::ATOMIC_CS => operands.compare = be64(segment, 8),
        opcode::ATOMIC_FA => {}
        // Add, then the mask of bits that end a field.
        opcode::ATOMIC_MASKED_FA => operands.compare_mask = be64(segment, 8),
        // Swap, compare, and their masks.
        opcode::ATOMIC_MASKED_CS => {
            operands.compare = be64(segment, 8);
            let masks = rest.take(16)?;
            operands.swap_mask = be64(masks, 0);
            operands.compare_mask = be64(masks, 8);
        }
        _ => return None,
    }
    Some(operands)
}

fn key_update(key: u32, rest: &mut Cursor<'_>) -> Option<KeyUpdate> {
    let control = rest.take(48)?;
    let context = rest.take(64)?;
    let words = be32(context, 4);
    let target = rest.take(16).map(|klm| (be32(klm, 4), be64(klm, 8)));
    Some(KeyUpdate {
        key,
        flags: control[0],
        tag: words as u8,
        is_free: context[0] & (1 << 6) != 0,
        access: context[2],
        qpn: words >> 8,
        start: be64(context, 16),
        length: be64(context, 24),
        target: target.filter(|_| be16(control, 4) != 0),
    })
}

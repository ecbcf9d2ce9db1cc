//! What mlx5dv adds to the operations of verbs: configuring keys, copies, work requests that the program builds. They have
//! the builder interface only, on queue pairs made by `mlx5dv_create_qp`.

use rand::Rng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::c::device::QpSpec;
use crate::call::{Opcode, Piece, Wr, flags};
use crate::shape::{Cell, Shape};

/// Entries that the key in question is made for.
pub const KEY_ENTRIES: u32 = 64;
/// 16-byte units of a key's configuration before its layout: control, UMR control (48 bytes), key context (64).
pub const KEY_UNITS: u32 = 1 + 3 + 4;
/// 16-byte units of the longest work request that is built by hand: fits any queue pair that binds windows.
const RAW_UNITS: u32 = 12;

/// One piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Address.
    pub address: u64,
    /// Bytes of each turn.
    pub len: u32,
    /// Bytes between two.
    pub skip: u32,
    /// Key.
    pub lkey: u32,
}

/// Memory that a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Buffers, one behind the other.
    List(Vec<Piece>),
    /// Pieces in turn.
    Pattern(u32, Vec<Turn>),
}

impl Layout {
    /// 16-byte units, in groups of four.
    fn units(&self) -> u32 {
        let units = match self {
            Self::List(list) => list.len(),
            Self::Pattern(_, pieces) => pieces.len() + 1,
        };
        (units as u32).next_multiple_of(4)
    }
}

/// What becomes of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCall {
    /// The key.
    pub key: u32,
    /// `ibv_access_flags`.
    pub access: Option<u32>,
    /// Its memory.
    pub layout: Option<Layout>,
    /// Whether the access is set before the layout.
    pub access_first: bool,
}

/// Fields of a work request that verbs has no word for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// Dynamically connected: the target's key.
    pub dc_key: u64,
    /// Dynamically connected: the stream, if one is chosen.
    pub stream: Option<u16>,
    /// Masked atomics: bits compared.
    pub compare_mask: u64,
    /// Masked atomics: bits replaced, or the fields' most significant ones.
    pub swap_mask: u64,
    /// What becomes of a key.
    pub key: KeyCall,
    /// The work request that the program built.
    pub raw: Vec<u8>,
    /// Masked atomics, which the witness does not know as such: whether it follows one that changes keys.
    pub small_fence: bool,
}

impl More {
    /// Whether there is nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl KeyCall {
    /// What it counts as, among the things that must happen.
    pub fn what(&self) -> &'static str {
        match (&self.access, &self.layout) {
            (None, None) => "key: nothing set",
            (Some(_), None) => "key: access",
            (None, Some(Layout::List(_))) => "key: list",
            (None, Some(Layout::Pattern(..))) => "key: pattern",
            (Some(_), Some(_)) if self.access_first => "key: access, layout",
            (Some(_), Some(_)) => "key: layout, access",
        }
    }

    /// All of them.
    pub const WHATS: [&'static str; 6] = [
        "key: nothing set",
        "key: access",
        "key: list",
        "key: pattern",
        "key: access, layout",
        "key: layout, access",
    ];
}

/// Whether an operation of mlx5dv's can have a shape.
pub const fn suits(shape: Shape, opcode: Opcode) -> bool {
    use Shape::*;
    match opcode {
        Opcode::Memcpy => matches!(shape, Two),
        Opcode::Key | Opcode::KeyList | Opcode::KeyPattern | Opcode::Raw => {
            matches!(shape, Empty | One | Two | Several | Full)
        }
        _ => matches!(shape, One),
    }
}

/// Whether some WQE of it has two blocks or more.
pub fn can_wrap(shape: Shape, opcode: Opcode) -> bool {
    match opcode {
        Opcode::Memcpy => false,
        Opcode::Raw => matches!(shape, Shape::Several | Shape::Full),
        Opcode::Key | Opcode::KeyList | Opcode::KeyPattern => true,
        // A remote address, two units of operands, one of memory.
        opcode => opcode == Opcode::MaskedSwap8,
    }
}

/// Entries of a layout that the queue pair takes.
fn room(spec: &QpSpec, opcode: Opcode, pattern: bool) -> u32 {
    let _ = opcode;
    let entries = (spec.inline + 4) / 16;
    entries.saturating_sub(pattern.into()).min(KEY_ENTRIES)
}

/// Whether a queue pair can have a cell.
pub fn can(spec: &QpSpec, cell: &Cell) -> bool {
    let least = match cell.shape {
        Shape::Two => 2,
        Shape::Several => 3,
        _ => 1,
    };
    match cell.opcode {
        Opcode::Key | Opcode::KeyList | Opcode::KeyPattern => {
            room(spec, cell.opcode, true) >= least
        }
        _ => true,
    }
}

/// 16-byte units of a WQE; `None` if it is none of mlx5dv's.
pub fn units(wr: &Wr) -> Option<u32> {
    Some(match wr.opcode {
        Opcode::Key | Opcode::KeyList | Opcode::KeyPattern => {
            KEY_UNITS + wr.more.key.layout.as_ref().map_or(0, Layout::units)
        }
        Opcode::Memcpy => 4,
        Opcode::Raw => wr.more.raw.len() as u32 / 16,
        Opcode::MaskedSwap8 => 5,
        Opcode::MaskedAdd8 | Opcode::MaskedSwap4 | Opcode::MaskedAdd4 => 4,
        _ => return None,
    })
}

/// Fills in what an operation of mlx5dv's has beside the fields of verbs.
pub fn fill(rng: &mut StdRng, spec: &QpSpec, cell: &Cell, wr: &mut Wr) {
    match cell.opcode {
        Opcode::Key | Opcode::KeyList | Opcode::KeyPattern => {
            wr.pieces.clear();
            wr.is_inline = true;
            wr.more.key = key(rng, spec, cell);
        }
        Opcode::Memcpy => {
            let len = match rng.random_range(0..8) {
                0 => 1 << 31,
                1 => 1,
                _ => rng.random_range(1..=1 << 31),
            };
            wr.pieces = (0..2)
                .map(|_| Piece {
                    address: rng.random(),
                    len,
                    lkey: rng.random(),
                })
                .collect();
        }
        Opcode::Raw => {
            wr.pieces.clear();
            wr.more.raw = raw(rng, cell);
        }
        Opcode::MaskedSwap4 | Opcode::MaskedAdd4 => {
            wr.compare_add &= u64::from(u32::MAX);
            wr.swap &= u64::from(u32::MAX);
            wr.more.compare_mask = rng.random::<u32>().into();
            wr.more.swap_mask = rng.random::<u32>().into();
        }
        _ => {
            wr.more.compare_mask = rng.random();
            wr.more.swap_mask = rng.random();
        }
    }
}

fn key(rng: &mut StdRng, spec: &QpSpec, cell: &Cell) -> KeyCall {
    let pattern = match cell.opcode {
        Opcode::KeyList => false,
        Opcode::KeyPattern => true,
        _ => rng.random(),
    };
    let most = room(spec, cell.opcode, pattern);
    let n = match cell.shape {
        Shape::Empty => 0,
        Shape::One => 1,
        Shape::Two => 2,
        Shape::Several => rng.random_range(3..=most.max(3)),
        _ => most,
    };
    // LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC
    let access = rng.random::<u32>() & 0xf;
    let layout = match pattern {
        false => {
            // Mostly with a sum in 31 bits: libmlx5 counts no further (see `divergence::LONG_KEY`).
            let is_long = rng.random_ratio(1, 20);
            let most = match is_long {
                true => i32::MAX as u32,
                false => i32::MAX as u32 / KEY_ENTRIES,
            };
            let piece = |_| Piece {
                address: rng.random(),
                len: rng.random_range(0..=most),
                lkey: rng.random(),
            };
            Layout::List((0..n).map(piece).collect())
        }
        true => Layout::Pattern(
            rng.random(),
            (0..n)
                .map(|_| {
                    let len = rng.random_range(0..=0xffff);
                    Turn {
                        address: rng.random(),
                        len,
                        skip: rng.random_range(0..=0xffff - len),
                        lkey: rng.random(),
                    }
                })
                .collect(),
        ),
    };
    let whole = cell.opcode != Opcode::Key;
    let has_layout = whole || cell.shape != Shape::Empty;
    let has_access = whole || rng.random();
    KeyCall {
        key: rng.random(),
        access: has_access.then_some(access),
        layout: has_layout.then_some(layout),
        access_first: whole || rng.random(),
    }
}

/// Where a key's length is in a work request: `len` of `struct mlx5_wqe_mkey_context_seg`, behind 64 bytes.
pub const KEY_LENGTH: std::ops::Range<usize> = 88..96;

/// The sum of a list of 2 GiB or more.
pub fn long_list(wr: &Wr) -> Option<u64> {
    let Some(Layout::List(list)) = &wr.more.key.layout else {
        return None;
    };
    let sum = list.iter().map(|piece| u64::from(piece.len)).sum();
    (sum > i32::MAX as u64).then_some(sum)
}

/// Flags of a control segment (mlx5dv.h `MLX5_WQE_CTRL_*`).
fn control_flags(flags: u8, small_fence: bool) -> u8 {
    let set = |is: bool, bit: u8| if is { bit } else { 0 };
    let fence = flags & flags::FENCE != 0;
    set(fence, 0x80)
        | set(small_fence && !fence, 0x20)
        | set(flags & flags::SIGNALED != 0, 8)
        | set(flags & flags::SOLICITED != 0, 2)
}

/// A work request that the program builds: any bytes, with a control segment that says their number.
fn raw(rng: &mut StdRng, cell: &Cell) -> Vec<u8> {
    let units = match cell.shape {
        Shape::Empty => 1,
        Shape::One => 2,
        Shape::Two => 3,
        Shape::Several => rng.random_range(5..=8),
        _ => RAW_UNITS,
    };
    let mut bytes: Vec<u8> = (0..units * 16).map(|_| rng.random()).collect();
    // SEND, RDMA_WRITE, RDMA_READ, UMR, MMO
    bytes[3] = [0x0a, 0x08, 0x10, 0x25, 0x2f][rng.random_range(0..5)];
    bytes[7] = units as u8;
    bytes[11] = control_flags(cell.flags, false);
    bytes
}

/// Byte of the queue pair's number in a work request.
pub const NUMBER: std::ops::Range<usize> = 4..7;

/// The work request's bytes with a queue pair's number. A queue pair whose every work request completes leaves those that
/// the program built as they are.
pub fn raw_of(wr: &Wr, qpn: u32, signals_all: bool) -> Vec<u8> {
    let mut bytes = match wr.opcode {
        Opcode::Raw => wr.more.raw.clone(),
        _ => masked(wr, signals_all),
    };
    bytes[NUMBER].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bytes
}

/// A masked atomic as UCX lays it out (`uct_ib_mlx5_masked_cswap32_seg` and its siblings): verbs has none, so the witness
/// posts it as a work request of the program's own.
fn masked(wr: &Wr, signals_all: bool) -> Vec<u8> {
    let wide = matches!(wr.opcode, Opcode::MaskedSwap8 | Opcode::MaskedAdd8);
    let units = units(wr).unwrap_or(0) as u8;
    let signaled = if signals_all { flags::SIGNALED } else { 0 };
    let flags = control_flags(wr.flags | signaled, wr.more.small_fence);
    let mut bytes = vec![8 + u8::from(wide), 0, 0, wr.opcode.device()];
    bytes.extend([0, 0, 0, units, 0, 0, 0, flags, 0, 0, 0, 0]);
    bytes.extend(wr.remote.to_be_bytes());
    bytes.extend(wr.rkey.to_be_bytes());
    bytes.extend([0; 4]);
    let operands: &[u64] = match wr.opcode {
        Opcode::MaskedSwap8 | Opcode::MaskedSwap4 => &[
            wr.swap,
            wr.compare_add,
            wr.more.swap_mask,
            wr.more.compare_mask,
        ],
        Opcode::MaskedAdd8 => &[wr.compare_add, wr.more.swap_mask],
        _ => &[wr.compare_add, wr.more.swap_mask, 0, 0],
    };
    for operand in operands {
        match wide {
            true => bytes.extend(operand.to_be_bytes()),
            false => bytes.extend((*operand as u32).to_be_bytes()),
        }
    }
    let piece = wr.pieces[0];
    bytes.extend(piece.len.to_be_bytes());
    bytes.extend(piece.lkey.to_be_bytes());
    bytes.extend(piece.address.to_be_bytes());
    bytes
}

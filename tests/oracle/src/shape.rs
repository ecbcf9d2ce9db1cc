//! What a work request looks like from outside: the axes of the coverage table.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{Api, Opcode, Service, Wr, flags};
use crate::direct;

/// How its data is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// No data.
    Empty,
    /// One piece.
    One,
    /// Two pieces.
    Two,
    /// Three or more.
    Several,
    /// As many as the queue pair takes.
    Full,
    /// A piece of no bytes among others.
    Hole,
    /// Only pieces of no bytes.
    Holes,
    /// One piece, copied.
    Inline,
    /// Several pieces, copied.
    InlineList,
    /// As many bytes as the queue pair takes, copied.
    InlineFull,
    /// No bytes, "copied".
    InlineNothing,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Empty,
        Self::One,
        Self::Two,
        Self::Several,
        Self::Full,
        Self::Hole,
        Self::Holes,
        Self::Inline,
        Self::InlineList,
        Self::InlineFull,
        Self::InlineNothing,
    ];

    /// Whether the data is copied.
    pub const fn is_inline(self) -> bool {
        matches!(
            self,
            Self::Inline | Self::InlineList | Self::InlineFull | Self::InlineNothing
        )
    }

    /// Whether an operation can have it by an interface. A builder's `wr_set_sge` does not look at the length, so that
    /// pieces of no bytes go by the list setter there; atomics have one piece of eight bytes; raw Ethernet needs the
    /// bytes of its header.
    pub const fn suits(self, service: Service, opcode: Opcode) -> bool {
        if opcode.is_direct() {
            return direct::suits(self, opcode);
        }
        if !opcode.has_data() {
            return matches!(self, Self::Empty);
        }
        if opcode.is_atomic() {
            return matches!(self, Self::One);
        }
        if self.is_inline() && !opcode.can_inline() {
            return false;
        }
        match service {
            Service::Raw => matches!(self, Self::One | Self::Two | Self::Several | Self::Full),
            _ => true,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no data",
            Self::One => "1 SGE",
            Self::Two => "2 SGE",
            Self::Several => "3+ SGE",
            Self::Full => "max SGE",
            Self::Hole => "0-byte SGE among others",
            Self::Holes => "0-byte SGEs only",
            Self::Inline => "inline",
            Self::InlineList => "inline list",
            Self::InlineFull => "max inline",
            Self::InlineNothing => "inline of 0 bytes",
        })
    }
}

static INLINE_HEADER: AtomicU32 = AtomicU32::new(0);

/// Bytes of each raw packet that the process's devices want in the work request: 0 or 18.
pub fn inline_header() -> u32 {
    INLINE_HEADER.load(Ordering::Relaxed)
}

/// Chooses them, before any device is opened.
pub fn set_inline_header(bytes: u32) {
    INLINE_HEADER.store(bytes, Ordering::Relaxed);
}

/// One cell of the coverage table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// Service type.
    pub service: Service,
    /// Interface.
    pub api: Api,
    /// Operation.
    pub opcode: Opcode,
    /// FENCE, SIGNALED and SOLICITED in all combinations (and IP_CSUM on raw Ethernet).
    pub flags: u8,
    /// Data.
    pub shape: Shape,
    /// Whether the WQE goes over the end of the ring.
    pub wraps: bool,
}

impl Cell {
    /// Every cell that can exist: raw Ethernet knows no fence, but has checksums; a WQE of one block cannot wrap.
    pub fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for service in Service::ALL {
            let bits: &[u8] = match service {
                Service::Raw => &[flags::SIGNALED, flags::SOLICITED, flags::IP_CSUM],
                _ => &[flags::FENCE, flags::SIGNALED, flags::SOLICITED],
            };
            let sets = (0..8_u8).map(|set| {
                let chosen = bits.iter().enumerate();
                let chosen = chosen.filter(|(bit, _)| set >> bit & 1 != 0);
                chosen.map(|(_, flag)| flag).sum::<u8>()
            });
            for flags in sets {
                for opcode in service.opcodes() {
                    for shape in Shape::ALL {
                        if !shape.suits(service, *opcode) {
                            continue;
                        }
                        for api in service.interfaces() {
                            for wraps in [false, true] {
                                let cell = Self {
                                    service,
                                    api: *api,
                                    opcode: *opcode,
                                    flags,
                                    shape,
                                    wraps,
                                };
                                if !wraps || cell.can_wrap() {
                                    cells.push(cell);
                                }
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    /// Whether some WQE of it has two blocks or more.
    fn can_wrap(&self) -> bool {
        if self.opcode.is_direct() {
            return direct::can_wrap(self.shape, self.opcode);
        }
        // Headers of 54 bytes take four units more than the segment.
        let headers = match self.opcode {
            Opcode::Tso => 4 - inline_header() / 16,
            _ => 0,
        };
        let fixed = fixed_units(self.service, self.opcode) + headers;
        let data = match self.shape {
            Shape::Empty | Shape::Holes | Shape::InlineNothing => 0,
            Shape::One => 1,
            Shape::Two => 2,
            Shape::Several | Shape::Full | Shape::Hole => 4,
            Shape::Inline | Shape::InlineList | Shape::InlineFull => 4,
        };
        fixed + data > 4
    }
}

/// 16-byte units before the data of an operation (rdma-core `providers/mlx5/wqe.h`: the segments' sizes).
pub fn fixed_units(service: Service, opcode: Opcode) -> u32 {
    let operation = match opcode {
        Opcode::Write | Opcode::WriteImm | Opcode::Read => 1,
        Opcode::CompareSwap | Opcode::FetchAdd => 2,
        // UMR control 48, mkey context 64; a bind also has a KLM in 64 bytes.
        Opcode::LocalInv => 7,
        Opcode::BindMw => 11,
        _ => 0,
    };
    let address = match service {
        Service::Ud => 3,
        Service::Dci if opcode.has_data() => 3,
        Service::Xrc if opcode.has_data() => 1,
        // Ethernet segment, with or without 18 bytes of header.
        Service::Raw => 1 + inline_header() / 16,
        _ => 0,
    };
    1 + operation + address
}

/// 16-byte units of a whole WQE.
pub fn units(service: Service, wr: &Wr) -> u32 {
    if let Some(units) = direct::units(wr) {
        return units;
    }
    let fixed = fixed_units(service, wr.opcode);
    if wr.opcode == Opcode::Tso {
        // Two bytes of the headers are in the Ethernet segment's first 16.
        let header = 1 + 1 + (wr.header.len - 2).div_ceil(16);
        return header + wr.pieces.len() as u32;
    }
    if wr.opcode == Opcode::BindMw && wr.bind.len == 0 {
        return fixed - 4;
    }
    if wr.is_inline {
        let bytes: u32 = wr.pieces.iter().map(|piece| piece.len).sum();
        return fixed
            + if bytes > 0 {
                (4 + bytes).div_ceil(16)
            } else {
                0
            };
    }
    let mut pieces = wr.pieces.iter().filter(|piece| piece.len > 0).count() as u32;
    let is_first_used_up = wr
        .pieces
        .first()
        .is_some_and(|piece| piece.len == inline_header());
    if service == Service::Raw && pieces > 0 && is_first_used_up {
        pieces -= 1;
    }
    fixed + pieces
}

/// 64-byte blocks of a whole WQE.
pub fn blocks(service: Service, wr: &Wr) -> u32 {
    units(service, wr).div_ceil(4)
}

//! Shapes of queues, by seed.

use std::fmt;

/// A queue to ask for; its text is a line for `mlx5_shapes.c`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Qp {
        /// `enum ibv_qp_type`
        kind: u32,
        send_wr: u32,
        recv_wr: u32,
        send_sge: u32,
        recv_sge: u32,
        inline: u32,
        signal: bool,
        shared: bool,
        /// `enum ibv_qp_create_send_ops_flags`; 0 for none named.
        ops: u64,
        /// Bytes of the header for segmentation; 0 for none.
        header: u32,
    },
    Cq {
        cqe: i32,
        /// The size to change to.
        again: i32,
    },
    Srq {
        wr: u32,
        sge: u32,
    },
    Wq {
        wr: u32,
        sge: u32,
    },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Qp {
                kind,
                send_wr,
                recv_wr,
                send_sge,
                recv_sge,
                inline,
                signal,
                shared,
                ops,
                header,
            } => {
                let (signal, shared) = (u8::from(signal), u8::from(shared));
                write!(
                    f,
                    "q {kind} {send_wr} {recv_wr} {send_sge} {recv_sge} {inline} {signal} {shared} {ops:x} {header}"
                )
            }
            Self::Cq { cqe, again } => write!(f, "c {cqe} {again}"),
            Self::Wq { wr, sge } => write!(f, "w {wr} {sge}"),
            Self::Srq { wr, sge } => write!(f, "s {wr} {sge}"),
        }
    }
}

/// A generator of numbers (xorshift64*, Vigna 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end.max(1)
    }

    fn coin(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Entries of a completion queue; large ones take long to make.
    fn completions(&mut self) -> i32 {
        let most = if self.coin(40) { 1 << 22 } else { 1 << 15 };
        self.size(most) as i32
    }

    /// Small numbers often, powers of two and their neighbours often, large ones at times.
    fn size(&mut self, max: u64) -> u32 {
        let number = match self.below(8) {
            0 => self.below(3),
            1 | 2 => (1 << self.below(16)) + self.below(3),
            3 => max + self.below(3),
            _ => self.below(max.min(600)),
        };
        number.saturating_sub(1) as u32
    }
}

/// `count` shapes.
pub(crate) fn shapes(seed: u64, count: usize) -> Vec<Shape> {
    // `enum ibv_qp_type`: RC, UC, UD, RAW_PACKET, XRC_SEND
    const KINDS: [u32; 5] = [2, 3, 4, 8, 9];
    // operations that each of them has
    const OPS: [u64; 5] = [0x3ff, 0x38f, 0xc, 0x404, 0x3ff];
    let mut random = Random(seed);
    (0..count)
        .map(|_| match random.below(9) {
            0 => Shape::Cq {
                cqe: random.completions(),
                again: random.completions(),
            },
            1 => Shape::Srq {
                wr: random.size(32768),
                sge: random.size(31),
            },
            2 => Shape::Wq {
                wr: random.size(32768),
                sge: random.size(32),
            },
            _ => {
                let which = random.below(5) as usize;
                let shared = which < 3 && random.coin(4);
                // libmlx5 refuses too many receives even where a shared queue makes them meaningless
                let most_receives = if shared { 600 } else { 32768 };
                Shape::Qp {
                    kind: KINDS[which],
                    send_wr: random.size(32768),
                    recv_wr: random.size(most_receives).min(32768),
                    send_sge: random.size(30),
                    recv_sge: random.size(32),
                    inline: if random.coin(3) { random.size(1000) } else { 0 },
                    signal: random.coin(2),
                    shared,
                    ops: if random.coin(2) {
                        random.below(0x800) & OPS[which]
                    } else {
                        0
                    },
                    header: if which == 3 && random.coin(3) {
                        random.size(100)
                    } else {
                        0
                    },
                }
            }
        })
        .collect()
}

//! Transports × operations × sizes × flags: bytes arrive, and completions say what happened.

use super::{Need, Suite};
use crate::check::{Check, equal, fail};
use crate::fixture::{Env, Pair, Setup};
use crate::verbs::types::*;

/// Around each place where an encoder or a packetiser changes its mind.
const SIZES: [u32; 14] = [
    0,
    1,
    3,
    63,
    64,
    65,
    255,
    256,
    1024,
    4095,
    4096,
    4097,
    65_536,
    1 << 20,
];

const IMM: u32 = 0x0102_f3f4;

/// Operations that move bytes from a to b (or, for a READ, back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Move {
    const ALL: [Self; 5] = [
        Self::Send,
        Self::SendImm,
        Self::Write,
        Self::WriteImm,
        Self::Read,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SendImm => "send_imm",
            Self::Write => "write",
            Self::WriteImm => "write_imm",
            Self::Read => "read",
        }
    }

    /// IBTA 9.4: which transport carries it.
    fn on(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => true,
            Transport::Uc => self != Self::Read,
            Transport::Ud => matches!(self, Self::Send | Self::SendImm),
            Transport::Raw => false,
        }
    }

    fn op(self, remote: Remote) -> Op {
        match self {
            Self::Send => Op::Send,
            Self::SendImm => Op::SendImm(IMM),
            Self::Write => Op::Write(remote),
            Self::WriteImm => Op::WriteImm(remote, IMM),
            Self::Read => Op::Read(remote),
        }
    }

    fn sent_opcode(self) -> u32 {
        match self {
            Self::Send | Self::SendImm => wc_op::SEND,
            Self::Write | Self::WriteImm => wc_op::RDMA_WRITE,
            Self::Read => wc_op::RDMA_READ,
        }
    }

    /// The receiver's completion, for operations that make one.
    fn received_opcode(self) -> Option<u32> {
        match self {
            Self::Send | Self::SendImm => Some(wc_op::RECV),
            Self::WriteImm => Some(wc_op::RECV_RDMA_WITH_IMM),
            Self::Write | Self::Read => None,
        }
    }

    fn has_imm(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }
}

/// How the bytes lie in the sender's memory.
#[derive(Clone, Copy)]
enum Shape {
    Whole,
    Pieces(&'static [u32]),
}

/// One transfer.
#[derive(Clone, Copy)]
struct Transfer {
    transport: Transport,
    what: Move,
    len: u32,
    flags: u32,
    shape: Shape,
    signaled: bool,
}

impl Transfer {
    fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.transport == Transport::Ud {
            if self.len > 1024 {
                needs.push(Need::Mtu(self.len));
            }
        } else if self.len > 65_536 {
            needs.push(Need::Message(self.len));
        }
        if let Shape::Pieces(pieces) = self.shape
            && pieces.len() > 4
        {
            needs.push(Need::Sge(pieces.len() as u32));
        }
        needs
    }

    fn run(&self, env: &Env) -> Check {
        let Self { what, len, .. } = *self;
        let mut setup = Setup::new(self.transport);
        setup.len = u64::from(len) * 2 + 8192;
        if self.flags & send::INLINE != 0 {
            setup.caps.inline = len;
        }
        if let Shape::Pieces(pieces) = self.shape {
            setup.caps.send_sge = setup.caps.send_sge.max(pieces.len() as u32);
        }
        let pair = Pair::connected(env, &setup)?;
        let (a, b) = (&pair.a, &pair.b);
        let (source, sink) = match what {
            Move::Read => (b, a),
            _ => (a, b),
        };
        let seed = env.seed ^ u64::from(len);
        // Bytes around the target must not change, so both are filled first.
        let at = match what.received_opcode() {
            Some(wc_op::RECV) => b.grh() + 64,
            _ => 64,
        };
        source.fill(64, len.into(), seed)?;
        sink.fill(0, at + u64::from(len) + 64, !seed)?;
        let sg = self.pieces(a);
        if what.received_opcode().is_some() {
            let sge = b.sge(64, (at - 64) as u32 + len);
            // A WRITE with immediate data consumes a receive, but not its memory.
            let list = match what {
                Move::WriteImm => vec![],
                _ => vec![sge],
            };
            b.post_recv(&[RecvWr::new(7, list)])?;
        }
        let mut wr = SendWr::new(5, what.op(b.remote(64)), sg).with(self.flags);
        if !self.signaled {
            // The next request's completion tells that this one is done (IBTA 10.8.6).
            a.post(wr.unsignaled())?;
            b.post_recv(&[RecvWr::new(8, [b.sge(0, 0)])])?;
            wr = SendWr::new(6, Op::Send, []);
            if self.transport == Transport::Ud {
                return fail("an unsignaled datagram has its own case");
            }
            a.post(wr)?;
            a.sent(&[(6, Status::SUCCESS)])?;
        } else {
            a.post(wr)?;
            let done = a.sent(&[(5, Status::SUCCESS)])?;
            equal(
                "opcode of the send completion",
                done[0].opcode,
                what.sent_opcode(),
            )?;
        }
        if let Some(opcode) = what.received_opcode() {
            let wcs = b.received(&[(7, Status::SUCCESS)])?;
            self.check_received(&wcs[0], a, b, opcode)?;
        }
        if self.transport == Transport::Uc && what == Move::Write {
            // Unreliable and without a completion at b: a following SEND orders the bytes.
            b.post_recv(&[RecvWr::new(9, [])])?;
            a.post(SendWr::new(9, Op::Send, []))?;
            b.received(&[(9, Status::SUCCESS)])?;
        }
        sink.expect(at, len.into(), seed)?;
        self.check_around(sink, at, !seed)
    }

    fn pieces(&self, a: &crate::fixture::Side<'_>) -> Vec<Sge> {
        match self.shape {
            Shape::Whole => vec![a.sge(64, self.len)],
            Shape::Pieces(pieces) => {
                let mut at = 64;
                let mut sg = Vec::new();
                for len in pieces {
                    sg.push(a.sge(at, *len));
                    at += u64::from(*len);
                }
                sg
            }
        }
    }

    fn check_received(
        &self,
        wc: &Wc,
        a: &crate::fixture::Side<'_>,
        b: &crate::fixture::Side<'_>,
        opcode: u32,
    ) -> Check {
        equal("opcode of the receive completion", wc.opcode, opcode)?;
        equal("byte_len", wc.byte_len, b.grh() as u32 + self.len)?;
        equal("immediate data", wc.imm, self.what.has_imm().then_some(IMM))?;
        if self.transport == Transport::Ud {
            equal("src_qp", wc.src_qp, a.qp.num)?;
            equal("GRH flag", wc.grh, true)?;
        }
        Ok(())
    }

    fn check_around(&self, sink: &crate::fixture::Side<'_>, at: u64, seed: u64) -> Check {
        let len = u64::from(self.len);
        let before = crate::fixture::pattern(seed, at + len + 64);
        // A datagram's first 40 bytes are its GRH's to write.
        let untouched = sink.v.read(sink.buf, 0, 64)?;
        crate::fixture::same_bytes(&untouched, &before[..64], 0)?;
        let after = sink.v.read(sink.buf, at + len, 64)?;
        crate::fixture::same_bytes(&after, &before[(at + len) as usize..], at + len)
    }
}

pub(super) fn cases(suite: &mut Suite) {
    let base = |transport, what, len| Transfer {
        transport,
        what,
        len,
        flags: 0,
        shape: Shape::Whole,
        signaled: true,
    };
    let mut add = |name: String, transfer: Transfer| {
        suite.case(name, &transfer.needs(), move |env| transfer.run(env));
    };
    for transport in Transport::ALL {
        for what in Move::ALL.into_iter().filter(|what| what.on(transport)) {
            let name = what.name();
            for len in SIZES {
                if transport == Transport::Ud && len > 4096 {
                    continue;
                }
                add(
                    format!("transfer/{transport}/{name}/len={len}"),
                    base(transport, what, len),
                );
            }
            for (flag, bits) in [("fence", send::FENCE), ("solicited", send::SOLICITED)] {
                let transfer = Transfer {
                    flags: bits,
                    ..base(transport, what, 100)
                };
                add(format!("transfer/{transport}/{name}/{flag}"), transfer);
            }
            if transport == Transport::Rc {
                let transfer = Transfer {
                    signaled: false,
                    ..base(transport, what, 100)
                };
                add(format!("transfer/{transport}/{name}/unsignaled"), transfer);
            }
            if what != Move::Read {
                for len in [0, 1, 15, 16, 17, 44, 64, 200] {
                    let transfer = Transfer {
                        flags: send::INLINE,
                        ..base(transport, what, len)
                    };
                    add(
                        format!("transfer/{transport}/{name}/inline={len}"),
                        transfer,
                    );
                }
            }
            for (shape, pieces) in SHAPES {
                let len = pieces.iter().sum();
                let transfer = Transfer {
                    shape: Shape::Pieces(pieces),
                    ..base(transport, what, len)
                };
                add(
                    format!("transfer/{transport}/{name}/sges={shape}"),
                    transfer,
                );
            }
        }
    }
}

/// Gather lists of the fault table and of the size limits.
const SHAPES: [(&str, &[u32]); 6] = [
    ("none", &[]),
    ("4+0+4[B19]", &[4, 0, 4]),
    ("5+0+7+3", &[5, 0, 7, 3]),
    ("100+200+12[B24]", &[100, 200, 12]),
    ("0+100", &[0, 100]),
    ("8x128", &[128; 8]),
];

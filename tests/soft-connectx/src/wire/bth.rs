//! Transport headers: the base header, and those that its opcode brings along (IBTA 9.2 to 9.6, table 38).

use super::Malformed;

/// The service of a packet: the upper three bits of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection (IBTA annex 14).
    Xrc = 5,
    /// Dynamic connections. Their headers are not public: the manufacturer's range of opcodes is used here, with the access
    /// key and the initiator's number in front of what reliable connections send.
    Dc = 6,
}

impl Service {
    fn of(opcode: u8) -> Option<Self> {
        [Self::Rc, Self::Uc, Self::Ud, Self::Xrc, Self::Dc]
            .into_iter()
            .find(|service| *service as u8 == opcode >> 5)
    }

    /// Whether packets are acknowledged.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc)
    }
}

/// Operations: the lower five bits of the opcode.
#[allow(missing_docs, reason = "the specification's names")]
pub mod op {
    pub const SEND_FIRST: u8 = 0x00;
    pub const SEND_MIDDLE: u8 = 0x01;
    pub const SEND_LAST: u8 = 0x02;
    pub const SEND_LAST_IMM: u8 = 0x03;
    pub const SEND_ONLY: u8 = 0x04;
    pub const SEND_ONLY_IMM: u8 = 0x05;
    pub const WRITE_FIRST: u8 = 0x06;
    pub const WRITE_MIDDLE: u8 = 0x07;
    pub const WRITE_LAST: u8 = 0x08;
    pub const WRITE_LAST_IMM: u8 = 0x09;
    pub const WRITE_ONLY: u8 = 0x0a;
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    pub const READ_REQUEST: u8 = 0x0c;
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    pub const ACKNOWLEDGE: u8 = 0x11;
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub const COMPARE_SWAP: u8 = 0x13;
    pub const FETCH_ADD: u8 = 0x14;
    pub const SEND_LAST_INV: u8 = 0x16;
    pub const SEND_ONLY_INV: u8 = 0x17;
    /// Not of the specification: atomics under masks, with the operands of [`AtomicEth`](super::AtomicEth) twice.
    pub const MASKED_COMPARE_SWAP: u8 = 0x1c;
    pub const MASKED_FETCH_ADD: u8 = 0x1d;

    /// Whether the packet goes back to the requester.
    pub fn is_response(op: u8) -> bool {
        (READ_RESPONSE_FIRST..=ATOMIC_ACKNOWLEDGE).contains(&op)
    }

    /// Whether a message begins with it.
    pub fn begins(op: u8) -> bool {
        !matches!(
            op,
            SEND_MIDDLE
                | SEND_LAST
                | SEND_LAST_IMM
                | SEND_LAST_INV
                | WRITE_MIDDLE
                | WRITE_LAST
                | WRITE_LAST_IMM
        )
    }

    /// Whether a message ends with it.
    pub fn ends(op: u8) -> bool {
        !matches!(op, SEND_FIRST | SEND_MIDDLE | WRITE_FIRST | WRITE_MIDDLE)
    }

    /// Whether it is part of a message that a receive request takes.
    pub fn is_send(op: u8) -> bool {
        matches!(
            op,
            SEND_FIRST..=SEND_ONLY_IMM | SEND_LAST_INV | SEND_ONLY_INV
        )
    }

    /// Whether it is part of a write.
    pub fn is_write(op: u8) -> bool {
        matches!(op, WRITE_FIRST..=WRITE_ONLY_IMM)
    }

    /// Whether it is an atomic operation.
    pub fn is_atomic(op: u8) -> bool {
        matches!(
            op,
            COMPARE_SWAP | FETCH_ADD | MASKED_COMPARE_SWAP | MASKED_FETCH_ADD
        )
    }
}

/// The base transport header (IBTA 9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// Service and operation.
    pub opcode: u8,
    /// Solicited event.
    pub solicited: bool,
    /// Bytes of padding behind the payload; set when the packet is built.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// Destination, 24 bits.
    pub dest_qp: u32,
    /// Whether an acknowledgement is asked for.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Its service, if it has a known one.
    pub fn service(&self) -> Option<Service> {
        Service::of(self.opcode)
    }

    /// Its operation.
    pub fn op(&self) -> u8 {
        self.opcode & 0x1f
    }

    pub(super) fn emit(&self, to: &mut Vec<u8>) {
        // Migration state 1 (migrated), header version 0.
        to.extend([
            self.opcode,
            u8::from(self.solicited) << 7 | 0x40 | (self.pad & 3) << 4,
        ]);
        to.extend(self.pkey.to_be_bytes());
        to.extend((self.dest_qp & 0xff_ffff).to_be_bytes());
        let ack = u32::from(self.ack_request) << 31;
        to.extend((ack | self.psn & 0xff_ffff).to_be_bytes());
    }

    pub(super) fn parse(bytes: &mut &[u8]) -> Result<Self, Malformed> {
        let header = take::<12>(bytes)?;
        if header[1] & 0xf != 0 {
            return Err(Malformed::Version);
        }
        let psn = word(&header[8..]);
        Ok(Self {
            opcode: header[0],
            solicited: header[1] & 0x80 != 0,
            pad: header[1] >> 4 & 3,
            pkey: u16::from_be_bytes([header[2], header[3]]),
            dest_qp: word(&header[4..]) & 0xff_ffff,
            ack_request: psn & 1 << 31 != 0,
            psn: psn & 0xff_ffff,
        })
    }
}

/// Datagram header (IBTA 9.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Sender, 24 bits.
    pub source_qp: u32,
}

/// Header of dynamic connections, see [`Service::Dc`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dceth {
    /// Access key of the target.
    pub key: u64,
    /// Initiator, to whom the answer goes.
    pub source_qp: u32,
    /// Tells its connections before and after a reset apart.
    pub life: u8,
}

/// RDMA header (IBTA 9.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address at the responder.
    pub va: u64,
    /// Its key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

/// Header of atomic operations (IBTA 9.3.5), with masks if the operation has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address at the responder.
    pub va: u64,
    /// Its key.
    pub rkey: u32,
    /// The new value, or what is added.
    pub swap_add: u64,
    /// What is compared with.
    pub compare: u64,
    /// Masked operations: bits that are replaced.
    pub swap_mask: u64,
    /// Masked operations: bits that are compared, or where fields end.
    pub compare_mask: u64,
    /// Masked operations: bytes of the operand, 4 or 8.
    pub width: u8,
}

/// What an acknowledgement says (IBTA 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything up to this packet has been done.
    Ack,
    /// No receive request: try again after the time with this number.
    Rnr(u8),
    /// Not done.
    Nak(NakCode),
}

/// Reasons of refusals (IBTA table 58).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing.
    Sequence = 0,
    /// Invalid request.
    InvalidRequest = 1,
    /// No access.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
}

/// Acknowledgement header (IBTA 9.3.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What it says.
    pub answer: Answer,
    /// Messages done, 24 bits.
    pub msn: u32,
}

impl Aeth {
    fn emit(self, to: &mut Vec<u8>) {
        let syndrome = match self.answer {
            // 31: end to end credits are not used.
            Answer::Ack => 0x1f,
            Answer::Rnr(timer) => 0x20 | timer & 0x1f,
            Answer::Nak(code) => 0x60 | code as u8,
        };
        to.extend((u32::from(syndrome) << 24 | self.msn & 0xff_ffff).to_be_bytes());
    }

    fn parse(bytes: &mut &[u8]) -> Result<Self, Malformed> {
        let all = word(&take::<4>(bytes)?);
        let syndrome = (all >> 24) as u8;
        let answer = match (syndrome >> 5, syndrome & 0x1f) {
            (0, _) => Answer::Ack,
            (1, timer) => Answer::Rnr(timer),
            (3, 0) => Answer::Nak(NakCode::Sequence),
            (3, 1) => Answer::Nak(NakCode::InvalidRequest),
            (3, 2) => Answer::Nak(NakCode::RemoteAccess),
            (3, 3) => Answer::Nak(NakCode::RemoteOperational),
            _ => return Err(Malformed::Syndrome(syndrome)),
        };
        Ok(Self {
            answer,
            msn: all & 0xff_ffff,
        })
    }
}

/// Headers behind the base header, in the order in which they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Of dynamic connections' requests.
    pub dceth: Option<Dceth>,
    /// Of requests of extended connections: the shared receive queue.
    pub xrc_srq: Option<u32>,
    /// Of datagrams.
    pub deth: Option<Deth>,
    /// Of reads, and of the first packet of a write.
    pub reth: Option<Reth>,
    /// Of atomics.
    pub atomic: Option<AtomicEth>,
    /// Of answers.
    pub aeth: Option<Aeth>,
    /// What was there before an atomic operation.
    pub atomic_ack: Option<u64>,
    /// Immediate data, in host order.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
}

impl Extended {
    pub(super) fn emit(&self, to: &mut Vec<u8>) {
        if let Some(dceth) = self.dceth {
            to.extend(dceth.key.to_be_bytes());
            let source = u32::from(dceth.life) << 24 | dceth.source_qp & 0xff_ffff;
            to.extend(source.to_be_bytes());
        }
        if let Some(srqn) = self.xrc_srq {
            to.extend((srqn & 0xff_ffff).to_be_bytes());
        }
        if let Some(deth) = self.deth {
            to.extend(deth.qkey.to_be_bytes());
            to.extend((deth.source_qp & 0xff_ffff).to_be_bytes());
        }
        if let Some(reth) = self.reth {
            to.extend(reth.va.to_be_bytes());
            to.extend(reth.rkey.to_be_bytes());
            to.extend(reth.length.to_be_bytes());
        }
        if let Some(atomic) = self.atomic {
            to.extend(atomic.va.to_be_bytes());
            to.extend(atomic.rkey.to_be_bytes());
            to.extend(atomic.swap_add.to_be_bytes());
            to.extend(atomic.compare.to_be_bytes());
            if atomic.width != 0 {
                to.extend(atomic.swap_mask.to_be_bytes());
                to.extend(atomic.compare_mask.to_be_bytes());
                to.extend(u32::from(atomic.width).to_be_bytes());
            }
        }
        if let Some(aeth) = self.aeth {
            aeth.emit(to);
        }
        if let Some(old) = self.atomic_ack {
            to.extend(old.to_be_bytes());
        }
        if let Some(imm) = self.imm {
            to.extend(imm.to_be_bytes());
        }
        if let Some(key) = self.ieth {
            to.extend(key.to_be_bytes());
        }
    }

    pub(super) fn parse(bth: &Bth, bytes: &mut &[u8]) -> Result<Self, Malformed> {
        let service = bth.service().ok_or(Malformed::Opcode(bth.opcode))?;
        let op = bth.op();
        let is_offered = match service {
            Service::Ud => matches!(op, op::SEND_ONLY | op::SEND_ONLY_IMM),
            Service::Uc => op::is_send(op) && op <= op::SEND_ONLY_IMM || op::is_write(op),
            _ => op <= op::SEND_ONLY_INV && op != 0x15 || op::is_atomic(op),
        };
        if !is_offered {
            return Err(Malformed::Opcode(bth.opcode));
        }
        let mut it = Self::default();
        let is_response = op::is_response(op);
        if service == Service::Dc && !is_response {
            let header = take::<12>(bytes)?;
            it.dceth = Some(Dceth {
                key: long(&header),
                source_qp: word(&header[8..]) & 0xff_ffff,
                life: header[8],
            });
        }
        if service == Service::Xrc && !is_response {
            it.xrc_srq = Some(word(&take::<4>(bytes)?) & 0xff_ffff);
        }
        if service == Service::Ud {
            let header = take::<8>(bytes)?;
            it.deth = Some(Deth {
                qkey: word(&header),
                source_qp: word(&header[4..]) & 0xff_ffff,
            });
        }
        if matches!(
            op,
            op::WRITE_FIRST | op::WRITE_ONLY | op::WRITE_ONLY_IMM | op::READ_REQUEST
        ) {
            let header = take::<16>(bytes)?;
            it.reth = Some(Reth {
                va: long(&header),
                rkey: word(&header[8..]),
                length: word(&header[12..]),
            });
        }
        if op::is_atomic(op) {
            it.atomic = Some(atomic(op, bytes)?);
        }
        if is_response && op != op::READ_RESPONSE_MIDDLE {
            it.aeth = Some(Aeth::parse(bytes)?);
        }
        if op == op::ATOMIC_ACKNOWLEDGE {
            it.atomic_ack = Some(long(&take::<8>(bytes)?));
        }
        if matches!(
            op,
            op::SEND_LAST_IMM | op::SEND_ONLY_IMM | op::WRITE_LAST_IMM | op::WRITE_ONLY_IMM
        ) {
            it.imm = Some(word(&take::<4>(bytes)?));
        }
        if matches!(op, op::SEND_LAST_INV | op::SEND_ONLY_INV) {
            it.ieth = Some(word(&take::<4>(bytes)?));
        }
        Ok(it)
    }
}

fn atomic(op: u8, bytes: &mut &[u8]) -> Result<AtomicEth, Malformed> {
    let header = take::<28>(bytes)?;
    let mut it = AtomicEth {
        va: long(&header),
        rkey: word(&header[8..]),
        swap_add: long(&header[12..]),
        compare: long(&header[20..]),
        ..AtomicEth::default()
    };
    if matches!(op, op::MASKED_COMPARE_SWAP | op::MASKED_FETCH_ADD) {
        let masks = take::<20>(bytes)?;
        it.swap_mask = long(&masks);
        it.compare_mask = long(&masks[8..]);
        it.width = masks[19];
    }
    Ok(it)
}

pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (now, later) = bytes.split_first_chunk::<N>().ok_or(Malformed::Short)?;
    *bytes = later;
    Ok(*now)
}

pub(super) fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

pub(super) fn long(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

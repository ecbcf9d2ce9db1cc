//! The bytes of a completion, by the offsets of `struct mlx5_cqe64` in `infiniband/mlx5dv.h`.
//!
//! Written here by hand and not with `wqe-format`, so that an error there is found.

use super::qp::{QueuePair, SendWqe};

/// `enum` of completion opcodes in `infiniband/mlx5dv.h`.
#[allow(missing_docs, reason = "the C names without their prefix")]
pub mod opcode {
    pub const REQ: u8 = 0;
    pub const RESP_WR_IMM: u8 = 1;
    pub const RESP_SEND: u8 = 2;
    pub const RESP_SEND_IMM: u8 = 3;
    pub const RESP_SEND_INV: u8 = 4;
    pub const RESIZE_CQ: u8 = 5;
    pub const NO_PACKET: u8 = 6;
    pub const SIG_ERR: u8 = 12;
    pub const REQ_ERR: u8 = 13;
    pub const RESP_ERR: u8 = 14;
    pub const INVALID: u8 = 15;
}

/// `enum` of error syndromes in `infiniband/mlx5dv.h`.
#[allow(missing_docs, reason = "the C names without their prefix")]
pub mod syndrome {
    pub const LOCAL_LENGTH_ERR: u8 = 0x01;
    pub const LOCAL_QP_OP_ERR: u8 = 0x02;
    pub const LOCAL_PROT_ERR: u8 = 0x04;
    pub const WR_FLUSH_ERR: u8 = 0x05;
    pub const MW_BIND_ERR: u8 = 0x06;
    pub const BAD_RESP_ERR: u8 = 0x10;
    pub const LOCAL_ACCESS_ERR: u8 = 0x11;
    pub const REMOTE_INVAL_REQ_ERR: u8 = 0x12;
    pub const REMOTE_ACCESS_ERR: u8 = 0x13;
    pub const REMOTE_OP_ERR: u8 = 0x14;
    pub const TRANSPORT_RETRY_EXC_ERR: u8 = 0x15;
    pub const RNR_RETRY_EXC_ERR: u8 = 0x16;
    pub const REMOTE_ABORTED_ERR: u8 = 0x22;
    /// Every syndrome that has a name, in ascending order.
    pub const ALL: [u8; 13] = [
        LOCAL_LENGTH_ERR,
        LOCAL_QP_OP_ERR,
        LOCAL_PROT_ERR,
        WR_FLUSH_ERR,
        MW_BIND_ERR,
        BAD_RESP_ERR,
        LOCAL_ACCESS_ERR,
        REMOTE_INVAL_REQ_ERR,
        REMOTE_ACCESS_ERR,
        REMOTE_OP_ERR,
        TRANSPORT_RETRY_EXC_ERR,
        RNR_RETRY_EXC_ERR,
        REMOTE_ABORTED_ERR,
    ];
}

/// Payload was scattered into the completion's first 32 bytes (`MLX5_INLINE_SCATTER_32`).
pub const SCATTER_32: u8 = 0x4;
/// Payload was scattered into the 64 bytes before the completion (`MLX5_INLINE_SCATTER_64`).
pub const SCATTER_64: u8 = 0x8;
/// The mini completions of a block follow (`cqe_format` 3 in bits 2 and 3 of `op_own`).
pub const COMPRESSED: u8 = 0xc;

/// What a responder's completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Send,
    /// A message with immediate data, in host order.
    SendImm(u32),
    /// A message that invalidated this key.
    SendInv(u32),
    /// Immediate data behind an RDMA write, in host order.
    WriteImm(u32),
}

/// A completion to write: 64 bytes, and the 64 before them in a queue whose entries have 128.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// `struct mlx5_cqe64`; the owner bit is set when it is written.
    pub bytes: [u8; 64],
    /// First half of a 128-byte entry.
    pub before: [u8; 64],
    /// Whether it counts as solicited: with `SE`, or an error.
    pub is_solicited: bool,
}

impl Cqe {
    /// All zero but the opcode.
    pub fn new(opcode: u8) -> Self {
        let mut bytes = [0; 64];
        bytes[63] = opcode << 4;
        Self {
            bytes,
            before: [0; 64],
            is_solicited: matches!(opcode, opcode::REQ_ERR | opcode::RESP_ERR),
        }
    }

    /// Sets `value` at `offset`.
    #[must_use]
    pub fn with(mut self, offset: usize, value: &[u8]) -> Self {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self
    }

    /// Success of a send work request.
    pub fn requester(qp: &QueuePair, wqe: &SendWqe) -> Self {
        let sop_qpn = (u32::from(wqe.opcode()) << 24) | qp.qpn;
        Self::new(opcode::REQ)
            .with_user_index(qp.cqe_user_index())
            .with(56, &sop_qpn.to_be_bytes())
            .with_counter(wqe.index)
            .with_byte_count(wqe.answer_len())
    }

    /// A message that arrived; `counter` is the receive work request's index.
    pub fn responder(qp: &QueuePair, received: Received, byte_count: u32, counter: u16) -> Self {
        let (opcode, word) = match received {
            Received::Send => (opcode::RESP_SEND, 0),
            Received::SendImm(imm) => (opcode::RESP_SEND_IMM, imm),
            Received::SendInv(key) => (opcode::RESP_SEND_INV, key),
            Received::WriteImm(imm) => (opcode::RESP_WR_IMM, imm),
        };
        Self::new(opcode)
            .with_user_index(qp.cqe_user_index())
            .with(36, &word.to_be_bytes())
            .with(56, &qp.qpn.to_be_bytes())
            .with_counter(counter)
            .with_byte_count(byte_count)
    }

    /// Failure of a send work request.
    pub fn requester_error(qp: &QueuePair, wqe: &SendWqe, syndrome: u8, vendor: u8) -> Self {
        let sop_qpn = (u32::from(wqe.opcode()) << 24) | qp.qpn;
        Self::error(opcode::REQ_ERR, qp, syndrome, vendor)
            .with(56, &sop_qpn.to_be_bytes())
            .with_counter(wqe.index)
    }

    /// Failure of a receive work request.
    pub fn responder_error(qp: &QueuePair, counter: u16, syndrome: u8, vendor: u8) -> Self {
        Self::error(opcode::RESP_ERR, qp, syndrome, vendor)
            .with(56, &qp.qpn.to_be_bytes())
            .with_counter(counter)
    }

    fn error(opcode: u8, qp: &QueuePair, syndrome: u8, vendor: u8) -> Self {
        Self::new(opcode)
            .with_user_index(qp.cqe_user_index())
            .with(54, &[vendor, syndrome])
    }

    /// `srqn_uidx`, offset 32.
    #[must_use]
    pub fn with_user_index(self, uidx: u32) -> Self {
        self.with(32, &(uidx & 0xff_ffff).to_be_bytes())
    }

    /// `wqe_counter`, offset 60.
    #[must_use]
    pub fn with_counter(self, counter: u16) -> Self {
        self.with(60, &counter.to_be_bytes())
    }

    /// `byte_cnt`, offset 44.
    #[must_use]
    pub fn with_byte_count(self, n: u32) -> Self {
        self.with(44, &n.to_be_bytes())
    }

    /// `timestamp`, offset 48.
    #[must_use]
    pub fn with_timestamp(self, ticks: u64) -> Self {
        self.with(48, &ticks.to_be_bytes())
    }

    /// `flags_rqpn`, offset 24: GRH in bits 28 and 29, SL in bits 24 to 27, and the sender's number.
    #[must_use]
    pub fn with_source(self, grh: u8, sl: u8, qpn: u32) -> Self {
        let word = (u32::from(grh & 3) << 28) | (u32::from(sl & 0xf) << 24) | (qpn & 0xff_ffff);
        self.with(24, &word.to_be_bytes())
    }

    /// `slid` and `ml_path`, offsets 22 and 17.
    #[must_use]
    pub fn with_path(self, slid: u16, ml_path: u8) -> Self {
        self.with(22, &slid.to_be_bytes()).with(17, &[ml_path])
    }

    /// Counts as solicited.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.is_solicited = true;
        self
    }

    /// Payload of up to 32 bytes inside the completion.
    ///
    /// # Panics
    ///
    /// If it is longer.
    #[must_use]
    pub fn scatter_32(mut self, payload: &[u8]) -> Self {
        self.bytes[..32].fill(0);
        self.bytes[..payload.len()].copy_from_slice(payload);
        assert!(payload.len() <= 32);
        self.bytes[63] |= SCATTER_32;
        self
    }

    /// Payload of up to 64 bytes in front of the completion, in a queue whose entries have 128.
    ///
    /// # Panics
    ///
    /// If it is longer.
    #[must_use]
    pub fn scatter_64(mut self, payload: &[u8]) -> Self {
        self.before.fill(0);
        self.before[..payload.len()].copy_from_slice(payload);
        self.bytes[63] |= SCATTER_64;
        self
    }
}

//! What is compared: implementations of posting and polling on one queue pair.

use anyhow::Result;
use oxverbs_ffi::abi::work::ibv_wc;
use serde::{Deserialize, Serialize};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

use crate::c::device::QpSpec;
use crate::call::{Outcome, Piece, Post};
use crate::ring::Shared;

/// Memory of a queue pair's send side.
#[derive(Clone, Copy, Debug)]
pub struct SendMemory {
    /// The ring.
    pub ring: Shared,
    /// The doorbell record: receive word, send word.
    pub record: Shared,
    /// The page's BlueFlame registers: two, of two halves each.
    pub register: Shared,
    /// The number in control segments.
    pub qpn: u32,
    /// The number in completions.
    pub user_index: u32,
    /// The Ethernet address in datagrams' address vectors, which the kernel answers: each device's own.
    pub mac: [u8; 6],
    /// Key and address of the memory in which copies keep their state, if they are known.
    pub copy_state: Option<[u8; 12]>,
}

/// The fake kernel's address of a device.
pub const fn mac(device: u8) -> [u8; 6] {
    [0x52, 0x6b, 0x4b, 0x0f, 0x4e, 0x10 + device]
}

/// Memory of a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvMemory {
    /// The ring.
    pub ring: Shared,
    /// Bytes of an entry.
    pub entry: usize,
    /// The doorbell record: the receive word is its first.
    pub record: Shared,
}

/// A work completion in plain fields. Fields that the status or opcode leaves undefined are as the caller put them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of ibv_wc")]
pub struct Completion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    /// Whether it is the queue pair's number (numbers differ between implementations).
    pub is_own_qpn: bool,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

impl Completion {
    /// Every field full of one byte.
    pub fn poison(byte: u8) -> Self {
        let word = u32::from_ne_bytes([byte; 4]);
        Self {
            wr_id: u64::from_ne_bytes([byte; 8]),
            status: word,
            opcode: word,
            vendor_err: word,
            byte_len: word,
            imm_data: word,
            is_own_qpn: byte & 1 != 0,
            src_qp: word,
            wc_flags: word,
            pkey_index: word as u16,
            slid: word as u16,
            sl: byte,
            dlid_path_bits: byte,
        }
    }

    /// From ours.
    pub fn of_native(wc: &oxverbs::data::mlx5::Completion, qpn: u32) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            vendor_err: wc.vendor_err,
            byte_len: wc.byte_len,
            imm_data: wc.imm_or_rkey,
            is_own_qpn: wc.qp_num == qpn,
            src_qp: wc.src_qp,
            wc_flags: wc.wc_flags,
            pkey_index: wc.pkey_index,
            slid: wc.slid,
            sl: wc.sl,
            dlid_path_bits: wc.dlid_path_bits,
        }
    }

    /// From C's struct.
    pub fn of(wc: &ibv_wc, qpn: u32) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            vendor_err: wc.vendor_err,
            byte_len: wc.byte_len,
            imm_data: wc.imm_data,
            is_own_qpn: wc.qp_num == qpn,
            src_qp: wc.src_qp,
            wc_flags: wc.wc_flags,
            pkey_index: wc.pkey_index,
            slid: wc.slid,
            sl: wc.sl,
            dlid_path_bits: wc.dlid_path_bits,
        }
    }
}

/// One implementation's queue pair.
pub trait Subject {
    /// Whose it is.
    fn name(&self) -> &'static str;

    /// Brings it to its first state: indices 0, ready to send.
    ///
    /// # Errors
    ///
    /// As its calls.
    fn restart(&mut self) -> Result<()>;

    /// Where its memory is.
    fn memory(&self) -> SendMemory;

    /// What was asked for, with the limits that were given.
    fn spec(&self) -> QpSpec;

    /// Posts.
    fn post(&mut self, post: &Post) -> Outcome;

    /// Cancels, after the device stopped before block `next`: how many, or an errno below zero.
    fn cancel(&mut self, _next: u16, _id: u64) -> i32 {
        -libc::EOPNOTSUPP
    }

    /// Completes everything up to the WQE that begins at block `counter`, and polls that completion.
    fn complete(&mut self, counter: u16, opcode: u8) -> Option<Completion>;
}

/// What the completion matrix needs beyond posting sends.
pub trait Completing: Subject {
    /// Posts one receive with these pieces.
    fn receive(&mut self, id: u64, pieces: &[Piece]);

    /// Posts a list of receives.
    fn post_receives(&mut self, list: &[(u64, Vec<Piece>)]) -> Outcome;

    /// Where its receive ring is.
    ///
    /// # Errors
    ///
    /// It has none.
    fn recv_memory(&self) -> Result<RecvMemory>;

    /// The device writes an entry: what comes before the last 64 bytes of a long slot, and those.
    fn write(&mut self, before: &[u8], cqe: Cqe64);

    /// Polls one completion into memory full of `poison`.
    fn poll(&mut self, poison: u8) -> Option<Completion>;
}

/// How completions are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Into an array: `ibv_poll_cq`.
    Array,
    /// One by one, field by field: `ibv_start_poll` and its siblings.
    Lazy,
}

/// A successful requester's entry.
pub fn requester(memory: &SendMemory, counter: u16, opcode: u8) -> Cqe64 {
    Cqe64 {
        srqn_uidx: memory.user_index.into(),
        byte_cnt: 8.into(),
        sop_drop_qpn: SopDropQpn::from_bits((u32::from(opcode) << 24 | memory.qpn).into()),
        wqe_counter: counter.into(),
        op_own: OpOwn::of(CqeOpcode::REQ, CqeFormat::NONE, false, false),
        ..Cqe64::default()
    }
}

/// No queue pair: where the first one is made there is none to look at.
#[derive(Debug)]
pub struct Nothing;

impl Subject for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn restart(&mut self) -> Result<()> {
        anyhow::bail!("no queue pair")
    }

    fn memory(&self) -> SendMemory {
        unreachable!("no queue pair")
    }

    fn spec(&self) -> QpSpec {
        unreachable!("no queue pair")
    }

    fn post(&mut self, _: &Post) -> Outcome {
        unreachable!("no queue pair")
    }

    fn complete(&mut self, _: u16, _: u8) -> Option<Completion> {
        None
    }
}

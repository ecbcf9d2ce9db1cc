//! Queue pairs and receive work queues as the device sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use uverbs_abi::types::QpType;

use super::cq::CompletionQueue;
use super::memory;
use super::srq::SharedReceiveQueue;
use crate::mlx5::uar::UarPage;

/// Bytes of a basic block of the send queue.
pub const BLOCK: usize = 64;

/// A ring in the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Where it begins.
    pub address: u64,
    /// Entries, a power of two.
    pub count: u32,
    /// Logarithm of the bytes of an entry.
    pub shift: u32,
}

impl Ring {
    /// Bytes.
    pub fn len(&self) -> usize {
        (self.count as usize) << self.shift
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Address of entry `index`, counted over and over.
    pub fn entry(&self, index: u32) -> u64 {
        self.address + (u64::from(index & (self.count - 1)) << self.shift)
    }
}

/// A queue pair, or a receive work queue (which has a receive ring only).
#[derive(Debug)]
pub struct QueuePair {
    /// Number in the device.
    pub qpn: u32,
    /// Service.
    pub qp_type: QpType,
    /// `flags` of the driver's request (`enum mlx5_ib_create_qp_flags`).
    pub flags: u32,
    /// `uidx` of the driver's request.
    pub uidx: u32,
    /// Whether completions carry `uidx` (else the number).
    pub(crate) has_user_index: bool,
    /// The access key of a target of dynamic connections.
    pub dc_key: u64,
    /// The core's `user_handle`.
    pub user_handle: u64,
    /// The send ring, of [`BLOCK`]s.
    pub send: Option<Ring>,
    /// The receive ring.
    pub recv: Option<Ring>,
    /// Whether each receive entry begins with a signature segment of 16 bytes.
    pub has_signature: bool,
    /// Address of the doorbell record: receive counter, send counter. 0 if there is none.
    pub dbrec: u64,
    /// The page in which sends are rung.
    pub uar: Option<Arc<UarPage>>,
    /// Of a page that came with the context, which register (`bfreg_index` as the kernel counts).
    pub register: Option<u32>,
    /// Where sends complete.
    pub send_cq: Option<Arc<CompletionQueue>>,
    /// Where receives complete.
    pub recv_cq: Option<Arc<CompletionQueue>>,
    /// Where receives come from instead of an own ring.
    pub srq: Option<Arc<SharedReceiveQueue>>,
    pub(crate) is_alive: AtomicBool,
    pub(crate) progress: Mutex<Progress>,
}

/// How far the device is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Basic blocks of the send queue, counted over and over.
    pub(crate) sent: u16,
    /// Receive work requests.
    pub(crate) received: u16,
    pub(crate) wait: Option<Wait>,
    /// What a program that asks is told: drained, before this basic block.
    pub(crate) drained: Option<u16>,
    /// Of a bond.
    pub(crate) port: Option<u8>,
}

/// Why a send queue stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: Instant,
    /// Retries left; 7 in the attribute means for ever (`None`).
    pub(crate) rnr_left: Option<u32>,
    /// Waiting for a peer that does not answer, not for one that has no receive request.
    pub(crate) for_peer: bool,
}

/// A send work request out of the ring, in order even where it wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Counter of its first basic block.
    pub index: u16,
    /// Its basic blocks, whole.
    pub bytes: Vec<u8>,
}

impl SendWqe {
    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_be_bytes(word)
    }

    /// `opcode` of the control segment.
    pub fn opcode(&self) -> u8 {
        self.word(0) as u8
    }

    /// `opmod` of the control segment.
    pub fn opmod(&self) -> u8 {
        (self.word(0) >> 24) as u8
    }

    /// The index that the control segment carries.
    pub fn told_index(&self) -> u16 {
        (self.word(0) >> 8) as u16
    }

    /// The queue pair's number that the control segment carries.
    pub fn qpn(&self) -> u32 {
        self.word(4) >> 8
    }

    /// Length in units of 16 bytes.
    pub fn ds(&self) -> u8 {
        self.word(4) as u8 & 0x3f
    }

    /// `fm_ce_se` of the control segment.
    pub fn flags(&self) -> u8 {
        self.bytes[11]
    }

    /// Whether a completion is wanted (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub fn is_signaled(&self) -> bool {
        self.flags() & 0x0c == 0x08
    }

    /// `imm` of the control segment, in host order.
    pub fn imm(&self) -> u32 {
        self.word(12)
    }

    /// The segments, without what fills the last basic block.
    pub fn segments(&self) -> &[u8] {
        &self.bytes[..(usize::from(self.ds()) * 16).min(self.bytes.len())]
    }

    /// Bytes that come back: of atomics 8, of reads the sum of the list.
    pub(crate) fn answer_len(&self) -> u32 {
        match self.opcode() {
            // RDMA_READ: after control and remote address segment, data segments.
            0x10 => self
                .segments()
                .get(32..)
                .unwrap_or_default()
                .chunks_exact(16)
                .map(|data| u32::from_be_bytes([data[0], data[1], data[2], data[3]]) & 0x7fff_ffff)
                .fold(0, u32::wrapping_add),
            // Extended atomics of four bytes say so in their modifier.
            0x14 | 0x15 if self.opmod() == 8 => 4,
            0x11 | 0x12 | 0x14 | 0x15 => 8,
            _ => 0,
        }
    }
}

impl QueuePair {
    /// From now on the device says that the send queue is drained (SQD), with this basic block as the next.
    pub fn drain(&self, next: Option<u16>) {
        self.progress().drained = next;
    }

    /// Basic blocks that the device took.
    pub(crate) fn sent(&self) -> u16 {
        self.progress().sent
    }

    /// The port of a bond that it sends through: the first, until it is told.
    pub(crate) fn port(&self) -> u8 {
        self.progress().port.unwrap_or(1)
    }

    pub(crate) fn set_port(&self, port: u8) {
        self.progress().port = Some(port);
    }

    pub(crate) fn drained(&self) -> Option<u16> {
        self.progress().drained
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not been destroyed.
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    /// What its completions carry in `srqn_uidx`: the user index, or in the older version the number of the
    /// shared receive queue; the queue pair's own number travels in another field.
    pub(crate) fn cqe_user_index(&self) -> u32 {
        match &self.srq {
            _ if self.has_user_index => self.uidx,
            Some(srq) => srq.srqn,
            None => 0,
        }
    }

    /// The send counter in the doorbell record.
    pub fn send_doorbell(&self) -> Option<u16> {
        if self.dbrec == 0 || !self.is_alive() {
            return None;
        }
        // SAFETY: mapped while the queue pair lives; checked when it was made.
        Some(unsafe { memory::read_be32(self.dbrec + 4) } as u16)
    }

    /// The receive counter in the doorbell record.
    pub fn recv_doorbell(&self) -> Option<u16> {
        if self.dbrec == 0 || !self.is_alive() {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { memory::read_be32(self.dbrec) } as u16)
    }

    /// Bytes of the send ring from block `index` on, `blocks` of them, in order even where it wraps.
    ///
    /// # Panics
    ///
    /// If there is no send ring.
    pub fn send_blocks(&self, index: u16, blocks: usize) -> Vec<u8> {
        let ring = self.send.expect("a queue pair that sends");
        let mut bytes = vec![0; blocks * BLOCK];
        for (i, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            let from = ring.entry(u32::from(index).wrapping_add(i as u32));
            if self.is_alive() {
                // SAFETY: an entry of the ring, which is mapped while the queue pair lives.
                unsafe { memory::read(from, block) };
            }
        }
        bytes
    }

    /// Takes the next send work request that was rung and not yet taken.
    pub fn next_send(&self) -> Option<SendWqe> {
        let wqe = self.peek_send()?;
        let blocks = wqe.bytes.len() / BLOCK;
        self.progress().sent = wqe.index.wrapping_add(blocks as u16);
        Some(wqe)
    }

    /// The next send work request that was rung and not yet taken; it is not taken. A length of 0 in it, or one
    /// beyond the doorbell, ends the run.
    pub fn peek_send(&self) -> Option<SendWqe> {
        let rung = self.send_doorbell()?;
        let index = self.progress().sent;
        let waiting = rung.wrapping_sub(index);
        if self.send.is_none() || waiting == 0 {
            return None;
        }
        let first = SendWqe {
            index,
            bytes: self.send_blocks(index, 1),
        };
        let blocks = (usize::from(first.ds()) * 16).div_ceil(BLOCK);
        if blocks == 0 || blocks > usize::from(waiting) {
            return None;
        }
        Some(SendWqe {
            index,
            bytes: self.send_blocks(index, blocks),
        })
    }

    /// All send work requests that were rung and not yet taken.
    pub fn take_sends(&self) -> Vec<SendWqe> {
        std::iter::from_fn(|| self.next_send()).collect()
    }

    /// The next receive work request of the own ring that was rung and not yet taken: counter and bytes.
    pub fn next_recv(&self) -> Option<(u16, Vec<u8>)> {
        let rung = self.recv_doorbell()?;
        let ring = self.recv?;
        let mut progress = self.progress();
        let index = progress.received;
        if rung.wrapping_sub(index) == 0 {
            return None;
        }
        let mut bytes = vec![0; 1 << ring.shift];
        // SAFETY: an entry of the ring, which is mapped while the queue pair lives.
        unsafe { memory::read(ring.entry(index.into()), &mut bytes) };
        progress.received = index.wrapping_add(1);
        Some((index, bytes))
    }

    /// Receive work requests of the own ring that wait.
    pub fn waiting_recvs(&self) -> u16 {
        let rung = self.recv_doorbell().unwrap_or(0);
        rung.wrapping_sub(self.progress().received)
    }

    pub(crate) fn wait(&self) -> Option<Wait> {
        self.progress().wait
    }

    pub(crate) fn set_wait(&self, wait: Option<Wait>) {
        self.progress().wait = wait;
    }

    /// A reset: the device counts from 0 again.
    pub(crate) fn reset(&self) {
        *self.progress() = Progress::default();
    }
}

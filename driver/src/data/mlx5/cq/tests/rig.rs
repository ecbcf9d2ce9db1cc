//! Queues on the heap, and a device that writes entries byte by byte.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::super::super::record::{
    QueueKind, QueueRecord, ReceiveSide, RecvShared, SendShared, WorkKind, WorkRecord,
};
use super::super::super::srq::{SharedReceiveQueue, SrqParts};
use super::super::super::table::UserIndexTable;
use super::super::{Completion, CompletionQueue, CqParts, CqeVersion, ErrorLog};

/// Zeroed memory whose neighbourhood is poisoned: what is before and behind must keep its bytes.
pub(super) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

const GUARD: usize = 256;
const POISON: u8 = 0xa5;

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes + 2 * GUARD, 4096).unwrap();
        // SAFETY: not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let memory = Self { base, layout };
        for at in (0..GUARD).chain(GUARD + bytes..layout.size()) {
            memory
                .byte(at)
                .store(POISON, std::sync::atomic::Ordering::Relaxed);
        }
        memory
    }

    fn byte(&self, at: usize) -> &std::sync::atomic::AtomicU8 {
        assert!(at < self.layout.size());
        // SAFETY: inside.
        let byte = unsafe { self.base.add(at) };
        // SAFETY: the memory lives as long as `self`.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(byte.as_ptr()) }
    }

    pub(super) fn at(&self) -> NonNull<u8> {
        // SAFETY: inside.
        unsafe { self.base.add(GUARD) }
    }

    pub(super) fn address(&self) -> u64 {
        self.at().as_ptr() as u64
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            self.byte(GUARD + at + index)
                .store(byte, std::sync::atomic::Ordering::Release);
        }
    }

    pub(super) fn read(&self, at: usize, length: usize) -> Vec<u8> {
        (at..at + length)
            .map(|at| {
                self.byte(GUARD + at)
                    .load(std::sync::atomic::Ordering::Relaxed)
            })
            .collect()
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.read(at, 4).try_into().unwrap())
    }

    pub(super) fn check_guards(&self) {
        let length = self.layout.size() - 2 * GUARD;
        for at in (0..GUARD).chain(GUARD + length..self.layout.size()) {
            let byte = self.byte(at).load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(byte, POISON, "written outside at {at}");
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// An entry's 64 bytes by offset, as mlx5dv.h `struct mlx5_cqe64` and `struct mlx5_err_cqe` have them.
#[derive(Clone, Copy)]
pub(super) struct Bytes(pub(super) [u8; 64]);

pub(super) const RESP_WR_IMM: u8 = 1;
pub(super) const RESP_SEND: u8 = 2;
pub(super) const RESP_SEND_IMM: u8 = 3;
pub(super) const RESP_SEND_INV: u8 = 4;
pub(super) const RESIZE_CQ: u8 = 5;
pub(super) const REQ: u8 = 0;
pub(super) const REQ_ERR: u8 = 13;
pub(super) const RESP_ERR: u8 = 14;

impl Bytes {
    pub(super) fn new(opcode: u8) -> Self {
        let mut bytes = [0; 64];
        bytes[63] = opcode << 4;
        Self(bytes)
    }

    pub(super) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn uidx(self, uidx: u32) -> Self {
        self.put(32, &uidx.to_be_bytes())
    }

    pub(super) fn imm(self, imm: u32) -> Self {
        self.put(36, &imm.to_be_bytes())
    }

    pub(super) fn byte_count(self, bytes: u32) -> Self {
        self.put(44, &bytes.to_be_bytes())
    }

    /// Opcode of the send request, and queue pair.
    pub(super) fn sop(self, opcode: u8, qpn: u32) -> Self {
        self.put(56, &(u32::from(opcode) << 24 | qpn).to_be_bytes())
    }

    pub(super) fn counter(self, counter: u16) -> Self {
        self.put(60, &counter.to_be_bytes())
    }

    pub(super) fn error(self, vendor: u8, syndrome: u8) -> Self {
        self.put(54, &[vendor, syndrome])
    }

    /// Bits 2 and 3: 32 or 64 bytes of data inside.
    pub(super) fn inline(mut self, bits: u8) -> Self {
        self.0[63] |= bits;
        self
    }
}

pub(super) const RC: u32 = 5;
pub(super) const RC_QPN: u32 = 0x80_0001;
pub(super) const RC_SRQ: u32 = 0x1006;
pub(super) const RC_SRQ_QPN: u32 = 0x12_3456;
pub(super) const UD: u32 = 0xff_ffff;
pub(super) const UD_QPN: u32 = 0xfe_dcba;
pub(super) const XRC_SRQ: u32 = 77;
pub(super) const RWQ: u32 = 78;
pub(super) const NOBODY: u32 = 0x2000;

pub(super) const SQ_BLOCKS: u32 = 16;
pub(super) const RQ_ENTRIES: u32 = 8;
/// Two elements.
pub(super) const RQ_STRIDE: usize = 32;
pub(super) const SRQ_ENTRIES: u32 = 16;
/// A link and three elements.
pub(super) const SRQ_STRIDE: usize = 64;
pub(super) const NULL_LKEY: u32 = 0xdead;

/// A completion queue with queue pairs of several kinds.
pub(super) struct Rig {
    pub(super) cq: CompletionQueue,
    pub(super) ring: Memory,
    pub(super) record: Memory,
    pub(super) uar: Memory,
    pub(super) sq: Memory,
    pub(super) rq: Memory,
    pub(super) srq_ring: Memory,
    _srq_record: Memory,
    pub(super) srq: SharedReceiveQueue,
    pub(super) queues: Vec<(u32, Arc<QueueRecord>)>,
    pub(super) table: Arc<UserIndexTable>,
    pub(super) entries: u32,
    pub(super) size: usize,
    /// The device's index.
    pub(super) pi: u32,
}

pub(super) const CQN: u32 = 0x4321;

impl Rig {
    pub(super) fn new(entries: u32, size: u32) -> Self {
        Self::with(entries, size, true, ErrorLog::default())
    }

    pub(super) fn with(entries: u32, size: u32, v1: bool, log: ErrorLog) -> Self {
        let ring = Memory::new((entries * size) as usize);
        let (record, uar) = (Memory::new(8), Memory::new(64));
        let sq = Memory::new(SQ_BLOCKS as usize * 64);
        let rq = Memory::new(RQ_ENTRIES as usize * RQ_STRIDE);
        let srq_ring = Memory::new(SRQ_ENTRIES as usize * SRQ_STRIDE);
        let srq_record = Memory::new(8);
        let parts = SrqParts {
            ring: srq_ring.at(),
            entries: SRQ_ENTRIES,
            list_entries: SRQ_ENTRIES / 2,
            stride_shift: SRQ_STRIDE.ilog2(),
            max_sge: 3,
            doorbell: srq_record.at().cast(),
            concurrent: true,
            null_lkey: NULL_LKEY,
            tags: None,
            memory: None,
        };
        // SAFETY: the memory is the rig's, which has the queue too.
        let srq = unsafe { SharedReceiveQueue::new(parts) };
        let send = || {
            let send = SendShared::new(sq.at(), SQ_BLOCKS, NULL_LKEY);
            for block in 0..SQ_BLOCKS {
                let record = WorkRecord {
                    wr_id: 0x1000 + u64::from(block),
                    head: 1000 + block,
                    opcode: 0x0a,
                    kind: WorkKind::Plain,
                };
                send.set_record(block, record);
            }
            send.complete(999);
            Some(send)
        };
        let own = || {
            let recv = RecvShared::new(rq.at(), RQ_ENTRIES, RQ_STRIDE.ilog2(), false, NULL_LKEY);
            for entry in 0..RQ_ENTRIES {
                recv.set_wr_id(entry, 0x2000 + u64::from(entry));
            }
            ReceiveSide::Own(recv)
        };
        let shared = || ReceiveSide::Shared(srq.shared().clone());
        let queue = |kind, number, cookie, send, receive| {
            // SAFETY: the rings are the rig's, which has the record too.
            unsafe { QueueRecord::new(kind, number, cookie, send, receive, None) }
        };
        let queues = vec![
            (RC, queue(QueueKind::Rc, RC_QPN, 0x5001, send(), own())),
            (
                RC_SRQ,
                queue(QueueKind::Rc, RC_SRQ_QPN, 0x5002, send(), shared()),
            ),
            (
                UD,
                queue(QueueKind::Ud, UD_QPN, 0x5003, send(), own()).with_checksums(),
            ),
            (
                XRC_SRQ,
                queue(QueueKind::NamedSrq, 0x99, 0x5004, None, shared()),
            ),
            (RWQ, queue(QueueKind::Rwq, 0x98, 0x5005, None, own())),
        ];
        let queues: Vec<_> = queues
            .into_iter()
            .map(|(index, record)| (index, Arc::new(record)))
            .collect();
        let table = UserIndexTable::new();
        let version = if v1 {
            for (index, record) in &queues {
                table.insert(*index, record.clone()).unwrap();
            }
            CqeVersion::V1(table.clone())
        } else {
            let shared_queues = UserIndexTable::new();
            for (_, record) in &queues {
                let into = if record.kind() == QueueKind::NamedSrq {
                    &shared_queues
                } else {
                    &table
                };
                into.insert(record.number(), record.clone()).unwrap();
            }
            CqeVersion::V0 {
                queue_pairs: table.clone(),
                shared_queues,
            }
        };
        let parts = CqParts {
            ring: ring.at(),
            entries,
            entry_size: size,
            cqn: CQN,
            doorbell_record: record.at().cast(),
            uar: uar.at(),
            version,
            clock: None,
            signatures: Arc::default(),
            error_log: Arc::new(log),
            memory: None,
        };
        // SAFETY: the memory is the rig's, which has the queue too.
        let cq = unsafe { CompletionQueue::new(parts) }.unwrap();
        Self {
            cq,
            ring,
            record,
            uar,
            sq,
            rq,
            srq_ring,
            _srq_record: srq_record,
            srq,
            queues,
            table,
            entries,
            size: size as usize,
            pi: 0,
        }
    }

    /// A queue that is at an index already, device and program alike: as after that many completions.
    pub(super) fn start_at(&mut self, index: u32) {
        self.pi = index;
        self.cq.go_to(index);
        // Entries of the lap before have its owner bit; those not reached in this lap too.
        for at in 0..self.entries {
            let lap = if at < index % self.entries {
                index
            } else {
                index.wrapping_sub(self.entries)
            };
            let owner = u8::from(lap & self.entries != 0);
            self.cq.ring.set_op_own(at, owner);
        }
    }

    pub(super) fn queue(&self, index: u32) -> &Arc<QueueRecord> {
        &self.queues.iter().find(|(at, _)| *at == index).unwrap().1
    }

    pub(super) fn send_tail(&self, index: u32) -> u32 {
        self.queue(index).send().unwrap().tail()
    }

    pub(super) fn recv_tail(&self, index: u32) -> u32 {
        self.queue(index).recv().unwrap().tail()
    }

    /// Says what was posted in a block of all send queues.
    pub(super) fn set_kind(&self, block: u32, opcode: u8, kind: WorkKind) {
        for (_, queue) in &self.queues {
            if let Some(send) = queue.send() {
                let before = send.record(block);
                send.set_record(
                    block,
                    WorkRecord {
                        opcode,
                        kind,
                        ..before
                    },
                );
            }
        }
    }

    /// Where the fields of entry `index` begin in the ring.
    pub(super) fn offset(&self, index: u32) -> usize {
        (index % self.entries) as usize * self.size + self.size - 64
    }

    /// The device writes an entry; the owner bit last.
    pub(super) fn complete(&mut self, entry: Bytes) {
        let owner = u8::from(self.pi & self.entries != 0);
        let at = self.offset(self.pi);
        self.ring.write(at, &entry.0[..63]);
        self.ring.write(at + 63, &[entry.0[63] & !1 | owner]);
        self.pi = self.pi.wrapping_add(1);
    }

    /// As [`complete`](Self::complete), with 64 bytes before the fields.
    pub(super) fn complete_wide(&mut self, lower: &[u8; 64], entry: Bytes) {
        assert_eq!(self.size, 128);
        self.ring.write(self.offset(self.pi) - 64, lower);
        self.complete(entry);
    }

    pub(super) fn poll(&mut self, room: usize) -> Vec<Completion> {
        // What is not written keeps this.
        let stale = Completion {
            wr_id: u64::MAX,
            status: 0xeeee_eeee,
            opcode: 0xeeee_eeee,
            vendor_err: 0xeeee_eeee,
            byte_len: 0xeeee_eeee,
            imm_or_rkey: 0xeeee_eeee,
            qp_num: 0xeeee_eeee,
            src_qp: 0xeeee_eeee,
            wc_flags: 0xeeee_eeee,
            pkey_index: 0xeeee,
            slid: 0xeeee,
            sl: 0xee,
            dlid_path_bits: 0xee,
            reserved: [0xee; 2],
        };
        let mut out = vec![stale; room];
        let taken = self.cq.poll(&mut out);
        assert!(
            out[taken..].iter().all(|rest| *rest == stale),
            "the rest is left as it was"
        );
        out.truncate(taken);
        self.check_guards();
        out
    }

    pub(super) fn poll_one(&mut self) -> Completion {
        let mut out = self.poll(4);
        assert_eq!(out.len(), 1);
        out.pop().unwrap()
    }

    pub(super) fn check_guards(&self) {
        for memory in [
            &self.ring,
            &self.record,
            &self.uar,
            &self.sq,
            &self.rq,
            &self.srq_ring,
        ] {
            memory.check_guards();
        }
    }

    /// The consumer index that the device was told.
    pub(super) fn told(&self) -> u32 {
        self.record.word(0)
    }
}

//! What a poll costs on this machine, without a device: `cargo run --release -p oxverbs --example mlx5_poll`.
//!
//! The program writes completions into a queue in ordinary memory as a device would, then takes them, and shows the
//! least time of many rounds per completion. No bus is in it, and the entries are warm in the cache.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use oxverbs::data::mlx5::{
    Completion, CompletionQueue, CqParts, CqeVersion, QueueKind, QueueRecord, ReceiveSide,
    RecvShared, SendShared, UserIndexTable, WorkKind, WorkRecord,
};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, Opcode, SopDropQpn};

const ENTRIES: u32 = 256;
const WQEBBS: u32 = 64;

fn memory(bytes: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes, 4096).expect("a valid layout");
    // SAFETY: not empty. It is never freed: the program ends soon.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory")
}

struct Bench {
    ring: NonNull<u8>,
    cq: CompletionQueue,
    pi: u32,
    queues: u32,
    seed: u64,
}

impl Bench {
    fn new(queues: u32) -> Self {
        let table = UserIndexTable::new();
        let block = memory(WQEBBS as usize * 64);
        for index in 0..queues {
            let send = SendShared::new(block, WQEBBS, 0);
            for wqebb in 0..WQEBBS {
                let record = WorkRecord {
                    wr_id: u64::from(wqebb),
                    head: wqebb,
                    opcode: Opcode::SEND.0,
                    kind: WorkKind::Plain,
                };
                send.set_record(wqebb, record);
            }
            let receive = ReceiveSide::Own(RecvShared::new(block, WQEBBS, 6, false, 0));
            // SAFETY: the ring is never freed, and no completion here has data inside.
            let record =
                unsafe { QueueRecord::new(QueueKind::Rc, index, 0, Some(send), receive, None) };
            table.insert(index, Arc::new(record)).expect("a free index");
        }
        let ring = memory(ENTRIES as usize * 64);
        let parts = CqParts {
            ring,
            entries: ENTRIES,
            entry_size: 64,
            cqn: 1,
            doorbell_record: memory(4096).cast(),
            uar: memory(4096),
            version: CqeVersion::V1(table),
            clock: None,
            error_log: Arc::default(),
            signatures: Arc::default(),
            memory: None,
        };
        // SAFETY: memory of these sizes that is never freed.
        let cq = unsafe { CompletionQueue::new(parts) }.expect("a valid geometry");
        Self {
            ring,
            cq,
            pi: 0,
            queues,
            seed: 1,
        }
    }

    /// Writes as many completions as the ring holds, of queues at random.
    fn fill(&mut self, opcode: CqeOpcode) {
        for counter in 0..ENTRIES {
            self.seed = self
                .seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let queue = (self.seed >> 33) as u32 % self.queues;
            let cqe = Cqe64 {
                srqn_uidx: queue.into(),
                byte_cnt: 64.into(),
                sop_drop_qpn: SopDropQpn::new().with_sop(Opcode::SEND.0).with_qpn(queue),
                wqe_counter: (counter as u16).into(),
                op_own: OpOwn::of(opcode, CqeFormat::NONE, false, self.pi & ENTRIES != 0),
                ..Cqe64::default()
            };
            let offset = (self.pi % ENTRIES) as usize * 64;
            // SAFETY: inside the ring.
            let place = unsafe { self.ring.add(offset) };
            // SAFETY: an entry that was taken, or never written.
            unsafe { place.cast::<Cqe64>().write_volatile(cqe) };
            self.pi = self.pi.wrapping_add(1);
        }
    }

    fn poll(&mut self, opcode: CqeOpcode, batch: usize) -> f64 {
        let mut out = [Completion::default(); 16];
        let mut best = f64::MAX;
        for _ in 0..4000 {
            self.fill(opcode);
            let start = Instant::now();
            let mut taken = 0;
            while taken < ENTRIES as usize {
                taken += self.cq.poll(std::hint::black_box(&mut out[..batch]));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ENTRIES));
        }
        assert_eq!(self.cq.dropped(), 0);
        best
    }

    /// One by one, with opcode and length of each, a batch between start and end.
    fn lazy(&mut self, opcode: CqeOpcode, batch: usize) -> f64 {
        let mut best = f64::MAX;
        for _ in 0..4000 {
            self.fill(opcode);
            let start = Instant::now();
            let mut taken = 0;
            let mut sum = 0;
            while taken < ENTRIES as usize {
                self.cq.start_poll().expect("a completion");
                let end = taken + batch;
                loop {
                    sum += self.cq.wr_id()
                        + u64::from(self.cq.read_opcode() + self.cq.read_byte_len());
                    taken += 1;
                    if taken == end || !self.cq.next_poll() {
                        break;
                    }
                }
                self.cq.end_poll();
            }
            std::hint::black_box(sum);
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ENTRIES));
        }
        best
    }

    fn lazy_empty(&mut self) -> f64 {
        let mut best = f64::MAX;
        for _ in 0..4000 {
            let start = Instant::now();
            for _ in 0..ENTRIES {
                assert!(std::hint::black_box(self.cq.start_poll()).is_err());
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ENTRIES));
        }
        best
    }

    fn empty(&mut self) -> f64 {
        let mut out = [Completion::default(); 16];
        let mut best = f64::MAX;
        for _ in 0..4000 {
            let start = Instant::now();
            for _ in 0..ENTRIES {
                assert_eq!(self.cq.poll(std::hint::black_box(&mut out)), 0);
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ENTRIES));
        }
        best
    }
}

fn main() {
    let mut line = format!("{:>8}", "queues");
    for column in ["send 1", "send 16", "recv 1", "recv 16", "empty"] {
        line += &format!(" {column:>8}");
    }
    for column in ["send 1", "send 16", "recv 1", "recv 16", "empty"] {
        line += &format!(" {:>13}", format!("lazy {column}"));
    }
    println!("{line}");
    for queues in [1, 100, 10_000, 100_000] {
        let mut bench = Bench::new(queues);
        let mut line = format!("{queues:>8}");
        for opcode in [CqeOpcode::REQ, CqeOpcode::RESP_SEND] {
            for batch in [1, 16] {
                line += &format!(" {:>8.2}", bench.poll(opcode, batch));
            }
        }
        line += &format!(" {:>8.2}", bench.empty());
        for opcode in [CqeOpcode::REQ, CqeOpcode::RESP_SEND] {
            for batch in [1, 16] {
                line += &format!(" {:>13.2}", bench.lazy(opcode, batch));
            }
        }
        line += &format!(" {:>13.2}", bench.lazy_empty());
        println!("{line}   ns");
    }
}

//! Our shared receive queues and receive work queues over plain memory.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use oxverbs::data::mlx5::{
    Completion, CompletionQueue, QueueKind, QueueRecord, ReceiveSide, RecvParts, RecvQueue,
    RecvShared, SharedReceiveQueue, SrqParts, UserIndexTable, Verb,
};
use wqe_format::mlx5::Cqe64;
use wqe_format::rxe::Sge;

use crate::call::{Outcome, Piece};
use crate::ours::{Pages, completion_queue};
use crate::pool::{Kind, Pool};
use crate::receive::Receive;
use crate::ring::CqWriter;
use crate::subject::RecvMemory;

const USER_INDEX: u32 = 0x12_3457;
const ENTRIES: u32 = 256;

#[derive(Debug)]
enum Queue {
    Shared(SharedReceiveQueue),
    Own(RecvQueue),
}

/// The queue and its completion queue. They are dropped before their memory.
#[derive(Debug)]
pub struct OwnPool {
    queue: Queue,
    cq: CompletionQueue,
    limits: (u32, u32),
    memory: RecvMemory,
    writer: CqWriter,
    _table: Arc<UserIndexTable>,
    _pages: [Pages; 3],
}

impl OwnPool {
    /// A queue with exactly these limits and as many entries of as many bytes as another's.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new(kind: Kind, limits: (u32, u32), like: RecvMemory) -> Result<Self> {
        let (max_wr, max_sge) = limits;
        let entry = like.entry;
        let count = (like.ring.len() / entry) as u32;
        let ring_pages = Pages::new(like.ring.len())?;
        let cq_pages = Pages::new(ENTRIES as usize * 64)?;
        let words = Pages::new(4096)?;
        // SAFETY: used while the pages live, as what follows.
        let ring = unsafe { ring_pages.whole() }.part(0, like.ring.len());
        // SAFETY: as above.
        let cq_ring = unsafe { cq_pages.whole() }.part(0, ENTRIES as usize * 64);
        // SAFETY: as above.
        let words_all = unsafe { words.whole() };
        let doorbell = words_all.part(0, 8).pointer().cast();
        let (side, shared, queue_kind) = if kind.is_list() {
            let parts = SrqParts {
                ring: ring.pointer(),
                entries: count,
                // What is more waits, for page faults.
                list_entries: (max_wr + 1).next_power_of_two(),
                stride_shift: entry.ilog2(),
                max_sge,
                doorbell,
                concurrent: false,
                null_lkey: 0,
                tags: None,
                memory: None,
            };
            // SAFETY: memory that lives as long as this value, and is nobody else's; there is one thread.
            let srq = unsafe { SharedReceiveQueue::new(parts) };
            let kind = match kind {
                Kind::Xrc => QueueKind::NamedSrq,
                _ => QueueKind::Rc,
            };
            (ReceiveSide::Shared(srq.shared().clone()), Some(srq), kind)
        } else {
            let shared = RecvShared::new(ring.pointer(), count, entry.ilog2(), false, 0);
            (ReceiveSide::Own(shared), None, QueueKind::Rwq)
        };
        // SAFETY: the ring lives as long as this value, whose queues are dropped first.
        let record = unsafe { QueueRecord::new(queue_kind, 0x55, 0, None, side, None) };
        let record = Arc::new(record);
        let table = UserIndexTable::new();
        table
            .insert(USER_INDEX, record.clone())
            .map_err(|_| anyhow!("user index"))?;
        let queue = match shared {
            Some(srq) => Queue::Shared(srq),
            None => {
                // The ring may be larger than what was asked for, and a work queue takes what it holds.
                let parts = RecvParts {
                    record,
                    doorbell,
                    max_wr: count.max(max_wr),
                    max_sge: (entry / 16) as u32,
                };
                // SAFETY: as above.
                let mut queue = unsafe { RecvQueue::new(parts) };
                queue.set_accepting(true);
                Queue::Own(queue)
            }
        };
        // SAFETY: as above.
        let cq = unsafe {
            completion_queue(
                cq_ring.pointer(),
                (ENTRIES, 64),
                words_all.part(64, 8).pointer(),
                words_all.part(2048, 2048).pointer(),
                &table,
            )
        }?;
        Ok(Self {
            queue,
            cq,
            limits,
            memory: RecvMemory {
                ring,
                entry,
                record: words_all.part(0, 4),
            },
            writer: CqWriter::new(cq_ring, ENTRIES, 64),
            _table: table,
            _pages: [ring_pages, cq_pages, words],
        })
    }
}

impl Pool for OwnPool {
    fn name(&self) -> &'static str {
        "native"
    }

    fn limits(&self) -> (u32, u32) {
        self.limits
    }

    fn memory(&self) -> RecvMemory {
        self.memory
    }

    fn post(&mut self, list: &[Receive]) -> Outcome {
        let sge = |piece: &Piece| Sge {
            addr: piece.address,
            length: piece.len,
            lkey: piece.lkey,
        };
        let sges: Vec<Vec<Sge>> = list
            .iter()
            .map(|(_, pieces)| pieces.iter().map(sge).collect())
            .collect();
        let mut posted = 0;
        let requests = list.iter().zip(&sges).map(|((id, _), sges)| {
            posted += 1;
            (*id, &sges[..])
        });
        let result = match &mut self.queue {
            Queue::Shared(srq) => srq.post(requests),
            Queue::Own(queue) => queue.post(requests),
        };
        match result {
            Ok(_) => Outcome::DONE,
            Err(refused) => Outcome {
                errno: refused.error.errno(Verb::PostRecv).0,
                refused: Some(posted - 1),
            },
        }
    }

    fn complete(&mut self, cqe: Cqe64) -> Option<u64> {
        self.writer.write(&[], cqe);
        let mut found = [Completion::default()];
        (self.cq.poll(&mut found) == 1).then(|| found[0].wr_id)
    }

    fn user_index(&self) -> u32 {
        USER_INDEX
    }
}

//! Ours, through the native API. What is polled is the queue of the device family, as a Rust program can have it.

use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use fake_kernel::hca::Hca;
use oxverbs::data::mlx5::Completion;
use oxverbs::{
    AccessFlags, CompletionQueue, Context, Endpoint, ProtectionDomain, QueuePair, Rc, RemoteMemory,
    Sge,
};

use super::{ENTRIES, Fleet, Known, SPEC};
use crate::c::locate::writer_of;
use crate::ring::CqWriter;

/// Our objects. Queue pairs are dropped before what they hang on.
#[derive(Debug)]
pub struct NativeFleet {
    qps: Vec<QueuePair<Rc>>,
    known: Vec<Known>,
    more: Vec<CompletionQueue>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
    peer: Option<Endpoint>,
    writer: CqWriter,
    hca: Hca,
    found: Vec<Completion>,
}

impl NativeFleet {
    /// The completion queue, and no queue pair.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(device: &str, hca: Hca) -> Result<Self> {
        let context = Context::open(device)?;
        let pd = context.protection_domain()?;
        let before: Vec<u32> = hca.cqs().iter().map(|cq| cq.cqn).collect();
        let cq = context.completion_queue(ENTRIES)?;
        let mut fresh = hca.cqs();
        fresh.retain(|cq| !before.contains(&cq.cqn));
        ensure!(fresh.len() == 1, "another completion queue appeared");
        Ok(Self {
            qps: Vec::new(),
            known: Vec::new(),
            more: Vec::new(),
            writer: writer_of(&fresh[0])?,
            cq,
            pd,
            context,
            peer: None,
            hca,
            found: vec![Completion::default(); 16],
        })
    }
}

impl Fleet for NativeFleet {
    fn name(&self) -> &'static str {
        "native"
    }

    fn len(&self) -> usize {
        self.qps.len()
    }

    fn make(&mut self) -> Result<()> {
        let qp = self.pd.queue_pair::<Rc>(&self.cq);
        let qp = qp
            .max_send_wr(SPEC.send_wr)
            .max_recv_wr(SPEC.recv_wr)
            .max_send_sge(SPEC.send_sge)
            .max_recv_sge(SPEC.recv_sge)
            .create()?;
        self.qps.push(qp);
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let qp = self.qps.last_mut().context("no queue pair")?;
        // All are connected to one peer, as those of the providers are.
        let peer = match self.peer {
            Some(peer) => peer,
            None => *self.peer.insert(qp.endpoint(1, 0)?),
        };
        Ok(qp.connect(&peer, &peer, AccessFlags::NONE)?)
    }

    fn locate(&mut self) -> Result<()> {
        let qpn = self.qps.last().context("no queue pair")?.qp_num();
        let qp = self.hca.qp(qpn).context("no such queue pair")?;
        self.known.push(Known {
            qpn,
            user_index: qp.uidx,
            completed: 0,
        });
        Ok(())
    }

    fn unmake(&mut self) -> Result<()> {
        drop(self.qps.pop().context("no queue pair")?);
        self.known.truncate(self.qps.len());
        Ok(())
    }

    fn make_cq(&mut self) -> Result<()> {
        self.more.push(self.context.completion_queue(ENTRIES)?);
        Ok(())
    }

    fn unmake_cq(&mut self) -> Result<()> {
        drop(self.more.pop().context("no completion queue")?);
        Ok(())
    }

    fn post(&mut self, index: usize) {
        let remote = RemoteMemory {
            addr: 0x1000,
            rkey: 0x77,
        };
        let sge = Sge {
            addr: 0x1000,
            length: 64,
            lkey: 0x1234,
        };
        let mut batch = self.qps[index].send_batch();
        batch.write(index as u64, remote).signaled().sges(&[sge]);
        // SAFETY: no device reads or writes memory here: completions are written by hand.
        let posted = unsafe { batch.post() };
        assert!(posted.is_ok(), "{posted:?}");
    }

    fn complete(&mut self, index: usize) {
        let cqe = self.known[index].complete();
        self.writer.write(&[], cqe);
    }

    fn poll(&mut self, batch: usize, n: usize) {
        let Some(cq) = self.cq.as_mlx5() else {
            return;
        };
        for _ in (0..n).step_by(batch) {
            let found = cq.poll(&mut self.found[..batch]);
            debug_assert_eq!(found, batch);
            black_box(found);
        }
    }
}

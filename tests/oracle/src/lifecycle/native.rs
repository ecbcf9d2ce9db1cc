//! Ours, through the native API.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use fake_kernel::hca::{CompletionQueue as DeviceQueue, Hca};
use oxverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, Endpoint, ProtectionDomain,
    QueuePair, Rc, RemoteMemory, Sge,
};

use super::{ENTRIES, Living, QPS, SPEC};
use crate::native::poll;
use crate::subject::{Completion, Polling};

/// Our objects. Queue pairs are dropped before what they hang on.
#[derive(Debug)]
pub struct NativeLiving {
    qps: [Option<QueuePair<Rc>>; QPS],
    cq: CompletionQueue,
    channel: CompletionChannel,
    pd: ProtectionDomain,
    peer: Option<Endpoint>,
    queue: Arc<DeviceQueue>,
    polling: Polling,
}

impl NativeLiving {
    /// The completion queue, and no queue pair yet.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(context: &Context, hca: &Hca, polling: Polling) -> Result<Self> {
        let channel = context.completion_channel()?;
        channel.set_nonblocking(true)?;
        let before: Vec<u32> = hca.cqs().iter().map(|cq| cq.cqn).collect();
        let cq = channel.completion_queue(ENTRIES)?;
        let mut fresh = hca.cqs();
        fresh.retain(|cq| !before.contains(&cq.cqn));
        ensure!(fresh.len() == 1, "another completion queue appeared");
        Ok(Self {
            qps: std::array::from_fn(|_| None),
            cq,
            channel,
            pd: context.protection_domain()?,
            peer: None,
            queue: fresh.remove(0),
            polling,
        })
    }

    fn connect(&mut self, place: usize) -> Result<()> {
        let qp = self.qps[place].as_mut().context("no queue pair")?;
        let peer = match self.peer {
            Some(peer) => peer,
            None => *self.peer.insert(qp.endpoint(1, 0)?),
        };
        Ok(qp.connect(&peer, &peer, AccessFlags::NONE)?)
    }

    /// What goes with a queue pair goes when the completion queue is looked at, which C's functions do at once.
    fn clean(&mut self) {
        let _ = self.cq.as_mlx5();
    }

    fn qp(&mut self, place: usize) -> &mut QueuePair<Rc> {
        self.qps[place].as_mut().expect("a queue pair")
    }
}

impl Living for NativeLiving {
    fn name(&self) -> &'static str {
        "native"
    }

    fn replace(&mut self, place: usize) -> Result<()> {
        self.qps[place] = None;
        self.clean();
        let qp = self.pd.queue_pair::<Rc>(&self.cq);
        let qp = qp.max_send_wr(SPEC.send_wr).max_recv_wr(SPEC.recv_wr);
        let qp = qp.max_send_sge(SPEC.send_sge).max_recv_sge(SPEC.recv_sge);
        self.qps[place] = Some(qp.create()?);
        self.connect(place)
    }

    fn restart(&mut self, place: usize) -> Result<()> {
        self.qp(place).reset()?;
        self.clean();
        self.connect(place)
    }

    fn number(&self, place: usize) -> u32 {
        self.qps[place].as_ref().map_or(u32::MAX, QueuePair::qp_num)
    }

    fn send(&mut self, place: usize, id: u64) {
        let remote = RemoteMemory { addr: 0, rkey: 0 };
        let mut batch = self.qp(place).send_batch();
        batch.write(id, remote).signaled().empty();
        // SAFETY: there is no payload.
        let posted = unsafe { batch.post() };
        assert!(posted.is_ok(), "{posted:?}");
    }

    fn receive(&mut self, place: usize, id: u64) {
        let sge = Sge {
            addr: 0x1000,
            length: 0x1000,
            lkey: 7,
        };
        // SAFETY: no device writes memory here: completions are written by hand.
        let posted = unsafe { self.qp(place).recv_half().post_sges(id, &[sge]) };
        assert!(posted.is_ok(), "{posted:?}");
    }

    fn poll(&mut self, poison: u8) -> Option<(Completion, u32)> {
        poll(self.cq.as_mlx5()?, self.polling, poison)
    }

    fn resize(&mut self, entries: u32) -> i32 {
        match self.cq.resize(entries) {
            Ok(()) => 0,
            Err(error) => error.errno().unwrap_or(-1),
        }
    }

    fn arm(&mut self, solicited: bool) {
        let armed = self.cq.request_notify(solicited);
        assert!(armed.is_ok(), "{armed:?}");
    }

    fn event(&mut self) -> bool {
        self.channel.wait().is_ok()
    }

    fn queue(&self) -> &Arc<DeviceQueue> {
        &self.queue
    }
}

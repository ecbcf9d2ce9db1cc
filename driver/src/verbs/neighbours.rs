//! ARP and neighbour discovery of a RoCE port that has no network device: a queue pair of raw packets and a thread that
//! answers.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::channel::CompletionChannel;
use super::context::Context;
use super::cq::CompletionQueue;
use super::mr::{MemoryRegion, RegionSlice};
use super::qp::{FlowRule, QpAttributes, QueuePair, RawPacket};
use crate::control::vfio::Held;
use crate::control::vfio::neighbour::{Cache, Gid, Heard, Mac, Network, Said};
use crate::control::vfio::objects::Objects;
use crate::error::{Error, Result};
use crate::sys::errno::Errno;
use crate::sys::eventfd;
use crate::verbs::{AccessFlags, QpState, WcOpcode, WcStatus};

/// Bytes of the longest frame that is taken, and how many wait at once: what is longer than the port's MTU does not come.
const FRAME: usize = 10 << 10;
const FRAMES: usize = 16;
/// Frames that are sent at once; others are dropped, as a network drops them. Each is shorter than a slot.
const SENDS: usize = 16;
const SEND: usize = 128;
/// Between two looks without an event.
const LOOK: Duration = Duration::from_secs(1);

/// Who answers, until it is dropped.
#[derive(Debug)]
pub(super) struct Station {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    mac: Mac,
    cache: Cache,
    port: Mutex<Port>,
    objects: Held,
}

/// Where frames leave and arrive.
#[derive(Debug)]
struct Port {
    _rule: FlowRule,
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    region: MemoryRegion,
    /// Slots to send from.
    free: Vec<usize>,
    channel: CompletionChannel,
}

impl Station {
    /// Begins to answer. `context` is one of its own over the device, which it keeps open.
    pub(super) fn start(context: &Context, objects: &Arc<Objects>) -> Result<Self> {
        let failed = |errno| Error::kernel("answer for the port's addresses", errno);
        let port = Port::new(context)?;
        let channel = port.channel.clone();
        let shared = Arc::new(Shared {
            mac: objects.mac().map_err(failed)?,
            cache: Cache::default(),
            port: Mutex::new(port),
            objects: Held::new(objects.clone()),
        });
        objects.listen_to_neighbours().map_err(failed)?;
        let network: Arc<dyn Network> = shared.clone();
        objects.set_network(Arc::downgrade(&network));
        let stop = Arc::new(eventfd::eventfd().map_err(failed)?);
        let (works, ends) = (shared.clone(), stop.clone());
        let thread = thread::Builder::new()
            .name("oxverbs-neighbours".into())
            .spawn(move || {
                eventfd::block_signals();
                works.run(&channel, &ends);
            })
            .map_err(|error| failed(error.into()))?;
        for gid in objects.own_gids() {
            shared.announce(&gid);
        }
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if self.shared.objects.is_ours()
            && let Some(thread) = self.thread.take()
        {
            eventfd::signal(&*self.stop);
            // It panicked or it ended.
            let _ = thread.join();
        }
    }
}

impl Port {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.protection_domain()?;
        let channel = context.completion_channel()?;
        channel.set_nonblocking(true)?;
        let cq = channel.completion_queue((FRAMES + SENDS) as u32)?;
        let builder = pd.queue_pair::<RawPacket>(&cq);
        let builder = builder.max_send_wr(SENDS as u32);
        let qp = builder.max_recv_wr(FRAMES as u32).create()?;
        let bytes = FRAME * FRAMES + SEND * SENDS;
        let region = pd.allocate(bytes, AccessFlags::LOCAL_WRITE)?;
        let mut port = Self {
            _rule: qp.steer_neighbours()?,
            qp,
            cq,
            region,
            free: Vec::new(),
            channel,
        };
        port.begin()?;
        Ok(port)
    }

    /// From RESET to work.
    fn begin(&mut self) -> Result<()> {
        self.qp.to_ready(1)?;
        for slot in 0..FRAMES {
            let at = slot * FRAME;
            let slot = self.region.slice(at..at + FRAME);
            self.receive(slot);
        }
        self.free = (0..SENDS)
            .map(|slot| FRAME * FRAMES + slot * SEND)
            .collect();
        self.cq.request_notify(false)
    }

    /// Starts over, after something went wrong.
    fn begin_again(&mut self) -> Result<()> {
        let reset = QpAttributes::new().state(QpState::RESET);
        self.qp.modify(&reset)?;
        while self.cq.poll().next().is_some() {}
        self.begin()
    }

    fn receive(&mut self, slot: RegionSlice) {
        // There is room for all slots; a queue that failed starts over with all of them.
        let _ = self.qp.recv_half().post(slot);
    }

    fn send(&mut self, frame: &[u8]) {
        let Some(at) = self.free.pop() else {
            return;
        };
        self.region.copy_in(at, frame);
        let sge = self.region.sge(at..at + frame.len());
        let mut batch = self.qp.send_batch();
        // SAFETY: the region is memory of this process.
        let request = unsafe { batch.send(at as u64) };
        request.signaled().sges(&[sge]);
        // SAFETY: the region lives as long as the queue pair, and the slot is free again with the completion only.
        if unsafe { batch.post() }.is_err() {
            self.free.push(at);
        }
    }

    /// The next frame that arrived.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let completion = self.cq.poll().next()?;
            if completion.status() != WcStatus::SUCCESS {
                // A device that is gone refuses; then there is nobody to talk to.
                self.begin_again().ok()?;
                continue;
            }
            if completion.opcode() != WcOpcode::RECV {
                self.free.push(completion.wr_id() as usize);
                continue;
            }
            if let Some(slot) = self.qp.recv_half().reclaim(&completion) {
                let len = (completion.byte_len() as usize).min(slot.len());
                let mut frame = vec![0; len];
                slot.copy_out(&mut frame);
                self.receive(slot);
                return Some(frame);
            }
        }
    }
}

impl Shared {
    fn run(&self, channel: &CompletionChannel, stop: &OwnedFd) {
        loop {
            eventfd::wait_for([channel.as_raw_fd(), stop.as_raw_fd()], LOOK);
            if eventfd::take(stop) {
                return;
            }
            while channel.wait().is_ok() {}
            let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
            // What arrives before the queue is armed makes no event, so it is looked at once more behind that.
            for _ in 0..2 {
                while let Some(frame) = port.next() {
                    if let Some(answer) = self.heard(&frame) {
                        port.send(&answer);
                    }
                }
                // A device that is gone has no events either.
                let _ = port.cq.request_notify(false);
            }
        }
    }

    /// Remembers what a frame says; what to answer.
    fn heard(&self, frame: &[u8]) -> Option<Vec<u8>> {
        match Heard::parse(frame)? {
            Heard::Answer { address, at } => {
                if !self.objects.is_own(&address) {
                    self.cache.learn(address, at, false);
                }
                None
            }
            Heard::Ask { source, at, wanted } => {
                let is_for_us = self.objects.is_own(&wanted);
                if let Some(source) = source
                    && !self.objects.is_own(&source)
                {
                    self.cache.learn(source, at, is_for_us);
                }
                let answer = Said::Answer {
                    address: &wanted,
                    to: source.as_ref(),
                    at,
                };
                is_for_us.then(|| answer.frame(self.mac))?
            }
        }
    }

    fn say(&self, said: &Said<'_>) -> std::result::Result<(), Errno> {
        let frame = said.frame(self.mac).ok_or(Errno(libc::ENETUNREACH))?;
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.send(&frame);
        Ok(())
    }
}

impl Network for Shared {
    fn ask(&self, source: &Gid, wanted: &Gid) -> std::result::Result<Mac, Errno> {
        self.cache
            .find(wanted, || self.say(&Said::Ask { source, wanted }))
    }

    fn announce(&self, gid: &Gid) {
        // It is of use only, so nobody misses one that is not sent.
        let _ = self.say(&Said::Announce { address: gid });
    }
}

//! Traffic that says what it sees: writes from the device to its peer, each waited for on a completion channel, with their
//! data looked at.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use oxverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, EventType, MemoryRegion, QueuePair,
    Rc, WcStatus,
};

use super::{PATIENCE, Result};

/// What is said after every [`REPORT`] turns.
pub(crate) const BUSY: &str = "busy";
const REPORT: u64 = 20;
/// What is said of a request that nobody answered.
pub(crate) const UNANSWERED: &str = "completion RETRY_EXC_ERR";
/// Bytes of a write.
const SIZE: usize = 6000;
const RIGHTS: AccessFlags = AccessFlags(AccessFlags::LOCAL_WRITE.0 | AccessFlags::REMOTE_WRITE.0);
/// Between two looks for something that nothing else tells of.
const LOOK: Duration = Duration::from_millis(1);

/// A connection between both devices.
struct Connection {
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    from: MemoryRegion,
    to: MemoryRegion,
    _peer: QueuePair<Rc>,
}

impl Connection {
    fn new(here: &Context, there: &Context, gid: u8) -> Result<Self> {
        let (pd, far) = (here.protection_domain()?, there.protection_domain()?);
        let channel = here.completion_channel()?;
        channel.set_nonblocking(true)?;
        let cq = channel.completion_queue(16)?;
        let mut qp = pd.queue_pair::<Rc>(&cq).create()?;
        let mut peer = far
            .queue_pair::<Rc>(&there.completion_queue(16)?)
            .create()?;
        let (a, b) = (qp.endpoint(1, gid)?, peer.endpoint(1, gid)?);
        peer.connect(&b, &a, RIGHTS)?;
        qp.connect(&a, &b, RIGHTS)?;
        Ok(Self {
            from: pd.allocate(SIZE, RIGHTS)?,
            to: far.allocate(SIZE, RIGHTS)?,
            channel,
            cq,
            qp,
            _peer: peer,
        })
    }

    /// A write, and how it completed; nothing once `lost` says that the device is.
    fn turn(&mut self, turn: u64, mut lost: impl FnMut() -> bool) -> Result<Option<WcStatus>> {
        let bytes: Vec<u8> = (0..SIZE as u64).map(|at| (at * 7 + turn) as u8).collect();
        self.from.copy_in(0, &bytes);
        self.cq.request_notify(false)?;
        let part = self.from.slice(0..SIZE);
        self.qp.send_half().write(part, self.to.remote(0))?;
        let deadline = Instant::now() + PATIENCE;
        while self.channel.wait().is_err() {
            if lost() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err("no completion event in time".into());
            }
            thread::sleep(LOOK);
        }
        let completion = self
            .cq
            .poll()
            .next()
            .ok_or("an event without a completion")?;
        self.qp.reclaim(&completion);
        if completion.is_success() && self.to.to_vec(0..SIZE) != bytes {
            return Err(format!("the data of turn {turn} is wrong").into());
        }
        Ok(Some(completion.status()))
    }
}

/// Says what events there were; whether the device is lost, and whether its port is back.
fn events(here: &Context) -> (bool, bool) {
    let (mut lost, mut back) = (false, false);
    while let Ok(event) = here.next_event() {
        println!("event {:?}", event.event_type);
        lost |= event.event_type == EventType::DEVICE_FATAL;
        back |= event.event_type == EventType::PORT_ACTIVE;
    }
    (lost, back)
}

pub(crate) fn run(device: &str, peer: &str, gid: u8, turns: u64) -> Result<()> {
    let here = Context::open(device)?;
    let there = Context::open(peer)?;
    here.set_events_nonblocking(true)?;
    let stop = Arc::new(AtomicBool::new(false));
    if turns == 0 {
        let stop = stop.clone();
        thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
    }
    let mut connection = Connection::new(&here, &there, gid)?;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) && (turns == 0 || done < turns) {
        match connection.turn(done, || events(&here).0)? {
            Some(WcStatus::SUCCESS) => done += 1,
            Some(WcStatus::RETRY_EXC_ERR) => {
                println!("{UNANSWERED}");
                let deadline = Instant::now() + PATIENCE;
                while !events(&here).1 {
                    if Instant::now() > deadline {
                        return Err("the port does not come back".into());
                    }
                    thread::sleep(LOOK);
                }
                connection = Connection::new(&here, &there, gid)?;
            }
            Some(status) => return Err(format!("turn {done}: {status:?}").into()),
            // The device is lost: it is closed, and that is all.
            None => return Ok(()),
        }
        if done % REPORT == 0 {
            println!("{BUSY}");
        }
    }
    Ok(())
}

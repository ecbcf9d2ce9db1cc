//! Two ends of a connection between devices in this process, for the tests that have some.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxverbs::{Completion, CompletionQueue, Context, MemoryRegion, QueuePair, Rc, WcStatus};
use soft_connectx::in_process::InProcess;
use soft_connectx::{Config, LinkLayer};

use crate::traffic::{self, ALL};

/// Bytes of an end's memory.
pub(crate) const SIZE: usize = 1 << 16;

pub(crate) fn device(link: LinkLayer, serial: u16) -> Arc<InProcess> {
    InProcess::new(Config {
        link,
        serial,
        ..Config::default()
    })
}

/// Opens both devices.
pub(crate) fn open(devices: &[Arc<InProcess>; 2]) -> [Context; 2] {
    devices
        .each_ref()
        .map(|device| Context::over_pci(device.clone()).unwrap())
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) cq: CompletionQueue,
    pub(crate) region: MemoryRegion,
}

impl End {
    pub(crate) fn new(context: &Context) -> End {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
        let region = pd.allocate(SIZE, ALL).unwrap();
        End { qp, cq, region }
    }

    /// The next completion; one that does not come is a failure, not a hang.
    pub(crate) fn next(&mut self) -> Completion {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(completion) = self.cq.poll().next() {
                self.qp.reclaim(&completion);
                return completion;
            }
            assert!(Instant::now() < deadline, "no completion in time");
            std::thread::yield_now();
        }
    }

    /// The next completion, which is a good one.
    pub(crate) fn done(&mut self) -> Completion {
        let completion = self.next();
        assert_eq!(completion.status(), WcStatus::SUCCESS);
        completion
    }
}

/// Two ends that are connected.
pub(crate) fn connected(one: &Context, other: &Context) -> [End; 2] {
    let mut ends = [End::new(one), End::new(other)];
    let at = |end: &End, context: &Context| {
        let gid = context.usual_gid(1).unwrap().index as u8;
        end.qp.endpoint(1, gid).unwrap()
    };
    let (a, b) = (at(&ends[0], one), at(&ends[1], other));
    ends[0].qp.connect(&a, &b, ALL).unwrap();
    ends[1].qp.connect(&b, &a, ALL).unwrap();
    ends
}

/// Writes that wait for their completions on a channel; `before` is called in front of each one, `after` behind it.
pub(crate) fn writes_on_a_channel(
    context: &Context,
    count: usize,
    mut before: impl FnMut(usize),
    mut after: impl FnMut(),
) {
    let pd = context.protection_domain().unwrap();
    let channel = context.completion_channel().unwrap();
    let mut cq = channel.completion_queue(16).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    traffic::connect(&mut qp, 0);
    let region = pd.allocate(4096, ALL).unwrap();
    for turn in 0..count {
        before(turn);
        cq.request_notify(false).unwrap();
        let part = region.slice(0..8);
        qp.send_half().write(part, region.remote(8)).unwrap();
        assert_eq!(channel.wait().unwrap(), cq.id());
        let completion = cq.poll().next().unwrap();
        assert!(qp.reclaim(&completion).is_some());
        after();
    }
}

//! The suite's boundary with a device.
//!
//! [`Verbs`] is all that the cases know of the device under test: calls with plain values in and
//! out. Behind it stand oxverbs ([`core`]), the installed libibverbs as a control ([`official`]),
//! a wrapper that plants faults to prove that the suite can fail ([`planted`]), and a peer's device
//! across a control connection ([`remote`]).

pub(crate) mod core;
pub(crate) mod extras;
pub(crate) mod memory;
pub(crate) mod official;
pub(crate) mod planted;
pub(crate) mod remote;
pub(crate) mod types;

use std::time::{Duration, Instant};

use crate::counters::Counters;
use extras::Extras;
use types::*;

/// A device, opened. Objects live until they are destroyed or the process ends.
pub(crate) trait Verbs: Send + Sync {
    /// Which implementation answers, for messages.
    fn provider(&self) -> &'static str;

    fn device(&self) -> Answer<DeviceAttr>;
    fn port(&self, port: u8) -> Answer<PortAttr>;
    fn gid(&self, port: u8, index: u32) -> Answer<[u8; 16]>;
    fn pkey(&self, port: u8, index: u16) -> Answer<u16>;
    /// What the port counts; nothing of a device that nobody tells the counters of.
    fn counters(&self, port: u8) -> Answer<Counters>;

    fn buffer(&self, len: u64) -> Answer<Buf>;
    fn write(&self, buf: Buf, offset: u64, bytes: &[u8]) -> Answer<()>;
    fn read(&self, buf: Buf, offset: u64, len: u64) -> Answer<Vec<u8>>;

    fn alloc_pd(&self) -> Answer<Pd>;
    fn dealloc_pd(&self, pd: Pd) -> Answer<()>;

    fn reg_mr(&self, pd: Pd, addr: u64, len: u64, iova: u64, access: u32) -> Answer<Mr>;
    fn rereg_mr(&self, mr: Mr, change: Rereg) -> Answer<Mr>;
    fn dereg_mr(&self, mr: Mr) -> Answer<()>;

    fn create_channel(&self) -> Answer<Channel>;
    fn destroy_channel(&self, channel: Channel) -> Answer<()>;
    /// The next completion event's queue, or nothing in `timeout`. The event stays unacknowledged.
    fn channel_event(&self, channel: Channel, timeout: Duration) -> Answer<Option<u32>>;
    fn ack_cq(&self, cq: Cq, events: u32) -> Answer<()>;

    fn create_cq(&self, cqe: u32, channel: Option<Channel>) -> Answer<Cq>;
    fn resize_cq(&self, cq: Cq, cqe: u32) -> Answer<Cq>;
    fn arm(&self, cq: Cq, solicited_only: bool) -> Answer<()>;
    fn poll(&self, cq: Cq, max: u32) -> Answer<Vec<Wc>>;
    fn destroy_cq(&self, cq: Cq) -> Answer<()>;

    fn create_qp(&self, init: &QpInit) -> Answer<Qp>;
    fn modify_qp(&self, qp: Qp, attr: &QpAttr) -> Answer<()>;
    fn query_qp(&self, qp: Qp) -> Answer<QpReport>;
    fn destroy_qp(&self, qp: Qp) -> Answer<()>;
    fn post_send(&self, qp: Qp, list: &[SendWr]) -> Posted;
    fn post_recv(&self, qp: Qp, list: &[RecvWr]) -> Posted;

    fn create_srq(&self, pd: Pd, max_wr: u32, max_sge: u32, limit: u32) -> Answer<Srq>;
    fn modify_srq(&self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Answer<()>;
    fn query_srq(&self, srq: Srq) -> Answer<SrqReport>;
    fn destroy_srq(&self, srq: Srq) -> Answer<()>;
    fn post_srq(&self, srq: Srq, list: &[RecvWr]) -> Posted;

    fn create_ah(&self, pd: Pd, route: &Route) -> Answer<Ah>;
    fn destroy_ah(&self, ah: Ah) -> Answer<()>;

    fn alloc_mw(&self, pd: Pd, kind: MwType) -> Answer<Mw>;
    /// Binds a type 1 window through `qp`; answers its new key.
    fn bind_mw(&self, qp: Qp, bind: &Bind, id: u64, flags: u32) -> Answer<u32>;
    fn dealloc_mw(&self, mw: Mw) -> Answer<()>;

    fn attach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()>;
    fn detach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()>;

    /// The next asynchronous event, acknowledged, or nothing in `timeout`.
    fn async_event(&self, timeout: Duration) -> Answer<Option<Event>>;

    /// What the provider has beyond common verbs, if it has anything.
    fn extras(&self) -> Option<&dyn Extras> {
        None
    }

    /// Destroys all objects and forgets all events, so that the next case finds the device as if just opened; memory stays.
    /// An error leaves it half done.
    fn sweep(&self) -> Answer<()> {
        Err(Fault::errno(libc::EOPNOTSUPP, "sweep up"))
    }

    /// Polls until `count` completions came, or `timeout` passed; answers those that came.
    fn wait(&self, cq: Cq, count: usize, timeout: Duration) -> Answer<Vec<Wc>> {
        poll_until(|max| self.poll(cq, max), count, timeout)
    }
}

/// Polls until `count` completions came, or `timeout` passed.
pub(crate) fn poll_until(
    poll: impl Fn(u32) -> Answer<Vec<Wc>>,
    count: usize,
    timeout: Duration,
) -> Answer<Vec<Wc>> {
    let end = Instant::now() + timeout;
    let mut got = Vec::new();
    let mut idle = 0_u32;
    while got.len() < count {
        let some = poll((count - got.len()) as u32)?;
        if some.is_empty() {
            if Instant::now() >= end {
                break;
            }
            // A software device works on the same processors: give them to it.
            idle += 1;
            if idle < 50 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        } else {
            idle = 0;
            got.extend(some);
        }
    }
    Ok(got)
}

/// What re-registration changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Rereg {
    /// Address and length.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) pd: Option<Pd>,
    pub(crate) access: Option<u32>,
}

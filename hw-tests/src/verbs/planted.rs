//! Faults planted between the suite and a device, to prove that the suite can fail.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;

use super::extras::Extras;
use super::types::*;
use super::{Rereg, Verbs, poll_until};
use crate::counters::Counters;

/// A fault that a provider or a device could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// One byte of what was received is wrong.
    CorruptByte,
    /// The first completion of a queue never comes.
    DropCompletion,
    /// A completion carries another request's number.
    WrongWrId,
    /// A gather entry is one byte short.
    ShortSge,
    /// Inline data is taken from the first gather entry only.
    InlineMiscopy,
    /// Immediate data in the wrong byte order.
    SwapImmediate,
    /// Asynchronous events are not delivered.
    SwallowEvent,
    /// Completion events are not delivered.
    SwallowCompletionEvent,
    /// Every completion says success.
    HideError,
    /// A memory region gets more rights than were asked for.
    GrantRights,
    /// A refused request of a list is reported as the one before it.
    WrongBadWr,
    /// A deregistered region stays usable.
    KeepRegion,
}

impl Plant {
    pub(crate) const ALL: [Self; 12] = [
        Self::CorruptByte,
        Self::DropCompletion,
        Self::WrongWrId,
        Self::ShortSge,
        Self::InlineMiscopy,
        Self::SwapImmediate,
        Self::SwallowEvent,
        Self::SwallowCompletionEvent,
        Self::HideError,
        Self::GrantRights,
        Self::WrongBadWr,
        Self::KeepRegion,
    ];

    /// Cases that must turn red.
    pub(crate) fn guards(self) -> &'static [&'static str] {
        match self {
            Self::CorruptByte => &[
                "transfer/rc/send/len=4097",
                "transfer/rc/read/len=4096",
                "transfer/ud/send/len=1024",
            ],
            Self::DropCompletion => &["transfer/rc/write/len=64", "transfer/uc/send/len=64"],
            Self::WrongWrId => &["transfer/rc/send/len=64"],
            Self::ShortSge => &[
                "transfer/rc/write/len=256",
                "transfer/rc/send/sges=100+200+12[B24]",
            ],
            Self::InlineMiscopy => &["inline/rc/gather/5+0+7+3[B04]"],
            Self::SwapImmediate => &["transfer/rc/send_imm/len=64", "transfer/rc/write_imm/len=0"],
            Self::SwallowEvent => &["srq/limit/event[B58]"],
            Self::SwallowCompletionEvent => &["event/arm/then_complete[B43]"],
            Self::HideError => &["rights/rc/write/mr_without_remote_write"],
            Self::GrantRights => &[
                "rights/rc/write/mr_without_remote_write",
                "rights/rc/read/mr_without_remote_read",
            ],
            Self::WrongBadWr => &["post/send/third_of_five_is_bad[B08]"],
            Self::KeepRegion => &["rights/rc/write/deregistered"],
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no variant is hidden");
        f.write_str(value.get_name())
    }
}

/// A device with a fault.
pub(crate) struct Planted {
    inner: Box<dyn Verbs>,
    plant: Plant,
    dropped: AtomicBool,
}

impl fmt::Debug for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planted")
            .field("plant", &self.plant)
            .finish_non_exhaustive()
    }
}

impl Planted {
    pub(crate) fn new(inner: Box<dyn Verbs>, plant: Plant) -> Self {
        Self {
            inner,
            plant,
            dropped: AtomicBool::new(false),
        }
    }

    fn is(&self, plant: Plant) -> bool {
        self.plant == plant
    }

    fn change_send(&self, wr: &SendWr) -> SendWr {
        let mut wr = wr.clone();
        if self.is(Plant::ShortSge)
            && let Some(last) = wr.sg.last_mut()
        {
            last.len = last.len.saturating_sub(1);
        }
        if self.is(Plant::InlineMiscopy) && wr.flags & send::INLINE != 0 {
            let first = wr.sg.first().map_or(0, |sge| sge.addr);
            wr.sg.iter_mut().for_each(|sge| sge.addr = first);
        }
        wr
    }

    fn change_completion(&self, mut wc: Wc) -> Option<Wc> {
        match self.plant {
            Plant::DropCompletion if !self.dropped.swap(true, Ordering::Relaxed) => return None,
            Plant::WrongWrId => wc.id ^= 1,
            Plant::SwapImmediate => wc.imm = wc.imm.map(u32::swap_bytes),
            Plant::HideError => wc.status = Status::SUCCESS,
            _ => {}
        }
        Some(wc)
    }

    fn change_posted(&self, posted: Posted) -> Posted {
        posted.map_err(|mut fault| {
            if self.is(Plant::WrongBadWr) {
                fault.index = fault.index.saturating_sub(1);
            }
            fault
        })
    }
}

/// Methods that pass through.
macro_rules! pass {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $answer {
            self.inner.$name($($arg),*)
        }
    )*};
}

impl Verbs for Planted {
    fn extras(&self) -> Option<&dyn Extras> {
        self.inner.extras()
    }

    fn read(&self, buf: Buf, offset: u64, len: u64) -> Answer<Vec<u8>> {
        let mut bytes = self.inner.read(buf, offset, len)?;
        if self.is(Plant::CorruptByte)
            && let Some(byte) = bytes.last_mut()
        {
            *byte ^= 0x10;
        }
        Ok(bytes)
    }

    fn reg_mr(&self, pd: Pd, addr: u64, len: u64, iova: u64, mut rights: u32) -> Answer<Mr> {
        if self.is(Plant::GrantRights) {
            rights |= access::ALL;
        }
        self.inner.reg_mr(pd, addr, len, iova, rights)
    }

    fn dereg_mr(&self, mr: Mr) -> Answer<()> {
        match self.is(Plant::KeepRegion) {
            true => Ok(()),
            false => self.inner.dereg_mr(mr),
        }
    }

    fn channel_event(&self, channel: Channel, timeout: Duration) -> Answer<Option<u32>> {
        match self.is(Plant::SwallowCompletionEvent) {
            true => Ok(None),
            false => self.inner.channel_event(channel, timeout),
        }
    }

    fn async_event(&self, timeout: Duration) -> Answer<Option<Event>> {
        match self.is(Plant::SwallowEvent) {
            true => Ok(None),
            false => self.inner.async_event(timeout),
        }
    }

    fn poll(&self, cq: Cq, max: u32) -> Answer<Vec<Wc>> {
        let wcs = self.inner.poll(cq, max)?;
        Ok(wcs
            .into_iter()
            .filter_map(|wc| self.change_completion(wc))
            .collect())
    }

    fn wait(&self, cq: Cq, count: usize, timeout: Duration) -> Answer<Vec<Wc>> {
        // What a plant takes away never comes; a proof need not wait for it as long as a test does.
        let timeout = timeout.min(Duration::from_secs(2));
        poll_until(|max| self.poll(cq, max), count, timeout)
    }

    fn post_send(&self, qp: Qp, list: &[SendWr]) -> Posted {
        let list: Vec<_> = list.iter().map(|wr| self.change_send(wr)).collect();
        self.change_posted(self.inner.post_send(qp, &list))
    }

    fn post_recv(&self, qp: Qp, list: &[RecvWr]) -> Posted {
        self.change_posted(self.inner.post_recv(qp, list))
    }

    fn post_srq(&self, srq: Srq, list: &[RecvWr]) -> Posted {
        self.change_posted(self.inner.post_srq(srq, list))
    }

    pass! {
        fn provider() -> &'static str;
        fn device() -> Answer<DeviceAttr>;
        fn port(port: u8) -> Answer<PortAttr>;
        fn gid(port: u8, index: u32) -> Answer<[u8; 16]>;
        fn pkey(port: u8, index: u16) -> Answer<u16>;
        fn counters(port: u8) -> Answer<Counters>;
        fn buffer(len: u64) -> Answer<Buf>;
        fn write(buf: Buf, offset: u64, bytes: &[u8]) -> Answer<()>;
        fn alloc_pd() -> Answer<Pd>;
        fn dealloc_pd(pd: Pd) -> Answer<()>;
        fn rereg_mr(mr: Mr, change: Rereg) -> Answer<Mr>;
        fn create_channel() -> Answer<Channel>;
        fn destroy_channel(channel: Channel) -> Answer<()>;
        fn ack_cq(cq: Cq, events: u32) -> Answer<()>;
        fn create_cq(cqe: u32, channel: Option<Channel>) -> Answer<Cq>;
        fn resize_cq(cq: Cq, cqe: u32) -> Answer<Cq>;
        fn arm(cq: Cq, solicited_only: bool) -> Answer<()>;
        fn destroy_cq(cq: Cq) -> Answer<()>;
        fn create_qp(init: &QpInit) -> Answer<Qp>;
        fn modify_qp(qp: Qp, attr: &QpAttr) -> Answer<()>;
        fn query_qp(qp: Qp) -> Answer<QpReport>;
        fn destroy_qp(qp: Qp) -> Answer<()>;
        fn create_srq(pd: Pd, max_wr: u32, max_sge: u32, limit: u32) -> Answer<Srq>;
        fn modify_srq(srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Answer<()>;
        fn query_srq(srq: Srq) -> Answer<SrqReport>;
        fn destroy_srq(srq: Srq) -> Answer<()>;
        fn create_ah(pd: Pd, route: &Route) -> Answer<Ah>;
        fn destroy_ah(ah: Ah) -> Answer<()>;
        fn alloc_mw(pd: Pd, kind: MwType) -> Answer<Mw>;
        fn bind_mw(qp: Qp, bind: &Bind, id: u64, flags: u32) -> Answer<u32>;
        fn dealloc_mw(mw: Mw) -> Answer<()>;
        fn attach_mcast(qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()>;
        fn detach_mcast(qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()>;
    }
}

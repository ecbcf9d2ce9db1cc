//! A provider's, through libibverbs.

use std::ptr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use fake_kernel::hca::CompletionQueue;
use oxverbs_ffi::abi::objects::{ibv_comp_channel, ibv_cq, ibv_qp};
use oxverbs_ffi::abi::work::{ibv_recv_wr, ibv_send_wr, ibv_sge};

use super::{ENTRIES, Living, QPS, SPEC};
use crate::c::device::{CDevice, Object};
use crate::c::locate::Places;
use crate::c::post::{context_op, slot};
use crate::c::subject::{PollCq, poll};
use crate::subject::{Completion, Polling};

type Arm = unsafe extern "C" fn(*mut ibv_cq, i32) -> i32;

/// Objects of a provider.
#[derive(Debug)]
pub struct CLiving<'a> {
    name: &'static str,
    device: &'a CDevice,
    channel: Object<ibv_comp_channel>,
    cq: Object<ibv_cq>,
    queue: Arc<CompletionQueue>,
    qps: [Option<Object<ibv_qp>>; QPS],
    polling: Polling,
    poll_cq: PollCq,
    arm: Arm,
}

impl<'a> CLiving<'a> {
    /// The completion queue, and no queue pair yet.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(
        name: &'static str,
        device: &'a CDevice,
        places: &Places,
        polling: Polling,
    ) -> Result<Self> {
        let channel = device.channel()?;
        let cq = match polling {
            Polling::Array => device.cq_on(ENTRIES, channel)?,
            // All standard fields.
            Polling::Lazy => device.cq_ex_on(ENTRIES, 0x7f, false, channel)?.into(),
        };
        Ok(Self {
            name,
            device,
            channel,
            cq,
            queue: places.queue(cq)?,
            qps: [None; QPS],
            polling,
            // SAFETY: an open device, and the slot's type.
            poll_cq: unsafe { context_op(device.context, slot::POLL_CQ) },
            // SAFETY: as above.
            arm: unsafe { context_op(device.context, slot::REQ_NOTIFY_CQ) },
        })
    }

    fn qp(&self, place: usize) -> Object<ibv_qp> {
        self.qps[place].expect("a queue pair")
    }
}

impl Living for CLiving<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn replace(&mut self, place: usize) -> Result<()> {
        if let Some(qp) = self.qps[place].take() {
            self.device.destroy_qp(qp)?;
        }
        let (qp, _) = self.device.qp(&SPEC, self.cq, Object::NONE)?;
        self.qps[place] = Some(qp);
        self.device.connect(qp, SPEC.service)
    }

    fn restart(&mut self, place: usize) -> Result<()> {
        let qp = self.qps[place].context("no queue pair")?;
        self.device.restart(qp, SPEC.service)
    }

    fn number(&self, place: usize) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.qp(place).pointer()).qp_num }
    }

    fn send(&mut self, place: usize, id: u64) {
        // SAFETY: all fields are numbers or pointers.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = id;
        // IBV_SEND_SIGNALED; the opcode is 0, an RDMA WRITE.
        wr.send_flags = 2;
        let mut bad = ptr::null_mut();
        // SAFETY: this object's queue pair and a list of one.
        let errno =
            unsafe { self.device.post_send()(self.qp(place).pointer(), &raw mut wr, &raw mut bad) };
        assert_eq!(errno, 0, "{}: ibv_post_send", self.name);
    }

    fn receive(&mut self, place: usize, id: u64) {
        let mut sge = ibv_sge {
            addr: 0x1000,
            length: 0x1000,
            lkey: 7,
        };
        let mut wr = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        let qp = self.qp(place).pointer();
        // SAFETY: this object's queue pair and a list of one.
        let errno = unsafe { self.device.post_recv()(qp.cast(), &raw mut wr, &raw mut bad) };
        assert_eq!(errno, 0, "{}: ibv_post_recv", self.name);
    }

    fn poll(&mut self, poison: u8) -> Option<(Completion, u32)> {
        // SAFETY: this object's completion queue, of the kind that it polls.
        unsafe { poll(self.poll_cq, self.cq, self.polling, poison) }
    }

    fn resize(&mut self, entries: u32) -> i32 {
        self.device.resize_cq(self.cq, entries)
    }

    fn arm(&mut self, solicited: bool) {
        // SAFETY: this object's completion queue.
        let errno = unsafe { (self.arm)(self.cq.pointer(), solicited.into()) };
        assert_eq!(errno, 0, "{}: ibv_req_notify_cq", self.name);
    }

    fn event(&mut self) -> bool {
        self.device.event(self.channel)
    }

    fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }
}

impl Drop for CLiving<'_> {
    fn drop(&mut self) {
        let qps = self.qps.iter_mut().filter_map(Option::take);
        let mut results: Vec<_> = qps.map(|qp| self.device.destroy_qp(qp)).collect();
        results.push(self.device.destroy_cq(self.cq));
        results.push(self.device.destroy_channel(self.channel));
        for error in results.into_iter().filter_map(Result::err) {
            eprintln!("{}: {error:#}", self.name);
        }
    }
}

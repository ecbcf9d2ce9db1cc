//! A provider's, through libibverbs.

use std::ffi::c_int;
use std::hint::black_box;
use std::ptr;

use anyhow::{Context as _, Result};
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_qp};
use oxverbs_ffi::abi::work::{ibv_send_wr, ibv_sge, ibv_wc};

use super::{ENTRIES, Fleet, Known, SPEC};
use crate::c::device::{CDevice, Object};
use crate::c::locate::Places;
use crate::c::post::{PostSend, context_op, slot};
use crate::c::subject::PollCq;
use crate::ring::CqWriter;

/// Objects of a provider, destroyed with it.
#[derive(Debug)]
pub struct CFleet<'a> {
    name: &'static str,
    device: &'a CDevice,
    places: Places,
    cq: Object<ibv_cq>,
    writer: CqWriter,
    qps: Vec<Object<ibv_qp>>,
    known: Vec<Known>,
    more: Vec<Object<ibv_cq>>,
    post_send: PostSend,
    poll_cq: PollCq,
    wr: Box<(ibv_send_wr, ibv_sge)>,
    wc: Vec<ibv_wc>,
}

impl<'a> CFleet<'a> {
    /// The completion queue, and no queue pair.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(name: &'static str, device: &'a CDevice, places: &Places) -> Result<Self> {
        let cq = device.cq(ENTRIES)?;
        // SAFETY: all fields are numbers or pointers.
        let mut wr: Box<(ibv_send_wr, ibv_sge)> = Box::new(unsafe { std::mem::zeroed() });
        wr.1.addr = 0x1000;
        wr.1.length = 64;
        wr.0.num_sge = 1;
        // IBV_SEND_SIGNALED; the opcode is 0, an RDMA WRITE.
        wr.0.send_flags = 2;
        wr.0.sg_list = &raw mut wr.1;
        // SAFETY: all fields are numbers.
        let empty: ibv_wc = unsafe { std::mem::zeroed() };
        Ok(Self {
            name,
            device,
            places: places.clone(),
            cq,
            writer: places.cq(cq)?,
            qps: Vec::new(),
            known: Vec::new(),
            more: Vec::new(),
            post_send: device.post_send(),
            // SAFETY: an open device, and the slot's type.
            poll_cq: unsafe { context_op(device.context, slot::POLL_CQ) },
            wr,
            wc: vec![empty; 16],
        })
    }
}

impl Fleet for CFleet<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn len(&self) -> usize {
        self.qps.len()
    }

    fn make(&mut self) -> Result<()> {
        let (qp, _) = self.device.qp(&SPEC, self.cq, Object::NONE)?;
        self.qps.push(qp);
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let qp = *self.qps.last().context("no queue pair")?;
        self.device.connect(qp, SPEC.service)
    }

    fn locate(&mut self) -> Result<()> {
        let qp = *self.qps.last().context("no queue pair")?;
        let (qpn, user_index) = self.places.numbers(qp)?;
        self.known.push(Known {
            qpn,
            user_index,
            completed: 0,
        });
        Ok(())
    }

    fn unmake(&mut self) -> Result<()> {
        let qp = self.qps.pop().context("no queue pair")?;
        self.known.truncate(self.qps.len());
        self.device.destroy_qp(qp)
    }

    fn make_cq(&mut self) -> Result<()> {
        self.more.push(self.device.cq(ENTRIES)?);
        Ok(())
    }

    fn unmake_cq(&mut self) -> Result<()> {
        let cq = self.more.pop().context("no completion queue")?;
        self.device.destroy_cq(cq)
    }

    fn post(&mut self, index: usize) {
        let mut bad = ptr::null_mut();
        let (post_send, qp) = (self.post_send, self.qps[index].pointer());
        // SAFETY: this fleet's queue pair, and a work request whose pointers are its own.
        let errno = unsafe { post_send(qp, &raw mut self.wr.0, &raw mut bad) };
        assert_eq!(errno, 0, "{}: ibv_post_send", self.name);
    }

    fn complete(&mut self, index: usize) {
        let cqe = self.known[index].complete();
        self.writer.write(&[], cqe);
    }

    fn poll(&mut self, batch: usize, n: usize) {
        let (poll_cq, cq) = (self.poll_cq, self.cq.pointer());
        let wc = self.wc.as_mut_ptr();
        for _ in (0..n).step_by(batch) {
            // SAFETY: this fleet's completion queue and room for 16.
            let found = unsafe { poll_cq(cq, batch as c_int, wc) };
            debug_assert_eq!(found as usize, batch);
            black_box(found);
        }
    }
}

impl Drop for CFleet<'_> {
    fn drop(&mut self) {
        let qps = self.qps.drain(..).map(|qp| self.device.destroy_qp(qp));
        let errors: Vec<_> = qps.filter_map(Result::err).collect();
        let cqs = self.more.drain(..).chain([self.cq]);
        let cqs = cqs.filter_map(|cq| self.device.destroy_cq(cq).err());
        for error in errors.into_iter().chain(cqs) {
            eprintln!("{}: {error:#}", self.name);
        }
    }
}

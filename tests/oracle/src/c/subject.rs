//! A queue pair of libibverbs, with whichever provider has the device.

use std::ptr::NonNull;

use anyhow::Result;
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_qp, ibv_qp_ex};
use oxverbs_ffi::abi::work::ibv_wc;

use super::device::{CDevice, Object, QpSpec};
use super::locate::Places;
use super::post::{Chain, PostSend, build, context_op, slot};
use crate::call::{Api, Outcome, Post, Service};
use crate::campaign::Maker;
use crate::ring::CqWriter;
use crate::subject::{Completion, SendMemory, Subject, requester};

type PollCq = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;

/// The queue pair, its completion queue, and C's functions for them.
#[derive(Debug)]
pub struct CSubject<'a> {
    name: &'static str,
    device: &'a CDevice,
    places: Places,
    spec: QpSpec,
    cq: Object<ibv_cq>,
    qp: Object<ibv_qp>,
    extended: *mut ibv_qp_ex,
    memory: SendMemory,
    writer: CqWriter,
    chain: Chain,
    post_send: PostSend,
    poll_cq: PollCq,
}

impl<'a> CSubject<'a> {
    /// Makes both queues.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(
        name: &'static str,
        device: &'a CDevice,
        places: Places,
        spec: QpSpec,
    ) -> Result<Self> {
        let cq = device.cq(255)?;
        let (qp, spec) = device.qp(&spec, cq, Object::NONE)?;
        device.restart(qp, spec.service)?;
        let memory = places.send(qp)?;
        let writer = places.cq(cq)?;
        Ok(Self {
            name,
            device,
            places,
            spec,
            cq,
            qp,
            extended: device.qp_ex(qp),
            memory,
            writer,
            chain: Chain::default(),
            post_send: device.post_send(),
            // SAFETY: an open device, and the slot's type.
            poll_cq: unsafe { context_op(device.context, slot::POLL_CQ) },
        })
    }

    /// Polls up to one completion.
    pub fn poll(&mut self, poison: u8) -> Option<Completion> {
        // SAFETY: all fields are numbers.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        let bytes = NonNull::from(&mut wc).cast::<u8>();
        // SAFETY: the struct's own bytes, all of which are numbers.
        unsafe { bytes.write_bytes(poison, size_of::<ibv_wc>()) };
        // SAFETY: a completion queue and room for one completion.
        let n = unsafe { (self.poll_cq)(self.cq.pointer(), 1, &raw mut wc) };
        (n == 1).then(|| Completion::of(&wc, self.memory.qpn))
    }

    /// The device's end of its completion queue.
    pub fn writer(&mut self) -> &mut CqWriter {
        &mut self.writer
    }
}

/// Makes them.
#[derive(Debug)]
pub struct CMaker {
    /// Whose.
    pub name: &'static str,
    /// The device.
    pub device: CDevice,
    /// How to find its memory.
    pub places: Places,
}

impl Maker for CMaker {
    fn name(&self) -> &'static str {
        self.name
    }

    fn has(&self, service: Service) -> bool {
        // An initiator of XRC needs a domain only at its target.
        matches!(
            service,
            Service::Rc | Service::Uc | Service::Ud | Service::Xrc | Service::Raw
        )
    }

    fn make<'a>(&'a self, asked: &QpSpec, _: &dyn Subject) -> Result<Box<dyn Subject + 'a>> {
        let subject = CSubject::new(self.name, &self.device, self.places.clone(), *asked)?;
        Ok(Box::new(subject))
    }
}

impl Subject for CSubject<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn restart(&mut self) -> Result<()> {
        self.device.restart(self.qp, self.spec.service)?;
        self.memory = self.places.send(self.qp)?;
        Ok(())
    }

    fn memory(&self) -> SendMemory {
        self.memory
    }

    fn spec(&self) -> QpSpec {
        self.spec
    }

    fn post(&mut self, post: &Post) -> Outcome {
        match post.api {
            Api::Chain => {
                let handles = &self.device.handles;
                self.chain.fill(self.spec.service, &post.wrs, handles);
                // SAFETY: this subject's queue pair.
                unsafe { self.chain.post(self.post_send, self.qp.pointer()) }
            }
            // SAFETY: this subject's queue pair, made with all builders of its service.
            Api::Builder => unsafe {
                build(self.extended, self.spec.service, post, &self.device.handles)
            },
        }
    }

    fn complete(&mut self, counter: u16, opcode: u8) -> Option<Completion> {
        let cqe = requester(&self.memory, counter, opcode);
        self.writer.write(&[], cqe);
        self.poll(0)
    }
}

impl Drop for CSubject<'_> {
    fn drop(&mut self) {
        for result in [
            self.device.destroy_qp(self.qp),
            self.device.destroy_cq(self.cq),
        ] {
            if let Err(error) = result {
                eprintln!("{}: {error:#}", self.name);
            }
        }
    }
}

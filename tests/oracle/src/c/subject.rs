//! A queue pair of libibverbs, with whichever provider has the device.

use std::ptr::NonNull;

use anyhow::Result;
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_ex};
use oxverbs_ffi::abi::work::{ibv_poll_cq_attr, ibv_wc};
use wqe_format::mlx5::Cqe64;

use super::device::{CDevice, Object, QpSpec};
use super::dv::DirectQp;
use super::locate::Places;
use super::post::{Chain, PostSend, build, context_op, post_receives, slot};
use crate::call::{Api, Outcome, Piece, Post, Service};
use crate::campaign::Maker;
use crate::ring::CqWriter;
use crate::subject::{Completing, Completion, Polling, RecvMemory, SendMemory, Subject, requester};

/// `ibv_poll_cq`'s.
pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;

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
    direct: Option<DirectQp>,
    memory: SendMemory,
    writer: CqWriter,
    chain: Chain,
    post_send: PostSend,
    poll_cq: PollCq,
    polling: Polling,
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
        polling: Polling,
    ) -> Result<Self> {
        let cq = match polling {
            Polling::Array => device.cq(255)?,
            // All standard fields.
            Polling::Lazy => device.cq_ex(255, 0x7f, false)?.into(),
        };
        let (qp, spec) = device.qp(&spec, cq, Object::NONE)?;
        device.restart(qp, spec.service)?;
        let memory = places.send(qp)?;
        let writer = places.cq(cq)?;
        let extended = device.qp_ex(qp);
        let direct = device.direct.as_ref();
        let direct = direct.filter(|_| spec.service.is_direct());
        // SAFETY: the queue pair just made by it.
        let direct =
            direct.map(|direct| unsafe { direct.of(extended, memory.qpn, spec.signals_all) });
        Ok(Self {
            name,
            device,
            places,
            spec,
            cq,
            qp,
            extended,
            direct,
            memory,
            writer,
            chain: Chain::default(),
            post_send: device.post_send(),
            // SAFETY: an open device, and the slot's type.
            poll_cq: unsafe { context_op(device.context, slot::POLL_CQ) },
            polling,
        })
    }

    /// The device's end of its completion queue.
    pub fn writer(&mut self) -> &mut CqWriter {
        &mut self.writer
    }
}

/// Polls one completion into memory full of `poison`, and its queue pair's number.
///
/// # Safety
///
/// A live completion queue of the provider whose function is given.
unsafe fn poll_array(poll_cq: PollCq, cq: Object<ibv_cq>, poison: u8) -> Option<(Completion, u32)> {
    // SAFETY: all fields are numbers.
    let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
    let bytes = NonNull::from(&mut wc).cast::<u8>();
    // SAFETY: the struct's own bytes, all of which are numbers.
    unsafe { bytes.write_bytes(poison, size_of::<ibv_wc>()) };
    // SAFETY: a completion queue and room for one completion.
    let n = unsafe { poll_cq(cq.pointer(), 1, &raw mut wc) };
    (n == 1).then(|| (Completion::of(&wc, 0), wc.qp_num))
}

/// The same field by field.
///
/// # Safety
///
/// A live extended completion queue, made with all standard fields.
unsafe fn poll_lazy(cq: Object<ibv_cq>, poison: u8) -> Option<(Completion, u32)> {
    let cq: *mut ibv_cq_ex = cq.pointer().cast();
    // SAFETY: an extended completion queue.
    let ops = unsafe { (*cq).ops };
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: as verbs.h's inline function does.
    let errno = unsafe { ops.start_poll?(cq, &raw mut attr) };
    if errno != 0 {
        return None;
    }
    let mut found = Completion::poison(poison);
    // SAFETY: a completion was found.
    found.wr_id = unsafe { (*cq).wr_id };
    // SAFETY: as above.
    found.status = unsafe { (*cq).status };
    if found.status == 0 {
        // SAFETY: as above; the queue was made with all of these fields.
        found.opcode = unsafe { ops.read_opcode?(cq) };
        // SAFETY: as above.
        found.byte_len = unsafe { ops.read_byte_len?(cq) };
        // SAFETY: as above.
        found.wc_flags = unsafe { ops.read_wc_flags?(cq) };
        // SAFETY: as above.
        found.src_qp = unsafe { ops.read_src_qp?(cq) };
        // SAFETY: as above.
        found.slid = unsafe { ops.read_slid?(cq) } as u16;
        // SAFETY: as above.
        found.sl = unsafe { ops.read_sl?(cq) };
        // SAFETY: as above.
        found.dlid_path_bits = unsafe { ops.read_dlid_path_bits?(cq) };
        if found.wc_flags & 0b1010 != 0 {
            // SAFETY: as above.
            found.imm_data = unsafe { ops.read_imm_data?(cq) };
        }
    } else {
        // SAFETY: as above.
        found.vendor_err = unsafe { ops.read_vendor_err?(cq) };
    }
    // SAFETY: as above.
    let qpn = unsafe { ops.read_qp_num?(cq) };
    // SAFETY: as above.
    unsafe { ops.end_poll?(cq) };
    Some((found, qpn))
}

/// Polls one completion in either way.
///
/// # Safety
///
/// A live completion queue of the provider whose function is given; for the lazy way an extended one with all fields.
pub unsafe fn poll(
    poll_cq: PollCq,
    cq: Object<ibv_cq>,
    polling: Polling,
    poison: u8,
) -> Option<(Completion, u32)> {
    match polling {
        // SAFETY: the caller's promise.
        Polling::Array => unsafe { poll_array(poll_cq, cq, poison) },
        // SAFETY: as above.
        Polling::Lazy => unsafe { poll_lazy(cq, poison) },
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
        self.device.direct.is_some() || !service.is_direct()
    }

    fn make<'a>(&'a self, asked: &QpSpec, _: &dyn Subject) -> Result<Box<dyn Subject + 'a>> {
        let subject = CSubject::new(
            self.name,
            &self.device,
            self.places.clone(),
            *asked,
            Polling::Array,
        )?;
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
                build(
                    self.extended,
                    self.spec.service,
                    post,
                    &self.device.handles,
                    self.direct.as_ref(),
                )
            },
        }
    }

    fn cancel(&mut self, next: u16, id: u64) -> i32 {
        let Some(direct) = self.direct else {
            return -libc::EOPNOTSUPP;
        };
        self.places.drain(self.memory.qpn, Some(next));
        let canceled = direct.cancel(id);
        self.places.drain(self.memory.qpn, None);
        canceled
    }

    fn complete(&mut self, counter: u16, opcode: u8) -> Option<Completion> {
        let cqe = requester(&self.memory, counter, opcode);
        self.writer.write(&[], cqe);
        Completing::poll(self, 0)
    }
}

impl Completing for CSubject<'_> {
    fn receive(&mut self, id: u64, pieces: &[Piece]) {
        let outcome = self.post_receives(&[(id, pieces.to_vec())]);
        assert_eq!(outcome, Outcome::DONE, "ibv_post_recv");
    }

    fn post_receives(&mut self, list: &[(u64, Vec<Piece>)]) -> Outcome {
        let post = self.device.post_recv();
        // SAFETY: this subject's queue pair.
        unsafe { post_receives(post, self.qp.pointer().cast(), list) }
    }

    fn recv_memory(&self) -> Result<RecvMemory> {
        self.places.recv(self.qp)
    }

    fn write(&mut self, before: &[u8], cqe: Cqe64) {
        self.writer.write(before, cqe);
    }

    fn poll(&mut self, poison: u8) -> Option<Completion> {
        // SAFETY: this subject's completion queue, of the kind that it polls.
        let (mut found, qpn) = unsafe { poll(self.poll_cq, self.cq, self.polling, poison) }?;
        found.is_own_qpn = qpn == self.memory.qpn;
        Some(found)
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

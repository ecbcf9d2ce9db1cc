//! A provider of libibverbs under the clock.

use std::ffi::c_int;
use std::hint::black_box;
use std::ptr;

use anyhow::Result;
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_ex};
use oxverbs_ffi::abi::work::{
    ibv_poll_cq_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, send_bind_mw, send_rdma,
    send_target,
};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

use super::case::{Case, OPS, Poll, Side, Via};
use super::clock::ticks;
use super::measure::{Queues, Timed};
use crate::c::device::{CDevice, Object, QpSpec};
use crate::c::locate::Places;
use crate::c::post::{PostRecv, PostSend, context_op, slot};
use crate::c::subject::PollCq;
use crate::call::{Service, flags};
use crate::ring::{CqWriter, Shared};
use crate::subject::{SendMemory, requester};
use crate::trace;

/// A queue pair with its own completion queue.
#[derive(Debug)]
struct Lane {
    qp: Object<ibv_qp>,
    extended: *mut ibv_qp_ex,
    cq: Object<ibv_cq>,
    memory: SendMemory,
    recv_ring: Shared,
    writer: CqWriter,
    /// Work requests posted since the start, and those of which completions were polled.
    sent: u32,
    send_done: u32,
    received: u32,
    recv_done: u32,
}

/// C's arrays of work requests for one kind of case, linked in batches.
#[derive(Debug)]
struct Batches {
    send: Vec<ibv_send_wr>,
    recv: Vec<ibv_recv_wr>,
    /// Flags of each, for the builder.
    flags: Vec<u32>,
    sge: Box<ibv_sge>,
}

/// One provider.
#[derive(Debug)]
pub struct CTimed<'a> {
    name: &'static str,
    device: &'a CDevice,
    lanes: Vec<Lane>,
    batches: Batches,
    current: Option<Case>,
    post_send: PostSend,
    post_recv: PostRecv,
    poll_cq: PollCq,
    wc: Vec<ibv_wc>,
    data: Box<[u8; 16]>,
}

/// The queue pair that all are timed with.
pub const SPEC: QpSpec = QpSpec {
    service: Service::Rc,
    send_wr: 1024,
    recv_wr: 1024,
    send_sge: 1,
    recv_sge: 1,
    inline: 16,
    tso_header: 0,
    signals_all: false,
    has_builder: true,
};

/// A receive's completion.
fn responder(memory: &SendMemory, counter: u16) -> Cqe64 {
    Cqe64 {
        srqn_uidx: memory.user_index.into(),
        byte_cnt: 64.into(),
        sop_drop_qpn: SopDropQpn::from_bits(memory.qpn.into()),
        wqe_counter: counter.into(),
        op_own: OpOwn::of(CqeOpcode::RESP_SEND, CqeFormat::NONE, false, false),
        ..Cqe64::default()
    }
}

impl<'a> CTimed<'a> {
    /// Makes the queues.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(name: &'static str, device: &'a CDevice, places: &Places) -> Result<Self> {
        let mut lanes = Vec::new();
        // Legacy, extended, extended for one thread; all standard fields of a completion can be read.
        for kind in 0..3 {
            let cq = match kind {
                0 => device.cq(1023)?,
                _ => device.cq_ex(1023, 0x7f, kind == 2)?.into(),
            };
            let (qp, _) = device.qp(&SPEC, cq, Object::NONE)?;
            device.restart(qp, Service::Rc)?;
            lanes.push(Lane {
                qp,
                extended: device.qp_ex(qp),
                cq,
                memory: places.send(qp)?,
                recv_ring: places.recv(qp)?.ring,
                writer: places.cq(cq)?,
                sent: 0,
                send_done: 0,
                received: 0,
                recv_done: 0,
            });
        }
        // SAFETY: all fields are numbers.
        let empty: ibv_wc = unsafe { std::mem::zeroed() };
        let sge = Box::new(ibv_sge {
            addr: 0,
            length: 64,
            lkey: 0x1234,
        });
        Ok(Self {
            name,
            device,
            lanes,
            batches: Batches {
                send: Vec::new(),
                recv: Vec::new(),
                flags: Vec::new(),
                sge,
            },
            current: None,
            post_send: device.post_send(),
            post_recv: device.post_recv(),
            // SAFETY: an open device, and the slot's type.
            poll_cq: unsafe { context_op(device.context, slot::POLL_CQ) },
            wc: vec![empty; 16],
            data: Box::new([7; 16]),
        })
    }

    /// Links `OPS` work requests in batches; they are the same for all rounds, as in a program that is written for speed.
    fn link(&mut self, case: &Case) {
        if self.current == Some(*case) {
            return;
        }
        self.current = Some(*case);
        let (write, inline, signalled, batch) = match *case {
            Case::Send {
                write,
                inline,
                signalled,
                batch,
                ..
            } => (write, inline, signalled, batch),
            Case::Loop { signalled } => (true, false, signalled, 16),
            _ => (true, false, 1, 16),
        };
        self.batches.sge.length = if inline { 16 } else { 64 };
        self.batches.sge.addr = self.data.as_ptr().expose_provenance() as u64;
        let sge = &raw mut *self.batches.sge;
        let target = send_rdma {
            remote_addr: 0x1000,
            rkey: 0x77,
        };
        let signal = |index: usize| {
            if index % signalled == signalled - 1 {
                flags::SIGNALED
            } else {
                0
            }
        };
        self.batches.flags = (0..OPS).map(|index| signal(index).into()).collect();
        // SAFETY: all fields are numbers or pointers that are not followed for these operations.
        let bind_mw: send_bind_mw = unsafe { std::mem::zeroed() };
        self.batches.send = (0..OPS)
            .map(|index| ibv_send_wr {
                wr_id: index as u64,
                next: ptr::null_mut(),
                sg_list: sge,
                num_sge: 1,
                opcode: if write { 0 } else { 2 },
                send_flags: u32::from(if inline { flags::INLINE } else { 0 } | signal(index)),
                imm_data: 0,
                wr: send_target { rdma: target },
                remote_srqn: 0,
                bind_mw,
            })
            .collect();
        let recv_batch = case.batch();
        self.batches.recv = (0..OPS)
            .map(|index| ibv_recv_wr {
                wr_id: index as u64,
                next: ptr::null_mut(),
                sg_list: sge,
                num_sge: 1,
            })
            .collect();
        for index in 1..OPS {
            if !index.is_multiple_of(batch) {
                let next = &raw mut self.batches.send[index];
                self.batches.send[index - 1].next = next;
            }
            if !index.is_multiple_of(recv_batch) {
                let next = &raw mut self.batches.recv[index];
                self.batches.recv[index - 1].next = next;
            }
        }
    }

    fn lane(case: &Case) -> usize {
        match case {
            Case::Poll { poll, .. } | Case::Empty { poll } => match poll {
                Poll::Array => 0,
                Poll::Lazy { single, .. } => 1 + usize::from(*single),
            },
            _ => 0,
        }
    }

    #[inline(always)]
    fn send(&mut self, case: &Case, ops: usize) {
        let lane = &mut self.lanes[Self::lane(case)];
        lane.sent += ops as u32;
        let Case::Send {
            via: Via::Builder,
            write,
            inline,
            batch,
            ..
        } = *case
        else {
            let batch = match case {
                Case::Send { batch, .. } => *batch,
                _ => 16,
            };
            let (post_send, qp) = (self.post_send, lane.qp.pointer());
            let first = self.batches.send.as_mut_ptr();
            let mut bad = ptr::null_mut();
            for at in (0..ops).step_by(batch) {
                // SAFETY: `ops` is at most the length.
                let first = unsafe { first.add(at) };
                // SAFETY: this provider's queue pair and a linked batch.
                let errno = unsafe { post_send(qp, first, &raw mut bad) };
                debug_assert_eq!(errno, 0);
            }
            return;
        };
        let qp = lane.extended;
        // SAFETY: a queue pair with builders; the table does not change.
        let table = unsafe { (*qp).ops };
        let start = table.wr_start.expect("wr_start");
        let complete = table.wr_complete.expect("wr_complete");
        let begin_write = table.wr_rdma_write.expect("wr_rdma_write");
        let begin_send = table.wr_send.expect("wr_send");
        let set_inline = table.wr_set_inline_data.expect("wr_set_inline_data");
        let set_sge = table.wr_set_sge.expect("wr_set_sge");
        let data = self.data.as_mut_ptr();
        let address = data.expose_provenance() as u64;
        let mut wr_id = 0;
        for batch in self.batches.flags[..ops].chunks_exact(batch) {
            // SAFETY: as verbs.h's inline functions do, in their order, on this provider's queue pair.
            unsafe { start(qp) };
            for flags in batch {
                // SAFETY: as above.
                unsafe { (*qp).wr_id = wr_id };
                // SAFETY: as above.
                unsafe { (*qp).wr_flags = *flags };
                wr_id += 1;
                if write {
                    // SAFETY: as above.
                    unsafe { begin_write(qp, 0x77, 0x1000) };
                } else {
                    // SAFETY: as above.
                    unsafe { begin_send(qp) };
                }
                if inline {
                    // SAFETY: as above; 16 bytes.
                    unsafe { set_inline(qp, data.cast(), 16) };
                } else {
                    // SAFETY: as above.
                    unsafe { set_sge(qp, 0x1234, address, 64) };
                }
            }
            // SAFETY: as above.
            let errno = unsafe { complete(qp) };
            debug_assert_eq!(errno, 0);
        }
    }

    #[inline(always)]
    fn recv(&mut self, lane: usize, batch: usize, ops: usize) {
        let lane = &mut self.lanes[lane];
        lane.received += ops as u32;
        let (post_recv, qp) = (self.post_recv, lane.qp.pointer());
        let first = self.batches.recv.as_mut_ptr();
        let mut bad = ptr::null_mut();
        for at in (0..ops).step_by(batch) {
            // SAFETY: `ops` is at most the length.
            let first = unsafe { first.add(at) };
            // SAFETY: this provider's queue pair and a linked batch.
            let errno = unsafe { post_recv(qp.cast(), first, &raw mut bad) };
            debug_assert_eq!(errno, 0);
        }
    }

    #[inline(always)]
    fn poll(&mut self, lane: usize, batch: usize, ops: usize) {
        let (poll_cq, cq) = (self.poll_cq, self.lanes[lane].cq.pointer());
        let wc = self.wc.as_mut_ptr();
        for _ in (0..ops).step_by(batch) {
            // SAFETY: this provider's completion queue and room for 16.
            let n = unsafe { poll_cq(cq, batch as c_int, wc) };
            debug_assert_eq!(n as usize, batch);
            black_box(n);
        }
    }

    #[inline(always)]
    fn lazy(&mut self, lane: usize, batch: usize, ops: usize, reads: bool) {
        let cq: *mut ibv_cq_ex = self.lanes[lane].cq.pointer().cast();
        // SAFETY: an extended completion queue; the table does not change.
        let table = unsafe { (*cq).ops };
        let start = table.start_poll.expect("start_poll");
        let next = table.next_poll.expect("next_poll");
        let end = table.end_poll.expect("end_poll");
        let opcode = table.read_opcode.expect("read_opcode");
        let len = table.read_byte_len.expect("read_byte_len");
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        let read = |cq: *mut ibv_cq_ex| {
            // SAFETY: a completion was found.
            black_box(unsafe { (*cq).wr_id });
            // SAFETY: as above.
            black_box(unsafe { (*cq).status });
            if reads {
                // SAFETY: as above.
                black_box(unsafe { opcode(cq) });
                // SAFETY: as above.
                black_box(unsafe { len(cq) });
            }
        };
        for _ in (0..ops).step_by(batch) {
            // SAFETY: as verbs.h's inline functions do, in their order.
            let errno = unsafe { start(cq, &raw mut attr) };
            debug_assert_eq!(errno, 0);
            read(cq);
            for _ in 1..batch {
                // SAFETY: as above.
                let errno = unsafe { next(cq) };
                debug_assert_eq!(errno, 0);
                read(cq);
            }
            // SAFETY: as above.
            unsafe { end(cq) };
        }
    }

    /// Writes completions of the next `n` work requests of a side, one for each `every`-th.
    fn complete(&mut self, lane: usize, side: Side, from: u32, n: usize, every: usize) {
        let lane = &mut self.lanes[lane];
        for index in (0..n).filter(|index| index % every == every - 1) {
            let counter = (from + index as u32) as u16;
            let cqe = match side {
                Side::Requester => requester(&lane.memory, counter, 0x08),
                Side::Responder => responder(&lane.memory, counter),
            };
            lane.writer.write(&[], cqe);
        }
    }

    /// Frees everything that was posted.
    fn drain(&mut self, index: usize) {
        let lane = &self.lanes[index];
        let (sends, recvs) = (lane.sent - lane.send_done, lane.received - lane.recv_done);
        let (from_send, from_recv) = (lane.send_done, lane.recv_done);
        let mut left = recvs;
        if sends > 0 {
            self.complete(index, Side::Requester, from_send + sends - 1, 1, 1);
            left += 1;
        }
        self.complete(index, Side::Responder, from_recv, recvs as usize, 1);
        for _ in 0..left {
            if index == 0 {
                self.poll(index, 1, 1);
            } else {
                self.lazy(index, 1, 1, false);
            }
        }
        let lane = &mut self.lanes[index];
        lane.send_done = lane.sent;
        lane.recv_done = lane.received;
    }

    #[inline(always)]
    fn go(&mut self, case: &Case, ops: usize) {
        let lane = Self::lane(case);
        match *case {
            Case::Send { .. } => self.send(case, ops),
            Case::Recv { batch } => self.recv(lane, batch, ops),
            Case::Poll { poll, batch, .. } => match poll {
                Poll::Array => self.poll(lane, batch, ops),
                Poll::Lazy { reads, .. } => self.lazy(lane, batch, ops, reads),
            },
            Case::Empty { poll: Poll::Array } => {
                let (poll_cq, cq) = (self.poll_cq, self.lanes[lane].cq.pointer());
                let wc = self.wc.as_mut_ptr();
                for _ in 0..ops {
                    // SAFETY: this provider's completion queue and room for 16.
                    black_box(unsafe { poll_cq(cq, 16, wc) });
                }
            }
            Case::Empty { .. } => {
                let cq: *mut ibv_cq_ex = self.lanes[lane].cq.pointer().cast();
                // SAFETY: an extended completion queue.
                let start = unsafe { (*cq).ops.start_poll }.expect("start_poll");
                let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
                for _ in 0..ops {
                    // SAFETY: as verbs.h's inline function does; ENOENT needs no `end_poll`.
                    black_box(unsafe { start(cq, &raw mut attr) });
                }
            }
            Case::Loop { signalled } => {
                let completions = 16 / signalled;
                for _ in 0..ops / 16 {
                    self.send(case, 16);
                    self.poll(lane, completions, completions);
                }
            }
        }
    }
}

impl Timed for CTimed<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn has(&self, _: &Case) -> bool {
        true
    }

    fn prepare(&mut self, case: &Case, ops: usize) {
        self.link(case);
        let lane = Self::lane(case);
        self.drain(lane);
        match *case {
            Case::Poll { side, .. } => {
                let from = match side {
                    Side::Requester => self.lanes[lane].sent,
                    Side::Responder => self.lanes[lane].received,
                };
                match side {
                    Side::Requester => {
                        let (post_send, qp) = (self.post_send, self.lanes[lane].qp.pointer());
                        for at in (0..ops).step_by(16) {
                            let mut bad = ptr::null_mut();
                            // SAFETY: this provider's queue pair and a linked batch of 16.
                            unsafe { post_send(qp, &raw mut self.batches.send[at], &raw mut bad) };
                        }
                        self.lanes[lane].sent += ops as u32;
                        self.lanes[lane].send_done += ops as u32;
                    }
                    Side::Responder => {
                        self.recv(lane, case.batch(), ops);
                        self.lanes[lane].recv_done += ops as u32;
                    }
                }
                self.complete(lane, side, from, ops, 1);
            }
            Case::Loop { signalled } => {
                let from = self.lanes[lane].sent;
                self.complete(lane, Side::Requester, from, ops, signalled);
                // What the loop posts it also polls.
                self.lanes[lane].send_done += ops as u32;
            }
            _ => {}
        }
    }

    fn timed(&mut self, case: &Case, ops: usize) -> u64 {
        let start = ticks();
        self.go(case, ops);
        ticks() - start
    }

    fn plain(&mut self, case: &Case, ops: usize) {
        self.go(case, ops);
    }

    fn register(&self) -> trace::Range {
        let register = self.lanes[0].memory.register;
        // The whole page: extended queues and the arm register are in others.
        trace::Range {
            start: register.address() & !4095,
            len: 4096,
        }
    }

    fn callers(&self) -> Vec<trace::Range> {
        vec![
            range(std::slice::from_ref(self)),
            range(&self.lanes),
            range(&self.batches.send),
            range(&self.batches.recv),
            range(std::slice::from_ref(&*self.batches.sge)),
            range(&self.wc),
            range(&*self.data),
        ]
    }

    fn queues(&self, case: &Case) -> Queues {
        let lane = &self.lanes[Self::lane(case)];
        Queues {
            send: lane.memory.ring,
            sent: lane.sent,
            recv: lane.recv_ring,
            completions: lane.writer.ring(),
            record: lane.memory.record,
        }
    }
}

/// The bytes of a slice.
pub(super) fn range<T>(slice: &[T]) -> trace::Range {
    trace::Range {
        start: slice.as_ptr().expose_provenance(),
        len: size_of_val(slice),
    }
}

impl Drop for CTimed<'_> {
    fn drop(&mut self) {
        for lane in &self.lanes {
            let results = [
                self.device.destroy_qp(lane.qp),
                self.device.destroy_cq(lane.cq),
            ];
            for error in results.into_iter().filter_map(Result::err) {
                eprintln!("{}: {error:#}", self.name);
            }
        }
    }
}

//! Our queues under the clock: what a Rust program calls, without libibverbs.

use std::hint::black_box;

use anyhow::Result;
use oxverbs::data::mlx5::{
    Completion, InlinePiece, Operation, QueueKind, RecvRequest, Remote, SendFlags, SendLimits,
    SendRequest, WrOpcode,
};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};
use wqe_format::rxe::Sge;

use super::c::range;
use super::case::{Case, OPS, Poll, Side, Via};
use super::clock::ticks;
use super::measure::{Queues, Timed};
use crate::ours::{Ours, Shape};
use crate::ring::CqWriter;
use crate::trace;

const ENTRIES: u32 = 1024;
const QPN: u32 = 0x77;
const USER_INDEX: u32 = 0x1234;
const REMOTE: Remote = Remote {
    addr: 0x1000,
    rkey: 0x77,
};

/// A work request as a program keeps it.
#[derive(Clone, Copy, Debug)]
struct Request {
    wr_id: u64,
    opcode: WrOpcode,
    flags: SendFlags,
    sge: Sge,
}

// SAFETY: inline elements name the subject's own 16 bytes.
unsafe impl SendRequest for Request {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn opcode(&self) -> WrOpcode {
        self.opcode
    }

    #[inline]
    fn flags(&self) -> SendFlags {
        self.flags
    }

    #[inline]
    fn sges(&self) -> &[Sge] {
        std::slice::from_ref(&self.sge)
    }

    #[inline]
    fn remote(&self) -> Remote {
        REMOTE
    }
}

/// A receive likewise.
#[derive(Clone, Copy, Debug)]
struct Receive {
    wr_id: u64,
    sge: Sge,
}

impl RecvRequest for Receive {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn sges(&self) -> &[Sge] {
        std::slice::from_ref(&self.sge)
    }
}

/// Our queues.
#[derive(Debug)]
pub struct NativeTimed {
    ours: Ours,
    writer: CqWriter,
    sent: u32,
    send_done: u32,
    received: u32,
    recv_done: u32,
    requests: Vec<Request>,
    /// Flags of each, for the builder.
    flags: Vec<SendFlags>,
    receives: Vec<Receive>,
    found: Vec<Completion>,
    data: Box<[u8; 16]>,
    current: Option<Case>,
}

impl NativeTimed {
    /// Queues like those that the providers are timed with.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new() -> Result<Self> {
        let ours = Ours::new(&Shape {
            kind: QueueKind::Rc,
            qpn: QPN,
            user_index: USER_INDEX,
            blocks: ENTRIES,
            limits: SendLimits {
                max_wr: ENTRIES,
                max_sge: 1,
                max_inline: 16,
                min_inline_header: 18,
                max_tso: 0,
                max_tso_header: 0,
                checksums: false,
                atomics: true,
                max_copy: 0,
            },
            signal_all: false,
            receives: ENTRIES,
            receive_size: 16,
            max_recv_wr: ENTRIES,
            max_recv_sge: 1,
            entries: ENTRIES,
            entry_size: 64,
        })?;
        Ok(Self {
            writer: CqWriter::new(ours.memory.cq_ring, ENTRIES, 64),
            ours,
            sent: 0,
            send_done: 0,
            received: 0,
            recv_done: 0,
            requests: Vec::new(),
            flags: Vec::new(),
            receives: Vec::new(),
            found: vec![Completion::default(); 16],
            data: Box::new([7; 16]),
            current: None,
        })
    }

    fn fill(&mut self, case: &Case) {
        if self.current == Some(*case) {
            return;
        }
        self.current = Some(*case);
        let (write, inline, signalled) = match *case {
            Case::Send {
                write,
                inline,
                signalled,
                ..
            } => (write, inline, signalled),
            Case::Loop { signalled } => (true, false, signalled),
            _ => (true, false, 1),
        };
        let sge = Sge {
            addr: self.data.as_ptr().expose_provenance() as u64,
            length: if inline { 16 } else { 64 },
            lkey: 0x1234,
        };
        let signal = |index: usize| {
            if index % signalled == signalled - 1 {
                SendFlags::SIGNALED
            } else {
                SendFlags::NONE
            }
        };
        self.flags = (0..OPS).map(signal).collect();
        self.requests = (0..OPS)
            .map(|index| {
                let mut flags = signal(index);
                if inline {
                    flags = flags.with(SendFlags::INLINE);
                }
                Request {
                    wr_id: index as u64,
                    opcode: if write {
                        WrOpcode::RDMA_WRITE
                    } else {
                        WrOpcode::SEND
                    },
                    flags,
                    sge,
                }
            })
            .collect();
        self.receives = (0..OPS)
            .map(|index| Receive {
                wr_id: index as u64,
                sge,
            })
            .collect();
    }

    #[inline(never)]
    fn post(&mut self, batch: usize, ops: usize) {
        self.sent += ops as u32;
        if batch == 1 {
            for request in &self.requests[..ops] {
                let posted = self.ours.send.post_one(request);
                debug_assert!(posted.is_ok());
                black_box(posted.is_ok());
            }
            return;
        }
        for batch in self.requests[..ops].chunks_exact(batch) {
            let posted = self.ours.send.post(batch);
            debug_assert!(posted.is_ok());
            black_box(posted.is_ok());
        }
    }

    /// A function for each case, as a program has its own loop for what it does often.
    #[inline(never)]
    fn build<const WRITE: bool, const INLINE: bool>(&mut self, batch: usize, ops: usize) {
        self.sent += ops as u32;
        let operation = if WRITE {
            Operation::RdmaWrite(REMOTE)
        } else {
            Operation::Send
        };
        let sge = Sge {
            addr: self.data.as_ptr().expose_provenance() as u64,
            length: 64,
            lkey: 0x1234,
        };
        let piece = InlinePiece {
            addr: self.data.as_ptr(),
            len: 16,
        };
        let mut wr_id = 0;
        let send = &mut self.ours.send;
        for batch in self.flags[..ops].chunks_exact(batch) {
            let mut draft = send.begin();
            for flags in batch {
                // SAFETY: no header.
                let opened = unsafe { send.open(&mut draft, wr_id, *flags, &operation) };
                wr_id += 1;
                debug_assert!(opened.is_ok());
                let set = if INLINE {
                    // SAFETY: 16 bytes of this subject.
                    unsafe { send.set_inline(&mut draft, piece) }
                } else {
                    // SAFETY: memory that nothing is sent from in truth.
                    unsafe { send.set_sge(&mut draft, &sge) }
                };
                debug_assert!(set.is_ok());
            }
            let posted = send.commit(&mut draft);
            debug_assert!(posted.is_ok());
            black_box(posted.is_ok());
        }
    }

    #[inline(never)]
    fn receive(&mut self, batch: usize, ops: usize) {
        self.received += ops as u32;
        if batch == 1 {
            for receive in &self.receives[..ops] {
                let posted = self.ours.recv.post_one(*receive);
                debug_assert!(posted.is_ok());
                black_box(posted.is_ok());
            }
            return;
        }
        for batch in self.receives[..ops].chunks_exact(batch) {
            let posted = self.ours.recv.post(batch.iter().copied());
            debug_assert!(posted.is_ok());
            black_box(posted.is_ok());
        }
    }

    #[inline(always)]
    fn poll(&mut self, batch: usize, ops: usize) {
        for _ in (0..ops).step_by(batch) {
            let n = self.ours.cq.poll(&mut self.found[..batch]);
            debug_assert_eq!(n, batch);
            black_box(n);
        }
    }

    #[inline(always)]
    fn lazy(&mut self, batch: usize, ops: usize, reads: bool) {
        for _ in (0..ops).step_by(batch) {
            let found = self.ours.cq.start_poll();
            debug_assert!(found.is_ok());
            black_box(found.is_ok());
            for index in 0..batch {
                if index > 0 {
                    black_box(self.ours.cq.next_poll());
                }
                black_box(self.ours.cq.wr_id());
                black_box(self.ours.cq.status());
                if reads {
                    black_box(self.ours.cq.read_opcode());
                    black_box(self.ours.cq.read_byte_len());
                }
            }
            self.ours.cq.end_poll();
        }
    }

    fn complete(&mut self, side: Side, from: u32, n: usize, every: usize) {
        for index in (0..n).filter(|index| index % every == every - 1) {
            let counter = (from + index as u32) as u16;
            let (opcode, operation) = match side {
                Side::Requester => (CqeOpcode::REQ, 0x08_u32),
                Side::Responder => (CqeOpcode::RESP_SEND, 0),
            };
            let cqe = Cqe64 {
                srqn_uidx: USER_INDEX.into(),
                byte_cnt: 64.into(),
                sop_drop_qpn: SopDropQpn::from_bits((operation << 24 | QPN).into()),
                wqe_counter: counter.into(),
                op_own: OpOwn::of(opcode, CqeFormat::NONE, false, false),
                ..Cqe64::default()
            };
            self.writer.write(&[], cqe);
        }
    }

    fn drain(&mut self) {
        let (sends, recvs) = (self.sent - self.send_done, self.received - self.recv_done);
        let mut left = recvs as usize;
        if sends > 0 {
            self.complete(Side::Requester, self.sent - 1, 1, 1);
            left += 1;
        }
        self.complete(Side::Responder, self.recv_done, recvs as usize, 1);
        self.poll(1, left);
        self.send_done = self.sent;
        self.recv_done = self.received;
    }

    #[inline(always)]
    fn go(&mut self, case: &Case, ops: usize) {
        match *case {
            Case::Send {
                via: Via::Chain,
                batch,
                ..
            } => self.post(batch, ops),
            Case::Send {
                write,
                inline,
                batch,
                ..
            } => match (write, inline) {
                (true, true) => self.build::<true, true>(batch, ops),
                (true, false) => self.build::<true, false>(batch, ops),
                (false, true) => self.build::<false, true>(batch, ops),
                (false, false) => self.build::<false, false>(batch, ops),
            },
            Case::Recv { batch } => self.receive(batch, ops),
            Case::Poll {
                poll: Poll::Lazy { reads, .. },
                batch,
                ..
            } => self.lazy(batch, ops, reads),
            Case::Poll { batch, .. } => self.poll(batch, ops),
            Case::Empty {
                poll: Poll::Lazy { .. },
            } => {
                for _ in 0..ops {
                    black_box(self.ours.cq.start_poll().is_ok());
                }
            }
            Case::Empty { .. } => {
                for _ in 0..ops {
                    black_box(self.ours.cq.poll(&mut self.found));
                }
            }
            Case::Loop { signalled } => {
                let completions = 16 / signalled;
                for _ in 0..ops / 16 {
                    self.post(16, 16);
                    self.poll(completions, completions);
                }
            }
        }
    }
}

impl Timed for NativeTimed {
    fn name(&self) -> &'static str {
        "native"
    }

    fn has(&self, _: &Case) -> bool {
        true
    }

    fn prepare(&mut self, case: &Case, ops: usize) {
        self.fill(case);
        self.drain();
        match *case {
            Case::Poll { side, batch, .. } => {
                let from = match side {
                    Side::Requester => {
                        let from = self.sent;
                        self.post(16, ops);
                        self.send_done = self.sent;
                        from
                    }
                    Side::Responder => {
                        let from = self.received;
                        self.receive(batch, ops);
                        self.recv_done = self.received;
                        from
                    }
                };
                self.complete(side, from, ops, 1);
            }
            Case::Loop { signalled } => {
                self.complete(Side::Requester, self.sent, ops, signalled);
                self.send_done = self.sent + ops as u32;
            }
            _ => {}
        }
    }

    #[inline(never)]
    fn timed(&mut self, case: &Case, ops: usize) -> u64 {
        let start = ticks();
        self.go(case, ops);
        ticks() - start
    }

    #[inline(never)]
    fn plain(&mut self, case: &Case, ops: usize) {
        self.go(case, ops);
    }

    fn register(&self) -> trace::Range {
        trace::Range {
            start: self.ours.memory.page.address(),
            len: 4096,
        }
    }

    fn callers(&self) -> Vec<trace::Range> {
        vec![
            range(&self.requests),
            range(&self.receives),
            range(&self.found),
            range(&*self.data),
        ]
    }

    fn queues(&self, _: &Case) -> Queues {
        let memory = &self.ours.memory;
        Queues {
            send: memory.send_ring,
            sent: self.sent,
            recv: memory.recv_ring,
            completions: memory.cq_ring,
            record: memory.record,
        }
    }
}

//! Queues of mlx5: their rings are the program's own, and the control path that lays them out is the
//! library's (`control::mlx5`), whoever makes the objects: the kernel, or this process itself.

use oxverbs::control::mlx5::Mlx5Context;
use oxverbs::control::mlx5::cq::{CqObject, CqRequest};
use oxverbs::control::mlx5::domain::AhObject;
use oxverbs::control::mlx5::geometry;
use oxverbs::control::mlx5::qp::{QpObject, QpRequest};
use oxverbs::control::mlx5::srq::{SrqObject, SrqRequest};
use oxverbs::data::mlx5::{
    self as data, AtomicOperands, Completion, Destination, SendFlags, SendRequest, Verb, WrOpcode,
};
use std::sync::Arc;
use uverbs_abi::write::qp::ExModifyQp;
use zerocopy::byteorder::big_endian::U32;

use super::extras::Spread;
use super::*;
use crate::verbs::extras::Timed;

/// What mlx5 has instead of rxe's queues.
#[derive(Debug)]
pub(super) struct Mlx5 {
    pub(super) context: Arc<Mlx5Context>,
    // those that use others come before them, since they are dropped in this order
    pub(super) spread: Mutex<Option<Spread>>,
    qps: Table<QpState>,
    srqs: Table<SrqState>,
    cqs: Table<CqState>,
    ahs: Table<Mutex<AhObject>>,
}

#[derive(Debug)]
struct CqState {
    object: Mutex<CqObject>,
    queue: Mutex<data::CompletionQueue>,
    channel: Option<Channel>,
    acks: Acks,
}

#[derive(Debug)]
struct QpState {
    object: Mutex<QpObject>,
    send: Mutex<Option<data::SendQueue>>,
    receive: Mutex<Option<data::RecvQueue>>,
    cqs: [u32; 2],
    srq: Option<Arc<data::SrqShared>>,
}

#[derive(Debug)]
struct SrqState {
    object: Mutex<SrqObject>,
    queue: data::SharedReceiveQueue,
}

/// A work request, with what its address handle says.
struct Request<'a> {
    wr: &'a SendWr,
    sges: Vec<rxe::Sge>,
    index: usize,
    av: Option<wqe_format::mlx5::DatagramSegment>,
}

// SAFETY: cases inline the suite's own memory, which is never freed, or sums over the limit.
unsafe impl SendRequest for Request<'_> {
    fn wr_id(&self) -> u64 {
        self.wr.id
    }

    fn opcode(&self) -> WrOpcode {
        match self.wr.op {
            Op::Send => WrOpcode::SEND,
            Op::SendImm(_) => WrOpcode::SEND_WITH_IMM,
            Op::SendInv(_) => WrOpcode::SEND_WITH_INV,
            Op::Write(_) => WrOpcode::RDMA_WRITE,
            Op::WriteImm(..) => WrOpcode::RDMA_WRITE_WITH_IMM,
            Op::Read(_) => WrOpcode::RDMA_READ,
            Op::CompareSwap { .. } => WrOpcode::ATOMIC_CMP_AND_SWP,
            Op::FetchAdd { .. } => WrOpcode::ATOMIC_FETCH_AND_ADD,
            Op::LocalInv(_) => WrOpcode::LOCAL_INV,
            Op::BindMw(_) => WrOpcode::BIND_MW,
            // numbers of `enum ibv_wr_opcode`, which mlx5 does not have
            Op::Flush { .. } => WrOpcode(14),
            Op::AtomicWrite(..) => WrOpcode(15),
        }
    }

    fn flags(&self) -> SendFlags {
        SendFlags(self.wr.flags)
    }

    fn sges(&self) -> &[rxe::Sge] {
        &self.sges
    }

    fn imm(&self) -> U32 {
        match self.wr.op {
            Op::SendImm(imm) | Op::WriteImm(_, imm) => imm.into(),
            _ => 0.into(),
        }
    }

    fn invalidate_rkey(&self) -> u32 {
        match self.wr.op {
            Op::SendInv(rkey) | Op::LocalInv(rkey) => rkey,
            _ => 0,
        }
    }

    fn remote(&self) -> data::Remote {
        match self.wr.op {
            Op::Write(Remote { addr, rkey })
            | Op::WriteImm(Remote { addr, rkey }, _)
            | Op::Read(Remote { addr, rkey }) => data::Remote { addr, rkey },
            _ => data::Remote::default(),
        }
    }

    fn atomic_remote(&self) -> data::Remote {
        match self.wr.op {
            Op::CompareSwap { remote, .. } | Op::FetchAdd { remote, .. } => data::Remote {
                addr: remote.addr,
                rkey: remote.rkey,
            },
            _ => data::Remote::default(),
        }
    }

    fn atomic(&self) -> AtomicOperands {
        match self.wr.op {
            Op::CompareSwap { compare, swap, .. } => AtomicOperands {
                compare_add: compare,
                swap,
            },
            Op::FetchAdd { add, .. } => AtomicOperands {
                compare_add: add,
                swap: 0,
            },
            _ => AtomicOperands::default(),
        }
    }

    fn destination(&self) -> Option<Destination<'_>> {
        let to = self.wr.to?;
        Some(Destination {
            av: self.av.as_ref()?,
            qpn: to.qpn,
            qkey: to.qkey,
        })
    }

    fn bind(&self) -> Option<data::Bind> {
        let Op::BindMw(bind) = self.wr.op else {
            return None;
        };
        Some(data::Bind {
            type_1: bind.mw.id & TYPE_1 != 0,
            old_rkey: bind.mw.rkey,
            new_rkey: bind.rkey,
            addr: bind.addr,
            length: bind.len,
            lkey: bind.mr.lkey,
            access: bind.access,
        })
    }
}

/// The mark of a window that is bound by its verb, not by the program's work request.
pub(super) const TYPE_1: u32 = 1 << 31;

fn post_fault(index: usize, error: data::PostError, verb: Verb) -> PostFault {
    // The core says what it is; `ENOMEM` for it is libmlx5's custom, which the plug-in follows.
    let errno = match error {
        data::PostError::WrongState => libc::EINVAL,
        other => other.errno(verb).0,
    };
    PostFault {
        index,
        fault: Fault::errno(errno, format!("post: {error}")),
    }
}

impl Mlx5 {
    pub(super) fn new(context: Arc<Mlx5Context>) -> Self {
        Self {
            context,
            spread: Mutex::default(),
            cqs: Table::default(),
            qps: Table::default(),
            srqs: Table::default(),
            ahs: Table::default(),
        }
    }

    /// Destroys all queues and address handles, whatever still uses a queue before it. Events that nobody acknowledged are
    /// waited for by nobody.
    pub(super) fn sweep(&self) -> Answer<()> {
        self.end_spread();
        for (_, state) in self.qps.take_all() {
            let mut object = lock(&state.object);
            let destroyed = object.destroy();
            destroyed.map_err(|errno| fault("destroy a queue pair", errno))?;
        }
        for (_, state) in self.srqs.take_all() {
            let mut object = lock(&state.object);
            let destroyed = object.destroy();
            destroyed.map_err(|errno| fault("destroy a shared receive queue", errno))?;
        }
        for (_, state) in self.cqs.take_all() {
            let destroyed = lock(&state.object).destroy();
            destroyed.map_err(|errno| fault("destroy a completion queue", errno))?;
        }
        self.ahs.take_all();
        Ok(())
    }

    pub(super) fn create_cq(&self, core: &Core, cqe: u32, channel: Option<Channel>) -> Answer<Cq> {
        self.make_cq(core, cqe, channel, false)
    }

    /// A queue whose completions tell wall-clock times too, where those are known.
    pub(super) fn create_timed_cq(&self, core: &Core, cqe: u32) -> Answer<Cq> {
        self.make_cq(core, cqe, None, self.context.clock_page().is_some())
    }

    pub(super) fn poll_timed(&self, cq: Cq) -> Answer<Option<Timed>> {
        let cq = self.cqs.get(cq.id)?;
        let mut queue = lock(&cq.queue);
        if queue.start_poll().is_err() {
            return Ok(None);
        }
        let wall = self.context.clock_page().is_some();
        let timed = Timed {
            id: queue.wr_id(),
            status: Status(queue.status()),
            ticks: queue.read_completion_ts(),
            wall: wall.then(|| queue.read_completion_wallclock_ns()),
        };
        queue.end_poll();
        Ok(Some(timed))
    }

    /// What the kernel, or the driver, calls a completion queue.
    pub(super) fn cq_handle(&self, cq: Cq) -> Answer<handle::Cq> {
        Ok(lock(&self.cqs.get(cq.id)?.object).handle())
    }

    fn make_cq(
        &self,
        core: &Core,
        cqe: u32,
        channel: Option<Channel>,
        wall_clock: bool,
    ) -> Answer<Cq> {
        let id = table::new_id();
        let to = match channel {
            Some(channel) => Some(core.channels.get(channel.0)?),
            None => None,
        };
        let made = self.context.create_cq(&CqRequest {
            cqe,
            user_handle: id.into(),
            comp_channel: to.as_ref().map(|channel| channel.file.as_raw_fd()),
            async_event: Some(core.events.as_raw_fd()),
            wall_clock,
            ..CqRequest::default()
        });
        let (object, queue) = made.map_err(|errno| fault("make a completion queue", errno))?;
        let cqe = queue.entries() - 1;
        let state = CqState {
            object: Mutex::new(object),
            queue: Mutex::new(queue),
            channel,
            acks: Acks::default(),
        };
        self.cqs.add_as(id, state);
        if let Some(to) = to {
            *lock(&to.users) += 1;
        }
        Ok(Cq { id, cqe })
    }

    pub(super) fn resize_cq(&self, cq: Cq, cqe: u32) -> Answer<Cq> {
        let state = self.cqs.get(cq.id)?;
        let mut queue = lock(&state.queue);
        let resized = lock(&state.object).resize(&mut queue, cqe);
        let cqe = resized.map_err(|errno| fault("resize a completion queue", errno))?;
        Ok(Cq { cqe, ..cq })
    }

    pub(super) fn ack_cq(&self, cq: Cq, events: u32) -> Answer<()> {
        let cq = self.cqs.get(cq.id)?;
        cq.acks.add(events);
        Ok(())
    }

    /// An event of a queue was taken from its channel: the device is told with the next arming.
    pub(super) fn event_taken(&self, id: u32) {
        if let Ok(cq) = self.cqs.get(id) {
            lock(&cq.queue).event_count().event_taken();
        }
    }

    pub(super) fn arm(&self, cq: Cq, solicited_only: bool) -> Answer<()> {
        lock(&self.cqs.get(cq.id)?.queue).arm(solicited_only);
        Ok(())
    }

    pub(super) fn poll(&self, cq: Cq, max: u32) -> Answer<Vec<Wc>> {
        let cq = self.cqs.get(cq.id)?;
        let mut queue = lock(&cq.queue);
        let mut completions = vec![Completion::default(); (max as usize).min(1 << 16)];
        let count = queue.poll(&mut completions);
        Ok(completions[..count]
            .iter()
            .map(|one| Wc {
                id: one.wr_id,
                status: Status(one.status),
                opcode: one.opcode,
                vendor_err: one.vendor_err,
                byte_len: one.byte_len,
                imm: one.immediate(),
                invalidated: one.invalidated_rkey(),
                qp_num: one.qp_num,
                src_qp: one.src_qp,
                grh: one.wc_flags & data::cq::wc_flag::GRH != 0,
            })
            .collect())
    }

    pub(super) fn destroy_cq(&self, core: &Core, cq: Cq) -> Answer<()> {
        let state = self.cqs.get(cq.id)?;
        let destroyed = lock(&state.object).destroy();
        let reported = destroyed.map_err(|errno| fault("destroy a completion queue", errno))?;
        state.acks.wait_for(reported.completion);
        if let Some(channel) = state.channel {
            *lock(&core.channels.get(channel.0)?.users) -= 1;
        }
        self.cqs.remove(cq.id);
        Ok(())
    }

    pub(super) fn create_qp(&self, core: &Core, init: &QpInit) -> Answer<Qp> {
        let id = table::new_id();
        let srq = match init.srq {
            Some(srq) => {
                let srq = self.srqs.get(srq.id)?;
                let handle = lock(&srq.object).handle();
                Some((handle, srq.queue.shared().clone()))
            }
            None => None,
        };
        let mut request = QpRequest::new(match init.transport {
            Transport::Rc => geometry::Transport::Rc,
            Transport::Uc => geometry::Transport::Uc,
            Transport::Ud => geometry::Transport::Ud,
            Transport::Raw => geometry::Transport::RawPacket,
        });
        request.pd = *core.pds.get(init.pd.0)?;
        request.send_cq = self.cq_handle(init.send_cq)?;
        request.recv_cq = self.cq_handle(init.recv_cq)?;
        request.srq = srq.clone();
        request.user_handle = id.into();
        request.cap = convert::cap(&init.caps);
        request.sq_sig_all = init.signal_all;
        request.async_event = Some(core.events.as_raw_fd());
        let made = self.context.create_qp(&request);
        let made = made.map_err(|errno| fault("make a queue pair", errno))?;
        let (num, caps) = (made.object.number(), convert::caps(made.object.cap()));
        let state = QpState {
            object: Mutex::new(made.object),
            send: Mutex::new(made.send),
            receive: Mutex::new(made.receive),
            cqs: [init.send_cq.id, init.recv_cq.id],
            srq: srq.map(|(_, shared)| shared),
        };
        self.qps.add_as(id, state);
        Ok(Qp {
            id,
            num,
            transport: init.transport,
            caps,
        })
    }

    /// Takes completions of a queue pair that started over, or is gone, out of both of its queues.
    fn clean(&self, state: &QpState, key: Option<u32>) {
        let Some(key) = key else { return };
        for id in state.cqs {
            if let Ok(cq) = self.cqs.get(id) {
                lock(&cq.queue).clean(key, state.srq.as_deref());
            }
        }
    }

    pub(super) fn modify_qp(&self, qp: Qp, attr: &QpAttr) -> Answer<()> {
        let state = self.qps.get(qp.id)?;
        let mut object = lock(&state.object);
        let request = ExModifyQp {
            base: convert::modification(object.handle(), attr),
            ..ExModifyQp::default()
        };
        let change = object.modify(&request);
        let change = change.map_err(|errno| fault("modify a queue pair", errno))?;
        if change.resets() {
            self.clean(&state, object.key());
        }
        if let Some(queue) = &mut *lock(&state.send) {
            change.apply_to_send(queue);
        }
        if let Some(queue) = &mut *lock(&state.receive) {
            change.apply_to_receive(queue);
        }
        Ok(())
    }

    pub(super) fn query_qp(&self, qp: Qp) -> Answer<QpReport> {
        // Every attribute of the old set.
        let all = uverbs_abi::types::QpAttrMask(0x1f_ffff);
        let answer = lock(&self.qps.get(qp.id)?.object).query(all);
        let answer = answer.map_err(|errno| fault("query a queue pair", errno))?;
        convert::report(&answer)
    }

    pub(super) fn destroy_qp(&self, qp: Qp) -> Answer<()> {
        let state = self.qps.get(qp.id)?;
        let mut object = lock(&state.object);
        let dying = object.destroy();
        let dying = dying.map_err(|errno| fault("destroy a queue pair", errno))?;
        self.clean(&state, dying.key());
        drop(dying);
        self.qps.remove(qp.id);
        Ok(())
    }

    pub(super) fn post_send(&self, qp: Qp, list: &[SendWr]) -> Posted {
        let first = |fault| PostFault { index: 0, fault };
        let state = self.qps.get(qp.id).map_err(first)?;
        let mut queue = lock(&state.send);
        let Some(queue) = &mut *queue else {
            return Err(post_fault(0, data::PostError::QueueFull, Verb::PostSend));
        };
        let mut requests = Vec::new();
        for (index, wr) in list.iter().enumerate() {
            let av = match wr.to {
                Some(to) => {
                    let ah = self.ahs.get(to.ah.0);
                    let ah = ah.map_err(|fault| PostFault { index, fault })?;
                    Some(*lock(&ah).av())
                }
                None => None,
            };
            requests.push(Request {
                wr,
                sges: sges(&wr.sg),
                index,
                av,
            });
        }
        match queue.post(requests) {
            Ok(_) => Ok(()),
            Err(refused) => Err(post_fault(
                refused.request.index,
                refused.error,
                Verb::PostSend,
            )),
        }
    }

    pub(super) fn post_recv(&self, qp: Qp, list: &[RecvWr]) -> Posted {
        let first = |fault| PostFault { index: 0, fault };
        let state = self.qps.get(qp.id).map_err(first)?;
        let mut queue = lock(&state.receive);
        let Some(queue) = &mut *queue else {
            return Err(post_fault(0, data::PostError::QueueFull, Verb::PostRecv));
        };
        for (index, wr) in list.iter().enumerate() {
            let list = sges(&wr.sg);
            let posted = queue.post([(wr.id, &list[..])]);
            posted.map_err(|refused| post_fault(index, refused.error, Verb::PostRecv))?;
        }
        Ok(())
    }

    pub(super) fn create_srq(
        &self,
        core: &Core,
        pd: Pd,
        max_wr: u32,
        max_sge: u32,
        limit: u32,
    ) -> Answer<Srq> {
        let id = table::new_id();
        let made = self.context.create_srq(&SrqRequest {
            pd: *core.pds.get(pd.0)?,
            user_handle: id.into(),
            max_wr,
            max_sge,
            srq_limit: limit,
            async_event: Some(core.events.as_raw_fd()),
            ..SrqRequest::default()
        });
        let (object, queue) = made.map_err(|errno| fault("make a shared receive queue", errno))?;
        let (max_wr, max_sge) = (object.max_wr(), object.max_sge());
        let state = SrqState {
            object: Mutex::new(object),
            queue,
        };
        self.srqs.add_as(id, state);
        Ok(Srq {
            id,
            max_wr,
            max_sge,
        })
    }

    pub(super) fn modify_srq(
        &self,
        srq: Srq,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Answer<()> {
        let state = self.srqs.get(srq.id)?;
        let mask = convert::srq_mask(max_wr, limit);
        let (max_wr, limit) = (max_wr.unwrap_or(0), limit.unwrap_or(0));
        let answer = lock(&state.object).modify(mask, max_wr, limit);
        answer.map_err(|errno| fault("modify a shared receive queue", errno))
    }

    pub(super) fn query_srq(&self, srq: Srq) -> Answer<SrqReport> {
        let answer = lock(&self.srqs.get(srq.id)?.object).query();
        let attr = answer.map_err(|errno| fault("query a shared receive queue", errno))?;
        Ok(SrqReport {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
    }

    pub(super) fn destroy_srq(&self, srq: Srq) -> Answer<()> {
        let state = self.srqs.get(srq.id)?;
        let answer = lock(&state.object).destroy().map(drop);
        answer.map_err(|errno| fault("destroy a shared receive queue", errno))?;
        self.srqs.remove(srq.id);
        Ok(())
    }

    pub(super) fn post_srq(&self, srq: Srq, list: &[RecvWr]) -> Posted {
        let first = |fault| PostFault { index: 0, fault };
        let state = self.srqs.get(srq.id).map_err(first)?;
        for (index, wr) in list.iter().enumerate() {
            let list = sges(&wr.sg);
            let posted = state.queue.post([(wr.id, &list[..])]);
            posted.map_err(|refused| post_fault(index, refused.error, Verb::PostRecv))?;
        }
        Ok(())
    }

    pub(super) fn create_ah(&self, core: &Core, pd: Pd, route: &Route) -> Answer<Ah> {
        let pd = *core.pds.get(pd.0)?;
        let nobody = || Err(Errno(libc::EHOSTUNREACH));
        let made = self.context.create_ah(pd, 0, &path(route), nobody);
        let object = made.map_err(|errno| fault("make an address handle", errno))?;
        Ok(Ah(self.ahs.add(Mutex::new(object))))
    }

    pub(super) fn destroy_ah(&self, ah: Ah) -> Answer<()> {
        let state = self.ahs.get(ah.0)?;
        let answer = lock(&state).destroy();
        answer.map_err(|errno| fault("destroy an address handle", errno))?;
        self.ahs.remove(ah.0);
        Ok(())
    }

    /// What the kernel, or the driver, calls a queue pair.
    pub(super) fn qp_handle(&self, qp: Qp) -> Answer<handle::Qp> {
        Ok(lock(&self.qps.get(qp.id)?.object).handle())
    }
}

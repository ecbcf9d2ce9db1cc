//! The requester: send queues are fetched up to the doorbell record, cut into packets, and completed in order as answers come
//! (IBTA 9.7.3 to 9.7.6; what answers do is in [`answers`](super::answers)).

use std::collections::VecDeque;
use std::time::Duration;

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DatagramSegment, Opcode, SEND_WQE_BB, Syndrome};
use zerocopy::FromBytes;

use super::pace::Pace;
use super::posted::Posted;
use super::tags::Own;
use super::work::Request;
use super::{
    complete, counting, datagram, doorbell, fail, failed_send, local, pace, psn, raw, retry,
    sending, tags, timestamp,
};
use crate::checks;
use crate::completion::Cqe;
use crate::device::Device;
use crate::paging::{self, Side};
use crate::resources::{Qp, QpKind, QpState};

/// Packets without an answer, over which no more are sent.
const WINDOW: i32 = 64;
/// Requests in work, over which no more are fetched.
const FLIGHTS: usize = 64;

/// A request in work.
#[derive(Debug)]
pub(super) struct Flight {
    /// Number of its first basic block.
    pub(super) counter: u16,
    pub(super) request: Request,
    /// Its first packet, and how many numbers it takes: of a read as many as its answer has packets.
    pub(super) first: u32,
    pub(super) packets: u32,
    /// Nothing is to come any more.
    pub(super) done: bool,
    /// It can't be done; said when its turn comes.
    pub(super) doomed: Option<Syndrome>,
    /// Packets of its answer that have come.
    pub(super) got: u32,
    /// What came back, if it goes into the completion.
    pub(super) answer: Vec<u8>,
    /// Whether the device requested it by itself: no completion of a send queue tells of it.
    pub(super) is_own: bool,
    /// The message that it brings.
    pub(super) brings: Option<Own>,
}

impl Flight {
    /// The number behind its last.
    pub(super) fn end(&self) -> u32 {
        psn::add(self.first, self.packets)
    }
}

/// How far a send queue is.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Basic blocks fetched, counted over and over.
    pub(super) fetched: u16,
    /// How far the last doorbell since the last reset reaches. Until then the doorbell record is not looked at: it may be left
    /// over from an earlier life (UCX resets an initiator and leaves its record, `uct_ib_mlx5_txwq_reset`).
    rung: Option<doorbell::Behind>,
    /// Number of the packet behind all requests in work.
    pub(super) psn: u32,
    /// Of the next packet that is sent; behind `psn` when packets are sent again.
    pub(super) next: u32,
    /// Of the oldest one without an answer.
    pub(super) una: u32,
    pub(super) flight: VecDeque<Flight>,
    /// Of dynamic connections: which life of the queue pair this is.
    pub(super) life: u8,
    pub(super) retry: retry::State,
    /// Of a queue that is held to a rate.
    pub(super) pace: Pace,
    /// What the device requests by itself, and the message that a request brings.
    pub(super) own: VecDeque<(Request, Option<Own>)>,
    /// Requests that were fetched, for strict checks.
    pub(super) posted: Posted,
}

impl Requester {
    /// Starts with this packet.
    pub(super) fn start(&mut self, psn: u32, life: u8) {
        *self = Self {
            fetched: self.fetched,
            rung: self.rung,
            posted: std::mem::take(&mut self.posted),
            psn,
            next: psn,
            una: psn,
            life,
            ..Self::default()
        };
    }

    /// When something is to be done without an answer.
    pub(super) fn due(&self) -> Option<Duration> {
        [self.retry.due(), self.pace.waits]
            .into_iter()
            .flatten()
            .min()
    }

    /// A doorbell has come that reaches so far.
    pub(super) fn ring(&mut self, behind: doorbell::Behind) {
        self.rung = Some(behind);
    }

    /// Whether a doorbell has come for the request at this block.
    fn is_rung(&self, block: u16) -> bool {
        (self.rung).is_some_and(|behind| behind.wrapping_sub(block).cast_signed() > 0)
    }

    /// A datagram went out: the next one's number.
    pub(super) fn count(&mut self, psn: u32) {
        (self.psn, self.next, self.una) = (psn, psn, psn);
    }

    /// Basic blocks of the ring that were fetched.
    pub(super) fn fetched(&self) -> u16 {
        self.fetched
    }

    /// Nothing is in work.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }

    fn reads(&self) -> usize {
        (self.flight.iter())
            .filter(|flight| flight.request.is_read() && !flight.done)
            .count()
    }
}

fn get(device: &mut Device, qpn: u32) -> Option<&mut Qp> {
    device.resources.qps.get_mut(qpn)
}

/// Goes on with a send queue, by one step; whether there may be another.
pub(super) fn step(device: &mut Device, qpn: u32) -> bool {
    let now = device.now;
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    match qp.state {
        QpState::Rts | QpState::Sqd => {}
        QpState::Err => return flush_next(device, qpn),
        _ => return false,
    }
    if device.paging.holds(qpn, Side::Send) {
        return false;
    }
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    let limits = qp.limits;
    let requester = &mut qp.data.requester;
    let expired = requester.retry.expire(now, &limits);
    if expired != retry::Expired::No && !requester.retry.is_noticed() {
        counting::count(device, qpn, |set| &mut set.local_ack_timeout_err);
    }
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    let requester = &mut qp.data.requester;
    match expired {
        retry::Expired::No => {}
        retry::Expired::Again => requester.next = requester.una,
        retry::Expired::Exhausted => {
            fail_first(device, qpn, Syndrome::TRANSPORT_RETRY_EXC_ERR);
            return true;
        }
    }
    if requester.retry.is_paused() {
        return false;
    }
    if let Some(syndrome) = requester.flight.front().and_then(|flight| flight.doomed) {
        fail_first(device, qpn, syndrome);
        return true;
    }
    if requester.next != requester.psn {
        return send_next(device, qpn);
    }
    if qp.state == QpState::Sqd {
        return false;
    }
    fetch(device, qpn)
}

/// The next packet of the requests in work.
fn send_next(device: &mut Device, qpn: u32) -> bool {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return false;
    };
    let requester = &qp.data.requester;
    if psn::distance(requester.una, requester.next) >= WINDOW {
        return false;
    }
    let next = requester.next;
    let Some(index) = (requester.flight.iter())
        .position(|it| psn::distance(it.first, next) >= 0 && psn::distance(next, it.end()) > 0)
    else {
        return false;
    };
    if requester.flight[index].doomed.is_some() {
        return false;
    }
    let is_reliable = qp.kind != QpKind::Uc;
    let packet = sending::packet(device, qp, &requester.flight[index]);
    let (now, limits) = (device.now, qp.limits);
    super::tell_of_sends(device, qpn);
    if packet.is_err() && paging::wait(device, qpn, Side::Send) {
        return false;
    }
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    let requester = &mut qp.data.requester;
    let flight = &mut requester.flight[index];
    match packet {
        Ok(packet) => {
            requester.next = if flight.request.is_read() {
                flight.end()
            } else {
                psn::add(next, 1)
            };
            if is_reliable {
                requester.retry.sent(now, &limits);
            } else {
                requester.una = requester.next;
                flight.done |= requester.next == flight.end();
            }
            super::emit(device, packet);
            if !is_reliable {
                complete_done(device, qpn);
            }
        }
        Err(syndrome) => flight.doomed = Some(syndrome),
    }
    true
}

/// Whether a request starts in the ring, and its bytes.
fn fetch_bytes(device: &Device, qp: &Qp) -> Option<Result<Vec<u8>, Syndrome>> {
    let send = qp
        .send
        .as_ref()
        .filter(|_| qp.data.requester.rung.is_some())?;
    let fetched = qp.data.requester.fetched;
    let mut word = [0; 4];
    let memory = device.memory.as_ref();
    if memory.read(qp.dbr.wrapping_add(4), &mut word).is_err() {
        return None;
    }
    let record = u32::from_be_bytes(word) as u16;
    let posted = record.wrapping_sub(fetched);
    if posted == 0 {
        return None;
    }
    let blocks = 1 << send.ring.log_size.min(16);
    if u32::from(posted) > blocks {
        let fault = checks::Fault::SendRingOverrun {
            qpn: qp.number,
            record,
            next: fetched,
            blocks,
        };
        checks::report(device, fault);
    }
    let mut block = [0; SEND_WQE_BB];
    if send.ring.read(memory, fetched.into(), &mut block).is_err() {
        return Some(Err(Syndrome::LOCAL_QP_OP_ERR));
    }
    let Ok((ctrl, _)) = CtrlSegment::read_from_prefix(&block) else {
        return Some(Err(Syndrome::LOCAL_QP_OP_ERR));
    };
    let length = usize::from(ctrl.ds()) * 16;
    let is_wrong = ctrl.qpn() != qp.number || ctrl.index() != fetched;
    let blocks = length.div_ceil(SEND_WQE_BB);
    if is_wrong || length == 0 || blocks > usize::from(posted) {
        return Some(Err(Syndrome::LOCAL_QP_OP_ERR));
    }
    let mut bytes = vec![0; length];
    let read = send.ring.read(memory, fetched.into(), &mut bytes);
    Some(read.map(|()| bytes).map_err(|_| Syndrome::LOCAL_QP_OP_ERR))
}

/// Fetches the next request, and does it if it is local or a datagram.
fn fetch(device: &mut Device, qpn: u32) -> bool {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return false;
    };
    let requester = &qp.data.requester;
    if requester.flight.len() >= FLIGHTS {
        return false;
    }
    if !requester.own.is_empty() {
        return take_own(device, qpn);
    }
    let (request, blocks) = match fetch_bytes(device, qp) {
        None => return false,
        Some(Err(syndrome)) => return dead_end(device, qpn, syndrome),
        Some(Ok(bytes)) => (
            Request::parse(qp.kind, &bytes),
            bytes.len().div_ceil(SEND_WQE_BB) as u16,
        ),
    };
    let Some(mut request) = request else {
        return dead_end(device, qpn, Syndrome::LOCAL_QP_OP_ERR);
    };
    request.spread(&device.resources);
    let log_max = match qp.log_msg_max {
        0 => 30,
        log => log.min(30),
    };
    if request.len() > 1 << log_max {
        return dead_end(device, qpn, Syndrome::LOCAL_LENGTH_ERR);
    }
    let reads = requester.reads();
    // Modes from 2 on wait for reads (`MLX5_FENCE_MODE_*`); 1 is for keys, whose changes are done at once here.
    let fence = request.flags.fence_mode() >= 2;
    // What a mistake in signatures is to stop waits for all that may have one.
    let is_fenced = fence && (reads != 0 || qp.drains_mistakes && !requester.is_idle());
    if is_fenced || request.is_read() && reads >= 1 << qp.limits.log_sra_max.min(7) {
        return false;
    }
    if !is_reachable(&request, requester) {
        return false;
    }
    let counter = requester.fetched;
    // The record may say of a request before its doorbell comes, and its data on the device come before the doorbell: on a bus
    // they can't be behind the record that was read, on the way here they can.
    if !device.watches && !requester.is_rung(counter) && request.is_on_device(device, &qp.who()) {
        return false;
    }
    let is_strict = device.config.strict;
    if is_strict && sets_reserved(qp, counter, &request) {
        let (qpn, index) = (qpn, counter);
        checks::report(device, checks::Fault::ReservedRequestBit { qpn, index });
    }
    let kind = qp.kind;
    if kind == QpKind::RawSend && !pace::may_send(device, qpn, request.len()) {
        return false;
    }
    let Some(qp) = device.resources.qps.get(qpn) else {
        return false;
    };
    let requester = &qp.data.requester;
    let first = requester.psn;
    let is_local = request.is_local();
    let mtu = qp.mtu;
    let packets = match kind {
        _ if is_local => 0,
        QpKind::Rc | QpKind::Uc | QpKind::Xrc | QpKind::Dci if !request.is_atomic() => {
            psn::packets(request.len(), mtu)
        }
        QpKind::Rc | QpKind::Xrc | QpKind::Dci => 1,
        _ => 0,
    };
    let result = match kind {
        _ if is_local => local::execute(device, qpn, &request),
        QpKind::Ud | QpKind::Gsi | QpKind::Smi => datagram::send(device, qpn, &request),
        QpKind::RawSend => raw::send(device, qpn, &request),
        _ => Ok(()),
    };
    super::tell_of_sends(device, qpn);
    if result.is_err() && paging::wait(device, qpn, Side::Send) {
        return false; // it is fetched again
    }
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    let requester = &mut qp.data.requester;
    requester.fetched = counter.wrapping_add(blocks);
    if let (true, Some(send)) = (is_strict, &qp.send) {
        (requester.posted).keep(&send.ring, counter, &request.bytes);
    }
    if packets != 0 {
        requester.psn = psn::add(first, packets);
    }
    requester.flight.push_back(Flight {
        counter,
        request,
        first,
        packets,
        done: packets == 0,
        doomed: result.err(),
        got: 0,
        answer: Vec::new(),
        is_own: false,
        brings: None,
    });
    complete_done(device, qpn);
    true
}

/// Whether a reserved bit is set that no known program leaves set.
fn sets_reserved(qp: &Qp, index: u16, request: &Request) -> bool {
    let posted = &qp.data.requester.posted;
    let is_left_over = |at: usize| {
        let bytes = request.bytes.get(at..at + 4).unwrap_or_default();
        let mut rings = qp.send.iter();
        rings.any(|send| posted.is_left_over(&send.ring, index, at, bytes))
    };
    let mut leaves = request.leaves.iter();
    let may_be = checks::allowed::may_be_left_over;
    request.sets_reserved || leaves.any(|&(word, at)| !(may_be(word) && is_left_over(at)))
}

/// Goes on with what the device requests by itself: reads as many as the peer takes at a time, and behind them, once all is
/// there, that it is.
fn take_own(device: &mut Device, qpn: u32) -> bool {
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    let (mtu, most) = (qp.mtu, 1 << qp.limits.log_sra_max.min(7));
    let requester = &mut qp.data.requester;
    let reads = requester.reads();
    let Some((request, brings)) = requester.own.pop_front() else {
        return false;
    };
    let waits = if request.is_read() {
        reads >= most
    } else {
        reads != 0
    };
    if waits {
        requester.own.push_front((request, brings));
        return false;
    }
    let first = requester.psn;
    let packets = psn::packets(request.len(), mtu);
    requester.psn = psn::add(first, packets);
    requester.flight.push_back(Flight {
        counter: requester.fetched,
        request,
        first,
        packets,
        done: false,
        doomed: None,
        got: 0,
        answer: Vec::new(),
        is_own: true,
        brings,
    });
    true
}

/// A dynamic connection has one target at a time.
fn is_reachable(request: &Request, requester: &Requester) -> bool {
    let target = |av: &DatagramSegment| (av.dqp_dct, av.key, av.rlid, av.rgid, av.rmac);
    let Some(destination) = &request.destination else {
        return true;
    };
    (requester.flight.iter())
        .filter(|flight| flight.packets != 0 && !flight.done)
        .filter_map(|flight| flight.request.destination.as_ref())
        .all(|other| target(other) == target(destination))
}

/// The next request makes no sense.
fn dead_end(device: &mut Device, qpn: u32, syndrome: Syndrome) -> bool {
    let Some(qp) = get(device, qpn) else {
        return false;
    };
    // Those before it come first.
    if !qp.data.requester.flight.is_empty() {
        return false;
    }
    let counter = qp.data.requester.fetched;
    qp.data.requester.fetched = counter.wrapping_add(1);
    let cqe = failed_send(qp, counter, Opcode::NOP, syndrome);
    let cqn = qp.send.as_ref().map_or(0, |send| send.cqn);
    complete(device, qpn, cqn, &cqe);
    fail(device, qpn);
    true
}

/// Completes what is done, in order.
pub(super) fn complete_done(device: &mut Device, qpn: u32) {
    let mut some = false;
    loop {
        let time = timestamp(device);
        let Some(qp) = get(device, qpn) else {
            return;
        };
        let is_done = (qp.data.requester.flight.front())
            .is_some_and(|flight| flight.done && flight.doomed.is_none());
        if !is_done {
            break;
        }
        let Some(flight) = qp.data.requester.flight.pop_front() else {
            break;
        };
        some = true;
        if flight.is_own {
            if let Some(own) = flight.brings {
                tags::done(device, qpn, own, Some(flight.request.len()));
            }
            continue;
        }
        if device.config.strict {
            check_unchanged(device, qpn, &flight);
        }
        let Some(qp) = get(device, qpn) else {
            return;
        };
        let request = &flight.request;
        let returned = if request.is_read() { request.len() } else { 0 };
        let owner = qp.owner(flight.counter);
        let cqn = qp.send.as_ref().map_or(0, |send| send.cqn);
        if request.flags.contains(CtrlFlags::CQ_UPDATE) {
            let mut cqe = Cqe::sent(owner, request.opcode, returned as u32, time);
            if !flight.answer.is_empty() {
                let room = sending::scatter_room(qp.scatter_request);
                cqe.scatter(&flight.answer, room);
            }
            complete(device, qpn, cqn, &cqe);
        }
    }
    let is_stopping = get(device, qpn).is_some_and(|qp| qp.state == QpState::Sqd);
    if some && is_stopping {
        super::drained_if_idle(device, qpn);
    }
}

/// A request belongs to the device until it is completed: its slots still hold it.
fn check_unchanged(device: &Device, qpn: u32, flight: &Flight) {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return;
    };
    let Some(send) = &qp.send else { return };
    let mut bytes = vec![0; flight.request.bytes.len()];
    let read = (send.ring).read(device.memory.as_ref(), flight.counter.into(), &mut bytes);
    if read.is_ok() && bytes != flight.request.bytes {
        let index = flight.counter;
        checks::report(device, checks::Fault::RequestChanged { qpn, index });
    }
}

/// The oldest request failed, and with it the queue pair.
pub(super) fn fail_first(device: &mut Device, qpn: u32, syndrome: Syndrome) {
    let Some(qp) = get(device, qpn) else {
        return;
    };
    log::debug!("a request of queue pair {qpn:#x} failed: {syndrome:?}");
    let flight = qp.data.requester.flight.pop_front();
    if let Some(own) = flight.as_ref().and_then(|flight| flight.brings) {
        tags::done(device, qpn, own, None);
    }
    let Some(qp) = get(device, qpn) else {
        return;
    };
    if let Some(flight) = flight.filter(|flight| !flight.is_own) {
        let cqe = failed_send(qp, flight.counter, flight.request.opcode, syndrome);
        let cqn = qp.send.as_ref().map_or(0, |send| send.cqn);
        complete(device, qpn, cqn, &cqe);
    }
    fail(device, qpn);
}

/// Everything in work is flushed.
pub(super) fn flush_flight(device: &mut Device, qpn: u32) {
    let Some(qp) = get(device, qpn) else {
        return;
    };
    qp.data.requester.retry = retry::State::default();
    let flights = std::mem::take(&mut qp.data.requester.flight);
    let cqn = qp.send.as_ref().map_or(0, |send| send.cqn);
    let own = std::mem::take(&mut qp.data.requester.own);
    let own: Vec<Own> = (flights.iter().map(|flight| flight.brings))
        .chain(own.into_iter().map(|(_, brings)| brings))
        .flatten()
        .collect();
    let cqes: Vec<Cqe> = (flights.iter())
        .filter(|flight| !flight.is_own)
        .map(|it| failed_send(qp, it.counter, it.request.opcode, Syndrome::WR_FLUSH_ERR))
        .collect();
    let requester = &mut qp.data.requester;
    (requester.next, requester.una) = (requester.psn, requester.psn);
    for cqe in cqes {
        complete(device, qpn, cqn, &cqe);
    }
    for own in own {
        tags::done(device, qpn, own, None);
    }
}

/// Flushes the next request that is posted.
fn flush_next(device: &mut Device, qpn: u32) -> bool {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return false;
    };
    let (blocks, opcode) = match fetch_bytes(device, qp) {
        None => return super::responder::flush_next(device, qpn),
        Some(Ok(bytes)) => (
            bytes.len().div_ceil(SEND_WQE_BB) as u16,
            Opcode(bytes.get(3).copied().unwrap_or(0)),
        ),
        Some(Err(_)) => (1, Opcode::NOP),
    };
    let cqe = failed_send(
        qp,
        qp.data.requester.fetched,
        opcode,
        Syndrome::WR_FLUSH_ERR,
    );
    let cqn = qp.send.as_ref().map_or(0, |send| send.cqn);
    if let Some(qp) = get(device, qpn) {
        let fetched = &mut qp.data.requester.fetched;
        *fetched = fetched.wrapping_add(blocks);
    }
    complete(device, qpn, cqn, &cqe);
    true
}

/// A request was copied into a register: the copy is compared with what was fetched from memory, or is about to be.
pub(super) fn copied(device: &mut Device, copy: &[u8]) {
    let Ok((ctrl, _)) = CtrlSegment::read_from_prefix(copy) else {
        return;
    };
    let Some(qp) = device.resources.qps.get(ctrl.qpn()) else {
        return;
    };
    let Some(send) = &qp.send else { return };
    let mut memory = vec![0; copy.len()];
    let read = send
        .ring
        .read(device.memory.as_ref(), ctrl.index().into(), &mut memory);
    if read.is_err() {
        return;
    }
    if device.config.strict {
        check_copy(device, qp, &ctrl, copy, &memory);
    }
    if doorbell::asks_only_here(copy, &memory).is_some() {
        let cqe = Cqe::sent(qp.owner(ctrl.index()), Opcode::NOP, 0, timestamp(device));
        let (qpn, cqn) = (qp.number, send.cqn);
        complete(device, qpn, cqn, &cqe);
    }
}

/// A copy is the request.
fn check_copy(device: &Device, qp: &Qp, ctrl: &CtrlSegment, copy: &[u8], memory: &[u8]) {
    let (requester, index) = (&qp.data.requester, ctrl.index());
    let request = match requester.posted.find(index) {
        Some(bytes) => bytes,
        None if index.wrapping_sub(requester.fetched) < 1 << 15 => memory,
        // Too old to be known.
        None => return,
    };
    let length = (usize::from(ctrl.ds()) * 16)
        .min(copy.len())
        .min(request.len());
    let (copy, request) = (&copy[..length], &request[..length]);
    if copy != request && !checks::allowed::difference(copy, request) {
        let qpn = qp.number;
        checks::report(device, checks::Fault::CopyDiffers { qpn, index });
    }
}

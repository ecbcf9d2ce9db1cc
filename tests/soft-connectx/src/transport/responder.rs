//! The responder: requests are taken in order, done, and answered (IBTA 9.7.4 and 9.7.5).

use std::collections::VecDeque;

use wqe_format::mlx5::Syndrome;

use super::receive::{self, Nothing, Taken};
use super::{
    complete, counting, datagram, psn, sending, tags, tell_mistakes, tell_of_answers, timestamp,
};
use crate::completion::Cqe;
use crate::completion::cqe::{Received, Source};
use crate::device::Device;
use crate::memory::{self, Range, Right, Who, umr};
use crate::paging::{self, Side};
use crate::resources::{QpKind, QpState};
use crate::wire::{Answer, AtomicEth, NakCode, Packet, Reth, Route, op};

/// Initiators of one DC target that are remembered.
const INITIATORS: usize = 1 << 12;
/// Atomics and reads that can be answered again, if the queue pair doesn't say.
const REPLAY: usize = 16;

/// Who asks a DC target: address, queue pair and which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Initiator {
    gid: [u8; 16],
    lid: u16,
    qpn: u32,
    life: u8,
}

impl Initiator {
    pub(super) fn of(route: &Route, qpn: u32, life: u8) -> Initiator {
        Initiator {
            gid: route
                .global()
                .map(|global| global.source)
                .unwrap_or_default(),
            lid: match route {
                Route::InfiniBand { slid, .. } => *slid,
                Route::Ethernet { .. } => 0,
            },
            qpn,
            life,
        }
    }
}

/// One end of a connection: a queue pair, or one of the initiators of a DC target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) qpn: u32,
    pub(super) initiator: Option<Initiator>,
}

/// A message of which packets have come.
#[derive(Debug)]
enum Message {
    Send {
        taken: Taken,
        len: u64,
    },
    Write {
        key: u32,
        va: u64,
        len: u64,
        left: u64,
    },
}

/// What is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Say(u32, Answer),
    Read { psn: u32, reth: Reth, sent: u32 },
    Atomic { psn: u32, old: u64 },
}

/// What was done and can't be done twice.
#[derive(Clone, Copy, Debug)]
enum Done {
    Read { first: u32, packets: u32 },
    Atomic { psn: u32, old: u64 },
}

/// What a responder remembers.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// The next packet's number.
    pub(super) expected: u32,
    /// Messages done.
    pub(super) msn: u32,
    /// A missing packet was complained about.
    complained: bool,
    message: Option<Message>,
    /// A receive request of a message that broke off (UC).
    spare: Option<Taken>,
    done: VecDeque<Done>,
    pub(super) replies: VecDeque<Reply>,
    /// Where answers go.
    pub(super) back: Option<(Route, u32)>,
    /// A refusal that ends the connection is on its way.
    closed: bool,
}

impl Responder {
    pub(super) fn new(expected: u32) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }
}

/// Why a request is not done.
#[derive(Debug)]
enum Refusal {
    /// There is no receive request.
    NotReady,
    /// The connection ends.
    Nak(NakCode),
    /// The queue pair was broken by it.
    Broken,
}

pub(super) fn responder(device: &mut Device, at: Place) -> Option<&mut Responder> {
    let data = &mut device.resources.qps.get_mut(at.qpn)?.data;
    match at.initiator {
        Some(initiator) => data.initiators.get_mut(&initiator),
        None => Some(&mut data.responder),
    }
}

/// A request came.
pub(super) fn request(device: &mut Device, at: Place, packet: &Packet) {
    let Some(qp) = device.resources.qps.get_mut(at.qpn) else {
        return;
    };
    let is_ready = match qp.kind {
        QpKind::Dct => qp.state != QpState::Err,
        _ => !matches!(qp.state, QpState::Rst | QpState::Init | QpState::Err),
    };
    if !is_ready {
        return;
    }
    let (psn, op) = (packet.bth.psn, packet.bth.op());
    if let Some(initiator) = at.initiator {
        let initiators = &mut qp.data.initiators;
        if !initiators.contains_key(&initiator) {
            if initiators.len() >= INITIATORS {
                initiators.pop_first();
            }
            initiators.insert(initiator, Responder::new(psn));
        }
    }
    let dest = match (&packet.extended.dceth, qp.kind) {
        (Some(dceth), QpKind::Dct) => dceth.source_qp,
        _ => qp.remote_qpn,
    };
    let is_reliable = qp.kind != QpKind::Uc;
    let Some(me) = responder(device, at) else {
        return;
    };
    if me.closed {
        return;
    }
    me.back = Some((packet.route.reversed(), dest));
    let distance = psn::distance(me.expected, psn);
    if !is_reliable {
        if distance != 0 || me.message.is_none() != op::begins(op) {
            // Lost packets take their message with them; its receive request waits for the next.
            if let Some(Message::Send { taken, .. }) = me.message.take() {
                me.spare = Some(taken);
            }
            me.expected = psn;
            if !op::begins(op) {
                me.expected = psn::add(psn, 1);
                return;
            }
        }
    } else if distance > 0 {
        if !me.complained {
            me.complained = true;
            let answer = Answer::Nak(NakCode::Sequence);
            me.replies.push_back(Reply::Say(me.expected, answer));
        }
        counting::count(device, at.qpn, |set| &mut set.out_of_sequence);
        device.transport.active.insert(at.qpn);
        return;
    } else if distance < 0 {
        counting::count(device, at.qpn, |set| &mut set.duplicate_request);
        again(device, at, packet);
        device.transport.active.insert(at.qpn);
        return;
    }
    me.complained = false;
    let result = accept(device, at, packet);
    match &result {
        Ok(_) => counting::requested(device, at.qpn, op),
        Err(Refusal::Nak(NakCode::RemoteAccess)) => {
            counting::count(device, at.qpn, |set| &mut set.resp_remote_access_errors);
        }
        Err(_) => {}
    }
    device.transport.active.insert(at.qpn);
    let Some(me) = responder(device, at) else {
        return;
    };
    match result {
        Ok(packets) => {
            me.expected = psn::add(psn, packets);
            if op::ends(op) {
                me.msn = psn::add(me.msn, 1);
            }
            let has_own_answer = op == op::READ_REQUEST || op::is_atomic(op);
            if is_reliable && packet.bth.ack_request && !has_own_answer {
                if let Some(Reply::Say(_, Answer::Ack)) = me.replies.back() {
                    me.replies.pop_back();
                }
                me.replies.push_back(Reply::Say(psn, Answer::Ack));
            }
        }
        Err(_) if !is_reliable => me.expected = psn::add(psn, 1),
        Err(Refusal::NotReady) => {
            let Some(qp) = device.resources.qps.get(at.qpn) else {
                return;
            };
            let answer = Answer::Rnr(qp.min_rnr_nak);
            if let Some(me) = responder(device, at) {
                me.replies.push_back(Reply::Say(psn, answer));
            }
        }
        Err(Refusal::Nak(code)) => {
            me.closed = true;
            me.replies.push_back(Reply::Say(psn, Answer::Nak(code)));
        }
        Err(Refusal::Broken) => me.closed = true,
    }
}

/// A request that was there before (IBTA 9.7.5.1.2): what may be repeated is repeated.
fn again(device: &mut Device, at: Place, packet: &Packet) {
    let psn = packet.bth.psn;
    let Some(me) = responder(device, at) else {
        return;
    };
    let last = psn::add(me.expected, psn::MASK);
    if packet.bth.op() == op::READ_REQUEST {
        let is_known = me.done.iter().any(|done| match done {
            Done::Read { first, packets } => {
                (0..*packets as i32).contains(&psn::distance(*first, psn))
            }
            Done::Atomic { .. } => false,
        });
        if let Some(reth) = packet.extended.reth.filter(|_| is_known) {
            me.replies.push_back(Reply::Read { psn, reth, sent: 0 });
        }
    } else if op::is_atomic(packet.bth.op()) {
        let old = me.done.iter().find_map(|done| match done {
            Done::Atomic { psn: known, old } if *known == psn => Some(*old),
            _ => None,
        });
        if let Some(old) = old {
            me.replies.push_back(Reply::Atomic { psn, old });
        }
    } else if !matches!(me.replies.back(), Some(Reply::Say(at, Answer::Ack)) if *at == last) {
        me.replies.push_back(Reply::Say(last, Answer::Ack));
    }
}

/// The numbers that the request takes, if it is done.
fn accept(device: &mut Device, at: Place, packet: &Packet) -> Result<u32, Refusal> {
    let op = packet.bth.op();
    check_order(device, at, packet)?;
    if op::is_send(op) {
        send(device, at, packet)
    } else if op::is_write(op) {
        write(device, at, packet)
    } else if op == op::READ_REQUEST {
        read(device, at, packet)
    } else if op::is_atomic(op) {
        atomic(device, at, packet)
    } else {
        Err(Refusal::Nak(NakCode::InvalidRequest))
    }
}

/// Whether the packet can follow the one before it, and is as long as it must be (IBTA 9.7.4.1.4 and following).
fn check_order(device: &mut Device, at: Place, packet: &Packet) -> Result<(), Refusal> {
    let invalid = Err(Refusal::Nak(NakCode::InvalidRequest));
    let op = packet.bth.op();
    let Some(qp) = device.resources.qps.get(at.qpn) else {
        return Err(Refusal::Broken);
    };
    let mtu = qp.mtu as usize;
    let Some(me) = responder(device, at) else {
        return Err(Refusal::Broken);
    };
    let is_next = match &me.message {
        None => op::begins(op),
        Some(Message::Send { .. }) => !op::begins(op) && op::is_send(op),
        Some(Message::Write { .. }) => !op::begins(op) && op::is_write(op),
    };
    let len = packet.payload.len();
    let fits = if op::ends(op) {
        len <= mtu && (op::begins(op) || len > 0)
    } else {
        len == mtu
    };
    if is_next && fits { Ok(()) } else { invalid }
}

/// The next receive request.
fn take(device: &mut Device, at: Place, packet: &Packet) -> Result<Taken, Refusal> {
    if let Some(spare) = responder(device, at).and_then(|me| me.spare.take()) {
        return Ok(spare);
    }
    let taken = match tags::take(device, at.qpn, packet) {
        Some(taken) => taken,
        None => receive::take(device, at.qpn, packet.extended.xrc_srq),
    };
    taken.map_err(|nothing| match nothing {
        Nothing::Empty => {
            counting::count(device, at.qpn, |set| &mut set.out_of_buffer);
            Refusal::NotReady
        }
        Nothing::Broken => Refusal::Nak(NakCode::RemoteOperational),
    })
}

fn send(device: &mut Device, at: Place, packet: &Packet) -> Result<u32, Refusal> {
    let op = packet.bth.op();
    let message = responder(device, at).and_then(|me| me.message.take());
    let (taken, start) = match message {
        Some(Message::Send { taken, len }) => (taken, len),
        _ => (take(device, at, packet)?, 0),
    };
    let len = start + packet.payload.len() as u64;
    if let Some(met) = taken.met.filter(tags::Met::is_announced) {
        received(device, at, packet, &taken, Received::Send, len, false);
        tags::read(device, at.qpn, &met, &taken);
        return Ok(1);
    }
    let (from, payload) = placed(&taken, start, &packet.payload);
    if from + payload.len() as u64 > taken.room() {
        report(device, at, &taken, Syndrome::LOCAL_LENGTH_ERR);
        return Err(Refusal::Nak(NakCode::InvalidRequest));
    }
    let in_cqe = op::begins(op)
        && op::ends(op)
        && taken.met.is_none()
        && fits_cqe(device, at, packet.payload.len());
    let scattered = in_cqe || taken.scatter(device, from, payload).is_ok();
    tell_mistakes(device, at.qpn, |_| Some(taken.cqn));
    if !scattered {
        if paging::wait(device, at.qpn, Side::Answer) {
            // The packet comes again, and finds what the ones before it left.
            if let Some(me) = responder(device, at) {
                if op::begins(op) {
                    me.spare = Some(taken);
                } else {
                    me.message = Some(Message::Send { taken, len: start });
                }
            }
            return Err(Refusal::NotReady);
        }
        report(device, at, &taken, Syndrome::LOCAL_PROT_ERR);
        return Err(Refusal::Nak(NakCode::RemoteOperational));
    }
    let met = taken.met.filter(tags::Met::is_several);
    if !op::ends(op) {
        if met.is_some() && op::begins(op) {
            received(device, at, packet, &taken, Received::Send, len, false);
        }
        if let Some(me) = responder(device, at) {
            me.message = Some(Message::Send { taken, len });
        }
        return Ok(1);
    }
    if let Some(key) = packet.extended.ieth
        && umr::invalidate(device, &taken.who, key).is_err()
    {
        report(device, at, &taken, Syndrome::LOCAL_ACCESS_ERR);
        return Err(Refusal::Nak(NakCode::RemoteAccess));
    }
    let what = match (packet.extended.imm, packet.extended.ieth) {
        (Some(imm), _) => Received::SendImm(imm),
        (_, Some(key)) => Received::SendInv(key),
        _ => Received::Send,
    };
    match (met, taken.met) {
        (Some(met), _) => tags::done(device, at.qpn, met.own(), Some(len - met.skip)),
        (None, Some(met)) => {
            received(device, at, packet, &taken, what, len - met.skip, false);
        }
        (None, None) => received(device, at, packet, &taken, what, len, in_cqe),
    }
    Ok(1)
}

/// Where a packet's data go in the buffers, and which they are: what tags are met by is left out.
fn placed<'a>(taken: &Taken, start: u64, payload: &'a [u8]) -> (u64, &'a [u8]) {
    let Some(met) = &taken.met else {
        return (start, payload);
    };
    let skipped = met.skip.saturating_sub(start).min(payload.len() as u64);
    let mut data = &payload[skipped as usize..];
    if met.is_left() {
        data = &data[..data.len().min(taken.room() as usize)];
    }
    (start.saturating_sub(met.skip), data)
}

/// Whether data goes into the completion.
fn fits_cqe(device: &Device, at: Place, len: usize) -> bool {
    let qp = device.resources.qps.get(at.qpn);
    len > 0 && qp.is_some_and(|qp| len <= sending::scatter_room(qp.scatter_response))
}

fn received(
    device: &mut Device,
    at: Place,
    packet: &Packet,
    taken: &Taken,
    what: Received,
    len: u64,
    in_cqe: bool,
) {
    let time = timestamp(device);
    // Of a target's messages programs need to know whose they are: UCX answers there (`uct_dc_mlx5_iface_fc_handler`). No
    // header is in the buffer.
    let source = packet.extended.dceth.map(|dceth| Source {
        grh: 0,
        ..datagram::source(&packet.route, dceth.source_qp, 0)
    });
    let mut cqe =
        Cqe::received(taken.owner, what, len as u32, source, time).solicited(packet.bth.solicited);
    if let (true, Some(qp)) = (in_cqe, device.resources.qps.get(at.qpn)) {
        let room = sending::scatter_room(qp.scatter_response);
        cqe.scatter(&packet.payload, room);
    }
    if let Some(tagged) = &taken.tagged {
        cqe = cqe.tagged(tagged);
    }
    complete(device, at.qpn, taken.cqn, &cqe);
}

/// A receive request failed.
fn report(device: &mut Device, at: Place, taken: &Taken, syndrome: Syndrome) {
    if let Some(met) = &taken.met {
        return tags::cancel(device, at.qpn, met);
    }
    let cqe = Cqe::failed(taken.owner, None, syndrome);
    complete(device, at.qpn, taken.cqn, &cqe);
}

/// Who uses keys: an XRC target's requests have the domain of the shared queue they name.
fn who(device: &Device, at: Place, packet: &Packet) -> Option<Who> {
    let qp = device.resources.qps.get(at.qpn)?;
    let who = qp.who();
    match packet.extended.xrc_srq {
        Some(srqn) => {
            let srq = device.resources.srqs.get(srqn)?;
            Some(Who { pd: srq.pd, ..who })
        }
        None => Some(who),
    }
}

const NO_ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccess);

/// Memory could not be reached: for good, or until a page comes.
fn denied(device: &mut Device, at: Place) -> Refusal {
    if paging::wait(device, at.qpn, Side::Answer) {
        Refusal::NotReady
    } else {
        NO_ACCESS
    }
}

fn write(device: &mut Device, at: Place, packet: &Packet) -> Result<u32, Refusal> {
    let op = packet.bth.op();
    let who = who(device, at, packet).ok_or(NO_ACCESS)?;
    let allows = (device.resources.qps.get(at.qpn)).is_some_and(|qp| qp.rights.write);
    let message = match responder(device, at).map(|me| &me.message) {
        Some(Some(Message::Write { key, va, len, left })) => (*key, *va, *len, *left),
        _ => {
            let reth = packet.extended.reth.ok_or(Refusal::Broken)?;
            let len = u64::from(reth.length);
            let range = Range {
                key: reth.rkey,
                va: reth.va,
                len,
            };
            if !allows {
                return Err(NO_ACCESS);
            }
            if len > 0 {
                memory::check(&device.resources, &who, range, Right::RemoteWrite)
                    .map_err(|_| NO_ACCESS)?;
            }
            (reth.rkey, reth.va, len, len)
        }
    };
    let (key, va, len, left) = message;
    let here = packet.payload.len() as u64;
    if here > left || op::ends(op) != (here == left) {
        return Err(Refusal::Nak(NakCode::InvalidRequest));
    }
    // A receive request that is missing is noticed before anything is written.
    let taken = match packet.extended.imm {
        Some(_) => Some(take(device, at, packet)?),
        None => None,
    };
    if here > 0 {
        let to = (key, va.wrapping_add(len - left));
        let written = memory::write(device, &who, to, Right::RemoteWrite, &packet.payload);
        tell_of_answers(device, at.qpn);
        if written.is_err() {
            let refusal = denied(device, at);
            if let Some(me) = responder(device, at) {
                me.spare = taken;
            }
            return Err(refusal);
        }
    }
    let left = left - here;
    if let Some(me) = responder(device, at) {
        me.message = (!op::ends(op)).then_some(Message::Write { key, va, len, left });
    }
    if let (Some(taken), Some(imm)) = (taken, packet.extended.imm) {
        received(
            device,
            at,
            packet,
            &taken,
            Received::WriteImm(imm),
            len,
            false,
        );
    }
    Ok(1)
}

/// Keeps what can't be done twice.
fn remember(device: &mut Device, at: Place, done: Done) {
    let room = (device.resources.qps.get(at.qpn))
        .map_or(REPLAY, |qp| REPLAY.max(1 << qp.log_rra_max.min(7)));
    if let Some(me) = responder(device, at) {
        me.done.push_back(done);
        while me.done.len() > room {
            me.done.pop_front();
        }
    }
}

fn read(device: &mut Device, at: Place, packet: &Packet) -> Result<u32, Refusal> {
    let who = who(device, at, packet).ok_or(NO_ACCESS)?;
    let reth = packet.extended.reth.ok_or(Refusal::Broken)?;
    let qp = device.resources.qps.get(at.qpn).ok_or(Refusal::Broken)?;
    let packets = psn::packets(reth.length.into(), qp.mtu);
    let range = Range {
        key: reth.rkey,
        va: reth.va,
        len: reth.length.into(),
    };
    let is_granted = reth.length == 0
        || memory::check(&device.resources, &who, range, Right::RemoteRead).is_ok();
    if !qp.rights.read || !is_granted {
        return Err(NO_ACCESS);
    }
    let psn = packet.bth.psn;
    let done = Done::Read {
        first: psn,
        packets,
    };
    remember(device, at, done);
    if let Some(me) = responder(device, at) {
        me.replies.push_back(Reply::Read { psn, reth, sent: 0 });
    }
    Ok(packets)
}

fn atomic(device: &mut Device, at: Place, packet: &Packet) -> Result<u32, Refusal> {
    let who = who(device, at, packet).ok_or(NO_ACCESS)?;
    let atomic: AtomicEth = packet.extended.atomic.ok_or(Refusal::Broken)?;
    let qp = device.resources.qps.get(at.qpn).ok_or(Refusal::Broken)?;
    if !qp.rights.atomic || qp.atomic_mode == 0 {
        return Err(NO_ACCESS);
    }
    let width = if atomic.width == 4 { 4 } else { 8 };
    if !atomic.va.is_multiple_of(width) {
        return Err(Refusal::Nak(NakCode::InvalidRequest));
    }
    // Memory is in the order of the host, which is little-endian.
    let mut bytes = [0; 8];
    let operand = &mut bytes[..width as usize];
    let range = Range {
        key: atomic.rkey,
        va: atomic.va,
        len: width,
    };
    memory::check(&device.resources, &who, range, Right::RemoteAtomic).map_err(|_| NO_ACCESS)?;
    let place = (atomic.rkey, atomic.va);
    if memory::read(device, &who, place, Right::RemoteAtomic, operand).is_err() {
        return Err(denied(device, at));
    }
    let old = u64::from_le_bytes(bytes);
    let new = super::atomic::run(packet.bth.op(), old, &atomic).to_le_bytes();
    let new = &new[..width as usize];
    memory::write(device, &who, place, Right::RemoteAtomic, new).map_err(|_| NO_ACCESS)?;
    let psn = packet.bth.psn;
    remember(device, at, Done::Atomic { psn, old });
    if let Some(me) = responder(device, at) {
        me.replies.push_back(Reply::Atomic { psn, old });
    }
    Ok(1)
}

/// The receive request of a message that is broken off is flushed.
pub(super) fn flush_message(device: &mut Device, qpn: u32) {
    let place = Place {
        qpn,
        initiator: None,
    };
    let Some(me) = responder(device, place) else {
        return;
    };
    me.replies.clear();
    me.closed = true;
    let message = me.message.take();
    let spare = me.spare.take();
    if let Some(Message::Send { taken, .. }) = message {
        report(device, place, &taken, Syndrome::WR_FLUSH_ERR);
    }
    if let Some(taken) = spare {
        report(device, place, &taken, Syndrome::WR_FLUSH_ERR);
    }
}

/// Flushes the next receive request of a queue pair in error. Those of shared queues stay.
pub(super) fn flush_next(device: &mut Device, qpn: u32) -> bool {
    let is_own = (device.resources.qps.get(qpn))
        .is_some_and(|qp| matches!(qp.receive, crate::resources::Receive::Ring { .. }));
    if !is_own {
        return false;
    }
    let Ok(taken) = receive::take(device, qpn, None) else {
        return false;
    };
    let place = Place {
        qpn,
        initiator: None,
    };
    report(device, place, &taken, Syndrome::WR_FLUSH_ERR);
    true
}

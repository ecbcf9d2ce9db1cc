//! Queue pairs at work.
//!
//! A doorbell makes a queue pair active; [`run`] lets active queue pairs go on in turn, packet by packet, and hands packets to
//! one's own address to the same code that takes those of the link. Nothing here waits: what needs time (retries, receivers
//! that are not ready) has a deadline that [`tick`] looks at.

mod answers;
mod atomic;
mod counting;
mod datagram;
mod doorbell;
mod local;
mod pace;
mod posted;
mod psn;
mod raw;
mod receive;
mod replies;
mod requester;
mod responder;
mod retry;
mod route;
mod sending;
mod tags;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use wqe_format::mlx5::firmware::EventType;
use wqe_format::mlx5::{Opcode, Syndrome};

use crate::completion::{self, Cqe, cqe::Owner};
use crate::device::Device;
use crate::events;
use crate::memory::{Who, signature};
use crate::resources::{Qp, QpKind, QpState, Receive};
use crate::wire::{Packet, Service, op};
pub(crate) use doorbell::asks_only_here;
use pace::Pace;
pub(crate) use receive::SrqData;
use requester::Requester;
use responder::{Initiator, Place, Responder};
pub(crate) use tags::Tags;

/// Steps of one call from outside: whoever waits for the device's lock gets it between.
const STEPS: u32 = 1 << 14;

/// What the data path keeps for the whole device.
#[derive(Debug, Default)]
pub(crate) struct State {
    copies: doorbell::Copies,
    /// Packets to the own address.
    local: VecDeque<Packet>,
    /// Raw frames that come back to the port.
    frames: VecDeque<raw::Own>,
    /// Queue pairs with work, and the one whose turn it was.
    active: BTreeSet<u32>,
    last: u32,
    /// Tells the connections of one DC initiator's lives apart.
    lives: u8,
}

/// What the data path keeps for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpData {
    requester: Requester,
    responder: Responder,
    /// Receive requests taken from the own ring, counted over and over.
    received: u16,
    /// Those behind them that were fetched already.
    prefetched: VecDeque<Vec<u8>>,
    /// Of a linked list: the next one's place.
    linked: u16,
    /// Of a striding queue: the one that packets go into.
    striding: Option<raw::Open>,
    /// Of a DC target: one responder for each initiator.
    initiators: BTreeMap<Initiator, Responder>,
}

impl Qp {
    fn who(&self) -> Who {
        Who {
            pd: self.pd,
            qpn: self.number,
            reserved_lkey: self.reserved_lkey,
        }
    }

    fn owner(&self, counter: u16) -> Owner {
        Owner {
            qpn: self.number,
            user_index: self.user_index,
            counter,
        }
    }
}

/// Bytes were written at `register` (an offset in the page, of 0x800..0x1000) of a doorbell page.
pub(crate) fn doorbell(device: &mut Device, uar: u32, register: u32, bytes: &[u8]) {
    let rung = device.transport.copies.write(uar, register, bytes);
    if let Some((qpn, behind)) = rung.queue {
        match device.resources.qps.get_mut(qpn) {
            // Nothing can be posted in reset; what rings now is late.
            Some(qp) if qp.send.is_some() && qp.state == QpState::Rst => {}
            Some(qp) if qp.send.is_some() => {
                qp.data.requester.ring(behind);
                if qp.uar != uar {
                    log::debug!("queue {qpn:#x} was rung in page {uar:#x}, not in its own");
                }
                device.transport.active.insert(qpn);
                run(device);
            }
            _ => log::debug!("a doorbell for {qpn:#x}, which has no send queue"),
        }
    }
    if let Some(copy) = rung.copy {
        requester::copied(device, &copy);
    }
}

/// A queue pair may have new work: a register, which is memory, holds its number.
pub(crate) fn look(device: &mut Device, uar: u32, qpn: u32) {
    doorbell(
        device,
        uar,
        0x800,
        &[[0; 4], (qpn << 8).to_be_bytes()].concat(),
    );
}

/// Lets every queue pair go on whose doorbell record says more than was fetched; answers whether there was one.
pub(crate) fn look_at_all(device: &mut Device) -> bool {
    let memory = device.memory.as_ref();
    let posted = |qp: &Qp| {
        let mut word = [0; 4];
        let read = memory.read(qp.dbr.wrapping_add(4), &mut word);
        read.is_ok() && u32::from_be_bytes(word) as u16 != qp.data.requester.fetched
    };
    let new: Vec<u32> = (device.resources.qps.iter())
        .filter(|(_, qp)| qp.send.is_some() && qp.state != QpState::Rst && posted(qp))
        .map(|(qpn, _)| qpn)
        .collect();
    let some = !new.is_empty();
    for &qpn in &new {
        if let Some(qp) = device.resources.qps.get_mut(qpn) {
            let behind = qp.data.requester.fetched;
            qp.data.requester.ring(behind);
        }
    }
    device.transport.active.extend(new);
    run(device);
    some
}

/// A command took a queue pair from one state to another; its fields are those of the new one.
pub(crate) fn state_changed(device: &mut Device, qpn: u32, from: QpState, to: QpState) {
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return;
    };
    match to {
        QpState::Rst => {
            let posted = qp.data.requester.posted.restarted();
            qp.data = QpData::default();
            qp.data.requester.posted = posted;
            device.transport.active.remove(&qpn);
            return;
        }
        QpState::Init => {}
        QpState::Rtr => qp.data.responder = Responder::new(qp.next_rcv_psn),
        QpState::Rts if matches!(from, QpState::Sqd | QpState::SqEr | QpState::Rts) => {}
        QpState::Rts => {
            let life = device.transport.lives;
            device.transport.lives = life.wrapping_add(1);
            qp.data.requester.start(qp.next_send_psn, life);
        }
        QpState::Sqd => drained_if_idle(device, qpn),
        QpState::SqEr => {}
        QpState::Err => {
            if from != QpState::Err {
                fail(device, qpn);
            }
        }
    }
    device.transport.active.insert(qpn);
    run(device);
}

/// What a queue pair that sends has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The number of the next packet.
    pub(crate) next: u32,
    /// The number of the oldest one without an answer.
    pub(crate) unacknowledged: u32,
    /// Basic blocks of its ring that were fetched, counted over and over.
    pub(crate) blocks: u16,
}

/// Once it sends.
pub(crate) fn sent(qp: &Qp) -> Option<Sent> {
    let requester = &qp.data.requester;
    let sends = matches!(
        qp.state,
        QpState::Rts | QpState::Sqd | QpState::SqEr | QpState::Err
    );
    sends.then_some(Sent {
        next: requester.next,
        unacknowledged: requester.una,
        blocks: requester.fetched(),
    })
}

/// Number of the packet that a queue pair expects, and messages done, once it receives.
pub(crate) fn received(qp: &Qp) -> Option<(u32, u32)> {
    let responder = &qp.data.responder;
    let receives = !matches!(qp.state, QpState::Rst | QpState::Init);
    receives.then_some((responder.expected, responder.msn & 0xff_ffff))
}

/// What is due is done; the answer is when something is due next.
pub(crate) fn tick(device: &mut Device) -> Option<Duration> {
    let moderated = completion::tick(device);
    let now = device.now;
    // Receives of a queue pair in error have no doorbell that says that they are to be flushed.
    let due: Vec<u32> = (device.resources.qps.iter())
        .filter(|(_, qp)| {
            qp.state == QpState::Err || qp.data.requester.due().is_some_and(|due| due <= now)
        })
        .map(|(qpn, _)| qpn)
        .collect();
    device.transport.active.extend(due);
    run(device);
    let state = &device.transport;
    if !state.active.is_empty() || !state.local.is_empty() || !state.frames.is_empty() {
        return Some(now);
    }
    (device.resources.qps.iter())
        .filter_map(|(_, qp)| qp.data.requester.due())
        .chain(moderated)
        .min()
}

/// A send queue is held to another rate.
pub(crate) fn rate_changed(device: &mut Device, qpn: u32) {
    if let Some(qp) = device.resources.qps.get_mut(qpn) {
        qp.data.requester.pace = Pace::default();
    }
    wake(device, qpn);
}

/// A frame arrived.
pub(crate) fn receive(device: &mut Device, frame: &[u8]) {
    if device.config.link == crate::LinkLayer::Ethernet {
        raw::receive(device, frame);
    } else {
        match Packet::parse_infiniband(frame) {
            Ok(packet) if route::is_mine(device, &packet.route) => deliver(device, packet),
            Ok(_) => {}
            Err(error) => log::debug!("a frame of {} bytes is dropped: {error:?}", frame.len()),
        }
    }
    run(device);
}

/// Lets everybody go on, for a while.
fn run(device: &mut Device) {
    for _ in 0..STEPS {
        if let Some(packet) = device.transport.local.pop_front() {
            deliver(device, packet);
            continue;
        }
        if let Some(own) = device.transport.frames.pop_front() {
            raw::returned(device, own);
            continue;
        }
        let active = &device.transport.active;
        let next = (active.range(device.transport.last + 1..).next()).or_else(|| active.first());
        let Some(qpn) = next.copied() else {
            return;
        };
        device.transport.last = qpn;
        if !replies::answer(device, qpn) && !requester::step(device, qpn) {
            device.transport.active.remove(&qpn);
        }
    }
}

/// Sends a packet: to oneself, onto the link, or both.
fn emit(device: &mut Device, packet: Packet) {
    let (own, others) = route::directions(device, &packet.route);
    if own || others {
        let many = route::is_multicast(&packet.route);
        device.port.traffic.sent.count(&packet, many);
    }
    if others && let Some(link) = &mut device.link {
        link.send(&packet.emit());
    }
    if own {
        device.transport.local.push_back(packet);
    }
}

/// A packet for this device.
fn deliver(device: &mut Device, packet: Packet) {
    let many = route::is_multicast(&packet.route);
    device.port.traffic.received.count(&packet, many);
    let Some(service) = packet.bth.service() else {
        return;
    };
    if service == Service::Ud {
        datagram::receive(device, &packet);
        return;
    }
    let qpn = packet.bth.dest_qp;
    let Some(qp) = device.resources.qps.get(qpn) else {
        return;
    };
    let expected = match qp.kind {
        QpKind::Rc => Service::Rc,
        QpKind::Uc => Service::Uc,
        QpKind::Xrc => Service::Xrc,
        QpKind::Dci | QpKind::Dct => Service::Dc,
        _ => return,
    };
    if service != expected {
        return;
    }
    if op::is_response(packet.bth.op()) {
        answers::answered(device, qpn, &packet);
        return;
    }
    let initiator = match (qp.kind, &packet.extended.dceth) {
        (QpKind::Dct, Some(dceth)) if dceth.key == qp.dc_access_key => {
            Some(Initiator::of(&packet.route, dceth.source_qp, dceth.life))
        }
        (QpKind::Dct | QpKind::Dci, _) => return,
        _ => None,
    };
    responder::request(device, Place { qpn, initiator }, &packet);
}

/// A queue pair enters the error state: what was in work is flushed; what is posted will be.
fn fail(device: &mut Device, qpn: u32) {
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return;
    };
    qp.state = QpState::Err;
    let shares = matches!(qp.receive, Receive::Shared { .. });
    requester::flush_flight(device, qpn);
    responder::flush_message(device, qpn);
    if shares {
        events::queue(device, EventType::SRQ_LAST_WQE, qpn, 0);
    }
    device.transport.active.insert(qpn);
}

/// What a queue pair waited for has come, or will not: a page, or a rate.
pub(crate) fn wake(device: &mut Device, qpn: u32) {
    device.transport.active.insert(qpn);
    run(device);
}

/// A completion of a queue pair; one that can't be written is the end of it (IBTA 10.10.2.3: a catastrophic error).
fn complete(device: &mut Device, qpn: u32, cqn: u32, cqe: &Cqe) {
    counting::completed(device, qpn, cqe);
    if completion::push(device, cqn, cqe).is_ok() {
        return;
    }
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return;
    };
    if qp.state != QpState::Err {
        qp.state = QpState::Err;
        events::queue(device, EventType::WQ_CATAS_ERROR, qpn, 0);
        device.transport.active.insert(qpn);
    }
}

/// A queue pair that is to stop sending has.
fn drained_if_idle(device: &mut Device, qpn: u32) {
    let qp = device.resources.qps.get(qpn);
    if qp.is_some_and(|qp| qp.data.requester.is_idle()) {
        events::queue(device, EventType::SQ_DRAINED, qpn, 0);
    }
}

/// Tells a completion queue of the mistakes in signatures that the last access of memory has found, if it has.
fn tell_mistakes(device: &mut Device, qpn: u32, cqn: impl FnOnce(&Qp) -> Option<u32>) {
    let mistakes = signature::mistakes(device);
    if mistakes.is_empty() {
        return;
    }
    let Some(cqn) = device.resources.qps.get(qpn).and_then(cqn) else {
        return;
    };
    for cqe in mistakes {
        complete(device, qpn, cqn, &cqe);
        if let Some(qp) = device.resources.qps.get_mut(qpn)
            && qp.drains_mistakes
            && qp.state == QpState::Rts
        {
            qp.state = QpState::Sqd;
            drained_if_idle(device, qpn);
        }
    }
}

/// The same, where a queue pair's requests have found them.
fn tell_of_sends(device: &mut Device, qpn: u32) {
    tell_mistakes(device, qpn, |qp| qp.send.as_ref().map(|send| send.cqn));
}

/// The same, where what its peer asks for has.
fn tell_of_answers(device: &mut Device, qpn: u32) {
    tell_mistakes(device, qpn, |qp| match qp.receive {
        Receive::Shared { cqn, .. } | Receive::Ring { cqn, .. } => Some(cqn),
        Receive::None => None,
    });
}

/// The device's clock as completions carry it: 156.25 MHz, as `device_frequency_khz` says.
fn timestamp(device: &Device) -> u64 {
    (device.now.as_nanos() * 10 / 64) as u64
}

/// A failed send request.
fn failed_send(qp: &Qp, counter: u16, opcode: Opcode, syndrome: Syndrome) -> Cqe {
    Cqe::failed(qp.owner(counter), Some(opcode), syndrome)
}

#[cfg(test)]
mod tests;

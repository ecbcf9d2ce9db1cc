//! Answers to the requester: acknowledgements, refusals, and what reads and atomics bring back (IBTA 9.7.5).

use wqe_format::mlx5::{CtrlFlags, Syndrome};

use super::requester::{complete_done, fail_first};
use super::{counting, psn, sending};
use crate::device::Device;
use crate::paging::{self, Side};
use crate::resources::QpState;
use crate::wire::{Aeth, Answer, NakCode, Packet, op};

/// An answer came.
pub(super) fn answered(device: &mut Device, qpn: u32, packet: &Packet) {
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return;
    };
    if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
        return;
    }
    let psn = packet.bth.psn;
    let requester = &mut qp.data.requester;
    // Of what was never sent, or has had its answer.
    if psn::distance(psn, requester.psn) <= 0 || psn::distance(requester.una, psn) < 0 {
        return;
    }
    device.transport.active.insert(qpn);
    match (packet.bth.op(), packet.extended.aeth) {
        (op::ACKNOWLEDGE, Some(Aeth { answer, .. })) => match answer {
            Answer::Ack => acknowledge(device, qpn, psn::add(psn, 1)),
            Answer::Rnr(timer) => {
                acknowledge(device, qpn, psn);
                refused(device, qpn, Refused::NotReady(timer));
            }
            Answer::Nak(code) => {
                acknowledge(device, qpn, psn);
                refused(device, qpn, Refused::Nak(code));
            }
        },
        (op::ATOMIC_ACKNOWLEDGE, _) => {
            let old = packet.extended.atomic_ack.unwrap_or_default();
            returned(device, qpn, psn, &old.to_le_bytes(), true);
        }
        (_, _) => returned(device, qpn, psn, &packet.payload, false),
    }
    complete_done(device, qpn);
}

/// Everything before `end` has had its answer, but reads and atomics, which have their own: if one of theirs is missing, it
/// was lost (IBTA 9.7.5.1.1, an implied NAK).
fn acknowledge(device: &mut Device, qpn: u32, end: u32) {
    let (now, Some(qp)) = (device.now, device.resources.qps.get_mut(qpn)) else {
        return;
    };
    let limits = qp.limits;
    let requester = &mut qp.data.requester;
    let mut acknowledged = end;
    let mut implied = false;
    for flight in &mut requester.flight {
        if psn::distance(flight.first, end) <= 0 {
            break;
        }
        if flight.request.is_read() && !flight.done {
            acknowledged = psn::add(flight.first, flight.got);
            if psn::distance(acknowledged, end) > 0 {
                implied = requester.retry.implied(now);
            }
            break;
        }
        flight.done |= psn::distance(flight.end(), end) >= 0;
    }
    if psn::distance(requester.una, acknowledged) > 0 {
        requester.una = acknowledged;
        requester
            .retry
            .progress(now, &limits, requester.una != requester.next);
    }
    if psn::distance(requester.next, requester.una) > 0 {
        requester.next = requester.una;
    }
    if implied {
        counting::count(device, qpn, |set| &mut set.implied_nak_seq_err);
    }
}

/// Why the peer did not do what it was asked.
enum Refused {
    NotReady(u8),
    Nak(NakCode),
}

fn refused(device: &mut Device, qpn: u32, why: Refused) {
    complete_done(device, qpn);
    let (now, Some(qp)) = (device.now, device.resources.qps.get_mut(qpn)) else {
        return;
    };
    let limits = qp.limits;
    let requester = &mut qp.data.requester;
    requester.next = requester.una;
    let syndrome = match why {
        Refused::NotReady(timer) => match requester.retry.not_ready(now, timer, &limits) {
            true => return counting::count(device, qpn, |set| &mut set.rnr_nak_retry_err),
            false => Syndrome::RNR_RETRY_EXC_ERR,
        },
        Refused::Nak(NakCode::Sequence) => match requester.retry.again(now, &limits) {
            true => return counting::count(device, qpn, |set| &mut set.packet_seq_err),
            false => Syndrome::TRANSPORT_RETRY_EXC_ERR,
        },
        Refused::Nak(NakCode::InvalidRequest) => Syndrome::REMOTE_INVAL_REQ_ERR,
        Refused::Nak(NakCode::RemoteAccess) => Syndrome::REMOTE_ACCESS_ERR,
        Refused::Nak(NakCode::RemoteOperational) => Syndrome::REMOTE_OP_ERR,
    };
    fail_first(device, qpn, syndrome);
}

/// A packet of a read's answer, or an atomic's.
fn returned(device: &mut Device, qpn: u32, psn: u32, bytes: &[u8], is_atomic: bool) {
    acknowledge(device, qpn, psn);
    let Some(qp) = device.resources.qps.get(qpn) else {
        return;
    };
    let Some(index) = (qp.data.requester.flight.iter())
        .position(|it| psn::distance(it.first, psn) >= 0 && psn::distance(psn, it.end()) > 0)
    else {
        return;
    };
    let flight = &qp.data.requester.flight[index];
    let request = &flight.request;
    // One that is missing before it is asked for again when the timer ends; one that was there already is nothing new.
    if !request.is_read()
        || request.is_atomic() != is_atomic
        || flight.done
        || psn != psn::add(flight.first, flight.got)
    {
        return;
    }
    let width = request.operands.map_or(8, |it| it.width);
    let mut wire_order = [0; 8];
    if let Ok(value) = <[u8; 8]>::try_from(bytes) {
        wire_order = value;
        wire_order.reverse();
    }
    let bytes = match (is_atomic, width) {
        (true, 4) => bytes.get(..4).unwrap_or_default(),
        // The value is in the order of the processor it goes to, once the driver has asked for that.
        (true, _) if !device.caps.atomics_in_host_order() => &wire_order[..],
        _ => bytes,
    };
    let offset = u64::from(flight.got) * u64::from(qp.mtu);
    let in_cqe = request.flags.contains(CtrlFlags::CQ_UPDATE)
        && request.len() <= sending::scatter_room(qp.scatter_request) as u64;
    let is_last = flight.got + 1 == flight.packets;
    let expected = if is_atomic {
        bytes.len() as u64
    } else {
        (request.len() - offset.min(request.len())).min(qp.mtu.into())
    };
    let fault = if bytes.len() as u64 != expected {
        Some(Syndrome::BAD_RESP_ERR)
    } else if in_cqe {
        None
    } else {
        let written = request.scatter(device, &qp.who(), offset, bytes);
        written.err().map(|_| Syndrome::LOCAL_PROT_ERR)
    };
    super::tell_of_sends(device, qpn);
    // It is asked for again when the timer ends, as if it had been lost.
    if fault.is_some() && paging::wait(device, qpn, Side::Send) {
        return;
    }
    let (now, Some(qp)) = (device.now, device.resources.qps.get_mut(qpn)) else {
        return;
    };
    let limits = qp.limits;
    let requester = &mut qp.data.requester;
    let flight = &mut requester.flight[index];
    flight.doomed = fault;
    flight.got += 1;
    flight.done |= is_last;
    if in_cqe {
        flight.answer = bytes.to_vec();
    }
    requester.una = psn::add(psn, 1);
    if psn::distance(requester.next, requester.una) > 0 {
        requester.next = requester.una;
    }
    requester
        .retry
        .progress(now, &limits, requester.una != requester.next);
}

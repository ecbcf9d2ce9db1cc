//! What the responder answers: acknowledgements, refusals and what reads bring back, in the order in which it was asked.

use wqe_format::mlx5::firmware::EventType;

use super::responder::{Place, Reply, responder};
use super::{fail, psn, sending};
use crate::device::Device;
use crate::memory::{self, Right, Who};
use crate::paging::{self, Side};
use crate::port::DEFAULT_PKEY;
use crate::wire::{Aeth, Answer, Bth, Extended, NakCode, Packet, Service, op};

/// Packets of answers that go out in one turn.
const BURST: u32 = 32;
/// Sends what is to be answered, up to a burst; whether there is more.
pub(super) fn answer(device: &mut Device, qpn: u32) -> bool {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return false;
    };
    let mut places: Vec<Place> = Vec::new();
    if !qp.data.responder.replies.is_empty() {
        let initiator = None;
        places.push(Place { qpn, initiator });
    }
    places.extend((qp.data.initiators.iter()).filter_map(|(initiator, me)| {
        let initiator = Some(*initiator);
        (!me.replies.is_empty()).then_some(Place { qpn, initiator })
    }));
    if device.paging.holds(qpn, Side::Answer) {
        places.retain(|at| !begins_with_read(device, *at));
    }
    let mut more = false;
    for at in places {
        for _ in 0..BURST {
            if !answer_one(device, at) {
                break;
            }
        }
        let waits = device.paging.holds(qpn, Side::Answer) && begins_with_read(device, at);
        more |= !waits && responder(device, at).is_some_and(|me| !me.replies.is_empty());
    }
    more
}

/// Whether what is to be answered next needs memory.
fn begins_with_read(device: &mut Device, at: Place) -> bool {
    let me = responder(device, at);
    me.is_some_and(|me| matches!(me.replies.front(), Some(Reply::Read { .. })))
}

/// Sends one packet of what is to be answered.
fn answer_one(device: &mut Device, at: Place) -> bool {
    let Some(qp) = device.resources.qps.get(at.qpn) else {
        return false;
    };
    let (mtu, service) = (qp.mtu, sending::service(qp.kind));
    let who = qp.who();
    let Some(me) = responder(device, at) else {
        return false;
    };
    let (Some(reply), Some((route, dest))) = (me.replies.pop_front(), me.back) else {
        return false;
    };
    let msn = me.msn;
    let make = |op, psn, extended, payload| Packet {
        route,
        bth: Bth {
            opcode: (service as u8) << 5 | op,
            pkey: DEFAULT_PKEY,
            dest_qp: dest,
            psn,
            ..Bth::default()
        },
        extended,
        payload,
    };
    let say = |answer| Extended {
        aeth: Some(Aeth { answer, msn }),
        ..Extended::default()
    };
    match reply {
        Reply::Say(psn, answer) => {
            super::emit(device, make(op::ACKNOWLEDGE, psn, say(answer), Vec::new()));
            if let Answer::Nak(code) = answer {
                refused(device, at, code);
            }
        }
        Reply::Atomic { psn, old } => {
            let extended = Extended {
                atomic_ack: Some(old),
                ..say(Answer::Ack)
            };
            super::emit(
                device,
                make(op::ATOMIC_ACKNOWLEDGE, psn, extended, Vec::new()),
            );
        }
        Reply::Read { psn, reth, sent } => {
            let offset = u64::from(sent) * u64::from(mtu);
            let left = u64::from(reth.length).saturating_sub(offset);
            let len = left.min(mtu.into());
            let is_last = len == left;
            let mut payload = vec![0; len as usize];
            let from = (reth.rkey, reth.va.wrapping_add(offset));
            let who = read_domain(device, &who, reth.rkey, service);
            let got = match len {
                0 => Ok(()),
                _ => memory::read(device, &who, from, Right::RemoteRead, &mut payload),
            };
            super::tell_of_answers(device, at.qpn);
            if got.is_err() {
                if paging::wait(device, at.qpn, Side::Answer) {
                    if let Some(me) = responder(device, at) {
                        me.replies.push_front(Reply::Read { psn, reth, sent });
                    }
                    return false;
                }
                // The key went away while it was read from.
                let nak = Answer::Nak(NakCode::RemoteAccess);
                let packet = make(op::ACKNOWLEDGE, psn::add(psn, sent), say(nak), Vec::new());
                super::emit(device, packet);
                refused(device, at, NakCode::RemoteAccess);
                return true;
            }
            let (op, extended) = match (sent == 0, is_last) {
                (true, true) => (op::READ_RESPONSE_ONLY, say(Answer::Ack)),
                (true, false) => (op::READ_RESPONSE_FIRST, say(Answer::Ack)),
                (false, true) => (op::READ_RESPONSE_LAST, say(Answer::Ack)),
                (false, false) => (op::READ_RESPONSE_MIDDLE, Extended::default()),
            };
            super::emit(device, make(op, psn::add(psn, sent), extended, payload));
            if let (false, Some(me)) = (is_last, responder(device, at)) {
                let sent = sent + 1;
                me.replies.push_front(Reply::Read { psn, reth, sent });
            }
        }
    }
    true
}

/// An XRC target's answer comes from the key's own domain, which was compared with the shared queue's when it was asked.
fn read_domain(device: &Device, who: &Who, key: u32, service: Service) -> Who {
    let pd = (device.resources.mkeys.get(key >> 8)).map_or(who.pd, |mkey| mkey.pd);
    match service {
        Service::Xrc => Who { pd, ..*who },
        _ => *who,
    }
}

/// A refusal has gone out: that is the end of the connection, but not of a DC target (IBTA 9.9.3: an affiliated event).
fn refused(device: &mut Device, at: Place, code: NakCode) {
    let event = match code {
        NakCode::Sequence => return,
        NakCode::RemoteAccess => Some(EventType::WQ_ACCESS_ERROR),
        NakCode::InvalidRequest => Some(EventType::WQ_INVAL_REQ_ERROR),
        NakCode::RemoteOperational => None,
    };
    if at.initiator.is_some() {
        if let Some(qp) = device.resources.qps.get_mut(at.qpn) {
            qp.data.initiators.retain(|it, _| Some(*it) != at.initiator);
        }
        return;
    }
    if let Some(event) = event {
        crate::events::queue(device, event, at.qpn, 0);
    }
    fail(device, at.qpn);
}

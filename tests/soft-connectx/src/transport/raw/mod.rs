//! Raw Ethernet frames: how requests become frames, which way those go, and which receive queue takes one.

mod headers;
mod rss;
mod segment;
mod striding;
mod sums;
#[cfg(test)]
mod tests;

use wqe_format::mlx5::firmware::nic_vport::NicVportContext;
use wqe_format::mlx5::firmware::rq::Rqc;
use wqe_format::mlx5::firmware::sq::Sqc;
use wqe_format::mlx5::firmware::tir::Tirc;
use wqe_format::mlx5::{ChecksumFlags, Opcode, Syndrome};

use super::receive as requests;
use super::work::Request;
use super::{complete, route, timestamp};
use crate::completion::Cqe;
use crate::completion::cqe::RawPacket;
use crate::device::Device;
use crate::resources::{Dispatch, QpState, Steered};
use crate::wire::{self, Frame, Malformed};
use headers::Headers;
use rss::Hash;
pub(super) use striding::Open;
use striding::Place;

/// The kind of flow tables that a port's received packets pass (`FS_FT_NIC_RX` of the kernel).
const RECEIVED: u8 = 0;
/// `tirc.self_lb_block` (`MLX5_TIRC_SELF_LB_BLOCK_BLOCK_*` of `mlx5_ifc.h`). Despite the names a bit lets frames of the own
/// transport domain in: it is set by drivers that want them (mlx5e's self test, `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC`).
const HEARS_UNICAST: u8 = 1;
const HEARS_MULTICAST: u8 = 2;
/// Bytes of the shortest frame, without its check (IEEE 802.3 3.2.7).
const SHORTEST: usize = 60;

/// The longest frame of a request, and the longest large send (`max_lso_cap`).
const LONGEST: u64 = 1 << 16;
const LONGEST_LARGE: u64 = 1 << 18;

/// A frame that comes back to the port it left.
#[derive(Debug)]
pub(super) struct Own {
    frame: Vec<u8>,
    /// The transport domain it was sent from.
    domain: Option<u32>,
}

/// Sends a request's frame, or frames.
pub(super) fn send(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let segment = request.ethernet.as_ref().ok_or(wrong)?;
    let longest = match request.opcode {
        Opcode::TSO => LONGEST_LARGE,
        _ => LONGEST,
    };
    if request.len() > longest {
        return Err(Syndrome::LOCAL_LENGTH_ERR);
    }
    let bytes = request
        .gather(device, &qp.who(), 0, request.len() as usize)
        .map_err(|_| Syndrome::LOCAL_PROT_ERR)?;
    let frames = match request.opcode {
        Opcode::TSO => {
            let header = usize::from(segment.inline_hdr_sz.get());
            let (header, payload) = bytes.split_at_checked(header).ok_or(wrong)?;
            segment::frames(header, payload, segment.mss.get().into()).ok_or(wrong)?
        }
        _ => vec![bytes],
    };
    let has = |flag: ChecksumFlags| segment.cs_flags.0 & flag.0 != 0;
    let domain = Sqc::new(&qp.context[..]).ok().and_then(|context| {
        let tis = device.resources.steering.tiss.get(context.tis_num_0());
        Some(tis?.transport_domain)
    });
    for mut frame in frames {
        if let Some(tci) = request.insert_vlan
            && frame.len() >= 12
        {
            let tag = [headers::VLAN.to_be_bytes(), tci.to_be_bytes()].concat();
            frame.splice(12..12, tag);
        }
        sums::fill(&mut frame, has(ChecksumFlags::L3), has(ChecksumFlags::L4));
        emit(device, frame, domain);
    }
    Ok(())
}

/// Which frames come back: of all, those for one and those for many.
fn comes_back(device: &Device, headers: &Headers) -> bool {
    let is_off = NicVportContext::new(&device.port.nic.context[..]).is_ok_and(|context| {
        if headers.is_multicast() {
            context.disable_mc_local_lb()
        } else {
            context.disable_uc_local_lb()
        }
    });
    !is_off
}

/// Whether it is one of the port's own addresses. A virtual function has those in its list only, which is what the card's
/// switch gives it frames by.
pub(super) fn is_own(device: &Device, address: [u8; 6]) -> bool {
    let [a, b, c, d, e, f] = address;
    let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let listed = &device.port.nic.lists[0];
    let permanent = !device.config.virtual_function && address == device.config.mac();
    permanent || listed.iter().any(|it| it & 0xffff_ffff_ffff == number)
}

/// A frame leaves: to oneself, where it is steered like any other, onto the link, or both.
fn emit(device: &mut Device, mut frame: Vec<u8>, domain: Option<u32>) {
    let Some(headers) = Headers::parse(&frame) else {
        return;
    };
    let nic = &mut device.port.nic;
    nic.sent.count(headers.destination, frame.len());
    if comes_back(device, &headers) {
        let frame = frame.clone();
        device.transport.frames.push_back(Own { frame, domain });
    }
    let is_for_others = headers.is_multicast() || !is_own(device, headers.destination);
    if is_for_others
        && device.port.up
        && let Some(link) = &mut device.link
    {
        frame.resize(frame.len().max(SHORTEST), 0);
        link.send(&frame);
    }
}

/// A frame that came back.
pub(super) fn returned(device: &mut Device, own: Own) {
    arrived(device, &own.frame, Some(own.domain));
}

/// A frame that came over the link.
pub(super) fn receive(device: &mut Device, frame: &[u8]) {
    if device.port.up {
        arrived(device, frame, None);
    }
}

/// A frame is here: RoCE to one of the port's addresses is the transport's, all else is steered. `from` is the transport
/// domain if it was sent by this port.
fn arrived(device: &mut Device, frame: &[u8], from: Option<Option<u32>>) {
    match Frame::parse_ethernet(frame) {
        Ok(Frame::Packet(packet)) if route::is_mine(device, &packet.route) => {
            super::deliver(device, *packet);
        }
        Err(Malformed::CheckSum) => log::debug!("a RoCE packet was changed on its way"),
        _ => steer(device, frame, from),
    }
}

/// Hands a frame to those that flow tables say.
fn steer(device: &mut Device, frame: &[u8], from: Option<Option<u32>>) {
    let Some(headers) = Headers::parse(frame) else {
        return;
    };
    let matching = headers.matching(frame);
    let flow = &mut device.resources.flow;
    let mut is_heard = from.is_none();
    for steered in flow.steer(RECEIVED, &matching, frame.len() as u64) {
        is_heard |= hand(device, frame, &headers, steered, from);
    }
    // What comes back and nobody wants was not received.
    if is_heard {
        let nic = &mut device.port.nic;
        nic.received.count(headers.destination, frame.len());
    }
}

/// Hands a frame to a TIR; whether that takes it.
fn hand(
    device: &mut Device,
    frame: &[u8],
    headers: &Headers,
    steered: Steered,
    from: Option<Option<u32>>,
) -> bool {
    let Some(tir) = device.resources.steering.tirs.get(steered.tir) else {
        return false;
    };
    let Ok(context) = Tirc::new(&tir.context[..]) else {
        return false;
    };
    let hears = if headers.is_multicast() {
        HEARS_MULTICAST
    } else {
        HEARS_UNICAST
    };
    if from == Some(Some(tir.transport_domain)) && context.self_lb_block() & hears == 0 {
        return false;
    }
    let hash = rss::hash(&context, frame, headers);
    let rqn = match tir.dispatch {
        Dispatch::Queue(rqn) => Some(rqn),
        Dispatch::Table(number) => {
            let table = device.resources.steering.rqts.get(number);
            let queues = table.map_or(&[][..], |table| &table.queues);
            let at = (hash.value as usize).checked_rem(queues.len());
            at.and_then(|at| queues.get(at)).copied()
        }
    };
    if let Some(rqn) = rqn {
        take(device, rqn, frame, headers, steered.tag, hash);
    }
    true
}

/// A receive queue takes a frame.
fn take(device: &mut Device, rqn: u32, frame: &[u8], headers: &Headers, tag: u32, hash: Hash) {
    let Some(rq) = device.resources.qps.get(rqn) else {
        return;
    };
    let Ok(context) = Rqc::new(&rq.context[..]) else {
        return;
    };
    if rq.state != QpState::Rts {
        return;
    }
    // `vsd` keeps tags where they are.
    let stripped = headers.tags.first().filter(|_| !context.vsd());
    let mut bytes = frame.to_vec();
    if stripped.is_some() {
        bytes.drain(12..16);
    }
    if context.scatter_fcs() {
        bytes.extend(wire::frame_check(frame));
    }
    // A frame for which there is no receive request is dropped.
    let counter = rq.counter;
    let placed = match rq.strides {
        Some(strides) => striding::place(device, rqn, strides, bytes.len() as u64),
        None => requests::take(device, rqn, None).map(Place::whole),
    };
    let Ok(Place {
        taken,
        offset,
        strode,
    }) = placed
    else {
        if let Some(counter) = device.resources.counters.get_mut(counter.into()) {
            counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
        }
        return;
    };
    if bytes.len() as u64 > taken.room().saturating_sub(offset) {
        let cqe = Cqe::failed(taken.owner, None, Syndrome::LOCAL_LENGTH_ERR);
        complete(device, rqn, taken.cqn, &cqe);
        return;
    }
    if taken.scatter(device, offset, &bytes).is_err() {
        let cqe = Cqe::failed(taken.owner, None, Syndrome::LOCAL_PROT_ERR);
        complete(device, rqn, taken.cqn, &cqe);
        super::fail(device, rqn);
        return;
    }
    let (l3_ok, l4_ok) = sums::are_right(frame, headers);
    let packet = RawPacket {
        flow_tag: tag,
        hash: hash.value,
        hash_kind: hash.kind,
        sum: sums::packet(frame, headers),
        l3: headers.l3(),
        l4: headers.l4(frame),
        l3_ok,
        l4_ok,
        vlan: stripped.map(|(_, tci)| *tci),
    };
    let mut cqe = Cqe::raw(taken.owner, bytes.len() as u32, &packet, timestamp(device));
    if let Some(strode) = strode {
        cqe = cqe.strode(taken.owner.counter, strode);
    }
    complete(device, rqn, taken.cqn, &cqe);
}

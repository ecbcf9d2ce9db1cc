//! Datagrams, those of queue pair 1 among them.

use wqe_format::mlx5::{CtrlFlags, Opcode, Syndrome};

use super::receive as requests;
use super::work::Request;
use super::{complete, counting, psn, route, timestamp};
use crate::completion::Cqe;
use crate::completion::cqe::{Received, Source};
use crate::device::Device;
use crate::port::DEFAULT_PKEY;
use crate::resources::{QpKind, QpState};
use crate::wire::{Bth, Deth, Extended, NETWORK_HEADER, Packet, Route, Service, ipv4, op};

/// The number of the queue pair that takes management datagrams.
const GENERAL_SERVICE: u32 = 1;
/// The number that stands for a multicast group.
const MULTICAST: u32 = 0xff_ffff;

/// Sends one. Those that don't arrive are nobody's error.
pub(super) fn send(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let av = request.destination.as_ref().ok_or(wrong)?;
    let len = request.len();
    if len > qp.mtu.into() {
        return Err(Syndrome::LOCAL_LENGTH_ERR);
    }
    let payload = request
        .gather(device, &qp.who(), 0, len as usize)
        .map_err(|_| Syndrome::LOCAL_PROT_ERR)?;
    // A key with the upper bit set stands for the queue pair's own (IBTA 10.2.5).
    let qkey = match av.qkey() {
        key if key >> 31 != 0 => qp.q_key,
        key => key,
    };
    let source_qp = match (qp.kind, qp.deth_sqpn) {
        (QpKind::Gsi, 0) => GENERAL_SERVICE,
        (_, 0) => qpn,
        (_, number) => number,
    };
    let number = qp.data.requester.next;
    let (operation, imm) = match request.opcode {
        Opcode::SEND_IMM => (op::SEND_ONLY_IMM, Some(request.imm)),
        _ => (op::SEND_ONLY, None),
    };
    let packet = Packet {
        route: route::datagram(device, av),
        bth: Bth {
            opcode: (Service::Ud as u8) << 5 | operation,
            solicited: request.flags.contains(CtrlFlags::SOLICITED),
            pad: 0,
            pkey: DEFAULT_PKEY,
            dest_qp: av.dqp_dct.qpn(),
            ack_request: false,
            psn: number,
        },
        extended: Extended {
            deth: Some(Deth { qkey, source_qp }),
            imm,
            ..Extended::default()
        },
        payload,
    };
    super::emit(device, packet);
    if let Some(qp) = device.resources.qps.get_mut(qpn) {
        qp.data.requester.count(psn::add(number, 1));
    }
    Ok(())
}

/// Takes one that came.
pub(super) fn receive(device: &mut Device, packet: &Packet) {
    let Some(deth) = packet.extended.deth else {
        return;
    };
    let group = packet.route.global().map(|global| global.destination);
    let targets: Vec<u32> = (device.resources.qps.iter())
        .filter(|(qpn, qp)| match packet.bth.dest_qp {
            GENERAL_SERVICE => qp.kind == QpKind::Gsi,
            MULTICAST => {
                let is_own = qp.blocks_own_multicast && *qpn == deth.source_qp;
                !is_own && group.is_some_and(|group| qp.groups.contains(&group))
            }
            number => *qpn == number && qp.kind == QpKind::Ud,
        })
        .filter(|(_, qp)| {
            let is_ready = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
            is_ready && (qp.kind == QpKind::Gsi || qp.q_key == deth.qkey)
        })
        .map(|(qpn, _)| qpn)
        .collect();
    for qpn in targets {
        receive_one(device, qpn, packet, deth);
    }
}

fn receive_one(device: &mut Device, qpn: u32, packet: &Packet, deth: Deth) {
    // A datagram for which there is no receive request is dropped.
    let Ok(taken) = requests::take(device, qpn, None) else {
        counting::count(device, qpn, |set| &mut set.out_of_buffer);
        return;
    };
    let len = NETWORK_HEADER + packet.payload.len();
    if len as u64 > taken.room() {
        let cqe = Cqe::failed(taken.owner, None, Syndrome::LOCAL_LENGTH_ERR);
        complete(device, qpn, taken.cqn, &cqe);
        return;
    }
    // Base header, datagram header, immediate data, padding and check.
    let transport = 12 + 8 + packet.extended.imm.map_or(0, |_| 4) + packet.payload.len() + 4;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(packet.route.network_header(transport.next_multiple_of(4)));
    bytes.extend(&packet.payload);
    if taken.scatter(device, 0, &bytes).is_err() {
        let cqe = Cqe::failed(taken.owner, None, Syndrome::LOCAL_PROT_ERR);
        complete(device, qpn, taken.cqn, &cqe);
        super::fail(device, qpn);
        return;
    }
    let what = packet
        .extended
        .imm
        .map_or(Received::Send, Received::SendImm);
    let source = source(&packet.route, deth.source_qp, packet.bth.pkey);
    let time = timestamp(device);
    let cqe = Cqe::received(taken.owner, what, len as u32, Some(source), time)
        .solicited(packet.bth.solicited);
    complete(device, qpn, taken.cqn, &cqe);
}

/// What a completion says of a packet's sender.
pub(super) fn source(route: &Route, qpn: u32, pkey: u16) -> Source {
    match route {
        Route::InfiniBand {
            slid, sl, global, ..
        } => Source {
            qpn,
            slid: *slid,
            sl: *sl,
            path: 0,
            pkey,
            grh: u8::from(global.is_some()),
        },
        // On Ethernet the two low bits of the service level say which header there was: 0 RoCE v1, 1 IPv6, 2 IPv4
        // (mlx5_ib `MLX5_CQE_ROCE_L3_HEADER_TYPE_*`).
        Route::Ethernet { global, udp, .. } => Source {
            qpn,
            sl: match (udp, ipv4(&global.source)) {
                (None, _) => 0,
                (Some(_), None) => 1,
                (Some(_), Some(_)) => 2,
            },
            grh: 1,
            pkey,
            ..Source::default()
        },
    }
}

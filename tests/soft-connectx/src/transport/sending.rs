//! Packets of requests in work.

use wqe_format::mlx5::{CtrlFlags, Opcode, Syndrome};

use super::requester::Flight;
use super::{psn, route};
use crate::device::Device;
use crate::port::DEFAULT_PKEY;
use crate::resources::{Qp, QpKind};
use crate::wire::{AtomicEth, Bth, Dceth, Extended, Packet, Reth, Service, op};

/// Bytes that may go into a completion, by `cs_req` and `cs_res` (PRM 7.5.4; rdma-core `MLX5_REQ_SCAT_DATA32_CQE` and so on).
pub(super) fn scatter_room(code: u8) -> usize {
    match code {
        0x11 | 0x1 => 32,
        0x22 | 0x2 => 64,
        _ => 0,
    }
}

pub(super) fn service(kind: QpKind) -> Service {
    match kind {
        QpKind::Uc => Service::Uc,
        QpKind::Xrc => Service::Xrc,
        QpKind::Dci | QpKind::Dct => Service::Dc,
        QpKind::Ud | QpKind::Gsi | QpKind::Smi => Service::Ud,
        _ => Service::Rc,
    }
}

fn operation(request: Opcode, is_first: bool, is_last: bool) -> Option<u8> {
    let pick = |first, middle, last, only| match (is_first, is_last) {
        (true, true) => only,
        (true, false) => first,
        (false, false) => middle,
        (false, true) => last,
    };
    Some(match request {
        Opcode::SEND => pick(
            op::SEND_FIRST,
            op::SEND_MIDDLE,
            op::SEND_LAST,
            op::SEND_ONLY,
        ),
        Opcode::SEND_IMM => pick(
            op::SEND_FIRST,
            op::SEND_MIDDLE,
            op::SEND_LAST_IMM,
            op::SEND_ONLY_IMM,
        ),
        Opcode::SEND_INVAL => pick(
            op::SEND_FIRST,
            op::SEND_MIDDLE,
            op::SEND_LAST_INV,
            op::SEND_ONLY_INV,
        ),
        Opcode::RDMA_WRITE => pick(
            op::WRITE_FIRST,
            op::WRITE_MIDDLE,
            op::WRITE_LAST,
            op::WRITE_ONLY,
        ),
        Opcode::RDMA_WRITE_IMM => pick(
            op::WRITE_FIRST,
            op::WRITE_MIDDLE,
            op::WRITE_LAST_IMM,
            op::WRITE_ONLY_IMM,
        ),
        Opcode::RDMA_READ => op::READ_REQUEST,
        Opcode::ATOMIC_CS => op::COMPARE_SWAP,
        Opcode::ATOMIC_FA => op::FETCH_ADD,
        Opcode::ATOMIC_MASKED_CS => op::MASKED_COMPARE_SWAP,
        Opcode::ATOMIC_MASKED_FA => op::MASKED_FETCH_ADD,
        _ => return None,
    })
}

/// The packet with the number [`next`](super::Requester::next) of a request. Of a read it asks for what has not come yet.
pub(super) fn packet(device: &Device, qp: &Qp, flight: &Flight) -> Result<Packet, Syndrome> {
    let request = &flight.request;
    let next = qp.data.requester.next;
    let number = psn::distance(flight.first, next).max(0) as u32;
    let mtu = u64::from(qp.mtu);
    let offset = u64::from(number) * mtu;
    let is_read = request.is_read();
    let is_last = is_read || number + 1 >= flight.packets;
    let operation =
        operation(request.opcode, number == 0, is_last).ok_or(Syndrome::LOCAL_QP_OP_ERR)?;
    let mut extended = Extended {
        xrc_srq: request.srqn,
        ..Extended::default()
    };
    let (route, dest_qp) = match &request.destination {
        Some(av) => {
            extended.dceth = Some(Dceth {
                key: av.key.get(),
                source_qp: qp.number,
                life: qp.data.requester.life,
            });
            (route::datagram(device, av), av.dqp_dct.qpn())
        }
        None => (route::connected(device, qp), qp.remote_qpn),
    };
    if let Some((va, rkey)) = request.remote {
        if op::is_atomic(operation) {
            let operands = request.operands.unwrap_or_default();
            extended.atomic = Some(AtomicEth {
                va,
                rkey,
                swap_add: operands.swap_add,
                compare: operands.compare,
                swap_mask: operands.swap_mask,
                compare_mask: operands.compare_mask,
                width: operands.width,
            });
        } else if is_read || number == 0 {
            extended.reth = Some(Reth {
                va: va.wrapping_add(offset),
                rkey,
                length: (request.len() - offset.min(request.len())) as u32,
            });
        }
    }
    let payload = if is_read {
        Vec::new()
    } else {
        let len = (request.len() - offset.min(request.len())).min(mtu) as usize;
        let gathered = request.gather(device, &qp.who(), offset, len);
        gathered.map_err(|_| Syndrome::LOCAL_PROT_ERR)?
    };
    match operation {
        op::SEND_LAST_IMM | op::SEND_ONLY_IMM | op::WRITE_LAST_IMM | op::WRITE_ONLY_IMM => {
            extended.imm = Some(request.imm);
        }
        op::SEND_LAST_INV | op::SEND_ONLY_INV => extended.ieth = Some(request.imm),
        _ => {}
    }
    Ok(Packet {
        route,
        bth: Bth {
            opcode: (service(qp.kind) as u8) << 5 | operation,
            solicited: is_last && request.flags.contains(CtrlFlags::SOLICITED),
            pad: 0,
            pkey: DEFAULT_PKEY,
            dest_qp,
            ack_request: is_last || number % 16 == 15,
            psn: next,
        },
        extended,
        payload,
    })
}

//! Queue pairs: made, looked at, destroyed; multicast groups.

use wqe_format::mlx5::firmware::multicast::{AttachToMcgIn, DetachFromMcgIn};
use wqe_format::mlx5::firmware::qp::{CreateQpIn, CreateQpOut, DestroyQpIn, QueryQpIn, QueryQpOut};
use wqe_format::mlx5::firmware::qpc::Qpc;

use super::refusal::{
    Refusal, bad_parameter, bad_qp_state, bad_resource, bad_state, limit, no_resources,
};
use super::{Reply, done, ece, owner};
use crate::device::Device;
use crate::resources::{Qp, QpKind, QpState, Receive, Ring, Send};
use crate::transport;

/// Kinds of receive queues (`qpc.rq_type`, `MLX5_*_RQ`).
const OWN: u8 = 0;
const SHARED: u8 = 1;
const CONTINUOUS: u8 = 2;
const NONE: u8 = 3;

/// Bytes of a basic block of a send queue, as a logarithm.
const LOG_BLOCK: u8 = 6;
/// Groups one queue pair can be attached to.
const GROUPS: usize = 240;

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateQpIn::new(input)?;
    let context = view.qpc();
    let kind = QpKind::from_service(context.st())
        .filter(|kind| *kind != QpKind::Dct)
        .ok_or(bad_parameter("there is no such service type"))?;
    // The kernel's queue pair for UMR belongs to no PD.
    if kind != QpKind::RegUmr {
        owner::pd(device, input, context.pd())?;
    }
    let mut qp = Qp::new(0, owner::uid(input), kind, context.as_bytes().to_vec());
    queues(device, input, &view, &context, &mut qp)?;
    if kind == QpKind::Xrc {
        let xrcd = device.resources.xrcds.get(qp.xrcd);
        owner::check(input, xrcd.map(|xrcd| xrcd.uid))?;
    }
    let table = &mut device.resources.qps;
    qp.number = table
        .free_number()
        .ok_or(no_resources("no queue pair is left"))?;
    let mut output = CreateQpOut::zeroed();
    output.set_qpn(qp.number).set_ece(ece::offered(view.ece()));
    table.insert(qp.number, qp);
    Ok(output.into_inner().to_vec())
}

/// The queues a context describes: the receive queue first, then the send queue, in one buffer.
fn queues(
    device: &Device,
    input: &[u8],
    view: &CreateQpIn<&[u8]>,
    context: &Qpc<&[u8]>,
    qp: &mut Qp,
) -> Result<(), Refusal> {
    let largest = device.caps.log_max_qp_size();
    let sends = !context.no_sq();
    let receives = context.rq_type() == OWN;
    let (log_send, log_receive) = (context.log_sq_size(), context.log_rq_size());
    if sends && log_send > largest || receives && log_receive > largest {
        return Err(bad_parameter("a queue is too large"));
    }
    let log_stride = context.log_rq_stride() + 4;
    let receive_len = if receives {
        1u64 << (log_receive + log_stride)
    } else {
        0
    };
    let send_len = if sends {
        1u64 << (log_send + LOG_BLOCK)
    } else {
        0
    };
    let len = receive_len + send_len;
    let buffer = if view.wq_umem_valid() {
        owner::umem_buffer(device, input, view.wq_umem_id(), view.wq_umem_offset(), len)?
    } else {
        let start = owner::start(context.page_offset(), context.log_page_size());
        owner::buffer(view.pas(), context.log_page_size(), start, len)?
    };
    if sends || receives {
        owner::uar(device, input, context.uar_page())?;
    }
    if sends {
        owner::cq(device, input, context.cqn_snd())?;
        let ring = Ring {
            buffer: buffer.clone(),
            offset: receive_len,
            log_stride: LOG_BLOCK,
            log_size: log_send,
        };
        qp.send = Some(Send {
            ring,
            cqn: context.cqn_snd(),
        });
    }
    let cqn = context.cqn_rcv();
    qp.receive = match context.rq_type() {
        OWN => {
            owner::cq(device, input, cqn)?;
            Receive::Ring {
                ring: Ring {
                    buffer,
                    offset: 0,
                    log_stride,
                    log_size: log_receive,
                },
                cqn,
            }
        }
        SHARED | CONTINUOUS => {
            let srqn = context.srqn_rmpn_xrqn();
            let srq = device.resources.srqs.get(srqn);
            if qp.kind == QpKind::Dci {
                // It never receives; the kernel names a queue of its own for those that have none (mlx5_ib's `create_user_qp`).
                srq.ok_or(bad_resource("there is no such shared receive queue"))?;
            } else {
                owner::check(input, srq.map(|srq| srq.uid))?;
            }
            // XRC targets complete to the SRQ's own queue, initiators never receive.
            if !matches!(qp.kind, QpKind::Xrc | QpKind::Dci) {
                owner::cq(device, input, cqn)?;
            }
            Receive::Shared { srqn, cqn }
        }
        NONE => Receive::None,
        _ => return Err(bad_parameter("there is no such kind of receive queue")),
    };
    if context.dbr_umem_valid() {
        // `dbr_umem_id`, which the kernel's header calls reserved: rdma-core's `mlx5_ifc.h`.
        let id = wqe_format::mlx5::firmware::bits::get(context.as_bytes(), 0x720, 0x20) as u32;
        qp.dbr = owner::umem_record(device, input, id, context.dbr_addr())?;
    } else {
        qp.dbr = owner::record(context.dbr_addr(), 4)?;
    }
    Ok(())
}

/// A queue pair that who sent the command may use.
pub(super) fn find<'a>(
    device: &'a mut Device,
    input: &[u8],
    number: u32,
) -> Result<&'a mut Qp, Refusal> {
    let by_transition = |kind| !matches!(kind, QpKind::Dct | QpKind::RawSend | QpKind::RawReceive);
    let qp = device
        .resources
        .qps
        .get_mut(number)
        .filter(|qp| by_transition(qp.kind));
    owner::check(input, qp.as_ref().map(|qp| qp.uid))?;
    qp.ok_or(bad_resource("there is no such queue pair"))
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyQpIn::new(input)?.qpn();
    let qp = find(device, input, number)?;
    if !qp.groups.is_empty() {
        return Err(bad_state("the queue pair is attached to multicast groups"));
    }
    let state = qp.state;
    if state != QpState::Rst {
        qp.state = QpState::Rst;
        transport::state_changed(device, number, state, QpState::Rst);
    }
    device.resources.qps.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let number = QueryQpIn::new(input)?.qpn();
    let qp = find(device, input, number)?;
    let mut output = QueryQpOut::zeroed();
    let mut context = output.qpc_mut();
    context.as_bytes_mut().copy_from_slice(&qp.context);
    context.set_state(qp.state as u8);
    if let Some(sent) = transport::sent(qp) {
        context
            .set_next_send_psn(sent.next)
            .set_last_acked_psn(sent.unacknowledged.wrapping_sub(1) & 0xff_ffff)
            .set_hw_sq_wqebb_counter(sent.blocks);
    }
    if let Some((next, done)) = transport::received(qp) {
        context.set_next_rcv_psn(next).set_rmsn(done);
    }
    Ok(output.into_inner().to_vec())
}

fn group(gid: &[u8]) -> [u8; 16] {
    let mut group = [0; 16];
    group.copy_from_slice(gid);
    group
}

pub(super) fn attach(device: &mut Device, input: &[u8]) -> Reply {
    let view = AttachToMcgIn::new(input)?;
    let group = group(view.multicast_gid());
    let qp = find(device, input, view.qpn())?;
    if qp.kind != QpKind::Ud {
        return Err(bad_qp_state("only datagram queue pairs take multicasts"));
    }
    if qp.groups.contains(&group) {
        return Err(bad_state("the queue pair is attached already"));
    }
    if qp.groups.len() == GROUPS {
        return Err(limit("the queue pair is attached to too many groups"));
    }
    qp.groups.push(group);
    done()
}

pub(super) fn detach(device: &mut Device, input: &[u8]) -> Reply {
    let view = DetachFromMcgIn::new(input)?;
    let group = group(view.multicast_gid());
    let qp = find(device, input, view.qpn())?;
    let before = qp.groups.len();
    qp.groups.retain(|other| *other != group);
    if qp.groups.len() == before {
        return Err(bad_resource("the queue pair is not attached"));
    }
    done()
}

//! Send and receive queues of their own: raw packets, and the kernel's trial of write combining.

use wqe_format::mlx5::firmware::rq::{
    CreateRqIn, CreateRqOut, DestroyRqIn, ModifyRqIn, QueryRqIn, QueryRqOut, Rqc,
};
use wqe_format::mlx5::firmware::sq::{
    CreateSqIn, CreateSqOut, DestroySqIn, ModifySqIn, QuerySqIn, QuerySqOut, Sqc,
};
use wqe_format::mlx5::firmware::wq::Wq;

use super::refusal::{Refusal, bad_parameter, bad_qp_state, bad_resource, busy, no_resources};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::resources::{Qp, QpKind, QpState, Receive, Ring, Send, Strides};
use crate::transport;

/// States of these queues (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
const RESET: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 3;

/// A receive queue with memory of its own, and one that receives from an RMP
/// (`MLX5_RQC_MEM_RQ_TYPE_*`).
const OWN_MEMORY: u8 = 0;
const FROM_RMP: u8 = 1;
/// `MLX5_WQ_TYPE_*`: a ring; a linked list and a ring whose requests take many packets.
const CYCLIC: u8 = 1;
const LINKED_STRIDING: u8 = 2;
const CYCLIC_STRIDING: u8 = 3;

/// What fields of strides count from (`MLX5_MIN_SINGLE_WQE_LOG_NUM_STRIDES`, `MLX5_MIN_SINGLE_STRIDE_LOG_NUM_BYTES` of Linux'
/// mlx5_ib.h), and the most that the first can say without `ext_stride_num_range`.
const LEAST_STRIDES: u8 = 9;
const LEAST_STRIDE: u8 = 6;
const MOST_STRIDES: u8 = 16;

/// `modify_bitmask` of an SQ: its entry of the table of rates.
const RATE_LIMIT: u64 = 1;
/// `modify_bitmask` of an RQ: whether VLAN tags stay, whether frames' checks are written too, which counters it counts in
/// (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`).
const KEEPS_TAGS: u64 = 1 << 1;
const WITH_CHECK: u64 = 1 << 2;
const COUNTER_SET: u64 = 1 << 3;

/// A work queue's ring. Its pages stand at the command's end.
fn ring(device: &Device, input: &[u8], wq: &Wq<&[u8]>) -> Result<Ring, Refusal> {
    let (log_size, log_stride) = (wq.log_wq_sz(), wq.log_wq_stride());
    if log_size > device.caps.log_max_qp_size() || !(4..=11).contains(&log_stride) {
        return Err(bad_parameter("the queue is too large"));
    }
    let len = 1 << (log_size + log_stride);
    let buffer = if wq.wq_umem_valid() {
        owner::umem_buffer(device, input, wq.wq_umem_id(), wq.wq_umem_offset(), len)?
    } else {
        let pages = &input[CreateSqIn::SIZE.min(input.len())..];
        let start = owner::start(wq.page_offset(), wq.log_wq_pg_sz());
        owner::buffer(owner::addresses(pages), wq.log_wq_pg_sz(), start, len)?
    };
    Ok(Ring {
        buffer,
        offset: 0,
        log_stride,
        log_size,
    })
}

/// How the requests of a receive queue are divided, if they are.
fn strides(device: &Device, wq: &Wq<&[u8]>) -> Result<Option<Strides>, Refusal> {
    let linked = match wq.wq_type() {
        CYCLIC => return Ok(None),
        LINKED_STRIDING => true,
        CYCLIC_STRIDING => false,
        _ => return Err(bad_parameter("only rings and striding queues are offered")),
    };
    let strides = Strides {
        log_count: wq.log_wqe_num_of_strides() + LEAST_STRIDES,
        log_size: wq.log_wqe_stride_size() + LEAST_STRIDE,
        shifts: wq.two_byte_shift_en(),
        linked,
    };
    if !device.caps.has_strides() || strides.log_count > MOST_STRIDES {
        return Err(bad_parameter("requests are not divided so"));
    }
    Ok(Some(strides))
}

fn record(device: &Device, input: &[u8], wq: &Wq<&[u8]>) -> Result<u64, Refusal> {
    if wq.dbr_umem_valid() {
        owner::umem_record(device, input, wq.dbr_umem_id(), wq.dbr_addr())
    } else {
        owner::record(wq.dbr_addr(), 4)
    }
}

fn insert(device: &mut Device, mut qp: Qp) -> Result<u32, Refusal> {
    let table = &mut device.resources.qps;
    qp.number = table
        .free_number()
        .ok_or(no_resources("no queue is left"))?;
    let number = qp.number;
    table.insert(number, qp);
    Ok(number)
}

pub(super) fn create_sq(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateSqIn::new(input)?;
    let context = view.ctx();
    let wq = context.wq();
    owner::cq(device, input, context.cqn())?;
    owner::uar(device, input, wq.uar_page())?;
    if wq.wq_type() != CYCLIC {
        return Err(bad_parameter("requests are sent from rings only"));
    }
    let bytes = context.as_bytes().to_vec();
    let mut qp = Qp::new(0, owner::uid(input), QpKind::RawSend, bytes);
    qp.send = Some(Send {
        ring: ring(device, input, &wq)?,
        cqn: context.cqn(),
    });
    qp.dbr = record(device, input, &wq)?;
    qp.uar = wq.uar_page();
    qp.pd = wq.pd();
    qp.user_index = context.user_index();
    qp.reserved_lkey = context.rlky();
    qp.fast_register = context.fre();
    let mut output = CreateSqOut::zeroed();
    output.set_sqn(insert(device, qp)?);
    Ok(output.into_inner().to_vec())
}

pub(super) fn create_rq(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateRqIn::new(input)?;
    let context = view.ctx();
    let wq = context.wq();
    owner::cq(device, input, context.cqn())?;
    let bytes = context.as_bytes().to_vec();
    let mut qp = Qp::new(0, owner::uid(input), QpKind::RawReceive, bytes);
    match context.mem_rq_type() {
        OWN_MEMORY => {
            let ring = ring(device, input, &wq)?;
            qp.strides = strides(device, &wq)?;
            qp.receive = Receive::Ring {
                ring,
                cqn: context.cqn(),
            };
            qp.dbr = record(device, input, &wq)?;
            qp.pd = wq.pd();
        }
        FROM_RMP => {
            let srqn = context.rmpn();
            let rmp = device.resources.srqs.get(srqn);
            owner::check(input, rmp.map(|rmp| rmp.uid))?;
            qp.pd = rmp.map_or(0, |rmp| rmp.pd);
            qp.receive = Receive::Shared {
                srqn,
                cqn: context.cqn(),
            };
        }
        _ => return Err(bad_parameter("there is no such kind of receive queue")),
    }
    qp.user_index = context.user_index();
    qp.reserved_lkey = context.rlky();
    qp.counter = context.counter_set_id();
    let mut output = CreateRqOut::zeroed();
    output.set_rqn(insert(device, qp)?);
    Ok(output.into_inner().to_vec())
}

fn find<'a>(
    device: &'a mut Device,
    input: &[u8],
    number: u32,
    kind: QpKind,
) -> Result<&'a mut Qp, Refusal> {
    let qp = device
        .resources
        .qps
        .get_mut(number)
        .filter(|qp| qp.kind == kind);
    owner::check(input, qp.as_ref().map(|qp| qp.uid))?;
    qp.ok_or(bad_resource("there is no such queue"))
}

fn state(code: u8) -> Result<QpState, Refusal> {
    Ok(match code {
        RESET => QpState::Rst,
        READY => QpState::Rts,
        ERROR => QpState::Err,
        _ => return Err(bad_parameter("there is no such state")),
    })
}

fn code(state: QpState) -> u8 {
    match state {
        QpState::Rst | QpState::Init => RESET,
        QpState::Rtr | QpState::Rts | QpState::Sqd => READY,
        QpState::SqEr | QpState::Err => ERROR,
    }
}

/// Takes a queue from the state that the driver believes it is in to another one.
fn modify(
    device: &mut Device,
    input: &[u8],
    number: u32,
    kind: QpKind,
    (from, to): (u8, u8),
) -> Reply {
    let qp = find(device, input, number, kind)?;
    let to = state(to)?;
    if code(qp.state) != from {
        return Err(bad_qp_state("the queue is in another state"));
    }
    let before = qp.state;
    match (before, to) {
        (QpState::Err | QpState::SqEr, QpState::Rts) => {
            return Err(bad_qp_state("a queue that failed is reset first"));
        }
        (before, to) if code(before) == code(to) => return done(),
        _ => {}
    }
    qp.state = to;
    transport::state_changed(device, number, before, to);
    done()
}

pub(super) fn modify_sq(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifySqIn::new(input)?;
    let (number, new) = (view.sqn(), view.ctx());
    let paced = view.modify_bitmask() & RATE_LIMIT != 0;
    let entry = new.packet_pacing_rate_limit_index();
    if paced && entry != 0 && !device.resources.rates.contains_key(&entry) {
        return Err(bad_resource("there is no such rate"));
    }
    let states = (view.sq_state(), new.state());
    let reply = modify(device, input, number, QpKind::RawSend, states)?;
    if paced {
        let qp = find(device, input, number, QpKind::RawSend)?;
        Sqc::new(&mut qp.context[..])?.set_packet_pacing_rate_limit_index(entry);
        transport::rate_changed(device, number);
    }
    Ok(reply)
}

pub(super) fn modify_rq(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyRqIn::new(input)?;
    let (select, new) = (view.modify_bitmask(), view.ctx());
    let qp = find(device, input, view.rqn(), QpKind::RawReceive)?;
    let mut kept = Rqc::new(&mut qp.context[..])?;
    if select & KEEPS_TAGS != 0 {
        kept.set_vsd(new.vsd());
    }
    if select & WITH_CHECK != 0 {
        kept.set_scatter_fcs(new.scatter_fcs());
    }
    if select & COUNTER_SET != 0 {
        kept.set_counter_set_id(new.counter_set_id());
        qp.counter = new.counter_set_id();
    }
    let states = (view.rq_state(), view.ctx().state());
    modify(device, input, view.rqn(), QpKind::RawReceive, states)
}

fn destroy(device: &mut Device, input: &[u8], number: u32, kind: QpKind) -> Reply {
    let qp = find(device, input, number, kind)?;
    let before = std::mem::replace(&mut qp.state, QpState::Rst);
    if kind == QpKind::RawReceive && device.resources.steering.receives(number) {
        return Err(busy("packets are steered to the queue"));
    }
    if before != QpState::Rst {
        transport::state_changed(device, number, before, QpState::Rst);
    }
    device.resources.qps.remove(number);
    done()
}

pub(super) fn destroy_sq(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroySqIn::new(input)?.sqn();
    destroy(device, input, number, QpKind::RawSend)
}

pub(super) fn destroy_rq(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyRqIn::new(input)?.rqn();
    destroy(device, input, number, QpKind::RawReceive)
}

pub(super) fn query_sq(device: &mut Device, input: &[u8]) -> Reply {
    let qp = find(device, input, QuerySqIn::new(input)?.sqn(), QpKind::RawSend)?;
    let mut output = QuerySqOut::zeroed();
    let mut context: Sqc<&mut [u8]> = output.sq_context_mut();
    context.as_bytes_mut().copy_from_slice(&qp.context);
    context.set_state(code(qp.state));
    Ok(output.into_inner().to_vec())
}

pub(super) fn query_rq(device: &mut Device, input: &[u8]) -> Reply {
    let qp = find(
        device,
        input,
        QueryRqIn::new(input)?.rqn(),
        QpKind::RawReceive,
    )?;
    let mut output = QueryRqOut::zeroed();
    let mut context: Rqc<&mut [u8]> = output.rq_context_mut();
    context.as_bytes_mut().copy_from_slice(&qp.context);
    context.set_state(code(qp.state));
    Ok(output.into_inner().to_vec())
}

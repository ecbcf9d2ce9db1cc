//! Shared receive queues: of the old interface, as memory pools, and of XRC.

use wqe_format::mlx5::firmware::rmp::{
    CreateRmpIn, CreateRmpOut, DestroyRmpIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut, Rmpc,
};
use wqe_format::mlx5::firmware::srq::{
    ArmRqIn, CreateSrqIn, CreateSrqOut, DestroySrqIn, QuerySrqIn, QuerySrqOut,
};
use wqe_format::mlx5::firmware::srqc::{Srqc, XrcSrqc};
use wqe_format::mlx5::firmware::xrc_srq::{
    ArmXrcSrqIn, CreateXrcSrqIn, CreateXrcSrqOut, DestroyXrcSrqIn, QueryXrcSrqIn, QueryXrcSrqOut,
};

use super::refusal::{Refusal, bad_parameter, bad_resource, busy, no_resources};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::resources::{Receive, Ring, Srq, SrqKind};

/// `MLX5_RMPC_STATE_RDY`.
const RMP_READY: u8 = 1;
/// `MLX5_ARM_RQ_IN_OP_MOD_SRQ`, `MLX5_ARM_RQ_IN_OP_MOD_XRQ` and `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`.
const ARM_SRQ: u16 = 1;
const ARM_XRQ: u16 = 2;
const ARM_XRC_SRQ: u16 = 1;

/// What the three contexts say alike.
pub(super) struct Shape {
    pub(super) log_size: u8,
    pub(super) log_stride: u8,
    pub(super) log_page: u8,
    pub(super) page_offset: u8,
}

impl Shape {
    pub(super) fn ring(
        &self,
        device: &Device,
        pages: impl Iterator<Item = u64>,
    ) -> Result<Ring, Refusal> {
        if self.log_size > device.caps.log_max_srq_size() {
            return Err(bad_parameter("the receive queue is too large"));
        }
        if !(4..=11).contains(&self.log_stride) {
            return Err(bad_parameter("requests are of 16 to 2048 bytes"));
        }
        let len = 1 << (self.log_size + self.log_stride);
        let start = owner::start(self.page_offset, self.log_page);
        let buffer = owner::buffer(pages, self.log_page, start, len)?;
        let Shape {
            log_size,
            log_stride,
            ..
        } = *self;
        Ok(Ring {
            buffer,
            offset: 0,
            log_stride,
            log_size,
        })
    }
}

pub(super) fn insert(device: &mut Device, srq: Srq) -> Result<u32, Refusal> {
    let table = &mut device.resources.srqs;
    let number = table
        .free_number()
        .ok_or(no_resources("no shared receive queue is left"))?;
    table.insert(number, srq);
    Ok(number)
}

pub(super) fn create_srq(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateSrqIn::new(input)?;
    let context = view.srq_context_entry();
    owner::pd(device, input, context.pd())?;
    let shape = Shape {
        log_size: context.log_srq_size(),
        log_stride: context.log_rq_stride() + 4,
        log_page: context.log_page_size(),
        page_offset: context.page_offset(),
    };
    let srq = Srq {
        kind: SrqKind::Basic,
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        ring: shape.ring(device, view.pas())?,
        dbr: owner::record(context.dbr_addr(), 4)?,
        pd: context.pd(),
        xrcd: 0,
        cqn: 0,
        user_index: 0,
        limit: context.lwm(),
        signature: context.wq_signature(),
        error: false,
        data: Default::default(),
    };
    let mut output = CreateSrqOut::zeroed();
    output.set_srqn(insert(device, srq)?);
    Ok(output.into_inner().to_vec())
}

pub(super) fn create_rmp(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateRmpIn::new(input)?;
    let context = view.ctx();
    let wq = context.wq();
    owner::pd(device, input, wq.pd())?;
    let shape = Shape {
        log_size: wq.log_wq_sz(),
        log_stride: wq.log_wq_stride(),
        log_page: wq.log_wq_pg_sz(),
        page_offset: wq.page_offset(),
    };
    let ring = if wq.wq_umem_valid() {
        let len = 1 << (shape.log_size + shape.log_stride);
        let buffer = owner::umem_buffer(device, input, wq.wq_umem_id(), wq.wq_umem_offset(), len)?;
        Ring {
            buffer,
            offset: 0,
            log_stride: shape.log_stride,
            log_size: shape.log_size,
        }
    } else {
        // The work queue, at the context's end, ends with the pages.
        let pages = &input[CreateRmpIn::SIZE.min(input.len())..];
        shape.ring(device, owner::addresses(pages))?
    };
    let dbr = if wq.dbr_umem_valid() {
        owner::umem_record(device, input, wq.dbr_umem_id(), wq.dbr_addr())?
    } else {
        owner::record(wq.dbr_addr(), 4)?
    };
    let srq = Srq {
        kind: SrqKind::Rmp,
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        ring,
        dbr,
        pd: wq.pd(),
        xrcd: 0,
        cqn: 0,
        user_index: 0,
        limit: wq.lwm(),
        signature: wq.wq_signature(),
        error: false,
        data: Default::default(),
    };
    let mut output = CreateRmpOut::zeroed();
    output.set_rmpn(insert(device, srq)?);
    Ok(output.into_inner().to_vec())
}

pub(super) fn create_xrc_srq(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateXrcSrqIn::new(input)?;
    let context = view.xrc_srq_context_entry();
    owner::pd(device, input, context.pd())?;
    owner::cq(device, input, context.cqn())?;
    let xrcd = device.resources.xrcds.get(context.xrcd());
    owner::check(input, xrcd.map(|xrcd| xrcd.uid))?;
    let shape = Shape {
        log_size: context.log_xrc_srq_size(),
        log_stride: context.log_rq_stride() + 4,
        log_page: context.log_page_size(),
        page_offset: context.page_offset(),
    };
    let record =
        u64::from(context.db_record_addr_h()) << 32 | u64::from(context.db_record_addr_l()) << 2;
    let mut srq = Srq {
        kind: SrqKind::Xrc,
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        ring: shape.ring(device, view.pas())?,
        dbr: record,
        pd: context.pd(),
        xrcd: context.xrcd(),
        cqn: context.cqn(),
        user_index: context.user_index(),
        limit: context.lwm(),
        signature: context.wq_signature(),
        error: false,
        data: Default::default(),
    };
    let number = device.resources.srqs.free_number();
    let number = number.ok_or(no_resources("no shared receive queue is left"))?;
    if context.user_index_equal_xrc_srqn() {
        srq.user_index = number;
    }
    device.resources.srqs.insert(number, srq);
    let mut output = CreateXrcSrqOut::zeroed();
    output.set_xrc_srqn(number);
    Ok(output.into_inner().to_vec())
}

/// A queue of one kind that who sent the command may use.
pub(super) fn find<'a>(
    device: &'a mut Device,
    input: &[u8],
    number: u32,
    kind: SrqKind,
) -> Result<&'a mut Srq, Refusal> {
    let srq = device
        .resources
        .srqs
        .get_mut(number)
        .filter(|srq| srq.kind == kind);
    owner::check(input, srq.as_ref().map(|srq| srq.uid))?;
    srq.ok_or(bad_resource("there is no such receive queue"))
}

pub(super) fn destroy(device: &mut Device, input: &[u8], number: u32, kind: SrqKind) -> Reply {
    find(device, input, number, kind)?;
    let used = device
        .resources
        .qps
        .iter()
        .any(|(_, qp)| matches!(qp.receive, Receive::Shared { srqn, .. } if srqn == number));
    if used {
        return Err(busy("queue pairs receive from the queue"));
    }
    device.resources.srqs.remove(number);
    done()
}

pub(super) fn destroy_srq(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroySrqIn::new(input)?.srqn();
    destroy(device, input, number, SrqKind::Basic)
}

pub(super) fn destroy_rmp(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyRmpIn::new(input)?.rmpn();
    destroy(device, input, number, SrqKind::Rmp)
}

pub(super) fn destroy_xrc_srq(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyXrcSrqIn::new(input)?.xrc_srqn();
    destroy(device, input, number, SrqKind::Xrc)
}

pub(super) fn query_srq(device: &mut Device, input: &[u8]) -> Reply {
    let srq = find(
        device,
        input,
        QuerySrqIn::new(input)?.srqn(),
        SrqKind::Basic,
    )?;
    let mut output = QuerySrqOut::zeroed();
    let mut context: Srqc<&mut [u8]> = output.srq_context_entry_mut();
    context.as_bytes_mut().copy_from_slice(&srq.context);
    context.set_lwm(srq.limit).set_state(srq.error.into());
    Ok(output.into_inner().to_vec())
}

pub(super) fn query_rmp(device: &mut Device, input: &[u8]) -> Reply {
    let srq = find(device, input, QueryRmpIn::new(input)?.rmpn(), SrqKind::Rmp)?;
    let mut output = QueryRmpOut::zeroed();
    let mut context: Rmpc<&mut [u8]> = output.rmp_context_mut();
    context.as_bytes_mut().copy_from_slice(&srq.context);
    // `MLX5_RMPC_STATE_ERR` is 3.
    context.set_state(if srq.error { 3 } else { RMP_READY });
    context.wq_mut().set_lwm(srq.limit);
    Ok(output.into_inner().to_vec())
}

pub(super) fn query_xrc_srq(device: &mut Device, input: &[u8]) -> Reply {
    let srq = find(
        device,
        input,
        QueryXrcSrqIn::new(input)?.xrc_srqn(),
        SrqKind::Xrc,
    )?;
    let mut output = QueryXrcSrqOut::zeroed();
    let mut context: XrcSrqc<&mut [u8]> = output.xrc_srq_context_entry_mut();
    context.as_bytes_mut().copy_from_slice(&srq.context);
    context.set_lwm(srq.limit).set_state(srq.error.into());
    Ok(output.into_inner().to_vec())
}

pub(super) fn arm(srq: &mut Srq, limit: u16) -> Reply {
    if u32::from(limit) >= 1 << srq.ring.log_size {
        return Err(bad_parameter("the limit is beyond the queue's size"));
    }
    srq.limit = limit;
    done()
}

pub(super) fn modify_rmp(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyRmpIn::new(input)?;
    let srq = find(device, input, view.rmpn(), SrqKind::Rmp)?;
    if view.rmp_state() != RMP_READY || view.ctx().state() != RMP_READY {
        return Err(bad_parameter("a memory pool is ready, and stays so"));
    }
    if !view.bitmask().lwm() {
        return done();
    }
    arm(srq, view.ctx().wq().lwm())
}

pub(super) fn arm_rq(device: &mut Device, input: &[u8]) -> Reply {
    let view = ArmRqIn::new(input)?;
    let kind = match view.op_mod() {
        ARM_SRQ => SrqKind::Basic,
        ARM_XRQ => SrqKind::Tag,
        _ => return Err(bad_parameter("only shared receive queues are armed so")),
    };
    arm(find(device, input, view.srq_number(), kind)?, view.lwm())
}

pub(super) fn arm_xrc_srq(device: &mut Device, input: &[u8]) -> Reply {
    let view = ArmXrcSrqIn::new(input)?;
    if view.op_mod() != ARM_XRC_SRQ {
        return Err(bad_parameter("only XRC shared receive queues are armed so"));
    }
    arm(
        find(device, input, view.xrc_srqn(), SrqKind::Xrc)?,
        view.lwm(),
    )
}

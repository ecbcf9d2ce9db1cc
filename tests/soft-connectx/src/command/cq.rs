//! Completion queues.

use wqe_format::mlx5::MiniFormat;
use wqe_format::mlx5::compressed::Layout;
use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::cq::{
    Cqc, CreateCqIn, CreateCqOut, DestroyCqIn, ModifyCqIn, QueryCqIn, QueryCqOut,
};

use super::refusal::{Refusal, bad_parameter, bad_resource, busy, no_resources, outstanding};
use super::{Reply, done, owner};
use crate::completion::{self, compress::Compression};
use crate::device::Device;
use crate::resources::{Cq, Receive, Ring};
use crate::watch::NOT_ARMED;

/// `cq_umem_offset` and `cq_umem_id` of create and modify, `dbr_umem_id` of the context: fields
/// that the kernel's header calls reserved and rdma-core's `tests/mlx5_prm_structs.py` has.
const UMEM_OFFSET: (usize, usize) = (0x280, 0x40);
const UMEM_ID: (usize, usize) = (0x2c0, 0x20);
const RECORD_UMEM_ID: (usize, usize) = (0x20, 0x20);

/// Length of a slot, as a logarithm: `cqe_sz` 0 is 64 bytes, 1 is 128, 2 is 64 bytes in slots of
/// 128.
fn log_stride(context: &Cqc<&[u8]>) -> Result<u8, Refusal> {
    match context.cqe_sz() {
        0 => Ok(6),
        1 | 2 => Ok(7),
        _ => Err(bad_parameter("there is no such size of completions")),
    }
}

/// How completions are compressed, if the driver wants it: only those of 64 bytes, and not in a queue of one entry.
fn compression(device: &Device, context: &Cqc<&[u8]>) -> Result<Option<Compression>, Refusal> {
    if !context.cqe_comp_en() {
        return Ok(None);
    }
    let caps = device.caps.compression();
    if !caps.basic || context.cqe_sz() != 0 {
        return Err(bad_parameter("completions of this size are not compressed"));
    }
    let layout = match context.cqe_compression_layout() {
        0 => Layout::Basic,
        1 if caps.enhanced => Layout::Enhanced,
        _ => return Err(bad_parameter("there is no such layout of blocks")),
    };
    let format = match MiniFormat(context.mini_cqe_res_format()) {
        format @ (MiniFormat::HASH | MiniFormat::CSUM) => format,
        MiniFormat::CSUM_STRIDX if caps.strides => MiniFormat::CSUM_STRIDX,
        _ => return Err(bad_parameter("there is no such format of mini entries")),
    };
    Ok((!context.cc()).then_some(Compression { layout, format }))
}

/// The ring that create or resize describe.
fn ring(
    device: &Device,
    input: &[u8],
    context: &Cqc<&[u8]>,
    umem: bool,
    pages: impl Iterator<Item = u64>,
) -> Result<Ring, Refusal> {
    let (log_stride, log_size) = (log_stride(context)?, context.log_cq_size());
    if log_size > device.caps.log_max_cq_size() {
        return Err(bad_parameter("the completion queue is too large"));
    }
    let len = 1 << (log_stride + log_size);
    let buffer = if umem {
        let offset = bits::get(input, UMEM_OFFSET.0, UMEM_OFFSET.1);
        let id = bits::get(input, UMEM_ID.0, UMEM_ID.1) as u32;
        owner::umem_buffer(device, input, id, offset, len)?
    } else {
        let start = owner::start(context.page_offset(), context.log_page_size());
        owner::buffer(pages, context.log_page_size(), start, len)?
    };
    Ok(Ring {
        buffer,
        offset: 0,
        log_stride,
        log_size,
    })
}

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateCqIn::new(input)?;
    let context = view.cq_context();
    let eqn = context.c_eqn_or_apu_element();
    if device.resources.eqs.get(eqn).is_none() {
        return Err(bad_resource("there is no such event queue"));
    }
    owner::uar(device, input, context.uar_page())?;
    let ring = ring(device, input, &context, view.cq_umem_valid(), view.pas())?;
    let dbr = if context.dbr_umem_valid() {
        let id = bits::get(context.as_bytes(), RECORD_UMEM_ID.0, RECORD_UMEM_ID.1) as u32;
        owner::umem_record(device, input, id, context.dbr_addr())?
    } else {
        owner::record(context.dbr_addr(), 8)?
    };
    let cq = Cq {
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        slot_128: ring.log_stride == 7,
        ring,
        dbr,
        eqn,
        uar: context.uar_page(),
        collapsed: context.cc(),
        ignores_overrun: context.oi(),
        compression: compression(device, &context)?,
        moderation_count: context.cq_max_count(),
        moderation_period: context.cq_period(),
        data: Default::default(),
    };
    if device.watches {
        // Where there is no memory for it, the queue works as badly without.
        let _ = device.memory.write(cq.dbr.wrapping_add(4), &NOT_ARMED);
    }
    let table = &mut device.resources.cqs;
    let number = table
        .free_number()
        .ok_or(no_resources("no completion queue is left"))?;
    table.insert(number, cq);
    let mut output = CreateCqOut::zeroed();
    output.set_cqn(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyCqIn::new(input)?.cqn();
    owner::cq(device, input, number)?;
    let resources = &device.resources;
    let receives = |receive: &Receive| match receive {
        Receive::None => false,
        Receive::Ring { cqn, .. } | Receive::Shared { cqn, .. } => *cqn == number,
    };
    let used = resources.qps.iter().any(|(_, qp)| {
        qp.send.as_ref().is_some_and(|send| send.cqn == number) || receives(&qp.receive)
    });
    if used || resources.srqs.iter().any(|(_, srq)| srq.cqn == number) {
        return Err(busy("queues complete to the completion queue"));
    }
    device.resources.cqs.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let number = QueryCqIn::new(input)?.cqn();
    owner::cq(device, input, number)?;
    let cq = device.resources.cqs.get(number);
    let cq = cq.ok_or(bad_resource("there is no such completion queue"))?;
    let mut output = QueryCqOut::zeroed();
    let mut context = output.cq_context_mut();
    context.as_bytes_mut().copy_from_slice(&cq.context);
    context.set_producer_counter(cq.data.producer());
    let mut consumer = [0; 4];
    if device.memory.read(cq.dbr, &mut consumer).is_ok() {
        context.set_consumer_counter(u32::from_be_bytes(consumer) & 0xff_ffff);
    }
    Ok(output.into_inner().to_vec())
}

pub(super) fn modify(device: &mut Device, input: &[u8]) -> Reply {
    const MODIFY: u16 = 0;
    const RESIZE: u16 = 1;
    let view = ModifyCqIn::new(input)?;
    let number = view.cqn();
    owner::cq(device, input, number)?;
    let (context, select) = (
        view.cq_context(),
        view.modify_field_select_resize_field_select(),
    );
    match view.op_mod() {
        MODIFY => {
            // `MLX5_CQ_MODIFY_*`
            const PERIOD: u32 = 1;
            const COUNT: u32 = 2;
            const OVERRUN: u32 = 4;
            let cq = device.resources.cqs.get_mut(number);
            let cq = cq.ok_or(bad_resource("there is no such completion queue"))?;
            let mut kept = Cqc::new(&mut cq.context[..])?;
            if select & PERIOD != 0 {
                cq.moderation_period = context.cq_period();
                kept.set_cq_period(context.cq_period());
            }
            if select & COUNT != 0 {
                cq.moderation_count = context.cq_max_count();
                kept.set_cq_max_count(context.cq_max_count());
            }
            if select & OVERRUN != 0 {
                cq.ignores_overrun = context.oi();
                kept.set_oi(context.oi());
            }
        }
        RESIZE => {
            let ring = ring(device, input, &context, view.cq_umem_valid(), view.pas())?;
            let (log_size, log_page) = (ring.log_size, context.log_page_size());
            if !completion::resize(device, number, ring) {
                return Err(outstanding("the completions not yet polled don't fit"));
            }
            if let Some(cq) = device.resources.cqs.get_mut(number) {
                cq.slot_128 = context.cqe_sz() != 0;
                let mut kept = Cqc::new(&mut cq.context[..])?;
                kept.set_log_cq_size(log_size).set_log_page_size(log_page);
                kept.set_page_offset(context.page_offset())
                    .set_cqe_sz(context.cqe_sz());
            }
        }
        _ => return Err(bad_parameter("a completion queue is modified or resized")),
    }
    done()
}

//! Shared receive queues with tag matching.

use wqe_format::mlx5::firmware::xrq::{
    ArmXrqIn, CreateXrqIn, CreateXrqOut, DestroyXrqIn, QueryXrqIn, QueryXrqOut,
};

use super::refusal::bad_parameter;
use super::srq::{Shape, arm, destroy, find, insert};
use super::{Reply, owner};
use crate::device::Device;
use crate::resources::{Srq, SrqKind};
use crate::transport::{SrqData, Tags};

/// `MLX5_XRQC_TOPOLOGY_TAG_MATCHING`; the other topologies are of storage.
const TAG_MATCHING: u8 = 1;
/// `MLX5_XRQC_STATE_GOOD` and `MLX5_XRQC_STATE_ERROR`.
const STATE_ERROR: u8 = 1;

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateXrqIn::new(input)?;
    let context = view.xrq_context();
    let (wq, list) = (context.wq(), context.tag_matching_topology_context());
    owner::pd(device, input, wq.pd())?;
    owner::cq(device, input, context.cqn())?;
    if context.topology() != TAG_MATCHING {
        return Err(bad_parameter("only lists of tags are queued for"));
    }
    let log_tags = list.log_matching_list_sz();
    if log_tags > device.caps.log_tag_matching_list() {
        return Err(bad_parameter("the list of tags is too long"));
    }
    let shape = Shape {
        log_size: wq.log_wq_sz(),
        log_stride: wq.log_wq_stride(),
        log_page: wq.log_wq_pg_sz(),
        page_offset: wq.page_offset(),
    };
    // The work queue, at the context's end, ends with the pages.
    let pages = input.get(CreateXrqIn::SIZE..).unwrap_or_default();
    let srq = Srq {
        kind: SrqKind::Tag,
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        ring: shape.ring(device, owner::addresses(pages))?,
        dbr: owner::record(wq.dbr_addr(), 4)?,
        pd: wq.pd(),
        xrcd: 0,
        cqn: context.cqn(),
        user_index: context.user_index(),
        limit: wq.lwm(),
        signature: wq.wq_signature(),
        error: false,
        data: SrqData::with_tags(Tags::new(log_tags, context.offload())),
    };
    let mut output = CreateXrqOut::zeroed();
    output.set_xrqn(insert(device, srq)?);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy_xrq(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyXrqIn::new(input)?.xrqn();
    destroy(device, input, number, SrqKind::Tag)
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let srq = find(device, input, QueryXrqIn::new(input)?.xrqn(), SrqKind::Tag)?;
    let mut output = QueryXrqOut::zeroed();
    let mut context = output.xrq_context_mut();
    context.as_bytes_mut().copy_from_slice(&srq.context);
    if srq.error {
        context.set_state(STATE_ERROR);
    }
    context.wq_mut().set_lwm(srq.limit);
    let tags = &srq.data.tags;
    context
        .tag_matching_topology_context_mut()
        .set_append_next_index(tags.next_index())
        .set_sw_phase_cnt(tags.told())
        .set_hw_phase_cnt(tags.phase());
    Ok(output.into_inner().to_vec())
}

pub(super) fn arm_xrq(device: &mut Device, input: &[u8]) -> Reply {
    let view = ArmXrqIn::new(input)?;
    arm(find(device, input, view.xrqn(), SrqKind::Tag)?, view.lwm())
}

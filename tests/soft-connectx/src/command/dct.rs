//! Dynamically connected targets.

use wqe_format::mlx5::firmware::EventType;
use wqe_format::mlx5::firmware::dct::{
    CreateDctIn, CreateDctOut, DestroyDctIn, DrainDctIn, QueryDctIn, QueryDctOut,
};
use wqe_format::mlx5::firmware::eqe::DctEvents;

use super::refusal::{Refusal, bad_parameter, bad_resource, bad_state, no_resources};
use super::{Reply, done, ece, owner};
use crate::device::Device;
use crate::events;
use crate::resources::{Qp, QpKind, QpState, Receive};
use crate::transport;

/// `dctc.state` (`MLX5_DCTC_STATE_*`): active, draining, drained.
const ACTIVE: u8 = 0;
const DRAINED: u8 = 2;

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateDctIn::new(input)?;
    let context = view.dct_context_entry();
    owner::pd(device, input, context.pd())?;
    owner::cq(device, input, context.cqn())?;
    let srqn = context.srqn_xrqn();
    owner::check(input, device.resources.srqs.get(srqn).map(|srq| srq.uid))?;
    if !(1..=5).contains(&context.mtu()) {
        return Err(bad_parameter("there is no such MTU"));
    }
    let table = &mut device.resources.qps;
    let number = table
        .free_number()
        .ok_or(no_resources("no target is left"))?;
    let mut target = Qp::target(number, owner::uid(input), &context);
    target.receive = Receive::Shared {
        srqn,
        cqn: context.cqn(),
    };
    table.insert(number, target);
    transport::state_changed(device, number, QpState::Rst, QpState::Rtr);
    let mut output = CreateDctOut::zeroed();
    output
        .set_dctn(number)
        .set_ece(ece::accepted(context.ece()));
    Ok(output.into_inner().to_vec())
}

fn find<'a>(device: &'a mut Device, input: &[u8], number: u32) -> Result<&'a mut Qp, Refusal> {
    let target = device
        .resources
        .qps
        .get_mut(number)
        .filter(|qp| qp.kind == QpKind::Dct);
    owner::check(input, target.as_ref().map(|qp| qp.uid))?;
    target.ok_or(bad_resource("there is no such target"))
}

/// Nothing new comes in, and when nothing is under way any more, which here is at once, an event
/// tells so.
pub(super) fn drain(device: &mut Device, input: &[u8]) -> Reply {
    let number = DrainDctIn::new(input)?.dctn();
    let target = find(device, input, number)?;
    let before = std::mem::replace(&mut target.state, QpState::Err);
    if before == QpState::Err {
        return Err(bad_state("the target is drained already"));
    }
    // Nothing is flushed: what targets hold of their SRQ goes back with their connections.
    transport::state_changed(device, number, before, QpState::Rst);
    let mut event = DctEvents::zeroed();
    event.set_dct_number(number);
    events::raise_async(device, EventType::DCT_DRAINED, 0, event.as_bytes());
    done()
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyDctIn::new(input)?.dctn();
    if find(device, input, number)?.state != QpState::Err {
        return Err(bad_state("the target is not drained"));
    }
    device.resources.qps.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let target = find(device, input, QueryDctIn::new(input)?.dctn())?;
    let mut output = QueryDctOut::zeroed();
    let mut context = output.dct_context_entry_mut();
    context.as_bytes_mut().copy_from_slice(&target.context);
    context.set_state(if target.state == QpState::Err {
        DRAINED
    } else {
        ACTIVE
    });
    Ok(output.into_inner().to_vec())
}

//! Event queues.

use wqe_format::mlx5::firmware::eq::{
    CreateEqIn, CreateEqOut, DestroyEqIn, Eqc, QueryEqIn, QueryEqOut,
};

use super::refusal::{bad_index, bad_parameter, bad_resource, busy, no_resources};
use super::{Reply, done, owner};
use crate::MSIX_VECTORS;
use crate::device::Device;
use crate::events::EQE_LEN;
use crate::resources::{Eq, Ring};

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateEqIn::new(input)?;
    let context = view.eq_context_entry();
    if context.intr() >= MSIX_VECTORS {
        return Err(bad_index("there is no such interrupt vector"));
    }
    if context.log_eq_size() > device.caps.log_max_eq_size() {
        return Err(bad_parameter("the event queue is too large"));
    }
    owner::uar(device, input, context.uar_page())?;
    let ring = Ring {
        buffer: owner::buffer(
            view.pas(),
            context.log_page_size(),
            0,
            EQE_LEN << context.log_eq_size(),
        )?,
        offset: 0,
        log_stride: EQE_LEN.trailing_zeros() as u8,
        log_size: context.log_eq_size(),
    };
    let mut events = [0; 4];
    for (index, bits) in events.iter_mut().enumerate() {
        *bits = view.event_bitmask(index).unwrap_or(0);
    }
    let eq = Eq {
        context: context.as_bytes().to_vec(),
        ring,
        vector: context.intr(),
        uar: context.uar_page(),
        ignores_overrun: context.oi(),
        events,
        producer: 0,
        consumer: 0,
        armed: false,
        failed: false,
    };
    let number = device
        .resources
        .eqs
        .free_number()
        .ok_or(no_resources("no event queue is left"))?;
    device.resources.eqs.insert(number, eq);
    let mut output = CreateEqOut::zeroed();
    output.set_eq_number(number as u8);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let number = u32::from(DestroyEqIn::new(input)?.eq_number());
    if device.resources.eqs.get(number).is_none() {
        return Err(bad_resource("there is no such event queue"));
    }
    if device.resources.cqs.iter().any(|(_, cq)| cq.eqn == number) {
        return Err(busy("completion queues report to the event queue"));
    }
    device.resources.eqs.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let number = u32::from(QueryEqIn::new(input)?.eq_number());
    let eq = device.resources.eqs.get(number);
    let eq = eq.ok_or(bad_resource("there is no such event queue"))?;
    let mut output = QueryEqOut::zeroed();
    output.set_event_bitmask(eq.events[0]);
    output
        .eq_context_entry_mut()
        .as_bytes_mut()
        .copy_from_slice(&eq.context);
    // `MLX5_EQ_STATE_*`: 9 is armed, 0xa fired.
    let state = if eq.armed { 0x9 } else { 0xa };
    let status = if eq.failed { 0xa } else { 0 };
    let mut context = output.eq_context_entry_mut();
    context.set_st(state).set_status(status);
    context
        .set_consumer_counter(eq.consumer)
        .set_producer_counter(eq.producer & 0xff_ffff);
    debug_assert_eq!(eq.context.len(), Eqc::SIZE);
    Ok(output.into_inner().to_vec())
}

//! TIS, TIR and tables of receive queues.

use wqe_format::mlx5::firmware::rqt::{
    CreateRqtIn, CreateRqtOut, DestroyRqtIn, ModifyRqtIn, QueryRqtIn, QueryRqtOut, Rqtc,
};
use wqe_format::mlx5::firmware::tir::{
    CreateTirIn, CreateTirOut, DestroyTirIn, ModifyTirIn, QueryTirIn, QueryTirOut, Tirc,
};
use wqe_format::mlx5::firmware::tis::{
    CreateTisIn, CreateTisOut, DestroyTisIn, ModifyTisIn, QueryTisIn, QueryTisOut,
};

use super::refusal::{Refusal, bad_parameter, bad_resource, busy, limit, no_resources};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::resources::{Dispatch, QpKind, Rqt, Tir, Tis};

/// `tirc.disp_type` (`MLX5_TIRC_DISP_TYPE_*`).
const DIRECT: u8 = 0;
const INDIRECT: u8 = 1;
/// Queues in the largest table (`log_max_rqt_size`).
const LARGEST_TABLE: u16 = 1 << 11;

/// The domain of who has none: what `mlx5_ib` names where there are no transport domains, and programs that make a TIR by
/// themselves (rdma-core's `tests/test_mlx5_dr.py`).
const NO_DOMAIN: u32 = 0;

fn transport_domain(device: &Device, input: &[u8], number: u32) -> Result<(), Refusal> {
    if number == NO_DOMAIN {
        return Ok(());
    }
    let domain = device.resources.transport_domains.get(number);
    owner::check(input, domain.map(|domain| domain.uid))
}

fn receive_queue(device: &Device, input: &[u8], number: u32) -> Result<(), Refusal> {
    let queue = device
        .resources
        .qps
        .get(number)
        .filter(|qp| qp.kind == QpKind::RawReceive);
    owner::check(input, queue.map(|queue| queue.uid))
}

pub(super) fn create_tis(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateTisIn::new(input)?;
    let context = view.ctx();
    transport_domain(device, input, context.transport_domain())?;
    let tis = Tis {
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        transport_domain: context.transport_domain(),
    };
    let table = &mut device.resources.steering.tiss;
    let number = table.free_number().ok_or(no_resources("no TIS is left"))?;
    table.insert(number, tis);
    let mut output = CreateTisOut::zeroed();
    output.set_tisn(number);
    Ok(output.into_inner().to_vec())
}

fn tis<'a>(device: &'a mut Device, input: &[u8], number: u32) -> Result<&'a mut Tis, Refusal> {
    let tis = device.resources.steering.tiss.get_mut(number);
    owner::check(input, tis.as_ref().map(|tis| tis.uid))?;
    tis.ok_or(bad_resource("there is no such TIS"))
}

pub(super) fn modify_tis(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyTisIn::new(input)?;
    let tis = tis(device, input, view.tisn())?;
    let mut kept = wqe_format::mlx5::firmware::tis::Tisc::new(&mut tis.context[..])?;
    if view.bitmask().prio() {
        kept.set_prio(view.ctx().prio());
    }
    if view.bitmask().lag_tx_port_affinity() {
        kept.set_lag_tx_port_affinity(view.ctx().lag_tx_port_affinity());
    }
    done()
}

pub(super) fn destroy_tis(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyTisIn::new(input)?.tisn();
    tis(device, input, number)?;
    device.resources.steering.tiss.remove(number);
    done()
}

pub(super) fn query_tis(device: &mut Device, input: &[u8]) -> Reply {
    let tis = tis(device, input, QueryTisIn::new(input)?.tisn())?;
    let mut output = QueryTisOut::zeroed();
    output
        .tis_context_mut()
        .as_bytes_mut()
        .copy_from_slice(&tis.context);
    Ok(output.into_inner().to_vec())
}

/// Where a context hands packets to.
fn dispatch(device: &Device, input: &[u8], context: &Tirc<&[u8]>) -> Result<Dispatch, Refusal> {
    match context.disp_type() {
        DIRECT => {
            receive_queue(device, input, context.inline_rqn())?;
            Ok(Dispatch::Queue(context.inline_rqn()))
        }
        INDIRECT => {
            let number = context.indirect_table();
            let table = device.resources.steering.rqts.get(number);
            owner::check(input, table.map(|table| table.uid))?;
            Ok(Dispatch::Table(number))
        }
        _ => Err(bad_parameter("packets are handed to a queue or by a table")),
    }
}

pub(super) fn create_tir(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateTirIn::new(input)?;
    let context = view.ctx();
    transport_domain(device, input, context.transport_domain())?;
    let tir = Tir {
        uid: owner::uid(input),
        context: context.as_bytes().to_vec(),
        dispatch: dispatch(device, input, &context)?,
        transport_domain: context.transport_domain(),
    };
    let table = &mut device.resources.steering.tirs;
    let number = table.free_number().ok_or(no_resources("no TIR is left"))?;
    table.insert(number, tir);
    let mut output = CreateTirOut::zeroed();
    output.set_tirn(number);
    Ok(output.into_inner().to_vec())
}

fn tir<'a>(device: &'a mut Device, input: &[u8], number: u32) -> Result<&'a mut Tir, Refusal> {
    let tir = device.resources.steering.tirs.get_mut(number);
    owner::check(input, tir.as_ref().map(|tir| tir.uid))?;
    tir.ok_or(bad_resource("there is no such TIR"))
}

pub(super) fn modify_tir(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyTirIn::new(input)?;
    let (select, new) = (view.bitmask(), view.ctx());
    let tir = tir(device, input, view.tirn())?;
    let mut kept = Tirc::new(&mut tir.context[..])?;
    if select.self_lb_en() {
        kept.set_self_lb_block(new.self_lb_block());
    }
    if select.packet_merge() {
        kept.set_packet_merge_mask(new.packet_merge_mask());
        kept.set_lro_timeout_period_usecs(new.lro_timeout_period_usecs());
        kept.set_lro_max_ip_payload_size(new.lro_max_ip_payload_size());
    }
    if select.hash() {
        kept.set_rx_hash_fn(new.rx_hash_fn())
            .set_rx_hash_symmetric(new.rx_hash_symmetric());
        // Key and field selectors stand together at the context's end.
        const HASH: std::ops::Range<usize> = 0x28..0x58;
        let from = &new.as_bytes()[HASH];
        kept.as_bytes_mut()[HASH].copy_from_slice(from);
    }
    done()
}

pub(super) fn destroy_tir(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyTirIn::new(input)?.tirn();
    tir(device, input, number)?;
    if device.resources.flow.reaches_tir(number) {
        return Err(busy("packets are steered to the TIR"));
    }
    device.resources.steering.tirs.remove(number);
    done()
}

pub(super) fn query_tir(device: &mut Device, input: &[u8]) -> Reply {
    let tir = tir(device, input, QueryTirIn::new(input)?.tirn())?;
    let mut output = QueryTirOut::zeroed();
    output
        .tir_context_mut()
        .as_bytes_mut()
        .copy_from_slice(&tir.context);
    Ok(output.into_inner().to_vec())
}

/// The queues a table's context lists, as many as it claims; they stand at the command's end.
fn queues(device: &Device, input: &[u8], context: &Rqtc<&[u8]>) -> Result<Vec<u32>, Refusal> {
    let count = usize::from(context.rqt_actual_size());
    let list = &input[CreateRqtIn::SIZE.min(input.len())..];
    let number = |entry: &[u8]| u32::from_be_bytes([0, entry[1], entry[2], entry[3]]);
    let queues: Vec<u32> = list.chunks_exact(4).take(count).map(number).collect();
    if queues.len() != count {
        return Err(bad_parameter("there are fewer queues than are claimed"));
    }
    for queue in &queues {
        receive_queue(device, input, *queue)?;
    }
    Ok(queues)
}

pub(super) fn create_rqt(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateRqtIn::new(input)?;
    let context = view.rqt_context();
    let largest = context.rqt_max_size();
    if largest > LARGEST_TABLE || context.rqt_actual_size() > largest {
        return Err(limit("the table is too large"));
    }
    let queues = queues(device, input, &context)?;
    let rqt = Rqt {
        uid: owner::uid(input),
        largest,
        queues,
    };
    let table = &mut device.resources.steering.rqts;
    let number = table
        .free_number()
        .ok_or(no_resources("no table is left"))?;
    table.insert(number, rqt);
    let mut output = CreateRqtOut::zeroed();
    output.set_rqtn(number);
    Ok(output.into_inner().to_vec())
}

fn rqt<'a>(device: &'a mut Device, input: &[u8], number: u32) -> Result<&'a mut Rqt, Refusal> {
    let rqt = device.resources.steering.rqts.get_mut(number);
    owner::check(input, rqt.as_ref().map(|rqt| rqt.uid))?;
    rqt.ok_or(bad_resource("there is no such table"))
}

pub(super) fn modify_rqt(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyRqtIn::new(input)?;
    let largest = rqt(device, input, view.rqtn())?.largest;
    if view.bitmask().rqn_list() {
        if view.ctx().rqt_actual_size() > largest {
            return Err(limit("the table is too large"));
        }
        let queues = queues(device, input, &view.ctx())?;
        rqt(device, input, view.rqtn())?.queues = queues;
    }
    done()
}

pub(super) fn destroy_rqt(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyRqtIn::new(input)?.rqtn();
    rqt(device, input, number)?;
    let mut tirs = device.resources.steering.tirs.iter();
    if tirs.any(|(_, tir)| tir.dispatch == Dispatch::Table(number)) {
        return Err(busy("TIRs dispatch by the table"));
    }
    device.resources.steering.rqts.remove(number);
    done()
}

pub(super) fn query_rqt(device: &mut Device, input: &[u8]) -> Reply {
    let rqt = rqt(device, input, QueryRqtIn::new(input)?.rqtn())?;
    let mut output = QueryRqtOut::zeroed();
    let mut context = output.rqt_context_mut();
    context
        .set_rqt_max_size(rqt.largest)
        .set_rqt_actual_size(rqt.queues.len() as u16);
    let mut output = output.into_inner().to_vec();
    output.extend(rqt.queues.iter().flat_map(|queue| queue.to_be_bytes()));
    Ok(output)
}

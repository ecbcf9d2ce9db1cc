//! Event queues: entries, consumer indices, interrupts.

use std::time::Duration;

use log::{error, trace};
use wqe_format::mlx5::firmware::EventType;
use wqe_format::mlx5::firmware::eqe::{CqError, Eqe, PortStateChangeEvent, QpEvents};

use crate::adversary::Freedom;
use crate::device::Device;

/// Bytes of an entry.
pub(crate) const EQE_LEN: u64 = 64;

/// Tells of an event on one queue, if it takes events of this type. `data` is what an entry has
/// from byte 0x20 on, at most 28 bytes.
pub(crate) fn raise(device: &mut Device, eqn: u32, kind: EventType, data: &[u8]) {
    post(device, eqn, kind, 0, data);
}

/// Tells of an event on the first queue that takes its type.
pub(crate) fn raise_async(device: &mut Device, kind: EventType, sub: u8, data: &[u8]) {
    let Some(eqn) = taker(device, kind) else {
        trace!("{kind:?}: nobody asked for it");
        return;
    };
    post(device, eqn, kind, sub, data);
}

/// Tells of something that happened to a queue pair, or to a shared receive queue (`number` is
/// then the SRQ's; `MLX5_EVENT_QUEUE_TYPE_*`: 0 a queue pair, 1 an RQ, 2 an SQ).
pub(crate) fn queue(device: &mut Device, kind: EventType, number: u32, queue_type: u8) {
    let mut data = QpEvents::zeroed();
    data.set_qpn_rqn_sqn(number).set_type_(queue_type);
    raise_async(device, kind, 0, data.as_bytes());
}

/// Tells that a completion queue failed; syndrome 1 is an overrun.
pub(crate) fn cq_error(device: &mut Device, cqn: u32, syndrome: u8) {
    let mut data = CqError::zeroed();
    data.set_cqn(cqn).set_syndrome(syndrome);
    raise_async(device, EventType::CQ_ERROR, 0, data.as_bytes());
}

/// Tells of a change of the port.
pub(crate) fn port(device: &mut Device, change: wqe_format::mlx5::firmware::PortChange) {
    let mut data = PortStateChangeEvent::zeroed();
    data.set_port_num(1);
    raise_async(device, EventType::PORT_CHANGE, change.0, data.as_bytes());
}

/// The first queue that takes events of a type.
pub(crate) fn taker(device: &Device, kind: EventType) -> Option<u32> {
    let mut queues = device.resources.eqs.iter();
    queues.find(|(_, eq)| eq.wants(kind)).map(|(eqn, _)| eqn)
}

fn post(device: &mut Device, eqn: u32, kind: EventType, sub: u8, data: &[u8]) {
    let Some(eq) = device.resources.eqs.get_mut(eqn) else {
        return;
    };
    // Completions need no bit of the mask: a CQ names its event queue.
    if eq.failed || !(eq.wants(kind) || kind == EventType::COMP) {
        return;
    }
    let size = 1 << eq.ring.log_size;
    if eq.producer.wrapping_sub(eq.consumer) & 0xff_ffff >= size {
        if !eq.ignores_overrun {
            eq.failed = true;
        }
        error!("event queue {eqn} overran");
        return;
    }
    let mut entry = Eqe::zeroed();
    entry.set_event_type(kind.0).set_event_sub_type(sub);
    entry.set_owner(eq.producer >> eq.ring.log_size & 1 != 0);
    let place = entry.event_data_mut();
    let len = data.len().min(place.len());
    place[..len].copy_from_slice(&data[..len]);
    let entry = entry.as_bytes();
    // The owner is in the last byte, and is written last.
    let memory = &*device.memory;
    let written = eq
        .ring
        .write(memory, eq.producer, 0, &entry[..63])
        .and_then(|()| eq.ring.write(memory, eq.producer, 63, &entry[63..]));
    if let Err(fault) = written {
        error!("event queue {eqn}: {fault}");
        eq.failed = true;
        return;
    }
    eq.producer = eq.producer.wrapping_add(1);
    if std::mem::take(&mut eq.armed) {
        let vector = eq.vector;
        interrupt(device, vector);
    }
}

/// The longest time that an adversary keeps an interrupt back.
const STALL: Duration = Duration::from_millis(2);

/// Interrupts that come later.
#[derive(Debug, Default)]
pub(crate) struct Stalled(Vec<(Duration, u16)>);

/// Interrupts, now or later.
fn interrupt(device: &mut Device, vector: u16) {
    let delay = device.adversary.delay(Freedom::Interrupt, STALL);
    if delay.is_zero() {
        device.interrupts.raise(vector);
    } else {
        device.stalled.0.push((device.now + delay, vector));
    }
}

/// Raises what is due; the answer is when the next is.
pub(crate) fn tick(device: &mut Device) -> Option<Duration> {
    let now = device.now;
    let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut device.stalled.0)
        .into_iter()
        .partition(|(at, _)| *at <= now);
    device.stalled.0 = later;
    for (_, vector) in due {
        device.interrupts.raise(vector);
    }
    device.stalled.0.iter().map(|(at, _)| *at).min()
}

/// The 4 bytes written to a page's event registers: queue number and consumer index; arming where
/// the register is the first.
pub(crate) fn consumer(device: &mut Device, uar: u32, word: [u8; 4], arm: bool) {
    let [eqn, index @ ..] = word;
    let Some(eq) = device
        .resources
        .eqs
        .get_mut(u32::from(eqn))
        .filter(|eq| eq.uar == uar)
    else {
        return;
    };
    eq.consumer = u32::from_be_bytes([0, index[0], index[1], index[2]]);
    if !arm {
        return;
    }
    // What came since the driver looked last interrupts at once.
    if (eq.producer ^ eq.consumer) & 0xff_ffff != 0 {
        eq.armed = false;
        let vector = eq.vector;
        interrupt(device, vector);
    } else {
        eq.armed = true;
    }
}

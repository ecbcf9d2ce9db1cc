//! Completion queues: how completions are written, and when someone is told.

pub(crate) mod cqe;

use std::time::Duration;

use wqe_format::mlx5::firmware::EventType;

use crate::device::Device;
use crate::events;
use crate::resources::{Cq, Ring};
use crate::watch::NOT_ARMED;
pub(crate) use cqe::Cqe;

/// Consumer and producer counters have 24 bits.
const COUNTER: u32 = 0xff_ffff;

/// Syndrome of a `CQ_ERROR` event: overrun (PRM 8.19.5; the kernel's `mlx5_eqe_cq_err`).
const OVERRUN: u8 = 1;

/// What someone waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Any,
    Solicited,
}

/// What the data path keeps for a completion queue.
#[derive(Debug, Default)]
pub(crate) struct CqData {
    /// Completions written, counted over and over.
    producer: u32,
    /// Counter behind the last completion that breaks a wait for solicited ones.
    solicited: u32,
    /// Producer counter when the last event was sent.
    notified: u32,
    armed: Option<Armed>,
    /// The arm word that was looked at last, where doorbell pages are memory.
    seen: Option<u32>,
    /// When an event that moderation holds back is due.
    due: Option<Duration>,
    /// It overran.
    failed: bool,
}

impl CqData {
    /// Completions written, as `cqc.producer_counter` has them.
    pub(crate) fn producer(&self) -> u32 {
        self.producer & COUNTER
    }
}

/// Why a completion was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There is no such queue.
    Absent,
    /// It is full, or was at an earlier completion.
    Overrun,
    /// Its memory is not there.
    Dma,
}

/// How far `to` is ahead of `from`; 0 if it is behind.
fn ahead(from: u32, to: u32) -> u32 {
    match to.wrapping_sub(from) & COUNTER {
        n if n < 1 << 23 => n,
        _ => 0,
    }
}

fn consumer(device: &Device, cq: &Cq) -> Option<u32> {
    let mut word = [0; 4];
    device.memory.read(cq.dbr, &mut word).ok()?;
    Some(u32::from_be_bytes(word) & COUNTER)
}

/// Writes a completion, and tells who waits for it.
pub(crate) fn push(device: &mut Device, cqn: u32, cqe: &Cqe) -> Result<(), Lost> {
    let result = try_push(device, cqn, cqe);
    if result == Err(Lost::Overrun) || result == Err(Lost::Dma) {
        fail(device, cqn);
    }
    result
}

fn try_push(device: &mut Device, cqn: u32, cqe: &Cqe) -> Result<(), Lost> {
    let cq = device.resources.cqs.get(cqn).ok_or(Lost::Absent)?;
    if cq.data.failed {
        return Err(Lost::Overrun);
    }
    let size = 1u32 << cq.ring.log_size;
    let taken = consumer(device, cq).ok_or(Lost::Dma)?;
    let held = cq.data.producer.wrapping_sub(taken) & COUNTER;
    if held >= size && !cq.ignores_overrun && !cq.collapsed {
        return Err(Lost::Overrun);
    }
    write(device, cq, cqe).map_err(|_| Lost::Dma)?;
    let now = device.now;
    let cq = device.resources.cqs.get_mut(cqn).ok_or(Lost::Absent)?;
    cq.data.producer = cq.data.producer.wrapping_add(1);
    if cqe.solicited {
        cq.data.solicited = cq.data.producer;
    }
    match cq.data.armed {
        Some(Armed::Any) => {}
        Some(Armed::Solicited) if cqe.solicited => {}
        _ => return Ok(()),
    }
    let waiting = ahead(cq.data.notified, cq.data.producer);
    if u32::from(cq.moderation_count) > waiting && cq.moderation_period != 0 {
        let period = Duration::from_micros(cq.moderation_period.into());
        cq.data.due.get_or_insert(now + period);
    } else {
        notify(device, cqn);
    }
    Ok(())
}

fn write(device: &Device, cq: &Cq, cqe: &Cqe) -> Result<(), crate::host::DmaFault> {
    let index = if cq.collapsed { 0 } else { cq.data.producer };
    let turn = cq.data.producer >> cq.ring.log_size & 1;
    let memory = device.memory.as_ref();
    let mut at = 0;
    if cq.ring.log_stride >= 7 {
        if let Some(data) = &cqe.data {
            cq.ring.write(memory, index, 0, data)?;
        }
        at = 64;
    }
    // The byte that says that it is valid comes last.
    let [body @ .., kind] = &cqe.bytes;
    cq.ring.write(memory, index, at, body)?;
    cq.ring
        .write(memory, index, at + 63, &[kind & !1 | turn as u8])
}

/// The queue is broken from now on.
fn fail(device: &mut Device, cqn: u32) {
    let Some(cq) = device.resources.cqs.get_mut(cqn) else {
        return;
    };
    if std::mem::replace(&mut cq.data.failed, true) {
        return;
    }
    log::warn!("completion queue {cqn:#x} overran");
    events::cq_error(device, cqn, OVERRUN);
}

fn notify(device: &mut Device, cqn: u32) {
    let Some(cq) = device.resources.cqs.get_mut(cqn) else {
        return;
    };
    cq.data.armed = None;
    cq.data.due = None;
    cq.data.notified = cq.data.producer;
    let eqn = cq.eqn;
    let mut data = [0; 28];
    data[24..].copy_from_slice(&cqn.to_be_bytes());
    events::raise(device, eqn, EventType::COMP, &data);
}

/// Looks at a queue's arm word; answers whether it is new. The record has it behind the consumer's counter.
pub(crate) fn look(device: &mut Device, cqn: u32) -> bool {
    let Some(cq) = device.resources.cqs.get_mut(cqn) else {
        return false;
    };
    let mut word = [0; 4];
    if device
        .memory
        .read(cq.dbr.wrapping_add(4), &mut word)
        .is_err()
        || word == NOT_ARMED
    {
        return false;
    }
    if cq.data.seen.replace(u32::from_be_bytes(word)) == Some(u32::from_be_bytes(word)) {
        return false;
    }
    let uar = cq.uar;
    let [a, b, c, d] = word;
    let [_, f, g, h] = cqn.to_be_bytes();
    arm(device, uar, [a, b, c, d, 0, f, g, h]);
    true
}

/// [`look`]s at all of them.
pub(crate) fn look_at_all(device: &mut Device) -> bool {
    let all: Vec<u32> = device.resources.cqs.iter().map(|(cqn, _)| cqn).collect();
    all.into_iter()
        .fold(false, |new, cqn| look(device, cqn) | new)
}

/// The 8 bytes written to a page's arm register: serial number, kind and consumer index, then
/// the queue's number.
pub(crate) fn arm(device: &mut Device, uar: u32, word: [u8; 8]) {
    let [a, b, c, d, _, f, g, h] = word;
    let request = u32::from_be_bytes([a, b, c, d]);
    let cqn = u32::from_be_bytes([0, f, g, h]);
    let Some(cq) = device.resources.cqs.get_mut(cqn) else {
        return;
    };
    if cq.uar != uar {
        log::debug!("completion queue {cqn:#x} was armed in page {uar:#x}, not in its own");
    }
    // Bit 24 is the kind (mlx5dv.h `MLX5_CQ_DB_REQ_NOT_SOL`).
    let (armed, newest) = match request >> 24 & 1 {
        0 => (Armed::Any, cq.data.producer),
        _ => (Armed::Solicited, cq.data.solicited),
    };
    cq.data.armed = Some(armed);
    // Completions that were reported once are not reported again, nor are those that were taken.
    if ahead(cq.data.notified, newest) != 0 && ahead(request & COUNTER, newest) != 0 {
        notify(device, cqn);
    }
}

/// `RESIZE_CQ`: whether the completions not yet polled fit into the new ring, and if so, from now
/// on they go there.
pub(crate) fn resize(device: &mut Device, cqn: u32, ring: Ring) -> bool {
    let Some(cq) = device.resources.cqs.get(cqn) else {
        return false;
    };
    let Some(taken) = consumer(device, cq) else {
        return false;
    };
    let held = cq.data.producer.wrapping_sub(taken) & COUNTER;
    if held >= 1 << ring.log_size || write(device, cq, &Cqe::resized()).is_err() {
        return false;
    }
    let Some(cq) = device.resources.cqs.get_mut(cqn) else {
        return false;
    };
    cq.data.producer = cq.data.producer.wrapping_add(1);
    cq.ring = ring;
    true
}

/// Events that moderation held back and that are due; when the next one is.
pub(crate) fn tick(device: &mut Device) -> Option<Duration> {
    let now = device.now;
    let due: Vec<u32> = (device.resources.cqs.iter())
        .filter(|(_, cq)| cq.data.due.is_some_and(|due| due <= now))
        .map(|(cqn, _)| cqn)
        .collect();
    for cqn in due {
        notify(device, cqn);
    }
    device
        .resources
        .cqs
        .iter()
        .filter_map(|(_, cq)| cq.data.due)
        .min()
}

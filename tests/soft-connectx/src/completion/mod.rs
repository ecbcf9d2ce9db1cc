//! Completion queues: how completions are written, and when someone is told.

pub(crate) mod compress;
pub(crate) mod cqe;

use std::time::Duration;

use wqe_format::mlx5::compressed::Layout;
use wqe_format::mlx5::firmware::EventType;

use crate::adversary::Freedom;
use crate::device::Device;
use crate::events;
use crate::resources::{Cq, Ring};
use crate::watch::NOT_ARMED;
use compress::{Fate, Session};
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
    /// What compression holds back.
    session: Session,
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

/// Writes a completion, now or in a block with others, and tells who waits for it.
pub(crate) fn push(device: &mut Device, cqn: u32, cqe: &Cqe) -> Result<(), Lost> {
    let result = try_push(device, cqn, cqe);
    noted(device, cqn, result)
}

/// A queue that could not be written is broken.
fn noted(device: &mut Device, cqn: u32, result: Result<(), Lost>) -> Result<(), Lost> {
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
    let room = size.saturating_sub(held);
    if cq.data.session.len() >= room && !cq.ignores_overrun && !cq.collapsed {
        return Err(Lost::Overrun);
    }
    let Some(how) = cq.compression else {
        return write_one(device, cqn, cqe);
    };
    let (takes, log_size) = (cq.data.session.takes(how, cqe), cq.ring.log_size);
    if !takes {
        try_settle(device, cqn)?;
    }
    let now = device.now;
    let cq = device.resources.cqs.get_mut(cqn).ok_or(Lost::Absent)?;
    match cq.data.session.add(how, log_size, now, cqe, takes) {
        Fate::Written => write_one(device, cqn, cqe),
        Fate::Held if !device.adversary.happens(Freedom::Compression, 4) => Ok(()),
        Fate::Held | Fate::Last => try_settle(device, cqn),
    }
}

/// Writes what compression holds back of a queue.
fn try_settle(device: &mut Device, cqn: u32) -> Result<(), Lost> {
    let cq = device.resources.cqs.get_mut(cqn).ok_or(Lost::Absent)?;
    let Some(how) = cq.compression else {
        return Ok(());
    };
    let held = cq.data.session.take(how.layout);
    let cq = device.resources.cqs.get(cqn).ok_or(Lost::Absent)?;
    match &held[..] {
        [] => Ok(()),
        [cqe] => write_one(device, cqn, cqe),
        [first, ..] => {
            log::debug!("{} completions of {cqn:#x} in one block", held.len());
            let (title, arrays) = compress::block(how, &held);
            let (ring, at) = (&cq.ring, cq.data.producer);
            for (distance, bytes) in arrays {
                let index = at.wrapping_add(distance);
                let array = ring.write(device.memory.as_ref(), index, 0, &bytes);
                array.map_err(|_| Lost::Dma)?;
            }
            put(device, cq, at, &title).map_err(|_| Lost::Dma)?;
            written(device, cqn, held.len() as u32, first.solicited)
        }
    }
}

/// Writes what compression holds back, of all queues.
pub(crate) fn settle_all(device: &mut Device) {
    let open: Vec<u32> = (device.resources.cqs.iter())
        .filter(|(_, cq)| cq.data.session.len() != 0)
        .map(|(cqn, _)| cqn)
        .collect();
    for cqn in open {
        let result = try_settle(device, cqn);
        // Its queue pairs learn it with their next completion.
        let _ = noted(device, cqn, result);
    }
}

fn write_one(device: &mut Device, cqn: u32, cqe: &Cqe) -> Result<(), Lost> {
    let cq = device.resources.cqs.get(cqn).ok_or(Lost::Absent)?;
    write(device, cq, cqe).map_err(|_| Lost::Dma)?;
    written(device, cqn, 1, cqe.solicited)
}

/// There are `count` new completions, of one kind.
fn written(device: &mut Device, cqn: u32, count: u32, solicited: bool) -> Result<(), Lost> {
    let now = device.now;
    let cq = device.resources.cqs.get_mut(cqn).ok_or(Lost::Absent)?;
    cq.data.producer = cq.data.producer.wrapping_add(count);
    if solicited {
        cq.data.solicited = cq.data.producer;
    }
    match cq.data.armed {
        Some(Armed::Any) => {}
        Some(Armed::Solicited) if solicited => {}
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
    if cq.ring.log_stride >= 7
        && let Some(data) = &cqe.data
    {
        let index = if cq.collapsed { 0 } else { cq.data.producer };
        cq.ring.write(device.memory.as_ref(), index, 0, data)?;
    }
    put(device, cq, cq.data.producer, &cqe.bytes)
}

/// Writes an entry; the byte that says that it is valid comes last: the owner's, or with enhanced compression the one before
/// it, which has the number of the turn.
fn put(
    device: &Device,
    cq: &Cq,
    index: u32,
    bytes: &[u8; 64],
) -> Result<(), crate::host::DmaFault> {
    let turn = (index >> cq.ring.log_size) as u8;
    let index = if cq.collapsed { 0 } else { index };
    let memory = device.memory.as_ref();
    let at = if cq.ring.log_stride >= 7 { 64 } else { 0 };
    let [body @ .., mut before, kind] = *bytes;
    let is_enhanced = (cq.compression).is_some_and(|how| how.layout == Layout::Enhanced);
    cq.ring.write(memory, index, at, &body)?;
    let owned = kind & !1 | turn & 1;
    if is_enhanced {
        before = turn;
        cq.ring.write(memory, index, at + 63, &[owned])?;
        return cq.ring.write(memory, index, at + 62, &[before]);
    }
    cq.ring.write(memory, index, at + 62, &[before])?;
    cq.ring.write(memory, index, at + 63, &[owned])
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

/// Events that moderation held back and completions that compression did, as far as they are due; when the next is.
pub(crate) fn tick(device: &mut Device) -> Option<Duration> {
    let now = device.now;
    let is_due = |due: Option<Duration>| due.is_some_and(|due| due <= now);
    let due: Vec<u32> = (device.resources.cqs.iter())
        .filter(|(_, cq)| is_due(cq.data.session.due()))
        .map(|(cqn, _)| cqn)
        .collect();
    for cqn in due {
        let result = try_settle(device, cqn);
        let _ = noted(device, cqn, result);
    }
    let due: Vec<u32> = (device.resources.cqs.iter())
        .filter(|(_, cq)| is_due(cq.data.due))
        .map(|(cqn, _)| cqn)
        .collect();
    for cqn in due {
        notify(device, cqn);
    }
    (device.resources.cqs.iter())
        .flat_map(|(_, cq)| [cq.data.due, cq.data.session.due()])
        .flatten()
        .min()
}

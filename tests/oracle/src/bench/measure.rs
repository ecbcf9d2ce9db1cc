//! Interleaves the implementations' regions, so that a noisy neighbour meets all of them, and keeps each one's minimum.

use crate::ring::{BLOCK, Shared};
use crate::trace;

use super::case::{Case, OPS};

/// An implementation that can be timed.
pub trait Timed {
    /// Its column.
    fn name(&self) -> &'static str;

    /// Whether it has such an operation.
    fn has(&self, case: &Case) -> bool;

    /// Prepares `ops` operations: room in the rings, completions to find.
    fn prepare(&mut self, case: &Case, ops: usize);

    /// Ticks that `ops` operations take. Called once after each `prepare`.
    fn timed(&mut self, case: &Case, ops: usize) -> u64;

    /// Does them without looking at a clock, for the single step.
    fn plain(&mut self, case: &Case, ops: usize);

    /// Memory in which stores are device stores.
    fn register(&self) -> trace::Range;

    /// Memory that is the caller's own, such as work requests and completions: a program has it at hand.
    fn callers(&self) -> Vec<trace::Range>;

    /// Queues of the case.
    fn queues(&self, case: &Case) -> Queues;
}

/// Memory of queues, as the device sees it.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// The send ring.
    pub send: Shared,
    /// Work requests that were posted to it, each of one block.
    pub sent: u32,
    /// The receive ring.
    pub recv: Shared,
    /// The completion queue's.
    pub completions: Shared,
    /// The doorbell record of the queue pair.
    pub record: Shared,
}

impl Queues {
    /// Bytes that the device fetches of the last `n` send work requests: as many as their control segments say.
    fn last_sends(&self, n: usize) -> usize {
        let blocks = self.send.len() / BLOCK;
        (0..n)
            .map(|back| {
                let at = (self.sent as usize + blocks - 1 - back) % blocks;
                // The size in units of 16 bytes is in the second word of the control segment (PRM).
                (self.send.word(at * BLOCK + 4) & 0x3f) as usize * 16
            })
            .sum()
    }
}

/// Bytes of a receive work request with one element, and of a completion.
const RECEIVE: usize = 16;
const ENTRY: usize = 64;

/// Bytes per operation that the device fetches from memory and that it writes there, data apart. What comes by its register
/// as a whole work request it need not fetch.
fn device_bytes(case: &Case, queues: &Queues, comes_by_register: bool) -> (f64, f64) {
    match case {
        Case::Send { .. } if comes_by_register => (0.0, 0.0),
        Case::Send { batch, .. } => (queues.last_sends(*batch) as f64 / *batch as f64, 0.0),
        Case::Recv { .. } => (RECEIVE as f64, 0.0),
        Case::Poll { .. } => (0.0, ENTRY as f64),
        Case::Empty { .. } => (0.0, 0.0),
        Case::Loop { signalled } => (
            queues.last_sends(16) as f64 / 16.0,
            ENTRY as f64 / *signalled as f64,
        ),
    }
}

/// What one operation costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Ticks in the fastest region.
    pub ticks: f64,
    /// Instructions.
    pub instructions: f64,
    /// Stores to the device's register.
    pub register_stores: f64,
    /// Store fences.
    pub fences: f64,
    /// Distinct cache lines read or written.
    pub lines: f64,
    /// Bytes stored to the device's register.
    pub register_bytes: f64,
    /// Bytes that the device fetches.
    pub device_reads: f64,
    /// Bytes that the device writes.
    pub device_writes: f64,
}

/// Operations under single step.
const STEPPED: usize = 32;

/// Measures one case on all.
pub fn measure(case: &Case, subjects: &mut [&mut dyn Timed], regions: usize) -> Vec<Option<Cost>> {
    let mut best = vec![u64::MAX; subjects.len()];
    for _ in 0..regions {
        for (best, subject) in best.iter_mut().zip(subjects.iter_mut()) {
            if subject.has(case) {
                subject.prepare(case, OPS);
                *best = subject.timed(case, OPS).min(*best);
            }
        }
    }
    let mut costs = Vec::new();
    for (best, subject) in best.iter().zip(subjects.iter_mut()) {
        if !subject.has(case) {
            costs.push(None);
            continue;
        }
        let register = subject.register();
        // A multiple of the batch, twice: what the first round warms up the second one does not pay for.
        let mut trace = trace::Trace::default();
        for _ in 0..2 {
            subject.prepare(case, STEPPED);
            trace = trace::run(&[register], true, &mut || subject.plain(case, STEPPED));
        }
        let per = |n: usize| n as f64 / STEPPED as f64;
        let stores: Vec<usize> = (trace.events.iter())
            .filter_map(|event| match event {
                trace::Event::Store { width, .. } => Some(*width),
                _ => None,
            })
            .collect();
        // A doorbell is one store of 8 bytes; a whole work request is more of them.
        let comes_by_register = stores.len() > STEPPED;
        let (device_reads, device_writes) =
            device_bytes(case, &subject.queues(case), comes_by_register);
        let fences = trace.events.iter();
        let fences = fences.filter(|event| matches!(event, trace::Event::StoreFence));
        costs.push(Some(Cost {
            ticks: *best as f64 / OPS as f64,
            instructions: trace.instructions as f64 / STEPPED as f64,
            register_stores: per(stores.len()),
            register_bytes: per(stores.iter().sum()),
            device_reads,
            device_writes,
            fences: per(fences.count()),
            lines: per(trace.lines.len()),
        }));
    }
    costs
}

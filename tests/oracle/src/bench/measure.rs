//! Interleaves the implementations' regions, so that a noisy neighbour meets all of them, and keeps each one's minimum.

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
        let stores = trace.events.iter();
        let stores = stores.filter(|event| matches!(event, trace::Event::Store { .. }));
        let fences = trace.events.iter();
        let fences = fences.filter(|event| matches!(event, trace::Event::StoreFence));
        costs.push(Some(Cost {
            ticks: *best as f64 / OPS as f64,
            instructions: trace.instructions as f64 / STEPPED as f64,
            register_stores: per(stores.count()),
            fences: per(fences.count()),
            lines: per(trace.lines.len()),
        }));
    }
    costs
}

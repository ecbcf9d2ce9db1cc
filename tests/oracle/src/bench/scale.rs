//! Polling while the completions are of many queue pairs: what finding a queue pair costs, and what its memory costs when
//! the caches do not hold all of them.

use std::hint::black_box;

use anyhow::Result;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::clock::ticks;
use super::figure::Figures;
use super::fleet::{DEPTH, Fleet};
use crate::trace;

/// The table's name.
pub const SECTION: &str = "polling, completions of N queue pairs in random order";

/// Numbers of queue pairs.
pub const SIZES: [usize; 4] = [1, 100, 10_000, 100_000];

/// Completions under single step.
const STEPPED: usize = 32;

/// A row's name.
pub fn case(batch: usize, size: usize) -> String {
    format!("poll_cq REQ b{batch}, {size} QPs")
}

/// Regions of `DEPTH` completions in which a batch is timed, at least.
const REGIONS: usize = 1500;

/// Order in which queue pairs are used, each equally often.
fn order(size: usize, rng: &mut StdRng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..size.max(DEPTH)).map(|index| index % size).collect();
    order.shuffle(rng);
    order.truncate(order.len() / DEPTH * DEPTH);
    order
}

/// Posts one work request for each completion that will be polled, long before: what is posted is in no cache any more
/// when there are many.
fn post(fleet: &mut dyn Fleet, order: &[usize], rng: &mut StdRng) {
    let mut posts = order.to_vec();
    posts.shuffle(rng);
    for index in posts {
        fleet.post(index);
    }
}

/// Ticks of each region of one round.
fn round(fleet: &mut dyn Fleet, size: usize, batch: usize, rng: &mut StdRng, times: &mut Vec<u64>) {
    let order = order(size, rng);
    post(fleet, &order, rng);
    for region in order.chunks_exact(DEPTH) {
        for index in region {
            fleet.complete(*index);
        }
        let start = ticks();
        fleet.poll(batch, DEPTH);
        times.push(ticks() - start);
    }
}

/// Instructions and distinct cache lines per completion.
fn step(fleet: &mut dyn Fleet, size: usize, batch: usize, rng: &mut StdRng) -> (f64, f64) {
    let order = order(size, rng);
    let order = &order[..DEPTH];
    post(fleet, order, rng);
    let mut trace = trace::Trace::default();
    for region in order.chunks_exact(STEPPED) {
        for index in region {
            fleet.complete(*index);
        }
        trace = trace::run(&[], true, &mut || fleet.poll(batch, STEPPED));
    }
    let per = |n: usize| n as f64 / STEPPED as f64;
    (
        trace.instructions as f64 / STEPPED as f64,
        per(trace.lines.len()),
    )
}

/// The middle one.
pub fn median(values: &mut [u64]) -> f64 {
    values.sort_unstable();
    values
        .get(values.len() / 2)
        .map_or(0.0, |value| *value as f64)
}

/// Ticks of one step along a chain that goes through `bytes` in random order, a cache line a step: each address comes
/// from the line before, so this is what a miss costs that nothing can hide.
fn chase(bytes: usize, rng: &mut StdRng) -> f64 {
    const WORDS: usize = 64 / size_of::<usize>();
    let lines = (bytes / 64).max(1);
    let mut order: Vec<usize> = (0..lines).collect();
    order.shuffle(rng);
    let mut memory = vec![0_usize; lines * WORDS];
    for (index, line) in order.iter().enumerate() {
        memory[line * WORDS] = order[(index + 1) % lines] * WORDS;
    }
    let steps = 4 * DEPTH;
    let mut at = 0;
    let mut times: Vec<u64> = (0..REGIONS)
        .map(|_| {
            let start = ticks();
            for _ in 0..steps {
                at = memory[at];
            }
            black_box(at);
            ticks() - start
        })
        .collect();
    median(&mut times) / steps as f64
}

/// Measures all; the fleets grow meanwhile.
///
/// # Errors
///
/// Queue pairs cannot be made.
pub fn run(
    fleets: &mut [&mut dyn Fleet],
    scale: f64,
    is_timed: bool,
    figures: &mut Figures,
) -> Result<()> {
    figures.section(SECTION);
    let mut rng = StdRng::seed_from_u64(1);
    // Lines per completion when there is one queue pair: those that are no queue pair's.
    let mut common = vec![0.0; fleets.len()];
    for size in SIZES {
        for fleet in fleets.iter_mut() {
            while fleet.len() < size {
                fleet.make()?;
                fleet.connect()?;
                fleet.locate()?;
            }
        }
        for batch in [1, 16] {
            let case = case(batch, size);
            let mut times = vec![Vec::new(); fleets.len()];
            while is_timed && times[0].len() < REGIONS {
                for (fleet, times) in fleets.iter_mut().zip(&mut times) {
                    round(&mut **fleet, size, batch, &mut rng, times);
                }
            }
            for (index, fleet) in fleets.iter_mut().enumerate() {
                let (insn, lines) = step(&mut **fleet, size, batch, &mut rng);
                figures.add(&case, "instructions", fleet.name(), insn);
                figures.add(&case, "cache lines", fleet.name(), lines);
                if size == 1 {
                    common[index] = lines;
                }
                if !is_timed {
                    continue;
                }
                let ns = median(&mut times[index]) / DEPTH as f64 * scale;
                figures.add(&case, "ns", fleet.name(), ns);
                // Of each queue pair, in whole lines.
                let own = (lines - common[index]).round().max(1.0) as usize;
                let ns = chase(size * own * 64, &mut rng) * scale;
                let what = "ns of a pointer chase through the same lines";
                figures.add(&case, what, fleet.name(), ns);
            }
        }
    }
    Ok(())
}

//! Latency and bandwidth, measured as perftest measures them.

use std::time::Instant;

use serde::Serialize;

use crate::ends::{Pair, Result, WINDOW, reap};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Send,
    Write,
    Read,
}

/// Microseconds of single requests.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) operation: Operation,
    pub(crate) bytes: usize,
    pub(crate) iterations: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) typical: f64,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) percentile_99: f64,
}

/// Many requests at once.
#[derive(Debug, Serialize)]
pub(crate) struct Bandwidth {
    pub(crate) operation: Operation,
    pub(crate) bytes: usize,
    pub(crate) iterations: usize,
    /// In 2^20 bytes a second, as perftest counts them: of the fastest run of batches, and of all.
    pub(crate) peak: f64,
    pub(crate) average: f64,
    /// Millions of messages a second.
    pub(crate) messages: f64,
}

/// Requests that one signalled request ends.
const BATCH: usize = 16;

impl Pair {
    fn post(&mut self, operation: Operation, bytes: usize, count: usize) -> Result<()> {
        if operation == Operation::Send {
            let to = [self.far.memory.sge(0..bytes)];
            for _ in 0..count {
                // SAFETY: the memory outlives the requests, which are all waited for.
                unsafe { self.far.qp.recv_half().post_sges(0, &to) }?;
            }
        }
        let from = [self.near.memory.sge(0..bytes)];
        let remote = self.far.memory.remote(0);
        let mut batch = self.near.qp.send_batch();
        for number in 1..=count {
            let request = match operation {
                Operation::Send => batch.send(0),
                Operation::Write => batch.write(0, remote),
                Operation::Read => batch.read(0, remote),
            };
            match number == count {
                true => request.signaled().sges(&from),
                false => request.sges(&from),
            }
        }
        // SAFETY: as above.
        Ok(unsafe { batch.post() }?)
    }

    fn wait(&mut self, operation: Operation, count: usize) -> Result<()> {
        if operation == Operation::Send {
            reap(&mut self.far.recv_cq, count)?;
        }
        reap(&mut self.near.send_cq, 1).map(drop)
    }

    /// One request after the other: from posting it to its completion.
    pub(crate) fn latency(
        &mut self,
        operation: Operation,
        bytes: usize,
        iterations: usize,
        step: impl Fn(),
    ) -> Result<Latency> {
        let mut times = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            let start = Instant::now();
            self.post(operation, bytes, 1)?;
            self.wait(operation, 1)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            step();
        }
        times.sort_by(f64::total_cmp);
        let average = times.iter().sum::<f64>() / iterations as f64;
        let squares = times.iter().map(|time| (time - average).powi(2));
        Ok(Latency {
            operation,
            bytes,
            iterations,
            min: times[0],
            max: times[iterations - 1],
            typical: times[iterations / 2],
            average,
            deviation: (squares.sum::<f64>() / iterations as f64).sqrt(),
            percentile_99: times[(iterations * 99 / 100).min(iterations - 1)],
        })
    }

    /// As many requests under way as the queue has room for.
    pub(crate) fn bandwidth(
        &mut self,
        operation: Operation,
        bytes: usize,
        iterations: usize,
        step: impl Fn(),
    ) -> Result<Bandwidth> {
        let batches = iterations.div_ceil(BATCH);
        let iterations = batches * BATCH;
        let mut posted = Vec::with_capacity(batches);
        let mut completed = Vec::with_capacity(batches);
        let mebibytes = |count: usize| (count * bytes) as f64 / f64::from(1 << 20);
        let start = Instant::now();
        for done in 0..batches {
            while posted.len() < batches && posted.len() - done < WINDOW / BATCH {
                posted.push(start.elapsed().as_secs_f64());
                self.post(operation, bytes, BATCH)?;
            }
            self.wait(operation, BATCH)?;
            completed.push(start.elapsed().as_secs_f64());
            step();
        }
        let seconds = start.elapsed().as_secs_f64();
        let average = mebibytes(iterations) / seconds;
        // as perftest has it: the fastest of all runs of batches, from posting the first to completing the last
        let mut peak = 0.0_f64;
        for (first, from) in posted.iter().enumerate() {
            for (last, to) in completed.iter().enumerate().skip(first) {
                peak = peak.max(mebibytes((last - first + 1) * BATCH) / (to - from));
            }
        }
        Ok(Bandwidth {
            operation,
            bytes,
            iterations,
            peak,
            average,
            messages: iterations as f64 / seconds / 1e6,
        })
    }
}

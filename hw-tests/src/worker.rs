//! Cases one after another in one child, which keeps the device open.
//!
//! A device that the child drives itself is reset and brought up when it is opened, which takes many times as long as most
//! cases: a second on hardware, several in an emulated guest. So the child destroys what a case left and goes on with
//! the next. It ends with a case that did not pass, or whose objects it can't destroy; the next case has a new child.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cli::Options;
use crate::fixture::Env;
use crate::runner::{self, Outcome, Report};
use crate::suite::{self, Case};

/// What the child writes when it waits for a case.
const READY: &str = "hw-tests is ready";
/// Longest wait for a device to come up or to go down.
const BRING_UP: Duration = Duration::from_secs(60);
/// Cases of one child: their memory stays until it ends.
const CASES: u32 = 40;

/// The child's half: cases by their names on standard input, until one asks for a fresh start.
pub(crate) fn serve(env: &Env) -> Result<()> {
    let cases = suite::all();
    println!("{READY}");
    for name in std::io::stdin().lines() {
        let name = name.context("read a case's name")?;
        let case = cases.iter().find(|case| case.name == name);
        let case = case.with_context(|| format!("there is no case {name}"))?;
        let outcome = runner::run_here(env, case);
        let failed = matches!(outcome, Outcome::Failed(_));
        if failed || env.near.sweep().is_err() {
            break;
        }
        println!("{READY}");
    }
    Ok(())
}

/// The parent's half.
pub(crate) struct Workers<'o> {
    options: &'o Options,
    seed: u64,
    now: Option<Worker>,
}

struct Worker {
    child: Child,
    cases: ChildStdin,
    lines: Receiver<String>,
    stderr: thread::JoinHandle<String>,
    left: u32,
}

/// What came instead of a line.
enum Silence {
    Late,
    Ended,
}

impl<'o> Workers<'o> {
    pub(crate) fn new(options: &'o Options, seed: u64) -> Self {
        let now = None;
        Self { options, seed, now }
    }

    /// Runs a case.
    pub(crate) fn run(&mut self, case: &Case) -> Result<Report> {
        let slow = self.options.slow;
        let report = |outcome, started: Instant| Report {
            name: case.name.clone(),
            outcome,
            seconds: started.elapsed().as_secs_f64(),
        };
        let opened = Instant::now();
        let mut worker = match self.ready() {
            Some(worker) => worker,
            None => {
                let worker = Worker::start(self.options, self.seed)?;
                match worker.wait_for(READY, BRING_UP * slow) {
                    Ok(_) => worker,
                    Err(silence) => {
                        let why = worker.gone(silence, "the device did not come up")?;
                        return Ok(report(Outcome::Failed(why), opened));
                    }
                }
            }
        };
        let started = Instant::now();
        let limit = case.timeout * slow;
        // A child that has just ended says so below.
        let _ = writeln!(worker.cases, "{}", case.name);
        let outcome = match worker.wait_for(runner::MARK, limit) {
            Ok(told) => serde_json::from_str(&told).context("an outcome")?,
            Err(silence) => {
                let late = format!("not finished after {} s", limit.as_secs());
                let why = worker.gone(silence, &late)?;
                return Ok(report(Outcome::Failed(why), started));
            }
        };
        let report = report(outcome, started);
        worker.left -= 1;
        match report.outcome {
            Outcome::Failed(_) => worker.end()?,
            _ => self.now = Some(worker),
        }
        Ok(report)
    }

    /// The child that is there, if it goes on.
    fn ready(&mut self) -> Option<Worker> {
        let worker = self.now.take()?;
        if worker.left > 0 && (worker.wait_for(READY, BRING_UP * self.options.slow)).is_ok() {
            return Some(worker);
        }
        // What it says at its end is of no case.
        let _ = worker.end();
        None
    }

    /// Ends the last child, which takes the device down.
    pub(crate) fn end(mut self) -> Result<()> {
        self.now.take().map_or(Ok(()), Worker::end)
    }
}

impl Worker {
    fn start(options: &Options, seed: u64) -> Result<Self> {
        let mut command = runner::child(options, seed)?;
        let mut child = command
            .arg("--run-cases")
            .stdin(Stdio::piped())
            .spawn()
            .context("start a process for cases")?;
        let cases = child.stdin.take().context("a pipe to the process")?;
        let stdout = child.stdout.take().context("a pipe from the process")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody reads on after an outcome that ends the child.
            for line in lines {
                let _ = sender.send(line);
            }
        });
        let stderr = child.stderr.take();
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self {
            child,
            cases,
            lines,
            stderr,
            left: CASES,
        })
    }

    /// The rest of the next line that begins so; other output is left out.
    fn wait_for(&self, start: &str, limit: Duration) -> Result<String, Silence> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(start) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(Silence::Late),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Ended),
            }
        }
    }

    /// Ends a child that did not answer; says why it did not.
    fn gone(mut self, silence: Silence, late: &str) -> Result<String> {
        let limit = match silence {
            Silence::Late => Duration::ZERO,
            Silence::Ended => BRING_UP,
        };
        drop(self.cases);
        let status = runner::wait(&mut self.child, Instant::now() + limit)?;
        let stderr = self.stderr.join().unwrap_or_default();
        Ok(match (silence, status) {
            (Silence::Ended, Some(status)) => runner::died(status, &stderr),
            _ => late.to_owned(),
        })
    }

    /// Ends a child in order.
    fn end(mut self) -> Result<()> {
        drop(self.cases);
        runner::wait(&mut self.child, Instant::now() + BRING_UP)?;
        Ok(())
    }
}

//! Runs cases, each in a child process with a time limit, so that a crash or a hang is one case's.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::check::{Check, Stop};
use crate::cli::Options;
use crate::fixture::Env;
use crate::suite::Case;
use crate::verbs::planted::Plant;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "lowercase")]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A case's line in the JSON file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    pub(crate) seconds: f64,
}

/// What the child writes in front of its outcome, so that other output does not disturb.
pub(crate) const MARK: &str = "hw-tests outcome: ";

/// The child's half: runs `case`, writes the outcome and answers it.
pub(crate) fn run_here(env: &Env, case: &Case) -> Outcome {
    let outcome = match check(env, case) {
        Ok(()) => Outcome::Passed,
        Err(Stop::Fail(reason)) => Outcome::Failed(reason),
        Err(Stop::Skip(reason)) => Outcome::Skipped(reason),
    };
    let json = serde_json::to_string(&outcome).expect("strings become JSON");
    println!("{MARK}{json}");
    outcome
}

fn check(env: &Env, case: &Case) -> Check {
    for need in &case.needs {
        if let Some(reason) = need.missing(env)? {
            return Err(Stop::Skip(reason));
        }
    }
    (case.run)(env)
}

/// A child that sees the same device, in a process group of its own.
pub(crate) fn child(options: &Options, seed: u64) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command
        .args(options.for_child(seed))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    Ok(command)
}

/// The parent's half: runs `case` in a child.
pub(crate) fn run_in_child(
    options: &Options,
    seed: u64,
    case: &Case,
    plant: Option<Plant>,
) -> Result<Report> {
    let started = Instant::now();
    let mut command = child(options, seed)?;
    command
        .arg(format!("--run-case={}", case.name))
        .stdin(Stdio::null());
    if let Some(plant) = plant {
        command.arg(format!("--plant={plant}"));
    }
    let mut child = command.spawn().context("start a case")?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let limit = case.timeout * options.slow;
    let status = wait(&mut child, started + limit)?;
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    let told = stdout
        .lines()
        .find_map(|line| serde_json::from_str(line.strip_prefix(MARK)?).ok());
    let outcome = match (status, told) {
        (None, _) => Outcome::Failed(format!("not finished after {} s", limit.as_secs())),
        (Some(status), Some(outcome)) if status.success() => outcome,
        (Some(status), _) => Outcome::Failed(died(status, &stderr)),
    };
    Ok(Report {
        name: case.name.clone(),
        outcome,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// How a child ended that told no outcome.
pub(crate) fn died(status: ExitStatus, stderr: &str) -> String {
    let how = match status.signal() {
        Some(signal) => format!("died by signal {signal}"),
        None => format!("ended with {status}"),
    };
    let text = stderr.trim();
    let end = text.char_indices().nth_back(600).map_or(0, |(at, _)| at);
    format!("{how}: {}", &text[end..])
}

fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What could be read before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits until `end`, then kills the child and what it started. `None` if it had to be killed.
pub(crate) fn wait(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().context("wait for a case")? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            let group = -i32::try_from(child.id()).context("a process number")?;
            // SAFETY: the child leads a process group of its own and has not been waited for.
            unsafe { libc::kill(group, libc::SIGKILL) };
            child.wait().context("wait for a killed case")?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Counts for the closing line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Totals {
    pub(crate) fn of(reports: &[Report]) -> Self {
        let mut totals = Self::default();
        for report in reports {
            match report.outcome {
                Outcome::Passed => totals.passed += 1,
                Outcome::Failed(_) => totals.failed += 1,
                Outcome::Skipped(_) => totals.skipped += 1,
            }
        }
        totals
    }
}

/// Prints a case's line.
pub(crate) fn print(report: &Report) {
    let Report {
        name,
        outcome,
        seconds,
    } = report;
    match outcome {
        Outcome::Passed => println!("test {name} ... ok ({seconds:.1} s)"),
        Outcome::Skipped(reason) => println!("test {name} ... skipped: {reason}"),
        Outcome::Failed(reason) => println!("test {name} ... FAILED ({seconds:.1} s): {reason}"),
    }
    // A watching person or log sees each line at once; nothing depends on it.
    let _ = std::io::stdout().flush();
}

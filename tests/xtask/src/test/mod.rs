//! `cargo xtask test`: everything that proves the project, in stages.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

mod counts;
mod host;
mod run;
mod skips;
mod stages;

use counts::Counts;

use crate::cargo;

/// Run everything that proves the project.
///
/// What a stage needs is fetched from the Debian mirror of the host's apt into $XDG_CACHE_HOME/oxverbs, without root; as
/// root on Debian, libibverbs-dev, ibverbs-providers, ibverbs-utils and valgrind are installed if they are not. What
/// cannot be had is skipped by name and counted; a skip that tests/allowed-skips.txt does not list is a failure.
///
/// Exit status: 0 if nothing failed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Run only these stages (comma-separated; see --list).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// List the stages and what they prove.
    #[arg(long)]
    list: bool,
    /// Write the stages' results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One stage's result.
#[derive(Debug, Serialize)]
struct Row {
    stage: &'static str,
    #[serde(flatten)]
    counts: Counts,
    seconds: f64,
    budget_seconds: u64,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    passed: u64,
    failed: usize,
    skipped: usize,
    stages: &'a [Row],
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.list {
        for stage in stages::STAGES {
            println!(
                "{:10} {} ({} s)",
                stage.name,
                stage.about,
                stage.budget.as_secs()
            );
        }
        return Ok(0);
    }
    for name in &arguments.only {
        if !stages::STAGES.iter().any(|stage| stage.name == name) {
            bail!("no stage {name}; see cargo xtask test --list");
        }
    }
    let allowed = skips::Allowed::read(&cargo::root().join("tests/allowed-skips.txt"))?;
    host::prepare();
    let mut rows = Vec::new();
    for stage in stages::STAGES {
        if arguments.only.is_empty() || arguments.only.iter().any(|name| name == stage.name) {
            rows.push(one_stage(stage, &allowed));
        }
    }
    let mut total = Counts::default();
    for row in &rows {
        total.add(row.counts.clone());
    }
    show(&rows, &total);
    write_results(arguments, &rows, &total)?;
    println!("{total}");
    Ok(u8::from(!total.failed.is_empty()))
}

/// Runs a stage; a stage that cannot run is a failure with the reason, and the others go on.
fn one_stage(stage: &stages::Stage, allowed: &skips::Allowed) -> Row {
    println!("\n--- {}: {}", stage.name, stage.about);
    let start = Instant::now();
    let mut counts = (stage.run)().unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", stage.name);
        Counts::failure(format!("{}: {error:#}", stage.name))
    });
    allowed.apply(&mut counts);
    if counts == Counts::default() {
        // A stage that ran nothing proves nothing.
        counts
            .failed
            .push(format!("{}: no test was run", stage.name));
    }
    let elapsed: Duration = start.elapsed();
    println!(
        "--- {}: {counts} in {:.0} s",
        stage.name,
        elapsed.as_secs_f64()
    );
    Row {
        stage: stage.name,
        counts,
        seconds: elapsed.as_secs_f64(),
        budget_seconds: stage.budget.as_secs(),
    }
}

fn show(rows: &[Row], total: &Counts) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["stage", "passed", "failed", "skipped", "seconds", "budget"]);
    for row in rows {
        table.add_row([
            row.stage.to_owned(),
            row.counts.passed.to_string(),
            row.counts.failed.len().to_string(),
            row.counts.skipped.len().to_string(),
            format!("{:.0}", row.seconds),
            row.budget_seconds.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{table}");
    if !total.skipped.is_empty() {
        println!("\nskipped:");
        for (reason, names) in total.reasons() {
            println!("  {reason}: {}", names.join(", "));
        }
    }
    if !total.failed.is_empty() {
        println!("\nfailed:");
        for name in &total.failed {
            println!("  {name}");
        }
    }
    println!();
}

/// Writes the JSON file, if asked for, and the closing line for scripts that print it again.
fn write_results(arguments: &Arguments, rows: &[Row], total: &Counts) -> Result<()> {
    if let Some(path) = &arguments.json {
        let report = Report {
            passed: total.passed,
            failed: total.failed.len(),
            skipped: total.skipped.len(),
            stages: rows,
        };
        let text = serde_json::to_string_pretty(&report)?;
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let path = cargo::root().join("target/test.closing-line");
    fs::write(&path, format!("{total}\n")).with_context(|| path.display().to_string())
}

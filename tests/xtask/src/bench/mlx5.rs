//! `cargo xtask bench mlx5`: what posting and polling cost, beside libmlx5 in the same process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use test_support::skip::skip;

use crate::{cargo, install, oracle};

/// Nanoseconds and instructions per operation of libmlx5, our plug-in and our native queues, on the fake kernel.
///
/// Interleaved regions of 256 operations, the minimum of many; instructions by single step, exact. libmlx5 and the plug-in in
/// two modes: as they come, and with `MLX5_SINGLE_THREADED=1` (a process each). BlueFlame is on for all. The registers are
/// plain memory, so no PCIe cost is in any number.
///
/// Exit status: 1 if a limit of the project is missed; each is named.
#[derive(Debug, Args)]
pub(super) struct Mlx5 {
    /// Timed regions of each case.
    #[arg(long, default_value_t = 2000)]
    regions: usize,
    /// Only cases whose names contain this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the ratios into this file, such as `docs/bench-mlx5.svg`.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Pass or fail by this file instead of the project's limits: no case of ours may execute over 2 % more instructions
    /// than recorded there, nor more fences or register stores than libmlx5; what finding one of many queue pairs costs
    /// is counted too.
    #[arg(long, conflicts_with = "record")]
    gate: Option<PathBuf>,
    /// Record our instructions in this file, such as `tests/oracle/instructions.json`, for `--gate`.
    #[arg(long)]
    record: Option<PathBuf>,
}

/// Ours in two modes, and natively, each with the mode of libmlx5 that it stands beside.
const OURS: [(&str, &str); 3] = [
    ("shim_default", "libmlx5_default"),
    ("shim_best", "libmlx5_best"),
    ("native", "libmlx5_best"),
];

/// What the oracle wrote.
#[derive(Debug, Deserialize)]
struct Report {
    rows: Vec<Row>,
    #[serde(default)]
    more: Vec<Figure>,
}

/// A row of what is measured beside single calls.
#[derive(Debug, Deserialize)]
struct Figure {
    case: String,
    missed: Vec<String>,
}

type Columns = BTreeMap<String, f64>;

#[derive(Debug, Deserialize)]
struct Row {
    case: String,
    insn: Columns,
    mmio: Columns,
    fences: Columns,
}

/// Instructions of ours, by case and column.
#[derive(Debug, Deserialize, Serialize)]
struct Recorded {
    /// The compiler that made them.
    rustc: String,
    instructions: BTreeMap<String, Columns>,
}

/// What a gate allows over what is recorded.
const GATE: f64 = 1.02;

impl Recorded {
    fn of(report: &Report, rustc: String) -> Self {
        let ours = |row: &Row| {
            let columns = row.insn.iter();
            columns
                .filter(|(column, _)| OURS.iter().any(|(ours, _)| ours == column))
                .map(|(column, insn)| (column.clone(), *insn))
                .collect()
        };
        Self {
            rustc,
            instructions: (report.rows.iter())
                .map(|row| (row.case.clone(), ours(row)))
                .collect(),
        }
    }

    /// What is worse than recorded, or was not measured any more.
    fn complaints(&self, report: &Report) -> Vec<String> {
        let missed = report.more.iter();
        let missed = missed.flat_map(|figure| {
            let texts = figure.missed.iter();
            texts.map(|text| format!("{}: {text}", figure.case))
        });
        let mut complaints: Vec<String> = missed.collect();
        for (case, columns) in &self.instructions {
            let Some(row) = report.rows.iter().find(|row| row.case == *case) else {
                complaints.push(format!("{case}: not measured"));
                continue;
            };
            for (column, recorded) in columns {
                match row.insn.get(column) {
                    Some(now) if *now <= recorded * GATE + 0.5 => {}
                    Some(now) => complaints.push(format!(
                        "{case}: {column} executes {now:.1} instructions, recorded are {recorded:.1}"
                    )),
                    None => complaints.push(format!("{case}: {column} was not measured")),
                }
            }
            for (ours, theirs) in OURS {
                for (what, of) in [("fences", &row.fences), ("register stores", &row.mmio)] {
                    if let (Some(ours_n), Some(theirs_n)) = (of.get(ours), of.get(theirs))
                        && ours_n > theirs_n
                    {
                        complaints.push(format!(
                            "{case}: {ours} has {ours_n:.2} {what}, {theirs} {theirs_n:.2}"
                        ));
                    }
                }
            }
        }
        complaints
    }
}

/// Passes or fails by what is recorded.
fn gate(report: &Report, file: &Path) -> Result<u8> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let recorded: Recorded = serde_json::from_str(&text).context("what is recorded")?;
    let now = cargo::rustc("-V")?;
    if recorded.rustc != now {
        skip(
            "xtask::bench::mlx5::gate",
            &format!(
                "instructions are recorded of {}, this is {now}",
                recorded.rustc
            ),
        );
        return Ok(0);
    }
    let complaints = recorded.complaints(report);
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!(
        "bench mlx5, instructions against {}: {} passed, {} failed",
        file.display(),
        recorded.instructions.len().saturating_sub(complaints.len()),
        complaints.len()
    );
    Ok(u8::from(!complaints.is_empty()))
}

pub(super) fn run(arguments: &Mlx5) -> Result<u8> {
    if !oracle::has_libmlx5() {
        skip("xtask::bench::mlx5", "libmlx5 is not installed");
        return Ok(0);
    }
    let program = oracle::program()?;
    let plugin = install::build()?;
    let mut command = Command::new(&program);
    command
        .args(["bench", "--regions", &arguments.regions.to_string()])
        .args(["--filter", &arguments.filter])
        // A gate has no use for times.
        .args([
            "--more",
            if arguments.gate.is_some() {
                "counted"
            } else {
                "all"
            },
        ])
        .arg("--plugin")
        .arg(&plugin);
    let scratch = std::env::temp_dir().join(format!("oxverbs-bench-{}.json", std::process::id()));
    let judged = arguments.gate.is_some() || arguments.record.is_some();
    let json = match &arguments.json {
        None if judged => Some(scratch.clone()),
        json => json.clone(),
    };
    for (option, file) in [("--json", &json), ("--svg", &arguments.svg)] {
        if let Some(file) = file {
            command.arg(option).arg(file);
        }
    }
    let status = command
        .status()
        .with_context(|| program.display().to_string())?;
    let code = status.code().map_or(125, |code| code as u8);
    // 1: it measured, and limits are missed.
    let (Some(json), true, 0 | 1) = (json, judged, code) else {
        return Ok(code);
    };
    let text = fs::read_to_string(&json).with_context(|| json.display().to_string())?;
    let _ = fs::remove_file(scratch);
    let report: Report = serde_json::from_str(&text).context("the oracle's report")?;
    if let Some(file) = &arguments.gate {
        return gate(&report, file);
    }
    if let Some(file) = &arguments.record {
        let recorded = Recorded::of(&report, cargo::rustc("-V")?);
        fs::write(file, serde_json::to_string_pretty(&recorded)? + "\n")
            .with_context(|| file.display().to_string())?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(insn: f64, fences: f64) -> Report {
        let columns = |ours: f64, theirs: f64| {
            let names = ["native", "libmlx5_best"].map(str::to_owned);
            names.into_iter().zip([ours, theirs]).collect()
        };
        Report {
            rows: vec![Row {
                case: "post".to_owned(),
                insn: columns(insn, 300.0),
                mmio: columns(1.0, 1.0),
                fences: columns(fences, 2.0),
            }],
            more: vec![],
        }
    }

    #[test]
    fn the_gate_lets_pass_what_is_recorded_and_no_more() {
        let recorded = Recorded::of(&report(100.0, 2.0), "rustc".to_owned());
        assert_eq!(recorded.instructions["post"].len(), 1);
        let complaints = |insn, fences| recorded.complaints(&report(insn, fences)).len();
        assert_eq!(complaints(90.0, 2.0), 0);
        assert_eq!(complaints(102.0, 2.0), 0);
        assert_eq!(complaints(103.0, 2.0), 1);
        assert_eq!(complaints(100.0, 3.0), 1);
        assert_eq!(
            recorded
                .complaints(&Report {
                    rows: vec![],
                    more: vec![]
                })
                .len(),
            1
        );
        let mut missing = report(100.0, 2.0);
        missing.more.push(Figure {
            case: "many".to_owned(),
            missed: vec!["instructions".to_owned()],
        });
        assert_eq!(recorded.complaints(&missing).len(), 1);
    }
}

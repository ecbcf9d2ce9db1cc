//! `cargo xtask matrix`: hw-tests on every device that needs no hardware.

mod page;
mod row;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use lab::{Interrupted, Kernel};
use serde::{Deserialize, Serialize};

use crate::cargo;
use crate::lab::end_guests_on_ctrl_c;
use row::Row;

/// Run hw-tests on every device that needs no hardware: the software ConnectX in the process, also as an adversary, and in
/// guests soft-RoCE, the ConnectX under the kernel's mlx5_ib, and the ConnectX driven through VFIO.
///
/// Prints each case as it ends, then a table, and writes docs/matrix.md. What came of a row is kept in docs/matrix, so that rows
/// can be run one by one; the page has all that were, and names those that were not.
///
/// Exit status: 0 only if every row asked for ran, some of its cases passed and none failed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Run this row only; more than one can be given. Rows of guests can be named without their kernel.
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Run guests with this kernel only.
    #[arg(long, value_enum)]
    kernel: Option<Kernel>,
    /// Print the rows and what each runs, run nothing.
    #[arg(long)]
    list: bool,
    /// Only cases whose names match; docs/matrix.md is not written then.
    #[arg(long, value_name = "RE")]
    filter: Option<String>,
    /// Run the long cases too.
    #[arg(long)]
    long: bool,
    /// Time limits of cases are multiplied by this.
    #[arg(long, default_value_t = 4)]
    slow: u32,
    /// Write what came of each row to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How a case ended, as hw-tests writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    name: String,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The outcome of a case that passed.
const PASSED: &str = "passed";

/// What hw-tests came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Suite {
    seconds: f64,
    /// Cases that passed and are not named: of what is kept, all of them.
    #[serde(default)]
    passed: usize,
    cases: Vec<Case>,
}

impl Suite {
    fn count(&self, outcome: &str) -> usize {
        let cases = self.cases.iter();
        let named = cases.filter(|case| case.outcome == outcome).count();
        named + if outcome == PASSED { self.passed } else { 0 }
    }

    /// Without the names of what passed.
    fn brief(&self) -> Self {
        let cases = self.cases.iter();
        Self {
            seconds: self.seconds.round(),
            passed: self.count(PASSED),
            cases: cases
                .filter(|case| case.outcome != PASSED)
                .cloned()
                .collect(),
        }
    }
}

/// What came of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    row: String,
    /// The command that runs the row alone.
    command: String,
    /// Of the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    /// Why there are no cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suite: Option<Suite>,
    /// What else is wrong: warnings of the guest's kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    complaints: Vec<String>,
}

impl Record {
    fn count(&self, outcome: &str) -> usize {
        self.suite.as_ref().map_or(0, |suite| suite.count(outcome))
    }

    fn is_green(&self) -> bool {
        self.count(PASSED) > 0 && self.count("failed") == 0 && self.complaints.is_empty()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let rows = chosen(arguments)?;
    if arguments.list {
        for row in rows {
            println!("{:24} {}", row.name(), row.what());
        }
        return Ok(0);
    }
    end_guests_on_ctrl_c()?;
    let program = row::build(&rows)?;
    let mut records = Vec::new();
    for row in &rows {
        println!("\n=== {}: {}", row.name(), row.what());
        let mut record = Record {
            row: row.name(),
            command: format!("cargo xtask matrix --only {}", row.name()),
            kernel: None,
            not_run: None,
            suite: None,
            complaints: Vec::new(),
        };
        match row.run(arguments, &program, &mut record) {
            Ok(()) => {}
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                eprintln!("matrix: {}: {error:#}", row.name());
                // The page has room for one line.
                let text = format!("{error:#}");
                record.not_run = Some(text.lines().next().unwrap_or_default().to_owned());
            }
        }
        if arguments.filter.is_none() {
            keep(&record)?;
        }
        records.push(record);
    }
    println!("\n{}", page::table(&records));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&records)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    if arguments.filter.is_none() {
        let path = cargo::root().join("docs/matrix.md");
        let page = page::page(&row::all(), &kept()?);
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    println!("{}", page::closing_line(&records));
    Ok(u8::from(!records.iter().all(Record::is_green)))
}

/// The rows that were asked for.
fn chosen(arguments: &Arguments) -> Result<Vec<Row>> {
    let mut rows = row::all();
    for wanted in &arguments.only {
        if !rows.iter().any(|row| row.is_called(wanted)) {
            let names: Vec<_> = rows.iter().map(Row::name).collect();
            bail!("there is no row {wanted}; there are {}", names.join(", "));
        }
    }
    if !arguments.only.is_empty() {
        rows.retain(|row| arguments.only.iter().any(|name| row.is_called(name)));
    }
    if let Some(kernel) = arguments.kernel {
        rows.retain(|row| row.kernel().is_none_or(|of| of == kernel));
    }
    if rows.is_empty() {
        bail!("no row has that name and that kernel");
    }
    Ok(rows)
}

/// Where records are kept.
fn directory() -> PathBuf {
    cargo::root().join("docs/matrix")
}

fn keep(record: &Record) -> Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let path = directory.join(format!("{}.json", record.row));
    let brief = Record {
        suite: record.suite.as_ref().map(Suite::brief),
        ..record.clone()
    };
    fs::write(&path, serde_json::to_string_pretty(&brief)? + "\n")
        .with_context(|| path.display().to_string())
}

/// What was kept, by row.
fn kept() -> Result<BTreeMap<String, Record>> {
    let mut records = BTreeMap::new();
    for row in row::all() {
        let path = directory().join(format!("{}.json", row.name()));
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let record = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        records.insert(row.name(), record);
    }
    Ok(records)
}

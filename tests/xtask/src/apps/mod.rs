//! `cargo xtask apps`: programs from the wild, unmodified, over Debian's provider and ours.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lab::{Config, ConnectX, Device, Guest, Provider, Resources};
use regex::Regex;
use serde::Serialize;

mod script;
mod side;
mod table;

use script::step;
use side::Side;
use table::Run;

use crate::compare;
use crate::lab::{GuestArguments, end_guests_on_ctrl_c};

/// What is run.
const TABLE: &str = include_str!("../../../apps.toml");
/// What is run between the userspace driver and the official stack.
const INTEROP: &str = include_str!("../../../interop.toml");

/// Run the table of verbs programs (tests/apps.toml) in a guest, under Debian's provider and under ours.
///
/// Each run is a server in the background and a client. It passes if both exit with 0, print what they should, and were
/// served by the chosen provider (the dynamic loader's own log says which provider each process initialised). Where the
/// table says how, what a program chose (UCX' transports) is compared: ours must be good for all that official is.
///
/// With --provider only one of them. On mlx5 both means with ours in the place of libmlx5.so.1 too (--drop-in).
///
/// With --device vfio the table is tests/interop.toml: the userspace driver on one device, and on another, at the other end
/// of a cable, the kernel's drivers and Debian's provider under C programs. The last rows break what they use in mid-traffic:
/// afterwards the group can be opened, no page is pinned, the kernel has not complained, and the next open works.
///
/// Exit status: 0 if all passed, or with both, all that official passes, and no kernel object is left.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    guest: GuestArguments,
    /// Only runs whose name matches this regular expression.
    #[arg(long, default_value = "")]
    filter: String,
    /// Only the runs that fit into continuous integration's time.
    #[arg(long)]
    ci: bool,
    /// List the runs.
    #[arg(long)]
    list: bool,
    /// Print what failing runs printed.
    #[arg(long, short)]
    verbose: bool,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What came of a run.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Debian's provider does not pass it, because of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    official: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ours: Option<Side>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    versions: &'a lab::Versions,
    device: Device,
    #[serde(skip_serializing_if = "Option::is_none")]
    connectx: Option<ConnectX>,
    drop_in: bool,
    #[serde(flatten)]
    counts: &'a Counts,
    left_behind: &'a [String],
    kernel_complaints: &'a [String],
    runs: &'a [Row],
}

/// What the rows add up to.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Counts {
    official_passed: usize,
    ours_passed: usize,
    /// Of a single provider: what it should pass and does not. Of both: what official passes and ours does not.
    failed: usize,
    cannot: usize,
}

impl Row {
    fn new(run: &Run) -> Self {
        Self {
            name: run.name.clone(),
            cannot: run.cannot.clone(),
            client: run.client.clone(),
            official: None,
            ours: None,
        }
    }

    fn set(&mut self, provider: Provider, side: Side) {
        match provider {
            Provider::Official => self.official = Some(side),
            Provider::Ours => self.ours = Some(side),
        }
    }

    fn sides(&self) -> impl Iterator<Item = &Side> {
        self.official.iter().chain(&self.ours)
    }

    fn passed(side: Option<&Side>) -> bool {
        side.is_some_and(|side| side.passed)
    }

    /// What official chose and ours did not.
    fn lesser(&self) -> Option<String> {
        let (Some(official), Some(ours)) = (&self.official, &self.ours) else {
            return None;
        };
        let missing: Vec<&str> = (official.picked.difference(&ours.picked))
            .map(String::as_str)
            .collect();
        (official.passed && ours.passed && !missing.is_empty())
            .then(|| format!("ours does not choose {}", missing.join(", ")))
    }

    /// What is wrong with it, if that counts.
    fn failure(&self) -> Option<String> {
        match (&self.official, &self.ours) {
            (Some(official), Some(ours)) => {
                if official.passed && !ours.passed {
                    Some(ours.reason.clone())
                } else {
                    self.lesser()
                }
            }
            (Some(side), None) | (None, Some(side)) => {
                (!side.passed && self.cannot.is_none()).then(|| side.reason.clone())
            }
            (None, None) => None,
        }
    }

    /// Neither passes, or the only one that was asked and the table knows.
    fn cannot(&self) -> bool {
        self.failure().is_none() && !self.sides().any(|side| side.passed)
    }

    fn word(side: &Side, cannot: bool) -> &'static str {
        match (side.passed, cannot) {
            (true, false) => "passed",
            (true, true) => "PASSED*",
            (false, true) => "cannot",
            (false, false) => "FAILED",
        }
    }

    /// What there is to say about it.
    fn remark(&self) -> String {
        if let Some(failure) = self.failure() {
            return failure;
        }
        let passed = self.sides().any(|side| side.passed);
        match (&self.cannot, passed, &self.official) {
            (Some(cannot), false, _) => format!("official cannot either: {cannot}"),
            (Some(cannot), true, _) => format!("the table says that official cannot: {cannot}"),
            // A run that the table does not excuse, and that says nothing about ours.
            (None, _, Some(official)) if !official.passed => {
                format!("official: {}", official.reason)
            }
            _ => String::new(),
        }
    }
}

impl Counts {
    fn of(rows: &[Row]) -> Self {
        let count = |that: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| that(row)).count();
        Self {
            official_passed: count(&|row| Row::passed(row.official.as_ref())),
            ours_passed: count(&|row| Row::passed(row.ours.as_ref())),
            failed: count(&|row| row.failure().is_some()),
            cannot: count(&Row::cannot),
        }
    }

    /// Whether every provider that was asked passed something, and nothing failed.
    fn good(&self, providers: &[Provider]) -> bool {
        let some = |provider: &Provider| match provider {
            Provider::Official => self.official_passed > 0,
            Provider::Ours => self.ours_passed > 0,
        };
        self.failed == 0 && providers.iter().all(some)
    }
}

/// The runs that are asked for and that the guest can do.
fn chosen(arguments: &Arguments, config: &Config, providers: &[Provider]) -> Result<Vec<Run>> {
    let filter = Regex::new(&arguments.filter).context("--filter")?;
    let mut runs = match config.device {
        Device::Vfio => table::runs(INTEROP, config).context("tests/interop.toml")?,
        Device::Rxe | Device::Mlx5 => table::runs(TABLE, config).context("tests/apps.toml")?,
    };
    runs.retain(|run| filter.is_match(&run.name) && (run.ci || !arguments.ci));
    if providers.contains(&Provider::Official) {
        // The Rust programs are ours by themselves.
        runs.retain(|run| !run.native);
    }
    if config.device == Device::Mlx5 && config.provider == Provider::Ours && !config.drop_in {
        let before = runs.len();
        runs.retain(|run| !run.libmlx5);
        if runs.len() < before {
            println!(
                "left out: {} runs of programs that link libmlx5, which is there before any plug-in and serves them \
                 (--drop-in puts ours in its place)",
                before - runs.len()
            );
        }
    }
    if runs.is_empty() {
        bail!("no run matches");
    }
    Ok(runs)
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let mut config = arguments.guest.config();
    let mut asked = arguments.guest.provider;
    if config.device == Device::Vfio {
        // No program of libibverbs' can use a device that user space drives by itself: it is the other end.
        config.connectx.two = true;
        config.provider = Provider::Official;
        asked = Some(Provider::Official);
    }
    let providers = match &asked {
        Some(one) => std::slice::from_ref(one),
        None => &[Provider::Official, Provider::Ours],
    };
    if asked.is_none() {
        config.drop_in = config.device == Device::Mlx5;
    }
    let runs = chosen(arguments, &config, providers)?;
    if arguments.list {
        for run in &runs {
            println!("{}", run.name);
        }
        return Ok(0);
    }
    config.apps = runs.iter().any(|run| run.kit);
    arguments.guest.build_unless_told(&config)?;
    end_guests_on_ctrl_c()?;
    let mut guest = Guest::boot(&config)?;
    let versions = guest.versions().clone();
    eprintln!("apps: {versions}, up in {:.1} s", guest.boot_seconds());
    let before = guest.resources_at_first()?;

    let mut rows: Vec<Row> = runs.iter().map(Row::new).collect();
    let mut left_behind = Vec::new();
    // One provider after the other, so that what is left behind has a name.
    for &provider in providers {
        let steps = runs
            .iter()
            .map(|run| step(run, provider, &config))
            .collect();
        let mut left = runs.iter().zip(&mut rows);
        guest.run_all(steps, |outcome| {
            if let Some((run, row)) = left.next() {
                let side = Side::of(run, outcome, provider, &config);
                eprintln!(
                    "{:>7.1} s  {:8} {} {}",
                    side.seconds,
                    provider.name(),
                    Row::word(&side, row.cannot.is_some()),
                    row.name
                );
                row.set(provider, side);
            }
        })?;
        let left = leftover(&mut guest, &before)?;
        left_behind.extend(left.map(|left| format!("{}: {left}", provider.name())));
    }
    let complaints = guest.complaints();

    show(&rows, providers, arguments.verbose);
    for line in left_behind.iter().chain(&complaints) {
        println!("{line}");
    }
    let counts = Counts::of(&rows);
    if let Some(path) = &arguments.json {
        let report = Report {
            versions: &versions,
            device: config.device,
            connectx: config.device.is_connectx().then_some(config.connectx),
            drop_in: config.drop_in,
            counts: &counts,
            left_behind: &left_behind,
            kernel_complaints: &complaints,
            runs: &rows,
        };
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    let what = match (asked, counts.official_passed, counts.ours_passed) {
        (Some(one), official, ours) => {
            let passed = if one == Provider::Ours {
                ours
            } else {
                official
            };
            format!(" {}: {passed} passed, {} failed", one.name(), counts.failed)
        }
        (None, official, ours) => format!(
            ": official {official} passed, ours {ours} passed, {} that official passes fail or choose less under ours",
            counts.failed
        ),
    };
    println!(
        "apps {} {} {}{what}",
        compare::name_of(&config),
        versions.kernel,
        versions.userland
    );
    Ok(u8::from(!counts.good(providers) || !left_behind.is_empty()))
}

fn show(rows: &[Row], providers: &[Provider], verbose: bool) {
    let mut table = Table::new();
    let mut header = vec!["run".to_owned()];
    for &provider in providers {
        header.extend([
            provider.name().to_owned(),
            "seconds".to_owned(),
            "served by".to_owned(),
        ]);
    }
    header.push(String::new());
    table.load_preset(presets::NOTHING).set_header(header);
    for number in 0..providers.len() {
        if let Some(column) = table.column_mut(2 + 3 * number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for side in row.sides() {
            cells.extend([
                Row::word(side, row.cannot.is_some()).to_owned(),
                format!("{:.1}", side.seconds),
                side.servers(),
            ]);
        }
        cells.push(row.remark());
        table.add_row(cells);
    }
    println!("{table}");
    for row in rows
        .iter()
        .filter(|row| row.sides().any(|side| !side.picked.is_empty()))
    {
        println!("{} chose:", row.name);
        for (provider, side) in [("official", &row.official), ("ours", &row.ours)] {
            if let Some(side) = side {
                let picked: Vec<&str> = side.picked.iter().map(String::as_str).collect();
                println!("    {provider:8} {}", picked.join(", "));
            }
        }
    }
    if verbose {
        for row in rows {
            for side in row.sides().filter(|side| !side.passed) {
                println!(
                    "\n--- {}: {}\n{}\n{}{}",
                    row.name, side.reason, row.client, side.outcome.stdout, side.outcome.stderr
                );
                for server in &side.outcome.servers {
                    println!(
                        "--- {}: {}\n{}{}",
                        server.name, server.ended, server.stdout, server.stderr
                    );
                }
            }
        }
    }
}

fn leftover(guest: &mut Guest, before: &[Resources]) -> Result<Option<String>> {
    // Some drivers destroy in the background.
    for _ in 0..20 {
        if guest.resources()? == before {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    let now = guest.resources()?;
    Ok(Some(format!(
        "kernel objects are left: before {before:?}, after {now:?}"
    )))
}

#[cfg(test)]
mod tests {
    use lab::{Ended, Outcome};

    use super::side::Served;
    use super::*;

    fn side(passed: bool, picked: &[&str]) -> Side {
        Side {
            passed,
            reason: if passed { "" } else { "broken" }.to_owned(),
            served: Served::default(),
            picked: picked.iter().map(|&word| word.to_owned()).collect(),
            seconds: 1.0,
            outcome: Outcome {
                name: String::new(),
                ended: Ended::Exit(0),
                seconds: 1.0,
                stdout: String::new(),
                stderr: String::new(),
                servers: Vec::new(),
            },
        }
    }

    fn row(official: Option<Side>, ours: Option<Side>, cannot: Option<&str>) -> Row {
        Row {
            name: "n".to_owned(),
            cannot: cannot.map(str::to_owned),
            client: String::new(),
            official,
            ours,
        }
    }

    #[test]
    fn ours_has_to_pass_what_official_passes_and_choose_no_less() {
        let good = || Some(side(true, &["a", "b"]));
        let bad = || Some(side(false, &[]));
        let both = [Provider::Official, Provider::Ours];
        for (official, ours, cannot, failed) in [
            (good(), good(), None, false),
            (good(), Some(side(true, &["a", "b", "c"])), None, false),
            (good(), Some(side(true, &["a"])), None, true),
            (good(), bad(), None, true),
            // What the table knows excuses official only.
            (good(), bad(), Some("r"), true),
            (bad(), good(), None, false),
            (bad(), bad(), Some("r"), false),
            (bad(), bad(), None, false),
            (None, bad(), None, true),
            (None, bad(), Some("r"), false),
            (bad(), None, None, true),
        ] {
            let text = format!("{official:?} {ours:?} {cannot:?}");
            let row = row(official, ours, cannot);
            assert_eq!(row.failure().is_some(), failed, "{text}");
            assert_eq!(Counts::of(&[row]).failed, usize::from(failed), "{text}");
        }
        let none = Counts::of(&[row(bad(), bad(), None)]);
        assert!(!none.good(&both), "nothing passed at all");
        let one = Counts::of(&[row(good(), good(), None), row(bad(), bad(), None)]);
        assert!(one.good(&both) && one.cannot == 1);
    }
}

//! `cargo xtask apps`: programs from the wild, unmodified, over Debian's provider or ours.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lab::{
    Config, ConnectX, Device, Ended, Guest, Outcome, Provider, Resources, Step, step::quote,
};
use regex::Regex;
use serde::Serialize;

mod table;

use table::{Ready, Run, Sides};

use crate::compare;
use crate::lab::{GuestArguments, end_guests_on_ctrl_c};

/// What is run.
const TABLE: &str = include_str!("../../../apps.toml");
/// What is run between the userspace driver and the official stack.
const INTEROP: &str = include_str!("../../../interop.toml");

/// Run the table of verbs programs (tests/apps.toml) in a guest.
///
/// Each run is a server in the background and a client. It passes if both exit with 0, print what they should, and were
/// served by the chosen provider (the dynamic loader's own log says which provider each process initialised).
///
/// With --device vfio the table is tests/interop.toml: the userspace driver on one device, and on another, at the other end
/// of a cable, the kernel's drivers and Debian's provider under C programs.
///
/// Exit status: 0 if all passed and no kernel object is left.
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
    passed: bool,
    /// Debian's provider does not pass it either, because of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
    /// Why it did not pass.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Providers that served the server and the client.
    served: Served,
    seconds: f64,
    client: String,
    outcome: Outcome,
}

/// File names of the providers that the processes of each side initialised.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Served {
    server: Vec<String>,
    client: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    versions: &'a lab::Versions,
    device: Device,
    #[serde(skip_serializing_if = "Option::is_none")]
    connectx: Option<ConnectX>,
    provider: Provider,
    passed: usize,
    failed: usize,
    cannot: usize,
    left_behind: Option<&'a str>,
    kernel_complaints: &'a [String],
    runs: &'a [Row],
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let filter = Regex::new(&arguments.filter).context("--filter")?;
    let mut config = arguments.guest.config();
    let mut runs = if config.device == Device::Vfio {
        // No program of libibverbs' can use a device that user space drives by itself: it is the other end.
        config.connectx.two = true;
        config.provider = Provider::Official;
        table::runs(INTEROP, &config).context("tests/interop.toml")?
    } else {
        table::runs(TABLE, &config).context("tests/apps.toml")?
    };
    runs.retain(|run| filter.is_match(&run.name) && (run.ci || !arguments.ci));
    if config.provider == Provider::Official {
        // The Rust programs are ours by themselves.
        runs.retain(|run| !run.native);
    }
    if config.provider == Provider::Ours && config.device == Device::Mlx5 {
        let before = runs.len();
        runs.retain(|run| !run.libmlx5);
        if runs.len() < before {
            println!(
                "left out: {} runs of programs that link libmlx5, which is there before any plug-in and serves them",
                before - runs.len()
            );
        }
    }
    if runs.is_empty() {
        bail!("no run matches");
    }
    if arguments.list {
        for run in &runs {
            println!("{}", run.name);
        }
        return Ok(0);
    }
    if !arguments.guest.no_build {
        GuestArguments::build_for(&config)?;
    }
    end_guests_on_ctrl_c()?;
    let mut guest = Guest::boot(&config)?;
    let versions = guest.versions().clone();
    eprintln!("apps: {versions}, up in {:.1} s", guest.boot_seconds());
    let before = guest.resources_at_first()?;

    let steps = runs.iter().map(|run| step(run, config.device)).collect();
    let mut rows = Vec::new();
    let mut left = runs.iter();
    guest.run_all(steps, |outcome| {
        if let Some(run) = left.next() {
            let row = judge(run, outcome, &config);
            eprintln!("{:>7.1} s  {:8} {}", row.seconds, row.word(), row.name);
            rows.push(row);
        }
    })?;
    let left_behind = leftover(&mut guest, &before)?;
    let complaints = guest.complaints();

    show(&rows, arguments.verbose);
    for line in left_behind.iter().chain(&complaints) {
        println!("{line}");
    }
    let passed = rows.iter().filter(|row| row.passed).count();
    let cannot = rows
        .iter()
        .filter(|row| !row.passed && row.cannot.is_some())
        .count();
    let failed = rows.len() - passed - cannot;
    if let Some(path) = &arguments.json {
        let report = Report {
            versions: &versions,
            device: config.device,
            connectx: config.device.is_connectx().then_some(config.connectx),
            provider: config.provider,
            passed,
            failed,
            cannot,
            left_behind: left_behind.as_deref(),
            kernel_complaints: &complaints,
            runs: &rows,
        };
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    let provider = match config.provider {
        Provider::Ours => "ours",
        Provider::Official => "official",
    };
    println!(
        "apps {} {} {} {provider}: {passed} passed, {failed} failed",
        compare::name_of(&config),
        versions.kernel,
        versions.userland
    );
    Ok(u8::from(failed > 0 || passed == 0 || left_behind.is_some()))
}

/// Marks the loader's lines in the client's output.
const SERVED: &str = "oxverbs-served ";
/// From a client's start until its server must listen.
const START: Duration = Duration::from_secs(30);

/// The client under the dynamic loader's log, and what that says.
fn client_script(run: &Run, device: Device) -> String {
    let mut script = String::new();
    if let Some(ready) = &run.ready {
        let wait = match ready {
            Ready::Port(port) => format!("wait-port {port}"),
            Ready::Word(_) => {
                "sh -c 'until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done'".into()
            }
        };
        let _ = writeln!(
            script,
            "timeout {} {wait} || {{ echo 'the server does not listen'; exit 1; }}",
            START.as_secs()
        );
    } else {
        script += "rm -rf /tmp/ld; mkdir /tmp/ld\n";
    }
    // Debian's libibverbs loads the providers of all devices, its own of the other kind say nothing.
    let official = match device {
        Device::Rxe => "librxe-rdmav",
        Device::Mlx5 | Device::Vfio => "libmlx5",
    };
    // The loader writes one file per process; "calling init" names each object it initialises, dlopened ones too.
    let _ = write!(
        script,
        "LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/ld/client sh -c {}\n\
         status=$?\n\
         sleep 0.1\n\
         for side in server client; do\n\
             sed -n \"s#.*calling init: .*/\\({official}.*\\|liboxverbs.*\\)#{SERVED}$side \\1#p\" /tmp/ld/$side.* 2>/dev/null | sort -u\n\
         done\n\
         exit $status\n",
        quote(&format!("exec {}", run.client))
    );
    script
}

/// The client with its server.
fn step(run: &Run, device: Device) -> Step {
    let step = Step::new(&run.name, client_script(run, device)).timeout(run.timeout + START);
    match &run.server {
        Some(server) => {
            let script = format!(
                "rm -rf /tmp/ld; mkdir /tmp/ld\nexport LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/ld/server\nexec {server}"
            );
            step.server(
                Step::new(format!("server of {}", run.name), script).timeout(run.timeout + START),
            )
        }
        None => step,
    }
}

impl Served {
    fn of(stdout: &str) -> Self {
        let mut served = Self::default();
        for line in stdout.lines() {
            match line
                .strip_prefix(SERVED)
                .and_then(|rest| rest.split_once(' '))
            {
                Some(("server", file)) => served.server.push(file.to_owned()),
                Some((_, file)) => served.client.push(file.to_owned()),
                None => {}
            }
        }
        served
    }

    /// What is wrong with the providers of a run.
    fn complaint(&self, run: &Run, config: &Config) -> Option<String> {
        let expected = match (config.provider, config.device) {
            (Provider::Official, Device::Rxe) => "librxe-rdmav",
            (Provider::Official, Device::Mlx5 | Device::Vfio) => "libmlx5",
            (Provider::Ours, _) => "liboxverbs",
        };
        let through = |side: Sides| run.provider == Sides::Both || run.provider == side;
        let sides = [
            (
                "server",
                &self.server,
                run.server.is_some() && through(Sides::Server),
            ),
            ("client", &self.client, through(Sides::Client)),
        ];
        for (side, files, wanted) in sides {
            let right = match (files.as_slice(), wanted) {
                ([file], true) => file.starts_with(expected),
                ([], false) => true,
                _ => false,
            };
            if !right {
                return Some(format!("the {side} was served by {files:?}"));
            }
        }
        None
    }
}

/// Why a run did not pass; empty if it did.
fn why_not(run: &Run, outcome: &Outcome, served: &Served, config: &Config) -> String {
    let server = outcome.servers.first();
    if !outcome.ok() {
        let last = |text: &str| {
            let mut lines = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with(SERVED));
            lines.next_back().unwrap_or_default().to_owned()
        };
        let mut said = last(&outcome.stderr);
        if said.is_empty() {
            said = last(&outcome.stdout);
        }
        if let Some(server) = server {
            let _ = write!(said, "; server: {} {}", server.ended, last(&server.stderr));
        }
        return format!("client: {} {said}", outcome.ended);
    }
    if let Some(server) = server
        && !server.ok()
        && (run.server_ends || server.ended != Ended::Signal(15))
    {
        return format!(
            "server: {} {}",
            server.ended,
            server.stderr.trim().lines().last().unwrap_or_default()
        );
    }
    for pattern in &run.expect {
        if !pattern.is_match(&outcome.stdout) {
            return format!("the client's output does not match {pattern}");
        }
    }
    for pattern in &run.server_expect {
        if !server.is_some_and(|server| pattern.is_match(&server.stdout)) {
            return format!("the server's output does not match {pattern}");
        }
    }
    served.complaint(run, config).unwrap_or_default()
}

fn judge(run: &Run, outcome: &Outcome, config: &Config) -> Row {
    let served = Served::of(&outcome.stdout);
    let reason = why_not(run, outcome, &served, config);
    Row {
        name: run.name.clone(),
        passed: reason.is_empty(),
        cannot: run.cannot.clone(),
        reason,
        served,
        seconds: outcome.seconds,
        client: run.client.clone(),
        outcome: outcome.clone(),
    }
}

impl Row {
    fn word(&self) -> &'static str {
        match (self.passed, self.cannot.is_some()) {
            (true, false) => "passed",
            (true, true) => "PASSED*",
            (false, true) => "cannot",
            (false, false) => "FAILED",
        }
    }
}

fn show(rows: &[Row], verbose: bool) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["run", "seconds", "", "served by", ""]);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        let mut served = [row.served.server.clone(), row.served.client.clone()].concat();
        served.dedup();
        let reason = match (&row.cannot, row.passed) {
            (Some(cannot), false) => format!("official cannot either: {cannot}"),
            (Some(cannot), true) => format!("the table says that official cannot: {cannot}"),
            (None, _) => row.reason.clone(),
        };
        table.add_row([
            row.name.clone(),
            format!("{:.1}", row.seconds),
            row.word().to_owned(),
            served.join(" "),
            reason,
        ]);
    }
    println!("{table}");
    if verbose {
        for row in rows.iter().filter(|row| !row.passed) {
            println!(
                "\n--- {}: {}\n{}\n{}{}",
                row.name, row.reason, row.client, row.outcome.stdout, row.outcome.stderr
            );
            for server in &row.outcome.servers {
                println!(
                    "--- {}: {}\n{}{}",
                    server.name, server.ended, server.stdout, server.stderr
                );
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
    use super::*;

    fn a_run(more: &str) -> Run {
        let text = format!(
            "[[run]]\nname = \"n\"\nserver = \"s\"\nclient = \"c\"\nready = 5\nexpect = [\"good\"]\n{more}"
        );
        table::runs(&text, &Config::default()).unwrap().remove(0)
    }

    fn outcome(ended: Ended, stdout: &str, server: Ended) -> Outcome {
        let of = |ended, stdout: &str| Outcome {
            name: String::new(),
            ended,
            seconds: 1.0,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            servers: Vec::new(),
        };
        let mut outcome = of(ended, stdout);
        outcome.servers.push(of(server, "from server"));
        outcome
    }

    const GOOD: &str = "good\noxverbs-served server liboxverbs-rdmav34.so\noxverbs-served client liboxverbs-rdmav34.so\n";

    #[test]
    fn a_run_passes_only_if_everything_is_right() {
        let zero = Ended::Exit(0);
        let passes = |run: &Run, outcome: &Outcome, provider| {
            let config = Config {
                provider,
                ..Config::default()
            };
            judge(run, outcome, &config).passed
        };
        let run = a_run("");
        assert!(passes(&run, &outcome(zero, GOOD, zero), Provider::Ours));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, zero),
            Provider::Official
        ));
        assert!(!passes(
            &run,
            &outcome(Ended::Exit(1), GOOD, zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(Ended::TimedOut, GOOD, zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, Ended::Exit(1)),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, Ended::Signal(15)),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, "good\n", zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, &GOOD.replace("good", "bad"), zero),
            Provider::Ours
        ));
        assert!(!passes(
            &a_run("server_expect = [\"other\"]"),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        assert!(passes(
            &a_run("server_expect = [\"from\"]"),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        let endless = a_run("server_ends = false");
        assert!(passes(
            &endless,
            &outcome(zero, GOOD, Ended::Signal(15)),
            Provider::Ours
        ));
        assert!(!passes(
            &endless,
            &outcome(zero, GOOD, Ended::Signal(11)),
            Provider::Ours
        ));
        // Both providers in one process: who served is unknown.
        let both = format!("{GOOD}oxverbs-served client librxe-rdmav34.so\n");
        assert!(!passes(&run, &outcome(zero, &both, zero), Provider::Ours));
        // A native server must not have gone through a provider.
        assert!(!passes(
            &a_run("provider = \"client\""),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        let native = GOOD.replace("oxverbs-served server liboxverbs-rdmav34.so\n", "");
        assert!(passes(
            &a_run("provider = \"client\""),
            &outcome(zero, &native, zero),
            Provider::Ours
        ));
    }

    /// The scripts as a real shell runs them: what the client prints, its status, and the loader's log.
    #[test]
    fn the_client_script_reports_who_served() {
        let mut run = a_run("");
        run.server = None;
        run.ready = None;
        let log = "      1234:\tcalling init: /usr/lib/x/libibverbs/librxe-rdmav34.so";
        run.client = format!("sh -c 'echo good; echo \"{log}\" >/tmp/ld/client.99; exit 3'");
        let dir = tempfile::tempdir().unwrap();
        let script = client_script(&run, Device::Rxe)
            .replace("/tmp/ld", &format!("{}/ld", dir.path().display()));
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.starts_with("good\n"), "{stdout}");
        let served = Served::of(&stdout);
        assert_eq!(served.client, ["librxe-rdmav34.so"]);
    }
}

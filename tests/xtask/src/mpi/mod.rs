//! `cargo xtask mpi`: a parallel program over two guests, whose processes pass messages through UCX and verbs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lab::{Config, ConnectX, Device, Guest, Outcome, Pair, Provider, Step};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::compare::name_of;
use crate::lab::{GuestArguments, end_guests_on_ctrl_c};

/// Passes the messages and looks at them.
const PROGRAM: &str = include_str!("program.py");
/// Starts processes in the other guest.
const REMOTE: &str = include_str!("remote.py");

/// Run an MPI program over two guests, whose ConnectX a cable joins.
///
/// Open MPI, told to use nothing but UCX on the mlx5 device, starts a process in each guest. They play ping-pong and
/// reduce numbers, and look at every result; then they do it again while the cable loses one frame of a hundred.
///
/// With ours as provider, ours takes the place of libmlx5.so.1, with which UCX is linked.
///
/// Exit status: 0 if every result was right, the chosen provider served both processes, and the cable carried the data.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    guest: GuestArguments,
    /// Seconds that a run of the program may take.
    #[arg(long, default_value_t = 240)]
    timeout: u64,
    /// Largest message, in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    largest: u32,
    /// What UCX may use, as its UCX_TLS says it [default: what it likes].
    #[arg(long, value_name = "LIST")]
    transports: Option<String>,
    /// Write the results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A line of the program.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Line {
    Test(Test),
    Process { rank: u32, providers: Vec<String> },
}

/// What came of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Test {
    test: String,
    /// Of a message.
    bytes: u64,
    turns: u32,
    right: bool,
    seconds: f64,
}

/// A run of the program.
#[derive(Debug, Default, Serialize)]
struct Run {
    /// Of a million frames, those that the cable lost.
    lost: u32,
    tests: Vec<Test>,
    /// Libraries of providers that the processes mapped.
    providers: BTreeSet<String>,
    /// Transports that UCX chose.
    transports: BTreeSet<String>,
    /// Frames that the cable carried, from the first guest and from the second.
    frames: [u64; 2],
    /// What is wrong with it.
    complaints: Vec<String>,
}

/// How likely the cable loses a frame in each run, in millionths.
const LOSSES: [u32; 2] = [0, 10_000];
/// Each of them tells of itself.
const PROCESSES: usize = 2;

/// Packets of 4096 bytes, the largest ones, that the messages of one side fill: fewer frames on the cable mean that they
/// went another way.
fn fewest_frames(tests: &[Test]) -> u64 {
    let ping_pongs = tests.iter().filter(|test| test.test == "ping-pong");
    let packets = ping_pongs.map(|test| test.bytes.div_ceil(4096) * u64::from(test.turns));
    packets.sum()
}

impl Run {
    fn of(outcome: &Outcome, lost: u32, frames: [u64; 2], config: &Config) -> Result<Self> {
        let mut run = Self {
            lost,
            frames,
            ..Self::default()
        };
        let mut processes = 0;
        for line in outcome.stdout.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Test(test)) => run.tests.push(test),
                Ok(Line::Process { rank, providers }) => {
                    processes += 1;
                    if let Some(what) = unlike(&providers, config) {
                        run.complaints.push(format!("process {rank} {what}"));
                    }
                    run.providers.extend(providers);
                }
                Err(_) => {}
            }
        }
        let chosen = Regex::new(r"\b([a-z][a-z0-9_]*)/mlx5_\d:\d")?;
        let all = [outcome.stdout.as_str(), &outcome.stderr].concat();
        let chosen = chosen.captures_iter(&all).map(|found| found[1].to_owned());
        run.transports.extend(chosen);
        if !outcome.ok() {
            let said = outcome.stderr.trim().lines().last().unwrap_or_default();
            run.complaints
                .push(format!("it ended with {}: {said}", outcome.ended));
        }
        for test in run.tests.iter().filter(|test| !test.right) {
            let Test { test, bytes, .. } = test;
            run.complaints
                .push(format!("{test} of {bytes} bytes was wrong"));
        }
        if processes != PROCESSES {
            run.complaints
                .push(format!("{processes} processes told of themselves"));
        }
        for kind in ["ping-pong", "all-reduce"] {
            if !run.tests.iter().any(|test| test.test == kind) {
                run.complaints.push(format!("there was no {kind}"));
            }
        }
        let fewest = fewest_frames(&run.tests);
        for (guest, frames) in frames.into_iter().enumerate() {
            if frames < fewest {
                run.complaints.push(format!(
                    "the cable carried {frames} frames from guest {guest}, and the messages are {fewest}"
                ));
            }
        }
        Ok(run)
    }
}

/// What is wrong with the libraries that serve a process.
fn unlike(providers: &[String], config: &Config) -> Option<String> {
    let (wanted, unwanted) = match config.provider {
        Provider::Official => ("libmlx5", "liboxverbs"),
        Provider::Ours => ("liboxverbs", "libmlx5"),
    };
    let is = |name: &str| providers.iter().any(|file| file.starts_with(name));
    (!is(wanted) || is(unwanted)).then(|| format!("was served by {providers:?}"))
}

/// Frames that a guest's end of the cable has sent on.
fn frames(guest: &mut Guest) -> Result<u64> {
    let step = Step::new("how much the cable carried", "exec connectx status");
    let status = guest.run(step)?.expect_ok()?.stdout;
    let first = status.split(|c: char| !c.is_ascii_digit());
    let carried = first.filter(|word| !word.is_empty()).nth(CARRIED);
    carried
        .and_then(|word| word.parse().ok())
        .with_context(|| format!("connectx status said {status:?}"))
}

/// Which number of the cable's status is that of frames carried.
const CARRIED: usize = 1;

/// [`Guest::work`] in a guest.
const WORK: &str = "/share/work";
/// Processes whose hosts have the same name are taken for those of one host.
const NAME: &str = "hostname lab$LAB_GUEST\n";

/// The command that starts the program everywhere. Debian's configuration turns UCX off; the own host has to be called by its
/// name, or Open MPI counts it as one more, without a process.
fn start(arguments: &Arguments) -> String {
    let mut command = format!(
        "{NAME}export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
         export PRTE_MCA_plm_ssh_agent='python3 {WORK}/remote.py'\n\
         exec mpirun.openmpi --host lab0:1,10.9.1.2:1 -np 2",
    );
    for (name, value) in [
        ("pml", "ucx"),
        ("pml_ucx_tls", "any"),
        ("pml_ucx_devices", "any"),
        ("osc", "^ucx"),
    ] {
        let _ = write!(command, " --mca {name} '{value}'");
    }
    let transports = arguments
        .transports
        .as_deref()
        .map(|list| format!("UCX_TLS={list}"));
    let ucx = ["UCX_NET_DEVICES=mlx5_0:1", "UCX_LOG_LEVEL=info"];
    for variable in ucx.into_iter().chain(transports.as_deref()) {
        let _ = write!(command, " -x {}", lab::step::quote(variable));
    }
    let _ = write!(command, " python3 {WORK}/program.py {}", arguments.largest);
    command
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let config = arguments.guest.config();
    if config.device != Device::Mlx5 {
        bail!("two guests have an mlx5 device each: --device mlx5");
    }
    let config = Config {
        apps: true,
        // A plug-in comes after libmlx5, which UCX has loaded by then.
        drop_in: config.provider == Provider::Ours,
        ..config
    };
    arguments.guest.build_unless_told(&config)?;
    end_guests_on_ctrl_c()?;
    let mut pair = Pair::boot(&config)?;
    let versions = pair.guests[0].versions().clone();
    eprintln!(
        "mpi: {versions}, up in {:.1} s",
        pair.guests[0].boot_seconds()
    );
    for guest in &pair.guests {
        fs::write(guest.work().join("program.py"), PROGRAM)?;
        fs::write(guest.work().join("remote.py"), REMOTE)?;
    }
    let mut runs = Vec::new();
    for lost in LOSSES {
        let run = once(arguments, &mut pair, &config, lost)?;
        show(&run);
        runs.push(run);
    }
    let complaints = pair.guests.iter().flat_map(Guest::complaints);
    let complaints: Vec<String> = complaints.collect();
    for complaint in &complaints {
        println!("a guest's kernel said: {complaint}");
    }
    if let Some(path) = &arguments.json {
        let report = Report {
            versions: &versions,
            connectx: config.connectx,
            provider: config.provider,
            runs: &runs,
            kernel_complaints: &complaints,
        };
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    let good = (runs.iter())
        .filter(|run| run.complaints.is_empty())
        .count();
    println!(
        "mpi {} {} {}: {good} of {} runs right",
        name_of(&config),
        versions.kernel,
        config.provider.name(),
        runs.len()
    );
    Ok(u8::from(good < runs.len()))
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    versions: &'a lab::Versions,
    connectx: ConnectX,
    provider: Provider,
    runs: &'a [Run],
    kernel_complaints: &'a [String],
}

/// The program, while the cable loses frames.
fn once(arguments: &Arguments, pair: &mut Pair, config: &Config, lost: u32) -> Result<Run> {
    let [first, second] = &mut pair.guests;
    let mut before = [0; 2];
    for (guest, before) in [&mut *first, &mut *second].into_iter().zip(&mut before) {
        let order = format!("connectx loss {}%", f64::from(lost) / 1e4);
        guest.run(Step::new("loss", order))?.expect_ok()?;
        *before = frames(guest)?;
    }
    let timeout = Duration::from_secs(arguments.timeout);
    let serve = Step::new(
        "start processes for the other guest",
        format!("{NAME}exec python3 {WORK}/remote.py serve"),
    );
    let server = second.start(serve.timeout(timeout * 2))?;
    let step = Step::new("mpirun", start(arguments)).timeout(timeout);
    let outcome = first.run(step)?;
    let there = second.stop(server)?;
    let mut carried = [0; 2];
    for (number, guest) in [&mut *first, &mut *second].into_iter().enumerate() {
        carried[number] = frames(guest)?.saturating_sub(before[number]);
    }
    let run = Run::of(&outcome, lost, carried, config)?;
    if !run.complaints.is_empty() {
        eprintln!(
            "{}\n{}\n--- in the other guest\n{}{}",
            outcome.stdout.trim_end(),
            outcome.stderr.trim_end(),
            there.stdout,
            there.stderr
        );
    }
    Ok(run)
}

fn show(run: &Run) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["test", "bytes", "turns", "seconds", ""]);
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for test in &run.tests {
        table.add_row([
            test.test.clone(),
            test.bytes.to_string(),
            test.turns.to_string(),
            format!("{:.2}", test.seconds),
            if test.right { "right" } else { "WRONG" }.to_owned(),
        ]);
    }
    let list = |names: &BTreeSet<String>| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.join(" ")
    };
    println!(
        "--- {}% of the frames lost; UCX over {}; {}; frames {} and {}\n{table}",
        f64::from(run.lost) / 1e4,
        list(&run.transports),
        list(&run.providers),
        run.frames[0],
        run.frames[1]
    );
    for complaint in &run.complaints {
        println!("{complaint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::Ended;

    const SAID: &str = r#"{"rank": 1, "size": 2, "providers": ["libmlx5.so.1.25.56.1"]}
[1.2] [lab0:44:0] ucp_worker.c INFO ep_cfg[1]: tag(rc_mlx5/mlx5_0:1)
{"rank": 0, "size": 2, "providers": ["libmlx5.so.1.25.56.1"]}
{"test": "ping-pong", "bytes": 8192, "turns": 30, "right": true, "seconds": 0.5}
{"test": "all-reduce", "bytes": 8, "turns": 30, "right": true, "seconds": 0.02}
"#;

    fn complaints(said: &str, ended: Ended, frames: [u64; 2], provider: Provider) -> Vec<String> {
        let outcome = Outcome {
            name: String::new(),
            ended,
            seconds: 1.0,
            stdout: said.to_owned(),
            stderr: String::new(),
            servers: Vec::new(),
        };
        let config = Config {
            provider,
            ..Config::default()
        };
        let run = Run::of(&outcome, 0, frames, &config).unwrap();
        if said == SAID {
            assert_eq!(run.transports, BTreeSet::from(["rc_mlx5".to_owned()]));
            assert_eq!(run.tests.len(), 2);
        }
        run.complaints
    }

    #[test]
    fn what_is_wrong_with_a_run_is_found() {
        let official = |said: &str| complaints(said, Ended::Exit(0), [60; 2], Provider::Official);
        assert!(official(SAID).is_empty());
        let wrong = official(&SAID.replace("true, \"seconds\": 0.02", "false, \"seconds\": 0.02"));
        assert_eq!(wrong, ["all-reduce of 8 bytes was wrong"]);
        let none = official(&SAID.replace("ping-pong", "pong"));
        assert_eq!(none, ["there was no ping-pong"]);
        let alone = official(&SAID.replace("\"rank\": 1", "\"rang\": 1"));
        assert_eq!(alone, ["1 processes told of themselves"]);
        let ended = complaints(SAID, Ended::Exit(1), [60; 2], Provider::Official);
        assert_eq!(ended.len(), 1);
        // 30 messages of two packets each.
        let elsewhere = complaints(SAID, Ended::Exit(0), [60, 59], Provider::Official);
        assert_eq!(
            elsewhere,
            ["the cable carried 59 frames from guest 1, and the messages are 60"]
        );
        let ours = complaints(SAID, Ended::Exit(0), [60; 2], Provider::Ours);
        assert_eq!(ours.len(), 2, "each process was served by official");
    }
}

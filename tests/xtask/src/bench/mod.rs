//! `cargo xtask bench`: how fast ours is, compared with Debian's provider in the same guest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use lab::cache::Cache;
use lab::{Clock, Config, Guest, Kernel, Profile, Provider, Step, Userland, step::quote, witness};
use serde::Serialize;

mod mlx5;
mod stats;

use stats::Interval;

use crate::lab::{GuestArguments, end_guests_on_ctrl_c};

/// Measure ours against Debian's provider.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Mlx5(mlx5::Mlx5),
    Rxe(Rxe),
}

/// Messages per second, latency and system calls over rxe: SEND, WRITE, READ at 8 and 4096 bytes.
///
/// The same C program (tests/bench/loopback.c) runs under each provider, in turn, in one guest, and its native counterpart
/// (driver/examples/loopback.rs); a round runs official, ours, native and official again (the control), in alternating
/// order. Compared are ratios within a round, by the bootstrapped 95 % interval of their median.
///
/// The guest's clock counts instructions, one a nanosecond, on one virtual processor: kernel and provider together, whatever
/// else the host does. `--clock host` times the emulation instead, on two processors, which needs a quiet machine.
///
/// Exit status: 1 if an interval lies wholly below 0.95, ours makes more system calls per operation, or official's two
/// runs of a round differ beyond that themselves (with `--clock host`: a machine that is too busy to measure on).
#[derive(Debug, Args)]
struct Rxe {
    /// Rounds.
    #[arg(long, default_value_t = 21)]
    pairs: usize,
    /// Latency operations per measurement; four times as many for the rate.
    #[arg(long, default_value_t = 500)]
    scale: u32,
    /// Kernel of the guest.
    #[arg(long, value_enum, default_value_t)]
    kernel: Kernel,
    /// What the guest's clock counts.
    #[arg(long, value_enum, default_value_t = Clock::Instructions)]
    clock: Clock,
    /// What is compared with official; `official` proves the harness itself.
    #[arg(long, value_enum, default_value_t)]
    candidate: Provider,
    /// Use the debug build of ours (its times say nothing).
    #[arg(long)]
    debug: bool,
    /// Do not build ours before (use what is in the target directory).
    #[arg(long)]
    no_build: bool,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// An interval wholly below this is a failure.
const FLOOR: f64 = 0.95;
/// Latency operations of the two runs whose difference in system calls is divided by that in operations.
const TRACED: [u32; 2] = [16, 80];
/// Begins a report of strace in a script's output.
const TRACE: &str = "oxverbs-trace";
/// Operations per unit of the program's SCALE.
const RATE_FACTOR: u32 = 4;

/// "send 8 latency" and its like.
type Measure = String;

/// Nanoseconds per operation of each measure.
type Times = BTreeMap<Measure, f64>;

#[derive(Debug, Default, Serialize)]
struct Round {
    official: Times,
    candidate: Times,
    /// The Rust program without libibverbs.
    native: Times,
    control: Times,
}

#[derive(Debug, Serialize)]
struct Row {
    measure: Measure,
    official_ns: f64,
    candidate_ns: f64,
    native_ns: f64,
    /// Official's time over the candidate's: above 1, the candidate is faster.
    ratio: Interval,
    /// The same for the native program.
    native: Interval,
    /// The same for official's second run.
    control: Interval,
    official_calls: f64,
    candidate_calls: f64,
    native_calls: f64,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    versions: &'a lab::Versions,
    candidate: Provider,
    clock: Clock,
    scale: u32,
    rows: &'a [Row],
    rounds: &'a [Round],
}

impl Row {
    fn complaint(&self) -> Option<&'static str> {
        let more = |calls: f64| calls.is_nan() || calls > self.official_calls + 0.01;
        if self.control.high < FLOOR || self.control.low > 1.0 / FLOOR {
            // Official is not its own equal: this machine measures nothing now.
            Some("CONTROL OFF")
        } else if self.ratio.high < FLOOR {
            Some("SLOWER")
        } else if self.native.high < FLOOR {
            Some("NATIVE SLOWER")
        } else if more(self.candidate_calls) || more(self.native_calls) {
            Some("MORE SYSTEM CALLS")
        } else {
            None
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let rxe = match &arguments.what {
        What::Mlx5(mlx5) => return mlx5::run(mlx5),
        What::Rxe(rxe) => rxe,
    };
    let config = Config {
        kernel: rxe.kernel,
        provider: rxe.candidate,
        clock: rxe.clock,
        processors: match rxe.clock {
            Clock::Host => 2,
            Clock::Instructions => 1,
        },
        profile: Profile::of(!rxe.debug),
        ..Config::default()
    };
    if !rxe.no_build {
        GuestArguments::build_for(&config)?;
        if rxe.candidate == Provider::Official {
            // Only a guest with ours builds the examples by itself.
            GuestArguments::build_for(&Config {
                provider: Provider::Ours,
                ..config.clone()
            })?;
        }
    }
    end_guests_on_ctrl_c()?;
    let mut guest = Guest::boot(&config)?;
    let versions = guest.versions().clone();
    eprintln!("bench: {versions}, up in {:.1} s", guest.boot_seconds());
    compile(&config, &guest.work().join("loopback"))?;
    guest
        .run(Step::new(
            "bring the program",
            "cp /share/work/loopback /tmp/",
        ))?
        .expect_ok()?;

    let native = native_program(&config);
    let mut rounds = Vec::new();
    for number in 0..rxe.pairs {
        rounds.push(one_round(&mut guest, rxe, &native, number)?);
        eprintln!("bench: round {} of {}", number + 1, rxe.pairs);
    }
    eprintln!("bench: counting system calls");
    let calls = [
        calls_per_operation(
            &mut guest,
            |script| under(Provider::Official, rxe.candidate, script),
            C_PROGRAM,
        )?,
        calls_per_operation(
            &mut guest,
            |script| under(rxe.candidate, rxe.candidate, script),
            C_PROGRAM,
        )?,
        calls_per_operation(&mut guest, |script| format!("exec {script}"), &native)?,
    ];
    let mut rows = Vec::new();
    let measures: Vec<Measure> = rounds
        .first()
        .map(|round| round.official.keys().cloned().collect())
        .unwrap_or_default();
    for measure in measures {
        rows.push(one_row(&calls, &rounds, measure)?);
    }
    show(&rows);
    if let Some(path) = &rxe.json {
        let report = Report {
            versions: &versions,
            candidate: rxe.candidate,
            clock: rxe.clock,
            scale: rxe.scale,
            rows: &rows,
            rounds: &rounds,
        };
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    let bad = rows.iter().filter(|row| row.complaint().is_some()).count();
    println!(
        "bench rxe {}, {} rounds: {} passed, {bad} failed",
        versions.kernel,
        rounds.len(),
        rows.len() - bad
    );
    Ok(u8::from(bad > 0 || rows.is_empty()))
}

/// Compiles the program on the host against the guest's own libibverbs.
fn compile(config: &Config, output: &Path) -> Result<()> {
    let (headers, tree) = {
        let cache = Cache::open(false)?;
        (
            witness::verbs_headers(&cache, Userland::Trixie)?,
            witness::userland(&cache, Userland::Trixie)?,
        )
    };
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", "-I"])
        .arg(&headers)
        .arg("-o")
        .arg(output)
        .arg(config.checkout().join("tests/bench/loopback.c"))
        .arg(tree.join("usr/lib/x86_64-linux-gnu/libibverbs.so.1"))
        // The library wants a newer libc than the host's, which the guest has.
        .arg("-Wl,--allow-shlib-undefined")
        .output()
        .context("running the C compiler")?;
    if !compiled.status.success() {
        bail!(
            "compiling tests/bench/loopback.c: {}",
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
    Ok(())
}

/// A shell command under a provider of a guest that was booted for `booted`.
fn under(provider: Provider, booted: Provider, command: &str) -> String {
    if provider == Provider::Official && booted == Provider::Ours {
        // In a mount namespace of its own, Debian's configuration is uncovered again.
        format!(
            "exec unshare --mount sh -c {}",
            quote(&format!("umount /etc/libibverbs.d && exec {command}"))
        )
    } else {
        format!("exec {command}")
    }
}

/// Where the guest has the C program.
const C_PROGRAM: &str = "/tmp/loopback";

/// Where the guest has the native program.
fn native_program(config: &Config) -> String {
    let profile = config.profile.directory();
    format!("/oxverbs/target/{profile}/examples/loopback")
}

fn one_round(guest: &mut Guest, rxe: &Rxe, native: &str, number: usize) -> Result<Round> {
    let mut round = Round::default();
    let mut order = [0, 1, 2, 3];
    // Whoever runs first sees another machine than who runs last.
    order.rotate_left(number % 4);
    if number % 2 == 1 {
        order.reverse();
    }
    for which in order {
        let provider = if which == 1 {
            rxe.candidate
        } else {
            Provider::Official
        };
        let command = if which == 3 {
            format!("exec {native} rxe0 1 {}", rxe.scale)
        } else {
            let command = format!("{C_PROGRAM} rxe0 1 {}", rxe.scale);
            under(provider, rxe.candidate, &command)
        };
        let outcome = guest
            .run(Step::new("loopback", command).timeout(Duration::from_secs(120)))?
            .expect_ok()?;
        let times = parse_times(&outcome.stdout)?;
        match which {
            0 => round.official = times,
            1 => round.candidate = times,
            2 => round.control = times,
            _ => round.native = times,
        }
    }
    Ok(round)
}

fn parse_times(printed: &str) -> Result<Times> {
    let mut times = Times::new();
    for line in printed.lines() {
        let (measure, nanoseconds) = line
            .rsplit_once(' ')
            .with_context(|| format!("loopback printed {line:?}"))?;
        times.insert(
            measure.to_owned(),
            nanoseconds.parse().with_context(|| line.to_owned())?,
        );
    }
    Ok(times)
}

fn one_row(calls: &[BTreeMap<String, f64>; 3], rounds: &[Round], measure: Measure) -> Result<Row> {
    let ratios = |of: fn(&Round) -> &Times| -> Result<Interval> {
        let ratios: Option<Vec<f64>> = rounds
            .iter()
            .map(|round| Some(round.official.get(&measure)? / of(round).get(&measure)?))
            .collect();
        ratios
            .and_then(|ratios| Interval::of(&ratios))
            .with_context(|| format!("{measure} was not measured each time"))
    };
    let typical = |of: fn(&Round) -> &Times| -> f64 {
        let values: Vec<f64> = rounds
            .iter()
            .filter_map(|round| of(round).get(&measure).copied())
            .collect();
        Interval::of(&values).map_or(f64::NAN, |interval| interval.median)
    };
    let calls = |of: usize| {
        let calls = calls[of].get(&without_size(&measure));
        calls.copied().unwrap_or(f64::NAN)
    };
    Ok(Row {
        ratio: ratios(|round| &round.candidate)?,
        native: ratios(|round| &round.native)?,
        control: ratios(|round| &round.control)?,
        official_ns: typical(|round| &round.official),
        candidate_ns: typical(|round| &round.candidate),
        native_ns: typical(|round| &round.native),
        official_calls: calls(0),
        candidate_calls: calls(1),
        native_calls: calls(2),
        measure,
    })
}

/// System calls per operation of each "OPERATION MODE": the difference between a long and a short run, which set up the
/// same. Traced at 8 bytes: what a doorbell costs does not depend on the size.
fn calls_per_operation(
    guest: &mut Guest,
    under: impl Fn(&str) -> String,
    program: &str,
) -> Result<BTreeMap<String, f64>> {
    let mut script = String::new();
    for operation in ["send", "write", "read"] {
        for mode in ["latency", "rate"] {
            for scale in TRACED {
                let _ = writeln!(
                    script,
                    "strace -f -c -o /tmp/calls {program} rxe0 1 {scale} {operation} 8 {mode} >&2 || exit 1\n\
                     echo '{TRACE} {operation} {mode}'; cat /tmp/calls"
                );
            }
        }
    }
    fs::write(guest.work().join("trace"), script)?;
    let step = Step::new("strace", under("sh /share/work/trace"));
    let outcome = guest
        .run(step.timeout(Duration::from_secs(300)))?
        .expect_ok()?;
    let mut calls: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for part in outcome.stdout.split(TRACE).skip(1) {
        let (what, printed) = part.split_once('\n').unwrap_or_default();
        let total = total_calls(printed).with_context(|| format!("strace printed {printed:?}"))?;
        calls.entry(what.trim().to_owned()).or_default().push(total);
    }
    let mut per_operation = BTreeMap::new();
    for (what, totals) in calls {
        let [short, long] = totals[..] else {
            bail!("{what} was not traced twice");
        };
        let factor = if what.ends_with("rate") {
            RATE_FACTOR
        } else {
            1
        };
        per_operation.insert(
            what,
            (long - short) / f64::from(factor * (TRACED[1] - TRACED[0])),
        );
    }
    Ok(per_operation)
}

/// "send latency" of "send 8 latency".
fn without_size(measure: &str) -> String {
    let words: Vec<&str> = measure.split(' ').collect();
    format!(
        "{} {}",
        words.first().unwrap_or(&""),
        words.last().unwrap_or(&"")
    )
}

/// The number of calls in the last line of `strace -c`: `100.00 SECONDS [USECS/CALL] CALLS [ERRORS] total`.
fn total_calls(printed: &str) -> Option<f64> {
    let header = printed.lines().find(|line| line.contains("calls"))?;
    let column_end = header.find("calls")? + "calls".len();
    let total = printed
        .lines()
        .find(|line| line.trim_end().ends_with("total"))?;
    total
        .get(..column_end)?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}

fn show(rows: &[Row]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "measure",
        "official ns",
        "ours ns",
        "official/ours",
        "95 %",
        "native ns",
        "official/native",
        "95 %",
        "official/official",
        "95 %",
        "calls/op",
        "ours",
        "native",
        "",
    ]);
    let range = |interval: &Interval| format!("{:.2}..{:.2}", interval.low, interval.high);
    for row in rows {
        table.add_row([
            row.measure.clone(),
            format!("{:.0}", row.official_ns),
            format!("{:.0}", row.candidate_ns),
            format!("{:.3}", row.ratio.median),
            range(&row.ratio),
            format!("{:.0}", row.native_ns),
            format!("{:.3}", row.native.median),
            range(&row.native),
            format!("{:.3}", row.control.median),
            range(&row.control),
            format!("{:.2}", row.official_calls),
            format!("{:.2}", row.candidate_calls),
            format!("{:.2}", row.native_calls),
            row.complaint().unwrap_or_default().to_owned(),
        ]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_program() {
        let times = parse_times("send 8 latency 51234\nread 4096 rate 900\n").unwrap();
        assert_eq!(times["send 8 latency"], 51234.0);
        assert_eq!(times.len(), 2);
        assert!(parse_times("nonsense\n").is_err());
    }

    #[test]
    fn what_fails() {
        let of = |factor: f64| {
            let ratios: Vec<f64> = (0..21).map(|i| factor + f64::from(i % 5) * 0.01).collect();
            Interval::of(&ratios).unwrap()
        };
        let row = |ratio, native, control, calls| {
            let row = Row {
                measure: "send 8 rate".to_owned(),
                official_ns: 1.0,
                candidate_ns: 1.0,
                native_ns: 1.0,
                ratio: of(ratio),
                native: of(native),
                control: of(control),
                official_calls: 1.0,
                candidate_calls: calls,
                native_calls: 1.0,
            };
            row.complaint()
        };
        assert_eq!(row(0.98, 0.98, 0.98, 1.0), None);
        assert_eq!(row(0.90, 0.98, 0.98, 1.0), Some("SLOWER"));
        assert_eq!(row(0.98, 0.90, 0.98, 1.0), Some("NATIVE SLOWER"));
        assert_eq!(row(0.90, 0.98, 0.90, 1.0), Some("CONTROL OFF"));
        assert_eq!(row(0.98, 0.98, 1.10, 1.0), Some("CONTROL OFF"));
        assert_eq!(row(0.98, 0.98, 0.98, 1.1), Some("MORE SYSTEM CALLS"));
        assert_eq!(row(0.98, 0.98, 0.98, f64::NAN), Some("MORE SYSTEM CALLS"));
    }

    #[test]
    fn totals_of_strace() {
        let printed = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 98.00    0.100000           3       400           write
  2.00    0.000100           3        12         2 openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.100100           3       412         2 total
";
        assert_eq!(total_calls(printed), Some(412.0));
        assert_eq!(
            total_calls(&printed.replace("         2 total", "           total")),
            Some(412.0)
        );
        assert_eq!(total_calls(""), None);
    }
}

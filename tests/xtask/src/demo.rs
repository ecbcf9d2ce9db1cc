//! `cargo xtask demo`: the main job on a machine without RDMA hardware.
//!
//! In one process, on the software ConnectX (the example `demo` of `soft-connectx`); with `--lab` through a kernel, in a
//! guest.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lab::{Guest, Outcome, Step};
use serde::Serialize;

use crate::cargo::cargo;
use crate::lab::{GuestArguments, end_guests_on_ctrl_c};

/// Move data over RDMA, with no hardware and no root.
///
/// Opens a software ConnectX in one process through the userspace driver, connects two ends, moves data by every
/// operation of a reliable connection, looks at it, and shows latency and bandwidth.
///
/// With --lab instead: boots a QEMU guest with a Debian kernel and its soft-RoCE device and runs both ends of the
/// ping-pong examples in it, two Rust programs without libibverbs. The guest is emulated, so the numbers compare with each
/// other, not with a network card's. The first use downloads about 250 MB of Debian packages into
/// $XDG_CACHE_HOME/oxverbs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Show it in a guest, through a Debian kernel's soft-RoCE
    #[arg(long)]
    lab: bool,
    #[command(flatten)]
    guest: GuestArguments,
    /// Write the measurements to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A pair of ends to run.
struct Run {
    program: &'static str,
    transport: &'static str,
    bytes: u32,
    iterations: u32,
}

const RUNS: [Run; 5] = [
    run("rc_pingpong", "RC", 64, 500),
    run("rc_pingpong", "RC", 4096, 500),
    run("rc_pingpong", "RC", 1 << 20, 20),
    run("uc_pingpong", "UC", 4096, 500),
    run("ud_pingpong", "UD", 1024, 500),
];

const fn run(program: &'static str, transport: &'static str, bytes: u32, iterations: u32) -> Run {
    Run {
        program,
        transport,
        bytes,
        iterations,
    }
}

/// What one run came to.
#[derive(Debug, Serialize)]
struct Row {
    transport: &'static str,
    bytes: u32,
    iterations: u32,
    microseconds_per_iteration: f64,
    megabits_per_second: f64,
}

pub(crate) fn run_word(arguments: &Arguments) -> Result<u8> {
    if arguments.lab {
        return in_a_guest(arguments);
    }
    let mut cargo = cargo();
    cargo.args(["run", "-q", "-p", "soft-connectx"]);
    cargo.args(["--example", "demo", "--"]);
    if let Some(path) = &arguments.json {
        cargo.arg("--json").arg(path);
    }
    let status = cargo.status().context("cargo run")?;
    Ok(if status.success() { 0 } else { 1 })
}

fn in_a_guest(arguments: &Arguments) -> Result<u8> {
    arguments.guest.build()?;
    end_guests_on_ctrl_c()?;
    let mut guest = Guest::boot(&arguments.guest.config())?;
    let versions = guest.versions().clone();
    println!(
        "Linux {} in QEMU, up in {:.1} s. What RDMA devices a Rust program sees there:\n",
        versions.kernel,
        guest.boot_seconds()
    );
    println!("$ devices");
    print!(
        "{}",
        guest
            .run(Step::new("devices", "devices"))?
            .expect_ok()?
            .stdout
    );

    let mut rows = Vec::new();
    for run in &RUNS {
        let command = format!(
            "{} -d rxe0 -g 1 -e -c -s {} -n {}",
            run.program, run.bytes, run.iterations
        );
        println!("\n$ {command} &\n$ {command} localhost");
        let limit = Duration::from_secs(120);
        let server = Step::new("server", &command).timeout(limit);
        let client = Step::new("client", format!("{command} localhost"))
            .timeout(limit)
            .server(server)
            .when_listening(18515);
        let client = guest.run(client)?;
        for end in client.servers.iter().chain([&client]) {
            if !end.ok() {
                bail!(
                    "{}: {:?}\n{}{}",
                    run.program,
                    end.ended,
                    end.stdout,
                    end.stderr
                );
            }
        }
        print!("{}", client.stdout);
        rows.push(measured(run, &client)?);
    }
    show(&rows);
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&rows)?)
            .with_context(|| path.display().to_string())?;
    }
    println!(
        "\nThe servers checked the data that arrived (-c). Next: cargo xtask test, and driver/examples/ for the programs."
    );
    Ok(0)
}

/// Reads the two lines that each end prints last.
fn measured(run: &Run, client: &Outcome) -> Result<Row> {
    let before = |unit: &str| {
        let line = client.stdout.lines().find(|line| line.ends_with(unit))?;
        line.strip_suffix(unit)?
            .split_whitespace()
            .last()?
            .parse()
            .ok()
    };
    Ok(Row {
        transport: run.transport,
        bytes: run.bytes,
        iterations: run.iterations,
        microseconds_per_iteration: before("usec/iter").context("no latency in the output")?,
        megabits_per_second: before("Mbit/sec").context("no bandwidth in the output")?,
    })
}

fn show(rows: &[Row]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "transport",
        "bytes",
        "iterations",
        "latency (usec/iter)",
        "bandwidth (Mbit/sec)",
    ]);
    for row in rows {
        table.add_row([
            row.transport.to_owned(),
            row.bytes.to_string(),
            row.iterations.to_string(),
            format!("{:.1}", row.microseconds_per_iteration),
            format!("{:.1}", row.megabits_per_second),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{table}");
}

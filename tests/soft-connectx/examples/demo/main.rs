//! RDMA without hardware: a software ConnectX in this process, driven by the userspace driver.
//!
//! Opens the device, connects two queue pairs, moves data by every operation of a reliable connection and looks at it,
//! then measures latency and bandwidth. Needs no RDMA hardware, no kernel module and no right that an ordinary user does
//! not have.

mod checks;
mod ends;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use oxverbs::Context;
use serde_json::json;
use soft_connectx::in_process::InProcess;
use soft_connectx::{Config, LinkLayer};

use ends::{Pair, Result};
use measure::{Bandwidth, Latency, Operation};

/// Move data over RDMA between two queue pairs of a software ConnectX in this process.
#[derive(Debug, Parser)]
struct Arguments {
    /// Link layer of the device's port
    #[arg(long, value_enum, default_value_t = Link::Roce)]
    link: Link,
    /// Iterations of each measurement
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..))]
    iterations: u32,
    /// Write the measurements to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Link {
    /// InfiniBand
    Ib,
    /// Ethernet with RoCE
    Roce,
}

const OPERATIONS: [Operation; 3] = [Operation::Send, Operation::Write, Operation::Read];
/// Bytes of messages.
const LATENCY: [usize; 3] = [8, 4096, 65536];
const BANDWIDTH: [usize; 3] = [4096, 65536, 1 << 20];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let config = Config {
        link: match arguments.link {
            Link::Ib => LinkLayer::InfiniBand,
            Link::Roce => LinkLayer::Ethernet,
        },
        ..Config::default()
    };
    let context = Context::over_pci(InProcess::new(config))?;
    let up = start.elapsed();
    summary(&context, up.as_secs_f64() * 1e3)?;

    let mut pair = Pair::new(&context)?;
    println!(
        "\nTwo queue pairs, {:#08x} and {:#08x}, connected to each other:",
        pair.near.qp.qp_num(),
        pair.far.qp.qp_num()
    );
    pair.send()?;
    println!("  SEND     10,000 bytes and immediate data into a posted receive: arrived intact");
    pair.write()?;
    println!("  WRITE    10,000 bytes into the peer's memory: there, byte for byte");
    pair.read()?;
    println!("  READ     10,000 bytes of the peer's memory: here, byte for byte");
    pair.atomics()?;
    println!("  ATOMICS  compare-and-swap 40 -> 41, fetch-and-add 2 -> 43: both as they should be");

    let (latencies, bandwidths) = measure(&mut pair, arguments.iterations as usize)?;
    println!("\nLatency, from posting a request to its completion");
    println!("{}", latency_table(&latencies));
    println!("\nBandwidth, 64 requests under way");
    println!("{}", bandwidth_table(&bandwidths));
    println!(
        "\nWhere the numbers come from: the device is a program, on a thread of this process, that reads and writes memory\n\
         as a card would and copies every byte that it moves. They say what software costs (driver, queues, model), not\n\
         what a ConnectX does; MB are 2^20 bytes, as in perftest. The driver is the one that drives cards by VFIO."
    );
    if let Some(path) = &arguments.json {
        let all = json!({ "latency": latencies, "bandwidth": bandwidths });
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    println!("\nAll of it took {:.1} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// The device as it describes itself.
fn summary(context: &Context, milliseconds: f64) -> Result<()> {
    let device = context.query_device()?;
    let port = context.query_port(1)?;
    let (major, minor, sub) = device.firmware_version();
    println!(
        "{}: up in {milliseconds:.0} ms, by firmware commands from this process",
        context.device().name()
    );
    let row = |name: &str, value: String| println!("  {name:<18}{value}");
    row(
        "device",
        format!(
            "{:04x}:{:04x}, firmware {major}.{minor}.{sub:04}, node {}",
            0x15b3,
            device.vendor_part_id,
            device.node_guid()
        ),
    );
    row(
        "port 1",
        format!(
            "{}, {}, MTU {}",
            match port.link_layer {
                2 => "Ethernet (RoCE)",
                _ => "InfiniBand",
            },
            match port.state {
                4 => "active",
                _ => "not active",
            },
            port.active_mtu().map_or(0, |mtu| mtu.bytes())
        ),
    );
    for entry in context.gid_table()? {
        row(
            &format!("GID {}", entry.index),
            format!("{} ({:?})", entry.gid, entry.gid_type),
        );
    }
    row(
        "room for",
        format!(
            "{} queue pairs, {} completion queues, {} memory regions",
            device.max_qp, device.max_cq, device.max_mr
        ),
    );
    Ok(())
}

fn measure(pair: &mut Pair, iterations: usize) -> Result<(Vec<Latency>, Vec<Bandwidth>)> {
    let style = ProgressStyle::with_template("{msg:24} [{bar:40}] {percent:>3} %")?;
    let measurements = OPERATIONS.len() * (LATENCY.len() + BANDWIDTH.len());
    let bar = ProgressBar::new((measurements * iterations) as u64).with_style(style);
    let mut done = 0;
    let mut next = |bar: &ProgressBar, text: String| {
        bar.set_position((done * iterations) as u64);
        bar.set_message(text);
        done += 1;
    };
    let (mut latencies, mut bandwidths) = (Vec::new(), Vec::new());
    for operation in OPERATIONS {
        for bytes in LATENCY {
            next(&bar, format!("{operation:?}, {bytes} bytes"));
            // the first ones fault pages in
            pair.latency(operation, bytes, 20, || {})?;
            let step = || bar.inc(1);
            latencies.push(pair.latency(operation, bytes, iterations, step)?);
        }
    }
    for operation in OPERATIONS {
        for bytes in BANDWIDTH {
            next(&bar, format!("{operation:?}, {bytes} bytes"));
            // as many bytes for each size, but no fewer than a few batches
            let count = (iterations * 4096 / bytes).clamp(64, iterations);
            bandwidths.push(pair.bandwidth(operation, bytes, count, || {})?);
        }
    }
    bar.finish_and_clear();
    Ok((latencies, bandwidths))
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn latency_table(rows: &[Latency]) -> Table {
    let mut table = table(&[
        "",
        "#bytes",
        "#iterations",
        "t_min[usec]",
        "t_max[usec]",
        "t_typical[usec]",
        "t_avg[usec]",
        "t_stdev[usec]",
        "99% percentile[usec]",
    ]);
    for row in rows {
        let mut cells = vec![
            format!("{:?}", row.operation).to_uppercase(),
            row.bytes.to_string(),
            row.iterations.to_string(),
        ];
        let times = [
            row.min,
            row.max,
            row.typical,
            row.average,
            row.deviation,
            row.percentile_99,
        ];
        cells.extend(times.map(|time| format!("{time:.2}")));
        table.add_row(cells);
    }
    table
}

fn bandwidth_table(rows: &[Bandwidth]) -> Table {
    let mut table = table(&[
        "",
        "#bytes",
        "#iterations",
        "BW peak[MB/sec]",
        "BW average[MB/sec]",
        "MsgRate[Mpps]",
    ]);
    for row in rows {
        table.add_row([
            format!("{:?}", row.operation).to_uppercase(),
            row.bytes.to_string(),
            row.iterations.to_string(),
            format!("{:.2}", row.peak),
            format!("{:.2}", row.average),
            format!("{:.6}", row.messages),
        ]);
    }
    table
}

//! The words of the program.

use std::time::Instant;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use fake_kernel::{Config, FakeKernel, Family};

use crate::bench::worker;
use crate::c::device::CDevice;
use crate::c::library::{Library, mapped_release};
use crate::c::locate::Places;
use crate::c::subject::CMaker;
use crate::call::Service;
use crate::campaign::{self, Maker, Plan, Report};
use crate::native::NativeMaker;

/// Compares with Debian's libmlx5, and times.
#[derive(Debug, Parser)]
pub struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Posts the same through all and compares.
    Compare(Compare),
    /// Times everything in this process and prints it as JSON.
    Measure(Measure),
}

#[derive(Debug, Args)]
struct Measure {
    /// Our plug-in, for the device that `OXVERBS_DEVICES` names.
    #[arg(long)]
    plugin: Option<String>,
    /// Timed regions of each case on each implementation.
    #[arg(long, default_value_t = 2000)]
    regions: usize,
    /// Only cases whose names contain this.
    #[arg(long, default_value = "")]
    filter: String,
}

#[derive(Debug, Args)]
struct Compare {
    /// WQEs to post on each.
    #[arg(long, default_value_t = 100_000)]
    wqes: u64,
    /// Of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trace one call of so many by single step.
    #[arg(long, default_value_t = 97)]
    trace_one_of: usize,
    /// Only these services.
    #[arg(long, value_delimiter = ',')]
    services: Vec<String>,
}

/// The kernel that is played.
pub fn kernel() -> Config {
    Config {
        family: Family::Mlx5,
        // One for libmlx5, one for our plug-in.
        devices: 2,
        ..Config::default()
    }
}

/// Does what the arguments say; the process's exit code.
///
/// # Errors
///
/// Something that is needed is missing.
pub fn run(arguments: &Arguments, kernel: &'static FakeKernel) -> Result<u8> {
    match &arguments.word {
        Word::Compare(arguments) => compare(arguments, kernel),
        Word::Measure(arguments) => {
            let measured = worker::run(
                kernel,
                arguments.plugin.as_deref(),
                arguments.regions,
                &arguments.filter,
            )?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(0)
        }
    }
}

fn compare(arguments: &Compare, kernel: &'static FakeKernel) -> Result<u8> {
    let library = Library::load(&["libmlx5.so.1"])?;
    let release = mapped_release("libmlx5")?;
    println!(
        "libmlx5 {release}, libibverbs {}",
        mapped_release("libibverbs")?
    );
    let mut device = CDevice::open(library, "mlx5_0")?;
    device.make_handles()?;
    let official = CMaker {
        name: "libmlx5",
        device,
        places: Places::new(kernel.hca(0)),
    };
    let subjects: Vec<&dyn Maker> = vec![&official, &NativeMaker];
    let plan = Plan {
        wqes: arguments.wqes,
        seed: arguments.seed,
        one_of: arguments.trace_one_of,
    };
    let services: Vec<Service> = Service::ALL
        .into_iter()
        .filter(|service| {
            arguments.services.is_empty() || arguments.services.contains(&format!("{service:?}"))
        })
        .collect();
    let start = Instant::now();
    let report = campaign::run(&official, &subjects, plan, &services)?;
    print(&report);
    println!("took {:.1} s", start.elapsed().as_secs_f64());
    let differences: u64 = report.findings.values().map(|found| found.count()).sum();
    Ok(u8::from(differences > 0))
}

fn print(report: &Report) {
    println!("{}", report.coverage.table());
    for (name, found) in &report.findings {
        println!(
            "{name}: {} WQEs, {} calls ({} traced), {} completions, {} bytes written, {} more by ours",
            found.wqes, found.calls, found.traced, found.completions, found.written, found.beyond
        );
        for (kind, n) in &found.differences {
            println!("  {n} x {kind}");
            if let Some(example) = found.examples.get(kind) {
                println!("    first: {example}");
            }
        }
    }
    let missing = report.coverage.missing();
    for cell in missing.iter().take(10) {
        println!("never: {cell}");
    }
    if missing.len() > 10 {
        println!(
            "never: {} more of {}",
            missing.len() - 10,
            report.coverage.len()
        );
    }
}

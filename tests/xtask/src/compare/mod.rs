//! `cargo xtask compare`: rdma-core's own Python test-suite under Debian's provider and under ours.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use lab::cache::Cache;
use lab::{Config, ConnectX, Device, Kernel, Profile, Provider, Userland, witness};
use serde::Serialize;

mod faults;
pub(crate) mod suite;
pub(crate) mod verdict;

use suite::{Bench, Which};
use verdict::{Outcome, Records, Verdict};

use crate::lab::{DeviceArguments, GuestArguments, end_guests_on_ctrl_c};

/// Compare ours with Debian's provider by rdma-core's own tests, on the same kernel.
///
/// The suite comes from the Debian source package of the guest's rdma-core. Each test runs in a process of its own and
/// says which provider served it. Official runs first, then again with the tests that it passed (the control), then ours.
/// A test that does not pass though it should is run twice more; it counts as passed only if it passes both times, and is
/// named. On mlx5, tests of libmlx5's own interface are left out.
///
/// Exit status: 0 only if ours passes all that official passes, nothing crashed and no kernel object is left.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    suite: SuiteArguments,
    /// What is compared with official; `official` proves the harness itself.
    #[arg(long, value_enum, default_value_t)]
    candidate: Provider,
    /// Not the suite, but faults: two mlx5 devices joined by a cable; frames are lost, the cable is cut, keys and lengths are
    /// wrong, a device fails or is reset, all under traffic. The completions and events must be the same.
    #[arg(long, conflicts_with_all = ["filter", "drop_in"])]
    faults: bool,
}

/// How the suite is run: what `compare` and `control` have alike.
#[derive(Debug, Args)]
pub(crate) struct SuiteArguments {
    #[command(flatten)]
    device: DeviceArguments,
    /// Kernel of the guest.
    #[arg(long, value_enum, default_value_t)]
    kernel: Kernel,
    /// Userland of the guest, and with it the suite's version.
    #[arg(long, value_enum, default_value_t)]
    userland: Userland,
    /// Use the release build of ours.
    #[arg(long)]
    release: bool,
    /// Do not build ours before (use what is in the target directory).
    #[arg(long)]
    no_build: bool,
    /// Put ours in the place of libmlx5.so.1 too, so that the tests of its interface can run.
    #[arg(long)]
    drop_in: bool,
    /// Only tests whose name matches this (Python) regular expression.
    #[arg(long, default_value = "")]
    pub(crate) filter: String,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl SuiteArguments {
    /// The guest, in which our side is `provider`.
    pub(crate) fn config(&self, provider: Provider) -> Config {
        Config {
            kernel: self.kernel,
            userland: self.userland,
            provider,
            drop_in: self.drop_in,
            profile: Profile::of(self.release),
            device: self.device.device,
            connectx: self.device.connectx(),
            huge_pages: HUGE_PAGES,
            ..Config::default()
        }
    }

    /// Builds what the guest will use, unless that is not wanted.
    pub(crate) fn build(&self, config: &Config) -> Result<()> {
        if self.no_build {
            return Ok(());
        }
        GuestArguments::build_for(config)
    }

    /// Writes what `--json` asks for: what came of it, and of what guest.
    pub(crate) fn write(&self, of: &Of<'_>, what: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let report = Report { of, what };
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| path.display().to_string())
    }
}

/// The guest that a report is of, and what it left to say.
#[derive(Debug, Serialize)]
pub(crate) struct Of<'a> {
    #[serde(flatten)]
    versions: &'a lab::Versions,
    device: Device,
    #[serde(skip_serializing_if = "Option::is_none")]
    connectx: Option<ConnectX>,
    left_behind: &'a [String],
    kernel_complaints: &'a [String],
}

impl<'a> Of<'a> {
    pub(crate) fn new(
        config: &Config,
        versions: &'a lab::Versions,
        left_behind: &'a [String],
        kernel_complaints: &'a [String],
    ) -> Self {
        Self {
            versions,
            device: config.device,
            connectx: config.device.is_connectx().then_some(config.connectx),
            left_behind,
            kernel_complaints,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report<'a, T> {
    #[serde(flatten)]
    of: &'a Of<'a>,
    #[serde(flatten)]
    what: &'a T,
}

/// What `compare --json` writes of the suite.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    candidate: Provider,
    verdict: &'a Verdict,
    official: &'a Records,
    control: &'a Records,
    ours: &'a Records,
}

/// Huge pages (2 MiB each) that the suite's memory tests want.
const HUGE_PAGES: u32 = 64;

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.faults {
        return faults::run(arguments);
    }
    let config = arguments.suite.config(arguments.candidate);
    arguments.suite.build(&config)?;
    end_guests_on_ctrl_c()?;
    let mut bench = boot("compare", &config)?;
    let versions = bench.guest.versions().clone();

    let filter = match config.device {
        Device::Mlx5 if arguments.suite.drop_in => arguments.suite.filter.clone(),
        Device::Rxe => arguments.suite.filter.clone(),
        // Tests of libmlx5's own interface can have no other provider.
        Device::Mlx5 => format!(r"^(?!.*mlx5).*(?:{})", arguments.suite.filter),
        Device::Vfio => bail!(
            "libibverbs knows no device that user space drives by itself: control, lab have it"
        ),
    };
    let all = Which::Matching(&filter);
    let (official, mut left) = bench.records("official", Provider::Official, all, |_| false)?;
    let passed: Vec<String> = official
        .iter()
        .filter(|(_, record)| record.passed())
        .map(|(name, _)| name.clone())
        .collect();
    let should_pass = |run: &verdict::Run| passed.contains(&run.test);
    let again = Which::Named(&passed);
    let (control, more) = bench.records("control", Provider::Official, again, should_pass)?;
    left.extend(more);
    let (ours, more) = bench.records("ours", arguments.candidate, all, should_pass)?;
    left.extend(more);

    let verdict = Verdict::of(&official, &control, &ours);
    let complaints = bench.guest.complaints();
    show(&official, &ours, &verdict);
    for line in left.iter().chain(&complaints) {
        println!("{line}");
    }
    let of = Of::new(&config, &versions, &left, &complaints);
    arguments.suite.write(
        &of,
        &Compared {
            candidate: arguments.candidate,
            verdict: &verdict,
            official: &official,
            control: &control,
            ours: &ours,
        },
    )?;
    println!(
        "compare {} {}: official {} passed, ours {} passed, {} regressions",
        name_of(&config),
        versions.kernel,
        verdict.official_passed,
        verdict.ours_passed,
        verdict.regressions.len()
    );
    Ok(u8::from(!verdict.is_good() || !left.is_empty()))
}

/// The device in a word.
pub(crate) fn name_of(config: &Config) -> String {
    match config.device {
        Device::Rxe => "rxe".to_owned(),
        Device::Mlx5 => format!("mlx5-{}", config.connectx.link.name()),
        Device::Vfio => format!("vfio-{}", config.connectx.link.name()),
    }
}

/// Boots a guest with its userland's suite in it.
pub(crate) fn boot(word: &str, config: &Config) -> Result<Bench> {
    let suite = {
        let cache = Cache::open(false)?;
        match witness::rdma_core_source(&cache, config.userland)? {
            Some(dir) => dir,
            None => bail!(
                "the archive does not have the source of {}'s rdma-core",
                config.userland.suite()
            ),
        }
    };
    let bench = Bench::boot(config, &suite.join("tests"))?;
    let versions = bench.guest.versions();
    eprintln!(
        "{word}: {versions}, up in {:.1} s",
        bench.guest.boot_seconds()
    );
    let matching = suite.file_name().is_some_and(|name| {
        name.to_string_lossy()
            .ends_with(&format!("-{}", versions.rdma_core))
    });
    if !matching {
        bail!(
            "the suite in {} is not that of rdma-core {}",
            suite.display(),
            versions.rdma_core
        );
    }
    Ok(bench)
}

fn show(official: &Records, ours: &Records, verdict: &Verdict) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["test", "official", "ours", "why not"]);
    for row in verdict::rows(official, ours) {
        table.add_row(row);
    }
    println!("{table}\n");
    for side in [("official", official), ("ours", ours)] {
        let count = |outcome: Outcome| {
            let first = |record: &&verdict::Record| {
                record.runs.first().is_some_and(|run| run.result == outcome)
            };
            side.1.values().filter(first).count()
        };
        let seconds: f64 = side
            .1
            .values()
            .flat_map(|record| &record.runs)
            .map(|run| run.seconds)
            .sum();
        println!(
            "{}: {} tests, {} passed, {} skipped, {:.0} s",
            side.0,
            side.1.len(),
            count(Outcome::Passed),
            count(Outcome::Skipped),
            seconds
        );
    }
    for (title, names) in [
        ("passed by ours, not by official", &verdict.gains),
        ("unstable", &verdict.unstable),
        ("CRASHED or served by the wrong provider", &verdict.grave),
        (
            "CONTROL FAILED: official does not pass what it passed before",
            &verdict.control_failures,
        ),
        (
            "passed by official, and declined by ours on purpose",
            &verdict.declined,
        ),
        ("REGRESSIONS", &verdict.regressions),
    ] {
        if !names.is_empty() {
            println!("{title}:");
            for name in names {
                println!("  {name}");
            }
        }
    }
}

//! The words of the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum as _};
use fake_kernel::{Config, FakeKernel, Family, Link, Mlx5};

use serde::Serialize;

use crate::bench::worker::{self, Measured, More};
use crate::bench::{figure, limits, report};
use crate::c::device::{CDevice, QpSpec};
use crate::c::library::{Library, mapped_release};
use crate::c::locate::Places;
use crate::c::subject::{CMaker, CSubject};
use crate::call::Service;
use crate::campaign::{self, Maker, Plan, Report};
use crate::compare::Findings;
use crate::lifecycle::{self, CLiving, Living, Make, NativeLiving};
use crate::matrix;
use crate::native::{NativeMaker, NativeSubject};
use crate::receive;
use crate::ring::BLOCK;
use crate::shape::set_inline_header;
use crate::subject::{Completing, Polling, Subject as _};
use crate::{pool, pools, tags};

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
    /// Records the golden corpus from the installed libmlx5.
    Record {
        /// Where its files are.
        directory: PathBuf,
        /// WQEs of each service.
        #[arg(long, default_value_t = 160)]
        wqes: u64,
    },
    /// Completes work requests in every way and compares what polling says.
    Matrix(Matrix),
    /// Changes lists of tags, lets messages meet them, and compares.
    Tags(Matrix),
    /// Times everything in this process and prints it as JSON.
    Measure(Measure),
    /// Times everything, in a process for each of libmlx5's modes, and says which limits are missed.
    Bench(Bench),
}

#[derive(Debug, Args)]
struct Matrix {
    /// Times that the matrix is gone through.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Of the numbers in fields.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes of an entry: 64 or 128.
    #[arg(long, default_value_t = 64)]
    entry: u32,
    /// Our plug-in, for the device that `OXVERBS_DEVICES` names.
    #[arg(long)]
    plugin: Option<String>,
    /// End of the file names of the libraries that must be loaded, such as `56.1`.
    #[arg(long)]
    expect: Option<String>,
    /// Write the numbers to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Bench {
    #[command(flatten)]
    measure: Measure,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a picture to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
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
    /// What is measured beside the cases.
    #[arg(long, value_enum, default_value_t)]
    more: More,
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
    #[arg(long, default_value_t = 89)]
    trace_one_of: usize,
    /// Our plug-in, for the device that `OXVERBS_DEVICES` names.
    #[arg(long)]
    plugin: Option<String>,
    /// End of the file names of the libraries that must be loaded, such as `56.1`.
    #[arg(long)]
    expect: Option<String>,
    /// The devices want the Ethernet headers of raw packets inline, as before ConnectX-5.
    #[arg(long)]
    inline_header: bool,
    /// Write the numbers to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only these services.
    #[arg(long, value_delimiter = ',')]
    services: Vec<String>,
}

/// The kernel that is played.
pub fn kernel(arguments: &Arguments) -> Config {
    let inline_header = match &arguments.word {
        Word::Compare(compare) => compare.inline_header,
        _ => false,
    };
    set_inline_header(if inline_header { 18 } else { 0 });
    Config {
        family: Family::Mlx5,
        // One for libmlx5, one for our plug-in.
        devices: 2,
        mlx5: Mlx5 {
            // MLX5_USER_INLINE_MODE_L2 or _NONE
            eth_min_inline: 1 + u8::from(inline_header),
            has_copy: true,
            // libmlx5's queue pair for tags has a path of InfiniBand.
            link: if matches!(arguments.word, Word::Tags(_)) {
                Link::InfiniBand
            } else {
                Link::Ethernet
            },
            ..Mlx5::default()
        },
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
                arguments.more,
            )?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(0)
        }
        Word::Record { directory, wqes } => {
            let (library, release) = libraries(None, None)?;
            let mut device = CDevice::open(library, "mlx5_0")?;
            device.make_handles()?;
            device.direct()?;
            let official = CMaker {
                name: "libmlx5",
                device,
                places: Places::new(kernel, 0),
            };
            campaign::record(&official, &release, directory, *wqes)?;
            Ok(0)
        }
        Word::Matrix(arguments) => matrix(arguments, kernel),
        Word::Tags(arguments) => tags(arguments, kernel),
        Word::Bench(arguments) => bench(arguments),
    }
}

fn tags(arguments: &Matrix, kernel: &'static FakeKernel) -> Result<u8> {
    // SAFETY: there is no other thread.
    unsafe { std::env::set_var("MLX5_CQE_SIZE", arguments.entry.to_string()) };
    let (library, release) = libraries(arguments.plugin.as_deref(), arguments.expect.as_deref())?;
    let official = CDevice::open(library, "mlx5_0")?;
    let shim = match &arguments.plugin {
        Some(_) => Some(CDevice::open(library, "mlx5_1")?),
        None => None,
    };
    let mut findings: BTreeMap<&'static str, Findings> = BTreeMap::new();
    let mut subjects = vec![("libmlx5", (&official, 0))];
    subjects.extend(shim.iter().map(|shim| ("shim", (shim, 1))));
    for (name, subject) in subjects {
        let amount = (arguments.rounds * 400, arguments.seed);
        let found = tags::run(kernel, &official, subject, amount, arguments.entry == 128)?;
        println!(
            "{name}: {} changes in {} calls, {} bytes written; {} completions",
            found.wqes, found.calls, found.written, found.completions
        );
        print_findings(&found);
        findings.insert(name, found);
    }
    let summary = Summary::of_findings(&findings, format!("libmlx5 {release}"));
    finish(&summary, arguments.json.as_deref())
}

fn matrix(arguments: &Matrix, kernel: &'static FakeKernel) -> Result<u8> {
    ensure!(
        matches!(arguments.entry, 64 | 128),
        "entries have 64 or 128 bytes"
    );
    // SAFETY: there is no other thread.
    unsafe { std::env::set_var("MLX5_CQE_SIZE", arguments.entry.to_string()) };
    // SAFETY: as above. The reports about errors are compared elsewhere.
    unsafe { std::env::set_var("MLX5_DEBUG_FILE", "/dev/null") };
    let (library, release) = libraries(arguments.plugin.as_deref(), arguments.expect.as_deref())?;
    let official = CDevice::open(library, "mlx5_0")?;
    let shim = match &arguments.plugin {
        Some(_) => Some(CDevice::open(library, "mlx5_1")?),
        None => None,
    };
    let wide = arguments.entry == 128;
    let mut findings: BTreeMap<&'static str, Findings> = BTreeMap::new();
    let ways = [Polling::Array, Polling::Lazy];
    let ways = ways.map(|polling| matrix::SERVICES.map(|service| (polling, service)));
    for (polling, service) in ways.into_iter().flatten() {
        let make = |name, device, index| {
            CSubject::new(
                name,
                device,
                Places::new(kernel, index),
                QpSpec {
                    service,
                    ..matrix::SPEC
                },
                polling,
            )
        };
        let mut witness = make("libmlx5", &official, 0)?;
        let blocks = (witness.memory().ring.len() / BLOCK) as u32;
        let spec = witness.spec();
        let mut subjects: Vec<Box<dyn Completing + '_>> = vec![
            Box::new(make("libmlx5", &official, 0)?),
            Box::new(NativeSubject::new(spec, blocks, arguments.entry, polling)?),
        ];
        if let Some(device) = &shim {
            subjects.push(Box::new(make("shim", device, 1)?));
        }
        for subject in &mut subjects {
            let found = matrix::run(
                &mut witness,
                &mut **subject,
                wide,
                arguments.rounds,
                arguments.seed,
            )?;
            findings.entry(subject.name()).or_default().add(found);
        }
    }
    // Queues that change while completions wait.
    let context = oxverbs::Context::open("mlx5_1")?;
    for polling in [Polling::Array, Polling::Lazy] {
        let make_c = |name, device, index| -> Result<Box<dyn Living + '_>> {
            let places = Places::new(kernel, index);
            Ok(Box::new(CLiving::new(name, device, &places, polling)?))
        };
        let theirs = || make_c("libmlx5", &official, 0);
        let native = || -> Result<Box<dyn Living + '_>> {
            let hca = kernel.hca(1);
            Ok(Box::new(NativeLiving::new(&context, &hca, polling)?))
        };
        let shim = || make_c("shim", shim.as_ref().context("no plug-in")?, 1);
        let mut subjects: Vec<(&str, &Make<'_>, u8)> =
            vec![("libmlx5", &theirs, 0), ("native", &native, 1)];
        if arguments.plugin.is_some() {
            subjects.push(("shim", &shim, 1));
        }
        for (name, make, index) in subjects {
            let found = lifecycle::compare(
                kernel,
                (&theirs, &kernel.hca(0)),
                (make, &kernel.hca(index.into())),
                arguments.rounds,
                arguments.seed,
            )?;
            findings.entry(name).or_default().add(found);
        }
    }
    // Receive work requests, whose bytes only completions make room for.
    for (round, (wr, sge)) in [(1, 1), (5, 3), (16, 4), (30, 7), (64, 16)]
        .into_iter()
        .enumerate()
    {
        let spec = QpSpec {
            recv_wr: wr,
            recv_sge: sge,
            ..matrix::SPEC
        };
        let make = |name, device, index| {
            CSubject::new(
                name,
                device,
                Places::new(kernel, index),
                spec,
                Polling::Array,
            )
        };
        let mut witness = make("libmlx5", &official, 0)?;
        let blocks = (witness.memory().ring.len() / BLOCK) as u32;
        let memory = witness.recv_memory()?;
        let receives = (
            (memory.ring.len() / memory.entry) as u32,
            memory.entry as u32,
        );
        let given = witness.spec();
        let mut subjects: Vec<Box<dyn Completing + '_>> = vec![
            Box::new(make("libmlx5", &official, 0)?),
            Box::new(NativeSubject::with_receives(
                given,
                blocks,
                arguments.entry,
                Polling::Array,
                receives,
            )?),
        ];
        if let Some(device) = &shim {
            subjects.push(Box::new(make("shim", device, 1)?));
        }
        for subject in &mut subjects {
            let seed = arguments.seed + round as u64;
            let wanted = arguments.rounds * 40;
            let found = receive::run(&mut witness, &mut **subject, wanted, seed)?;
            findings.entry(subject.name()).or_default().add(found);
        }
    }
    let amount = (arguments.rounds * 40, arguments.seed);
    let devices = (&official, shim.as_ref());
    let missing = pools::run(kernel, devices, &release, amount, &mut findings)?;
    for (name, found) in &findings {
        println!(
            "{name}: {} completions; {} receives in {} calls, {} bytes written",
            found.completions, found.wqes, found.calls, found.written
        );
        print_findings(found);
    }
    let mut summary = Summary::of_findings(&findings, format!("libmlx5 {release}"));
    summary.cells = pool::EXTRA.len() * pool::Kind::ALL.len();
    summary.missing = missing;
    finish(&summary, arguments.json.as_deref())
}

/// Loads the libraries, and makes sure that they are those of a release.
fn libraries(plugin: Option<&str>, expect: Option<&str>) -> Result<(Library, String)> {
    // The plug-in is asked first, and takes only the device that `OXVERBS_DEVICES` names.
    let mut providers: Vec<&str> = plugin.into_iter().collect();
    providers.push("libmlx5.so.1");
    let library = Library::load(&providers)?;
    let release = mapped_release("libmlx5")?;
    let verbs = mapped_release("libibverbs")?;
    println!("libmlx5 {release}, libibverbs {verbs}");
    if let Some(wanted) = expect {
        ensure!(
            release.ends_with(wanted) && verbs.ends_with(wanted),
            "release {wanted} was meant to be tested"
        );
    }
    Ok((library, release))
}

/// Writes the numbers down, prints the last line, and says how the process ends.
fn finish(summary: &Summary, json: Option<&Path>) -> Result<u8> {
    if let Some(file) = json {
        fs::write(file, serde_json::to_string_pretty(summary)? + "\n")?;
    }
    println!(
        "oracle: {} wqes, {} completions, {} differences, {} named divergences",
        summary.wqes,
        summary.completions,
        summary.differences,
        summary.divergences.len()
    );
    let is_whole = summary.missing.is_empty() && summary.untraced.is_empty();
    Ok(u8::from(summary.differences > 0 || !is_whole))
}

/// Runs this program again as a worker.
fn worker_process(arguments: &Measure, single_threaded: bool) -> Result<Measured> {
    // What is counted does not hang on the mode.
    let more = match arguments.more {
        More::Counted if single_threaded => More::None,
        more => more,
    };
    let more = more.to_possible_value();
    let more = more.context("a name")?.get_name().to_owned();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["measure", "--filter", &arguments.filter])
        .args(["--regions", &arguments.regions.to_string()])
        .arg("--more")
        .arg(more)
        .env("OXVERBS_DEVICES", "mlx5_1")
        .env_remove("MLX5_SINGLE_THREADED");
    if let Some(plugin) = &arguments.plugin {
        command.args(["--plugin", plugin]);
    }
    if single_threaded {
        command.env("MLX5_SINGLE_THREADED", "1");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "a worker ended with {}",
        output.status
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn bench(arguments: &Bench) -> Result<u8> {
    let default = worker_process(&arguments.measure, false)?;
    let best = worker_process(&arguments.measure, true)?;
    let lines = report::merge(&default, &best);
    let mut figures = figure::merge(&default.figures, &best.figures);
    limits::judge(&mut figures);
    println!("{}\n", report::table(&lines));
    println!("{}\n", report::counts(&lines));
    println!("{}", figure::tables(&figures));
    if let Some(file) = &arguments.json {
        let json =
            serde_json::json!({ "libmlx5": default.libmlx5, "rows": lines, "more": figures });
        fs::write(file, serde_json::to_string_pretty(&json)? + "\n")?;
    }
    if let Some(file) = &arguments.svg {
        fs::write(
            file,
            report::svg(&lines, &format!("libmlx5 {}", default.libmlx5)),
        )?;
    }
    let mut missed = 0;
    for line in &lines {
        for text in &line.missed {
            missed += 1;
            println!("missed: {}: {text}", line.case);
        }
    }
    for line in &figures {
        for text in &line.missed {
            missed += 1;
            println!("missed: {}: {text}", line.case);
        }
    }
    let rows = lines.len() + figures.len();
    println!("bench: {rows} cases, {missed} limits missed");
    Ok(u8::from(missed > 0))
}

fn compare(arguments: &Compare, kernel: &'static FakeKernel) -> Result<u8> {
    let (library, release) = libraries(arguments.plugin.as_deref(), arguments.expect.as_deref())?;
    let make = |name, device: u8| -> Result<CMaker> {
        let mut opened = CDevice::open(library, &format!("mlx5_{device}"))?;
        opened.make_handles()?;
        Ok(CMaker {
            name,
            device: opened,
            places: Places::new(kernel, device),
        })
    };
    let mut official = make("libmlx5", 0)?;
    official.device.direct()?;
    let shim = match &arguments.plugin {
        Some(_) => Some(make("shim", 1)?),
        None => None,
    };
    let mut subjects: Vec<&dyn Maker> = vec![&official, &NativeMaker];
    subjects.extend(shim.as_ref().map(|shim| shim as &dyn Maker));
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
    let mut summary = Summary::of_findings(&report.findings, format!("libmlx5 {release}"));
    summary.cells = report.coverage.len();
    summary.missing = report.coverage.missing();
    // Of each implementation: what is not traced is not known to store to a register in the right order.
    for (name, found) in &report.findings {
        if found.traced * 100 < found.calls {
            let (traced, calls) = (found.traced, found.calls);
            println!("{name}: only {traced} of {calls} calls were traced, less than 1 %");
            summary.untraced.push(name);
        }
    }
    finish(&summary, arguments.json.as_deref())
}

/// The numbers of a comparison.
#[derive(Debug, Serialize)]
struct Summary {
    /// What was compared with.
    witness: String,
    /// WQEs compared, of all our implementations.
    wqes: u64,
    /// Completions compared.
    completions: u64,
    /// Calls compared.
    calls: u64,
    /// Calls of which the single-step traces were compared.
    traced: u64,
    /// Differences, with those of libmlx5 from itself.
    differences: u64,
    /// Named divergences and how often they were met.
    divergences: BTreeMap<&'static str, u64>,
    /// Cells of the coverage table.
    cells: usize,
    /// Cells that were never hit.
    missing: Vec<String>,
    /// Implementations of which less than one call in a hundred was traced.
    untraced: Vec<&'static str>,
}

impl Summary {
    fn of_findings(findings: &BTreeMap<&'static str, Findings>, witness: String) -> Self {
        let ours = || findings.iter().filter(|(name, _)| **name != "libmlx5");
        let mut divergences = BTreeMap::new();
        for (_, found) in ours() {
            for (name, n) in &found.divergences {
                *divergences.entry(*name).or_default() += n;
            }
        }
        let sum = |what: fn(&Findings) -> u64| ours().map(|(_, found)| what(found)).sum();
        Self {
            witness,
            wqes: sum(|found| found.wqes),
            completions: sum(|found| found.completions),
            calls: sum(|found| found.calls),
            traced: sum(|found| found.traced),
            differences: findings.values().map(Findings::count).sum(),
            divergences,
            cells: 0,
            missing: Vec::new(),
            untraced: Vec::new(),
        }
    }
}

fn print_findings(found: &Findings) {
    for (kind, n) in &found.differences {
        println!("  {n} x {kind}");
        if let Some(example) = found.examples.get(kind) {
            println!("    first: {example}");
        }
    }
    for (kind, n) in &found.divergences {
        println!("  {n} x named: {kind}");
    }
}

fn print(report: &Report) {
    println!("{}", report.coverage.table());
    for (name, found) in &report.findings {
        println!(
            "{name}: {} WQEs, {} calls ({} traced), {} completions, {} bytes written, {} more by ours",
            found.wqes, found.calls, found.traced, found.completions, found.written, found.beyond
        );
        print_findings(found);
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

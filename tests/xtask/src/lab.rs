//! `cargo xtask lab`: one command in a guest.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use lab::{
    Cable, Config, ConnectX, Device, Ended, Guest, GuestDied, Interrupted, Kernel, Link, Pair,
    Profile, Provider, Step, Stream, Topology, Userland,
};
use serde::Serialize;

use crate::cargo;

/// Run a command in a QEMU guest with a Debian kernel and RDMA devices.
///
/// The first use downloads about 210 MB of Debian packages into $XDG_CACHE_HOME/oxverbs; later ones start in seconds.
/// The mirror is the host's apt's, or $OXVERBS_DEBIAN_MIRROR.
///
/// In the guest, `connectx ORDER` gives the mlx5 devices an order while they work: cut, restore, loss P, reorder P, delay MS,
/// fail DEVICE, reset DEVICE, mute DEVICE, unmute DEVICE, status (DEVICE is 0 or 1).
///
/// Exit status: the command's, of two guests that of the first one that failed; 128 + N if signal N killed it; 124 after a
/// timeout; 125 if the lab failed or the guest died.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    guest: GuestArguments,
    /// Seconds after which the command is killed.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Write what was run and what came of it to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Number of guests. Two have an mlx5 device each, joined by a cable, and a network: $LAB_GUEST is a guest's number,
    /// 0 or 1, and $LAB_PEER the other one's IP address.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    guests: u8,
    /// Command and its arguments; a shell line wants `sh -c LINE`. Two guests run it each, or one command each, with `--`
    /// between them.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Which RDMA device the guest has, and what it is like.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeviceArguments {
    /// Device to provide.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) device: Device,
    /// Link layer of the ConnectX (mlx5, vfio).
    #[arg(long, value_enum, default_value_t)]
    pub(crate) link: Link,
    /// The ConnectX takes what no real device checks for fatal.
    #[arg(long)]
    pub(crate) strict: bool,
    /// The ConnectX takes the freedoms that a real one has, as this seed says.
    #[arg(long, value_name = "SEED")]
    pub(crate) adversary: Option<u64>,
    /// The ConnectX' commands are written to target/lab/soft-connectx.trace.
    #[arg(long)]
    pub(crate) trace: bool,
    /// The ConnectX is a virtual function.
    #[arg(long)]
    pub(crate) virtual_function: bool,
}

impl DeviceArguments {
    /// What the software ConnectX is like.
    pub(crate) fn connectx(&self) -> ConnectX {
        let &Self {
            link,
            strict,
            adversary,
            trace,
            virtual_function,
            ..
        } = self;
        ConnectX {
            link,
            strict,
            adversary,
            trace,
            virtual_function,
            ..ConnectX::default()
        }
    }
}

/// A second mlx5 device, and the cable.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct CableArguments {
    /// Number of mlx5 devices in the guest; two are joined by a cable.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    devices: u8,
    /// How likely the cable between mlx5 devices loses a frame: a number up to 1, or a percentage.
    #[arg(long, value_name = "P", default_value = "0%", value_parser = parse_chance)]
    loss: u32,
    /// How likely a frame on the cable is overtaken by the next one.
    #[arg(long, value_name = "P", default_value = "0%", value_parser = parse_chance)]
    reorder: u32,
    /// Milliseconds that a frame is on its way.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay: u32,
    /// Chooses which frames are lost and overtaken.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    cable_seed: u64,
}

impl CableArguments {
    fn cable(&self) -> Cable {
        Cable {
            lost: self.loss,
            reordered: self.reorder,
            delay: self.delay,
            seed: self.cable_seed,
        }
    }
}

/// A probability, in millionths.
fn parse_chance(text: &str) -> Result<u32, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..=whole).contains(&number) => Ok((number / whole * 1e6).round() as u32),
        _ => Err("a number from 0 to 1 or a percentage is wanted".to_owned()),
    }
}

/// Which guest to boot: shared by all words that use one.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuestArguments {
    #[command(flatten)]
    pub(crate) device: DeviceArguments,
    #[command(flatten)]
    pub(crate) cable: CableArguments,
    /// Kernel of the guest.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kernel: Kernel,
    /// Userland of the guest, and with it its rdma-core: 44, 56, 65.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) userland: Userland,
    /// Provider that libibverbs finds [default: ours; of apps: both, one after the other].
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// Put ours in the place of libmlx5.so.1 too, with its interface.
    #[arg(long)]
    pub(crate) drop_in: bool,
    /// Use the release build of ours.
    #[arg(long)]
    pub(crate) release: bool,
    /// Wiring of rxe devices.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) topology: Topology,
    /// Memory of the guest in MiB.
    #[arg(long, default_value_t = 2048)]
    pub(crate) memory: u32,
    /// Huge pages (2 MiB each) to reserve.
    #[arg(long, default_value_t = 0)]
    pub(crate) huge_pages: u32,
    /// Share a directory, read-only, as /run/oxverbs/shares/NAME in the guest.
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_share)]
    pub(crate) share: Vec<(String, PathBuf)>,
    /// Look for newer packages first.
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Do not build ours before (use what is in the target directory).
    #[arg(long)]
    pub(crate) no_build: bool,
}

fn parse_share(text: &str) -> Result<(String, PathBuf), String> {
    let (name, dir) = text.split_once('=').ok_or("NAME=DIR is wanted")?;
    let dir = PathBuf::from(dir);
    let dir = dir
        .canonicalize()
        .map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok((name.to_owned(), dir))
}

impl GuestArguments {
    /// The guest's configuration.
    pub(crate) fn config(&self) -> Config {
        Config {
            kernel: self.kernel,
            userland: self.userland,
            provider: self.provider.unwrap_or_default(),
            drop_in: self.drop_in,
            profile: Profile::of(self.release),
            device: self.device.device,
            connectx: ConnectX {
                two: self.cable.devices == 2,
                cable: self.cable.cable(),
                ..self.device.connectx()
            },
            topology: self.topology,
            memory: self.memory,
            huge_pages: self.huge_pages,
            shares: self.share.clone(),
            refresh: self.refresh,
            ..Config::default()
        }
    }

    /// Builds what the guest will use: our provider and the examples, the software ConnectX.
    pub(crate) fn build(&self) -> Result<()> {
        self.build_unless_told(&self.config())
    }

    /// The same for a configuration that another word made of these arguments.
    pub(crate) fn build_unless_told(&self, config: &Config) -> Result<()> {
        if self.no_build {
            return Ok(());
        }
        Self::build_for(config)
    }

    /// The same for a configuration that another word made.
    pub(crate) fn build_for(config: &Config) -> Result<()> {
        let mut wanted: Vec<&[&str]> = Vec::new();
        if config.device.is_connectx() {
            wanted.push(&["--package", "soft-connectx", "--bins"]);
        }
        // The provider in its own call, so that no other package's features reach it.
        if config.provider == Provider::Ours {
            wanted.push(&["--package", "oxverbs-ffi", "--lib"]);
            if config.drop_in {
                wanted.push(&["--package", "oxverbs-mlx5", "--lib"]);
            }
        }
        // The examples are ours whatever libibverbs finds.
        if config.provider == Provider::Ours || config.device == Device::Vfio {
            wanted.push(&["--package", "oxverbs", "--examples"]);
        }
        for what in wanted {
            let mut cargo = cargo::cargo();
            cargo.args(["build", "--quiet"]).args(what);
            if config.profile == Profile::Release {
                cargo.arg("--release");
            }
            let status = cargo
                .current_dir(config.checkout())
                .status()
                .context("running cargo")?;
            if !status.success() {
                bail!("cargo build {}: {status}", what.join(" "));
            }
        }
        Ok(())
    }
}

/// Exit code for what is not the command's doing.
const LAB_FAILED: i32 = 125;

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    versions: lab::Versions,
    device: Device,
    #[serde(skip_serializing_if = "Option::is_none")]
    connectx: Option<ConnectX>,
    provider: Provider,
    command: &'a [String],
    ended: Ended,
    exit_code: i32,
    seconds: f64,
    boot_seconds: f64,
    claims: Vec<(String, String)>,
    kernel_complaints: Vec<String>,
}

/// Makes Ctrl-C end guests and downloads in order instead of leaving things behind; the second one ends at once.
pub(crate) fn end_guests_on_ctrl_c() -> Result<()> {
    let mut seen = false;
    let handler = move || {
        if std::mem::replace(&mut seen, true) {
            std::process::exit(130);
        }
        lab::interrupt();
    };
    ctrlc::set_handler(handler).context("installing the Ctrl-C handler")
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let config = arguments.guest.config();
    let commands: Vec<&[String]> = arguments.command.split(|word| word == "--").collect();
    if arguments.guests == 1 && commands.len() > 1 {
        bail!("one guest runs one command");
    }
    if commands.len() > 2 || commands.iter().any(|command| command.is_empty()) {
        bail!("two guests run the same command, or one each");
    }
    arguments.guest.build()?;
    end_guests_on_ctrl_c()?;
    let timeout = Duration::from_secs(arguments.timeout);
    let (reports, json) = if arguments.guests == 1 {
        let mut guest = Guest::boot(&config)?;
        let report = command(&mut guest, commands[0], timeout, "", echo)?;
        let json = serde_json::to_string_pretty(&report)?;
        (vec![report], json)
    } else {
        let reports = both(&mut Pair::boot(&config)?, &commands, timeout)?;
        let json = serde_json::to_string_pretty(&reports)?;
        (reports, json)
    };
    if let Some(path) = &arguments.json {
        std::fs::write(path, json + "\n").with_context(|| path.display().to_string())?;
    }
    let mut codes = reports.iter().map(|report| report.exit_code);
    let code = codes.find(|code| *code != 0).unwrap_or(0);
    Ok(u8::try_from(code).unwrap_or(125))
}

/// Runs the commands of two guests at once.
fn both<'a>(
    pair: &mut Pair,
    commands: &[&'a [String]],
    timeout: Duration,
) -> Result<Vec<Report<'a>>> {
    let commands = commands.iter().cycle();
    std::thread::scope(|scope| {
        let running: Vec<_> = (pair.guests.iter_mut().zip(commands).enumerate())
            .map(|(number, (guest, &words))| {
                scope.spawn(move || {
                    let mut lines = Lines::new(number);
                    let output = |stream, bytes: &[u8]| lines.add(stream, bytes);
                    let report = command(guest, words, timeout, &format!(" {number}"), output);
                    lines.end();
                    report
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(report) => report,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// What a guest prints, in whole lines with the guest's number in front.
struct Lines {
    number: usize,
    pending: [Vec<u8>; 2],
}

impl Lines {
    fn new(number: usize) -> Self {
        Self {
            number,
            pending: Default::default(),
        }
    }

    fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let pending = &mut self.pending[usize::from(stream == Stream::Stderr)];
        pending.extend(bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            echo(
                stream,
                &[format!("{}| ", self.number).as_bytes(), &line].concat(),
            );
        }
    }

    fn end(&mut self) {
        for (stream, at) in [(Stream::Stdout, 0), (Stream::Stderr, 1)] {
            if !self.pending[at].is_empty() {
                self.add(stream, b"\n");
            }
        }
    }
}

/// Runs a command in a guest; `number` names the guest if there are two.
fn command<'a>(
    guest: &mut Guest,
    command: &'a [String],
    timeout: Duration,
    number: &str,
    output: impl FnMut(Stream, &[u8]),
) -> Result<Report<'a>> {
    let config = guest.config().clone();
    let versions = guest.versions().clone();
    eprintln!(
        "lab{number}: {versions}, up in {:.1} s",
        guest.boot_seconds()
    );
    let step = Step::program(command.join(" "), command).timeout(timeout);
    let mut report = Report {
        versions,
        device: config.device,
        connectx: config.device.is_connectx().then_some(config.connectx),
        provider: config.provider,
        command,
        ended: Ended::GuestDied,
        exit_code: LAB_FAILED,
        seconds: 0.0,
        boot_seconds: guest.boot_seconds(),
        claims: Vec::new(),
        kernel_complaints: Vec::new(),
    };
    match guest.run_with(step, output) {
        Ok(outcome) => {
            report.ended = outcome.ended;
            report.exit_code = outcome.ended.code();
            report.seconds = outcome.seconds;
        }
        // Named below, after the report has been written.
        Err(error) if error.is::<GuestDied>() => eprintln!("lab{number}: {error:#}"),
        Err(error) => return Err(error),
    }
    match report.ended {
        Ended::Exit(_) | Ended::GuestDied => {}
        Ended::TimedOut => eprintln!(
            "lab{number}: the command was killed after its timeout of {} s",
            timeout.as_secs()
        ),
        ended => eprintln!("lab{number}: the command was {ended}"),
    }
    report.kernel_complaints = guest.complaints();
    let wanted = report.exit_code != 0 || !report.kernel_complaints.is_empty();
    if (wanted || config.connectx.trace)
        && let Some(dir) = guest.keep_device_log()?
    {
        eprintln!("lab{number}: the device's log is in {}", dir.display());
    }
    if report.ended != Ended::GuestDied {
        for complaint in &report.kernel_complaints {
            eprintln!("lab{number}: the guest's kernel said: {complaint}");
        }
        // libibverbs has nothing to do with a device that user space drives by itself.
        let claimed = config.device == Device::Vfio || show_claims(guest, &mut report.claims)?;
        if !claimed && report.exit_code == 0 {
            report.exit_code = LAB_FAILED;
        }
    }
    Ok(report)
}

/// Shows which provider serves each device; whether the intended one serves all of them.
fn show_claims(guest: &mut Guest, found: &mut Vec<(String, String)>) -> Result<bool> {
    match guest.claims() {
        Ok(claims) => *found = claims,
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(error) => {
            eprintln!("lab: claimed: nothing: {error:#}");
            return Ok(false);
        }
    }
    let shown: Vec<String> = found
        .iter()
        .map(|(device, file)| format!("{device} by {file}"))
        .collect();
    eprintln!("lab: claimed: {}", shown.join(", "));
    let ours = found.iter().all(|(_, file)| file.contains("oxverbs"));
    if guest.config().provider == Provider::Ours && !ours {
        eprintln!("lab: ours did not claim every device");
        return Ok(false);
    }
    Ok(true)
}

/// Passes on what a command in a guest says.
pub(crate) fn echo(stream: Stream, bytes: &[u8]) {
    // A reader that went away must not end the run.
    let _ = match stream {
        Stream::Stdout => io::stdout()
            .write_all(bytes)
            .and_then(|()| io::stdout().flush()),
        Stream::Stderr => io::stderr().write_all(bytes),
    };
}

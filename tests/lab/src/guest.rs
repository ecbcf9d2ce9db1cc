//! A booted guest.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::config::{Config, Device, Provider};
use crate::connectx::Server;
use crate::death::{self, GuestDied};
use crate::drop_in;
use crate::interrupt;
use crate::kits::{self, KernelKit, Tools};
use crate::qemu::{self, Event};
use crate::setup;
use crate::step::{Ended, Outcome, Step};

/// Second program of the guest; the first is `init.sh` of the initial file system.
const AGENT: &str = include_str!("guest/agent.sh");
/// Tells which provider serves each device.
const CLAIMS: &str = include_str!("guest/claims.py");

/// How often a step's output is looked for while it runs.
pub(crate) const POLL: Duration = Duration::from_millis(40);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// From SIGKILL until a step counts as stuck in the kernel; a loaded host needs a while to run the guest's shell.
const STUCK: Duration = Duration::from_secs(15);

/// What a guest consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// `uname -r`.
    pub kernel: String,
    /// Version of the kernel's package.
    pub kernel_package: String,
    /// Suite of the userland.
    pub userland: String,
    /// Version of the rdma-core package.
    pub rdma_core: String,
    /// Version of the QEMU package.
    pub qemu: String,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            kernel_package,
            userland,
            rdma_core,
            qemu,
        } = self;
        write!(
            f,
            "Linux {kernel} ({kernel_package}), {userland} with rdma-core {rdma_core}, QEMU {qemu}"
        )
    }
}

/// Which stream a piece of output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A step that was started and not yet waited for. Ends with the guest at the latest.
#[derive(Debug)]
#[must_use = "a started step should be waited for or stopped"]
pub struct Running {
    id: usize,
    name: String,
    deadline: Instant,
    /// Its end is asked for, so that it is no timeout.
    stopping: bool,
}

#[derive(Debug)]
struct Finished {
    id: usize,
    status: i32,
    seconds: f64,
}

/// A booted guest. It ends when this is dropped.
///
/// Steps run as root with `/bin/sh`; several may run at once. A step's failure, timeout or crash leaves the guest alive;
/// when the guest itself dies, the call that waits returns a [`GuestDied`] inside its error.
///
/// In the guest: `/oxverbs/checkout` (the repository) and `/oxverbs/target` (builds), read-only; `$PATH` has the
/// profile's binaries and examples; `/share/work` is [`Guest::work`] on the host; `/tmp` is memory.
#[derive(Debug)]
pub struct Guest {
    versions: Versions,
    config: Config,
    connectx: Option<Server>,
    dir: tempfile::TempDir,
    _in_use: File,
    control: UnixStream,
    events: Receiver<Event>,
    qemu: Arc<Mutex<Option<u32>>>,
    finished: Vec<Finished>,
    steps: usize,
    boot_seconds: f64,
    died: Option<GuestDied>,
}

impl Guest {
    /// Boots a guest, after downloading and unpacking what the cache lacks.
    pub fn boot(config: &Config) -> Result<Self> {
        config.check()?;
        let (tools, kernel, root, runs) = {
            let cache = Cache::open(config.refresh)?;
            let tools = Tools::get(&cache)?;
            let kernel = KernelKit::get(&cache, config.kernel, config.device, &tools)?;
            let root = kits::userland(&cache, config.userland, config.apps)?;
            (tools, kernel, root, cache.path("runs"))
        };
        fs::create_dir_all(&runs)?;
        remove_leftovers(&runs);
        let dir = tempfile::Builder::new()
            .prefix("guest-")
            .tempdir_in(&runs)?;
        let in_use = File::create(dir.path().join(IN_USE))?;
        in_use.lock()?;
        let share = dir.path().join("share");
        for sub in ["steps", "work", "provider"] {
            fs::create_dir_all(share.join(sub))?;
        }
        fs::write(share.join("agent.sh"), AGENT)?;
        fs::write(share.join("claims.py"), CLAIMS)?;
        fs::write(share.join("environment"), setup::environment(config))?;
        fs::write(share.join("setup.sh"), setup::script(config))?;
        if config.provider == Provider::Ours {
            share_provider(config, &share.join("provider"))?;
        }
        let versions = Versions {
            kernel: kernel.release.clone(),
            kernel_package: kernel.package.clone(),
            userland: config.userland.suite().to_owned(),
            rdma_core: root.version_of("rdma-core").unwrap_or("?").to_owned(),
            qemu: tools.qemu_version().to_owned(),
        };
        let started = Instant::now();
        let sockets = qemu::Sockets::new()?;
        let socket = sockets.control();
        let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
        let connectx = match config.device {
            Device::Rxe => None,
            Device::Mlx5 | Device::Vfio => Some(Server::start(
                config,
                dir.path(),
                &sockets.connectx(config),
            )?),
        };
        let command = qemu::command(config, &tools, &kernel, &root, dir.path(), &sockets)?;
        let (sender, events) = mpsc::channel();
        let qemu = qemu::spawn(command, dir.path(), sender.clone())?;
        let control = qemu::accept(&listener, &events, dir.path())?;
        let lines = BufReader::new(control.try_clone()?).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(Event::Line(line)).is_err() {
                    return;
                }
            }
        });
        let mut guest = Self {
            versions,
            config: config.clone(),
            connectx,
            dir,
            _in_use: in_use,
            control,
            events,
            qemu,
            finished: Vec::new(),
            steps: 0,
            boot_seconds: 0.0,
            died: None,
        };
        if let Err(error) = guest.wait_until_ready() {
            return Err(guest.with_device_log(error));
        }
        guest.boot_seconds = started.elapsed().as_secs_f64();
        Ok(guest)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + self.config.boot_timeout;
        loop {
            let line = match self.next_event("its start")? {
                Some(line) => line,
                None if Instant::now() > deadline => {
                    let what = format!("no answer after {} s", self.config.boot_timeout.as_secs());
                    return Err(self.declare_dead("its start", &what).into());
                }
                None => continue,
            };
            let mut words = line.split_whitespace();
            if words.next() != Some("ready") {
                continue;
            }
            if words.next() != Some("0") {
                let log = fs::read_to_string(self.share().join("setup.log")).unwrap_or_default();
                bail!(
                    "the guest's devices could not be set up:\n{}\n{}",
                    log.trim_end(),
                    self.console_tail()
                );
            }
            return Ok(());
        }
    }

    /// Runs a step to its end.
    pub fn run(&mut self, step: Step) -> Result<Outcome> {
        self.run_with(step, |_, _| ())
    }

    /// Runs a step to its end; `output` gets what it prints while it runs.
    ///
    /// The step's servers are started before it and stopped after it; what came of them is in the outcome.
    pub fn run_with(
        &mut self,
        mut step: Step,
        output: impl FnMut(Stream, &[u8]),
    ) -> Result<Outcome> {
        let mut servers = Vec::new();
        for server in std::mem::take(&mut step.servers) {
            servers.push(self.start(server)?);
        }
        let running = self.start(step)?;
        let mut outcome = self.wait_with(running, output)?;
        for mut server in servers {
            // Servers that end with their client do so by themselves, with their own status.
            if server.deadline > Instant::now() + GRACE {
                server.deadline = Instant::now() + GRACE;
                server.stopping = true;
            }
            outcome.servers.push(self.wait(server)?);
        }
        Ok(outcome)
    }

    /// Runs steps one after the other, whatever comes of each; `each` gets every outcome as it is known.
    ///
    /// When the guest dies, the step that it died under has [`Ended::GuestDied`] with the console in its `stderr`, a
    /// new guest is booted, and the steps after it run there.
    pub fn run_all(
        &mut self,
        steps: Vec<Step>,
        mut each: impl FnMut(&Outcome),
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for step in steps {
            let name = step.name.clone();
            let outcome = match self.run(step) {
                Ok(outcome) => outcome,
                Err(error) => {
                    let died = error.downcast::<GuestDied>()?;
                    let outcome = Outcome::of_dead_guest(name, &died);
                    *self = Self::boot(&self.config)?;
                    outcome
                }
            };
            each(&outcome);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Starts a step and returns at once: a server, say. Its timeout counts from here.
    pub fn start(&mut self, step: Step) -> Result<Running> {
        if let Some(died) = &self.died {
            return Err(died.clone().into());
        }
        let id = self.steps;
        self.steps += 1;
        let dir = self.step_dir(id);
        fs::create_dir(&dir)?;
        for stream in ["stdout", "stderr"] {
            File::create(dir.join(stream))?;
        }
        let command = format!(
            "echo $$ >/share/steps/{id}/pid\ncd /tmp\n{}\n",
            step.command
        );
        fs::write(dir.join("command"), command)?;
        self.tell(&format!("run {id}"), &step.name)?;
        Ok(Running {
            id,
            name: step.name,
            deadline: Instant::now() + step.timeout,
            stopping: false,
        })
    }

    /// Waits for a started step's end.
    pub fn wait(&mut self, running: Running) -> Result<Outcome> {
        self.wait_with(running, |_, _| ())
    }

    /// Waits for a started step's end; `output` gets what it prints meanwhile (and has printed before).
    pub fn wait_with(
        &mut self,
        running: Running,
        mut output: impl FnMut(Stream, &[u8]),
    ) -> Result<Outcome> {
        let dir = self.step_dir(running.id);
        let mut streams = [
            Tail::open(&dir, "stdout", Stream::Stdout)?,
            Tail::open(&dir, "stderr", Stream::Stderr)?,
        ];
        let mut timed_out = false;
        let mut deadline = running.deadline;
        let mut signals = ["TERM", "KILL"].into_iter();
        let finished = loop {
            if let Some(at) = self
                .finished
                .iter()
                .position(|finished| finished.id == running.id)
            {
                break self.finished.swap_remove(at);
            }
            if let Some(line) = self.next_event(&format!("step {}", running.name))? {
                self.note(&line);
            }
            for stream in &mut streams {
                stream.pump(&mut output)?;
            }
            if Instant::now() > deadline {
                timed_out = !running.stopping;
                let Some(signal) = signals.next() else {
                    let what = "a step that timed out does not even die by SIGKILL: it hangs in the kernel";
                    return Err(self
                        .declare_dead(&format!("step {}", running.name), what)
                        .into());
                };
                deadline = Instant::now() + if signal == "KILL" { STUCK } else { GRACE };
                self.tell(&format!("kill {} {signal}", running.id), &running.name)?;
            }
        };
        for stream in &mut streams {
            stream.pump(&mut output)?;
        }
        if let Some(how) = self.device_failure() {
            return Err(self
                .declare_dead(&format!("step {}", running.name), &how)
                .into());
        }
        let [stdout, stderr] =
            streams.map(|stream| String::from_utf8_lossy(&stream.seen).into_owned());
        let ended = if timed_out {
            Ended::TimedOut
        } else {
            Ended::from_shell(finished.status)
        };
        Ok(Outcome {
            name: running.name,
            ended,
            seconds: finished.seconds,
            stdout,
            stderr,
            servers: Vec::new(),
        })
    }

    /// Ends a started step (SIGTERM, then SIGKILL) and returns what came of it.
    pub fn stop(&mut self, mut running: Running) -> Result<Outcome> {
        self.tell(&format!("kill {} TERM", running.id), &running.name)?;
        running.deadline = Instant::now() + GRACE;
        running.stopping = true;
        self.wait(running)
    }

    /// Each device and the file whose provider code serves it.
    pub fn claims(&mut self) -> Result<Vec<(String, String)>> {
        let step = Step::new("which provider claims the devices", "exec claims");
        let outcome = self.run(step)?;
        let pairs = outcome
            .stdout
            .lines()
            .filter_map(|line| line.split_once('\t'));
        let found: Vec<_> = pairs
            .map(|(device, file)| (device.to_owned(), file.to_owned()))
            .collect();
        if found.is_empty() {
            bail!(
                "libibverbs finds no device ({})\n{}",
                outcome.ended,
                outcome.stderr.trim_end()
            );
        }
        Ok(found)
    }

    /// Kernel objects per device (`rdma resource show`): for checks that nothing is left.
    pub fn resources(&mut self) -> Result<Vec<Resources>> {
        let outcome = self
            .run(Step::new("rdma resource", "exec rdma -j resource show"))?
            .expect_ok()?;
        serde_json::from_str(&outcome.stdout)
            .with_context(|| format!("rdma resource printed {:?}", outcome.stdout))
    }

    /// The same before anything else is run, as what a program that cleans up must leave.
    ///
    /// `mlx5_ib` makes objects of its own when memory is registered for the first time, and keeps them.
    pub fn resources_at_first(&mut self) -> Result<Vec<Resources>> {
        let kernels = |name: &&&str| name.starts_with("mlx5");
        if let Some(device) = self.config.devices().iter().find(kernels) {
            // It registers memory, finds no server and ends.
            let command = format!("ibv_rc_pingpong -d {device} localhost; true");
            self.run(Step::new("register memory", command))?
                .expect_ok()?;
        }
        self.resources()
    }

    /// What the guest consists of.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// How it was configured.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Seconds from QEMU's start until the devices were ready.
    pub fn boot_seconds(&self) -> f64 {
        self.boot_seconds
    }

    /// A directory of the host that is `/share/work` in the guest, writable on both sides.
    pub fn work(&self) -> PathBuf {
        self.share().join("work")
    }

    /// All that the kernel wrote to its console so far.
    pub fn console(&self) -> String {
        qemu::read_console(self.dir.path())
    }

    /// All that the software ConnectX said so far, if the guest has one.
    pub fn device_log(&self) -> Option<String> {
        self.connectx.as_ref().map(Server::log)
    }

    /// Copies the log and the trace of the software ConnectX, and the console, to `lab` in the build directory, which it
    /// returns; nothing without such a device.
    pub fn keep_device_log(&self) -> Result<Option<PathBuf>> {
        self.connectx.as_ref().map(Server::keep).transpose()
    }

    fn with_device_log(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(server) = &self.connectx else {
            return error;
        };
        let place = match server.keep() {
            Ok(dir) => dir.display().to_string(),
            Err(error) => format!("{error:#}"),
        };
        let log = server.log_tail();
        error.context(format!(
            "--- the end of soft-connectx' log (all of it: {place}) ---\n{log}\n---"
        ))
    }

    /// Warnings that the kernel wrote to its console so far.
    pub fn complaints(&self) -> Vec<String> {
        death::complaints(&self.console())
    }

    fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    fn step_dir(&self, id: usize) -> PathBuf {
        self.share().join("steps").join(id.to_string())
    }

    fn console_tail(&self) -> String {
        GuestDied::new(String::new(), "", &self.console()).console
    }

    fn tell(&mut self, line: &str, during: &str) -> Result<()> {
        if self
            .control
            .write_all(format!("{line}\n").as_bytes())
            .is_err()
        {
            // Let the thread that waits for QEMU say what happened.
            let _ = self.next_event(&format!("step {during}"))?;
            return Err(self
                .declare_dead(&format!("step {during}"), "the guest's agent is gone")
                .into());
        }
        Ok(())
    }

    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["done", id, status, centiseconds] = words[..]
            && let (Ok(id), Ok(status), Ok(centiseconds)) =
                (id.parse(), status.parse(), centiseconds.parse::<f64>())
        {
            self.finished.push(Finished {
                id,
                status,
                seconds: centiseconds / 100.0,
            });
        }
    }

    /// The next line from the guest, if one comes within [`POLL`].
    fn next_event(&mut self, during: &str) -> Result<Option<String>> {
        if let Some(died) = &self.died {
            return Err(died.clone().into());
        }
        interrupt::check()?;
        match self.events.recv_timeout(POLL) {
            Ok(Event::Line(line)) => Ok(Some(line)),
            Ok(Event::Ended(how)) => Err(self.declare_dead(during, &how).into()),
            Err(RecvTimeoutError::Timeout) => match self.device_failure() {
                Some(how) => Err(self.declare_dead(during, &how).into()),
                None => Ok(None),
            },
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.declare_dead(during, "QEMU is gone").into())
            }
        }
    }

    fn device_failure(&mut self) -> Option<String> {
        self.connectx.as_mut().and_then(Server::failure)
    }

    fn declare_dead(&mut self, during: &str, fallback: &str) -> GuestDied {
        // Without its device a guest may end in many ways, none of which is the reason.
        let failure = self.device_failure();
        let fallback = failure.as_deref().unwrap_or(fallback);
        let died = GuestDied::new(during.to_owned(), fallback, &self.console());
        self.died = Some(died.clone());
        qemu::kill(&self.qemu);
        died
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Everything in it is read-only or ours: no need to shut down in order.
        qemu::kill(&self.qemu);
    }
}

/// What `rdma resource show` counts for a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Device.
    pub ifname: String,
    /// Protection domains.
    pub pd: u32,
    /// Completion queues.
    pub cq: u32,
    /// Queue pairs; the kernel's own GSI queue pair is one of them.
    pub qp: u32,
    /// Connection manager's identifiers.
    pub cm_id: u32,
    /// Memory regions.
    pub mr: u32,
    /// Open user contexts.
    #[serde(default)]
    pub ctx: u32,
    /// Shared receive queues.
    #[serde(default)]
    pub srq: u32,
}

/// A growing file of a step's output.
struct Tail {
    file: File,
    stream: Stream,
    seen: Vec<u8>,
}

impl Tail {
    fn open(dir: &Path, name: &str, stream: Stream) -> Result<Self> {
        let path = dir.join(name);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            file,
            stream,
            seen: Vec::new(),
        })
    }

    fn pump(&mut self, output: &mut impl FnMut(Stream, &[u8])) -> Result<()> {
        let before = self.seen.len();
        self.file.seek(SeekFrom::Start(before as u64))?;
        self.file.read_to_end(&mut self.seen)?;
        if self.seen.len() > before {
            output(self.stream, &self.seen[before..]);
        }
        Ok(())
    }
}

/// Lock that a guest's directory holds while the guest lives.
const IN_USE: &str = "in-use";

/// Guests of any process that live in `runs`.
pub(crate) fn running(runs: &Path) -> usize {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let locks = entries.filter_map(|entry| File::open(entry.path().join(IN_USE)).ok());
    locks.filter(|lock| lock.try_lock().is_err()).count()
}

/// Removes the directories of guests whose process was killed.
fn remove_leftovers(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let lock = File::open(entry.path().join(IN_USE));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            // Another process may be doing the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The file beside our plug-in that has it claim mlx5 devices, which it does on request only (`cargo xtask install --mlx5`).
const CLAIM_MLX5: &str = "claim-mlx5";

/// Copies our provider under the names that the supported libibverbs releases look for.
fn share_provider(config: &Config, dir: &Path) -> Result<()> {
    let built = config
        .target()
        .join(config.profile.directory())
        .join("liboxverbs_ffi.so");
    let release = if config.profile == crate::Profile::Release {
        " --release"
    } else {
        ""
    };
    fs::copy(&built, dir.join("liboxverbs_ffi.so")).with_context(|| {
        format!(
            "{} (cargo build -p oxverbs-ffi{release} makes it)",
            built.display()
        )
    })?;
    if config.device == Device::Mlx5 {
        File::create(dir.join(CLAIM_MLX5))?;
    }
    if config.drop_in {
        let archive = built.with_file_name(drop_in::ARCHIVE);
        // What a process mapped is named for the file, not for the link.
        let file = "liboxverbs_mlx5.so";
        drop_in::link(&config.checkout(), &archive, &dir.join(file))?;
        symlink(file, dir.join(drop_in::SONAME))?;
    }
    for abi in setup::PROVIDER_ABIS {
        symlink(
            "liboxverbs_ffi.so",
            dir.join(format!("liboxverbs-rdmav{abi}.so")),
        )?;
    }
    Ok(())
}

//! The software ConnectX of a guest, or two of them: a process that serves them to QEMU over vfio-user.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::guest::POLL;

/// How long the program may take until QEMU can connect.
const START: Duration = Duration::from_secs(10);
/// How long it may take to end after QEMU is gone.
const END: Duration = Duration::from_secs(2);
/// Most bytes of its log in an error.
const TAIL: usize = 4000;

/// A running device. It ends with QEMU, and at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    kept: PathBuf,
}

/// Files that the program writes, in the guest's directory and where they are kept.
const LOG: &str = "soft-connectx.log";
const TRACES: [&str; 2] = ["soft-connectx.trace", "soft-connectx.1.trace"];

/// Where the guest gives it orders, in the guest's directory on the host.
const CONTROL: &str = "share/connectx";

fn percent(millionths: u32) -> String {
    format!("{}%", f64::from(millionths) / 1e4)
}

impl Server {
    /// Starts the program that serves on `sockets`, with its files in `dir`.
    pub(crate) fn start(config: &Config, dir: &Path, sockets: &[PathBuf]) -> Result<Self> {
        let program = config
            .target()
            .join(config.profile.directory())
            .join("soft-connectx");
        let log = dir.join(LOG);
        let mut command = Command::new(&program);
        for socket in sockets {
            command.arg("--socket").arg(socket);
        }
        command.arg("--control").arg(dir.join(CONTROL));
        if let Some(peer) = &config.peer {
            command.arg("--cable").arg(peer.cable());
            command.args(["--serial", &(peer.number + 1).to_string()]);
        }
        let cable = &config.connectx.cable;
        for (name, value) in [
            ("--loss", percent(cable.lost)),
            ("--reorder", percent(cable.reordered)),
            ("--delay", cable.delay.to_string()),
            ("--cable-seed", cable.seed.to_string()),
        ] {
            command.args([name, &value]);
        }
        command.args(["--link", config.connectx.link.name()]);
        if config.connectx.strict {
            command.arg("--strict");
        }
        if let Some(seed) = config.connectx.adversary {
            command.args(["--adversary", &seed.to_string()]);
        }
        if config.connectx.virtual_function {
            command.arg("--virtual-function");
        }
        if config.connectx.trace {
            for (_, name) in sockets.iter().zip(TRACES) {
                command.arg("--trace").arg(dir.join(name));
            }
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| {
                format!(
                    "{} (cargo build -p soft-connectx makes it)",
                    program.display()
                )
            })?;
        let mut server = Self {
            child,
            dir: dir.to_owned(),
            kept: match &config.peer {
                None => config.target().join("lab"),
                Some(peer) => config.target().join(format!("lab/guest{}", peer.number)),
            },
        };
        let start = Instant::now();
        while !sockets.iter().all(|socket| socket.exists()) {
            if let Some(status) = server.child.try_wait()? {
                bail!("soft-connectx ended with {status}\n{}", server.log_tail());
            }
            if start.elapsed() > START {
                bail!(
                    "soft-connectx did not open its sockets\n{}",
                    server.log_tail()
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// All that it said so far.
    pub(crate) fn log(&self) -> String {
        fs::read(self.dir.join(LOG))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// How it failed, if it ended without being told to.
    pub(crate) fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let log = self.log();
        let last = log.trim_end().lines().next_back().unwrap_or_default();
        (!status.success()).then(|| format!("soft-connectx ended with {status}: {last}"))
    }

    /// The end of what it said, and how it ended if it did not live on.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let mut from = log.len().saturating_sub(TAIL);
        while !log.is_char_boundary(from) {
            from += 1;
        }
        log[from..].trim_end().to_owned()
    }

    /// Copies its log and trace, and the guest's console, to a place that outlives the guest.
    pub(crate) fn keep(&self) -> Result<PathBuf> {
        fs::create_dir_all(&self.kept).with_context(|| self.kept.display().to_string())?;
        for name in [LOG, "console.log"].into_iter().chain(TRACES) {
            let file = self.dir.join(name);
            if file.is_file() {
                fs::copy(&file, self.kept.join(name))
                    .with_context(|| file.display().to_string())?;
            }
        }
        Ok(self.kept.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let start = Instant::now();
        while start.elapsed() < END {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

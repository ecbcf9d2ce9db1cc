//! The rows, and how one runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab::{Config, ConnectX, Device, Guest, Kernel, Link, Provider, Step};

use super::{Arguments, Record, Suite};
use crate::cargo;
use crate::lab::GuestArguments;
use crate::lab::echo;

/// The longest that a guest may take for the suite: emulated, on a loaded host.
const LIMIT: Duration = Duration::from_secs(3600);

/// A device that the suite runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// The software ConnectX in the suite's process.
    InProcess { link: Link, seed: Option<u64> },
    /// A device in a guest.
    Lab {
        device: Device,
        link: Link,
        kernel: Kernel,
    },
}

/// All rows, in the page's order.
pub(super) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for seed in [None, Some(1), Some(7), Some(42)] {
        for link in [Link::Roce, Link::Ib] {
            rows.push(Row::InProcess { link, seed });
        }
    }
    for kernel in [Kernel::Stable, Kernel::Backports] {
        let lab = |device, link| Row::Lab {
            device,
            link,
            kernel,
        };
        rows.push(lab(Device::Rxe, Link::Roce));
        for device in [Device::Mlx5, Device::Vfio] {
            rows.extend([Link::Roce, Link::Ib].map(|link| lab(device, link)));
        }
    }
    rows
}

/// Builds what the rows need; the suite's program.
pub(super) fn build(rows: &[Row]) -> Result<PathBuf> {
    let status = cargo::cargo()
        .args(["build", "--quiet", "--package", "hw-tests"])
        .status()
        .context("running cargo")?;
    if !status.success() {
        bail!("cargo build --package hw-tests: {status}");
    }
    let connectx = rows.iter().filter_map(Row::config);
    if let Some(config) = connectx.into_iter().find(|c| c.device.is_connectx()) {
        GuestArguments::build_for(&config)?;
    }
    Ok(cargo::target().join("debug/hw-tests"))
}

impl Row {
    pub(super) fn name(&self) -> String {
        match self {
            Self::InProcess { link, seed } => {
                let seed = seed.map_or(String::new(), |seed| format!("-seed-{seed}"));
                format!("soft-{}{seed}", link.name())
            }
            Self::Lab { kernel, .. } => {
                let kernel = match kernel {
                    Kernel::Stable => "stable",
                    Kernel::Backports => "backports",
                };
                format!("{}-{kernel}", self.device_name())
            }
        }
    }

    fn device_name(&self) -> String {
        match self {
            Self::InProcess { link, .. } => format!("soft-{}", link.name()),
            Self::Lab { device, link, .. } => match device {
                Device::Rxe => "rxe".to_owned(),
                Device::Mlx5 => format!("mlx5-{}", link.name()),
                Device::Vfio => format!("vfio-{}", link.name()),
            },
        }
    }

    /// Whether `wanted` names this row.
    pub(super) fn is_called(&self, wanted: &str) -> bool {
        let guest = self.kernel().is_some() && self.device_name() == wanted;
        self.name() == wanted || guest
    }

    /// The guest's kernel, if there is a guest.
    pub(super) fn kernel(&self) -> Option<Kernel> {
        match self {
            Self::InProcess { .. } => None,
            Self::Lab { kernel, .. } => Some(*kernel),
        }
    }

    /// What the row is of, for readers.
    pub(super) fn what(&self) -> String {
        let port = |link: &Link| match link {
            Link::Ib => "InfiniBand",
            Link::Roce => "RoCE",
        };
        match self {
            Self::InProcess { link, seed } => {
                let adversary =
                    seed.map_or(String::new(), |seed| format!(", adversary of seed {seed}"));
                format!(
                    "software ConnectX in the process, {}{adversary}",
                    port(link)
                )
            }
            Self::Lab { device, link, .. } => match device {
                Device::Rxe => "soft-RoCE of the kernel, in a guest".to_owned(),
                Device::Mlx5 => format!(
                    "software ConnectX under mlx5_ib, {}, in a guest",
                    port(link)
                ),
                Device::Vfio => {
                    format!("software ConnectX through VFIO, {}, in a guest", port(link))
                }
            },
        }
    }

    fn config(&self) -> Option<Config> {
        let Self::Lab {
            device,
            link,
            kernel,
        } = *self
        else {
            return None;
        };
        let connectx = match device {
            Device::Rxe => ConnectX::default(),
            Device::Mlx5 | Device::Vfio => ConnectX {
                link,
                ..ConnectX::default()
            },
        };
        Some(Config {
            kernel,
            device,
            connectx,
            provider: Provider::Official,
            ..Config::default()
        })
    }

    /// Runs the suite; fails if that was not possible.
    pub(super) fn run(
        &self,
        arguments: &Arguments,
        program: &Path,
        record: &mut Record,
    ) -> Result<()> {
        match self.config() {
            Some(config) => in_a_guest(&config, arguments, program, record),
            None => self.in_process(arguments, program, record),
        }
    }

    fn in_process(&self, arguments: &Arguments, program: &Path, record: &mut Record) -> Result<()> {
        let Self::InProcess { link, seed } = self else {
            bail!("the row is of a guest");
        };
        let device = match link {
            Link::Ib => "soft-ib",
            Link::Roce => "soft",
        };
        let device = seed.map_or(device.to_owned(), |seed| format!("{device}:{seed}"));
        let gid_index = match link {
            Link::Ib => 0,
            Link::Roce => 1,
        };
        let directory = cargo::target().join("matrix");
        fs::create_dir_all(&directory)?;
        let json = directory.join(format!("{}.suite.json", self.name()));
        let _ = fs::remove_file(&json);
        let status = Command::new(program)
            .args(words(&device, gid_index, arguments))
            .arg("--json")
            .arg(&json)
            .status()
            .with_context(|| program.display().to_string())?;
        record.suite = Some(read(&json).with_context(|| format!("hw-tests ended with {status}"))?);
        Ok(())
    }
}

fn in_a_guest(
    config: &Config,
    arguments: &Arguments,
    program: &Path,
    record: &mut Record,
) -> Result<()> {
    let target = config
        .target()
        .canonicalize()
        .context("the build directory")?;
    let program = program.canonicalize().context("cargo built it")?;
    let inside = program.strip_prefix(&target).context("built elsewhere")?;
    let program = Path::new("/oxverbs/target").join(inside);
    let mut guest = Guest::boot(config)?;
    record.kernel = Some(guest.versions().kernel.clone());
    let json = guest.work().join("matrix.json");
    let mut command = vec![program.display().to_string()];
    let device = config.devices()[0];
    command.extend(words(device, config.gid_index(), arguments));
    // The directory is the guest's too, below /share.
    let work = guest.work();
    let shared = work.file_name().unwrap_or_default().display().to_string();
    command.push(format!("--json=/share/{shared}/matrix.json"));
    let step = Step::program("hw-tests", &command).timeout(LIMIT);
    let outcome = guest.run_with(step, echo)?;
    record.complaints = guest.complaints();
    let suite = read(&json);
    let suite = suite.with_context(|| format!("hw-tests ended so: {:?}", outcome.ended))?;
    record.suite = Some(suite);
    if !record.is_green()
        && let Some(dir) = guest.keep_device_log()?
    {
        eprintln!("matrix: the device's log is in {}", dir.display());
    }
    Ok(())
}

/// What hw-tests is told.
fn words(device: &str, gid_index: u32, arguments: &Arguments) -> Vec<String> {
    let mut words = vec![
        format!("--device={device}"),
        format!("--gid-index={gid_index}"),
        format!("--slow={}", arguments.slow),
    ];
    if let Some(filter) = &arguments.filter {
        words.push(format!("--filter={filter}"));
    }
    if arguments.long {
        words.push("--long".to_owned());
    }
    words
}

fn read(json: &Path) -> Result<Suite> {
    let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
    serde_json::from_str(&text).with_context(|| json.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = all();
        for row in &rows {
            let called = |other: &&Row| other.is_called(&row.name());
            assert_eq!(rows.iter().filter(called).count(), 1, "{}", row.name());
        }
        let of_guests = |row: &&Row| row.is_called("mlx5-ib");
        assert_eq!(rows.iter().filter(of_guests).count(), 2);
    }
}

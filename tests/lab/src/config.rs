//! What to boot.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::kits::{Kernel, Userland};

/// Which provider libibverbs finds in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Ours alone: `/etc/libibverbs.d` lists nothing else.
    #[default]
    Ours,
    /// Debian's, as installed.
    Official,
}

impl Provider {
    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Official => "official",
        }
    }
}

/// How the guest's rxe devices are wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// `rxe0` alone, at 10.9.0.1, which reaches itself.
    #[default]
    Loopback,
    /// `rxe0` at 10.9.0.1 and `rxe1` at 10.9.0.2, joined by a virtual cable that the packets really cross.
    Pair,
}

impl Topology {
    /// Names of its devices.
    pub fn devices(self) -> &'static [&'static str] {
        match self {
            Self::Loopback => &["rxe0"],
            Self::Pair => &["rxe0", "rxe1"],
        }
    }
}

/// Which RDMA device a guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// Linux' soft-RoCE.
    #[default]
    Rxe,
    /// The software ConnectX, under Linux' own mlx5 drivers.
    Mlx5,
    /// The software ConnectX behind an IOMMU, given to user space by vfio-pci.
    Vfio,
}

impl Device {
    /// Whether a software ConnectX is behind it.
    pub fn is_connectx(self) -> bool {
        matches!(self, Self::Mlx5 | Self::Vfio)
    }
}

/// Link layer of a software ConnectX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// InfiniBand.
    #[default]
    Ib,
    /// Ethernet with RoCE.
    Roce,
}

impl Link {
    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Roce => "roce",
        }
    }
}

/// What is wrong with the cable between two software ConnectX; the default is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Cable {
    /// Of a million frames, those that are lost.
    pub lost: u32,
    /// Of a million frames, those that the next one overtakes.
    pub reordered: u32,
    /// Milliseconds that a frame is on its way.
    pub delay: u32,
    /// Chooses the frames.
    pub seed: u64,
}

/// How a software ConnectX behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ConnectX {
    /// A second one, joined to the first by a cable.
    pub two: bool,
    /// The cable.
    pub cable: Cable,
    /// Link layer.
    pub link: Link,
    /// What no real device checks is fatal.
    pub strict: bool,
    /// Seed of the freedoms that it takes.
    pub adversary: Option<u64>,
    /// Write a trace of its commands.
    pub trace: bool,
    /// It is a virtual function of a card.
    pub virtual_function: bool,
}

/// Where a guest meets another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Which of the two it is: 0 or 1.
    pub number: u16,
    /// A directory for the sockets between them.
    pub sockets: PathBuf,
}

impl Peer {
    /// Where the cable's ends meet.
    pub(crate) fn cable(&self) -> PathBuf {
        self.sockets.join("cable")
    }

    /// Of a guest's network card, by the guest's number.
    pub(crate) fn network(&self, number: u16) -> PathBuf {
        self.sockets.join(format!("network{number}"))
    }

    /// The other one's number.
    pub(crate) fn other(&self) -> u16 {
        1 - self.number
    }
}

/// Which build of ours the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// `target/debug`
    #[default]
    Debug,
    /// `target/release`
    Release,
}

impl Profile {
    /// The release build, or the other.
    pub fn of(release: bool) -> Self {
        if release { Self::Release } else { Self::Debug }
    }

    /// The directory's name below `target`.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// What a guest's clocks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The host's time. Emulation makes it say little about the guest's code, and everything else on the host disturbs it.
    #[default]
    Host,
    /// Executed instructions, one a nanosecond (QEMU's `-icount`), so that a measurement hardly depends on the host. The
    /// virtual processors take turns; with one of them the guest's course is its program's.
    Instructions,
}

/// A guest to boot. The default is Debian stable, ours as provider, one rxe device.
#[derive(Debug, Clone)]
pub struct Config {
    /// Kernel.
    pub kernel: Kernel,
    /// Userland, and with it the rdma-core.
    pub userland: Userland,
    /// Whether the userland has the programs that only `cargo xtask apps` and `cargo xtask mpi` run (UCX, fio, Open MPI).
    pub apps: bool,
    /// Provider that libibverbs finds.
    pub provider: Provider,
    /// Whether our provider stands in the place of `libmlx5.so.1` too, with its interface.
    pub drop_in: bool,
    /// Build of ours that is shared into the guest.
    pub profile: Profile,
    /// Kind of the RDMA device.
    pub device: Device,
    /// What the software ConnectX is like, if that is the device.
    pub connectx: ConnectX,
    /// The other guest, if there is one.
    pub peer: Option<Peer>,
    /// Wiring of rxe devices.
    pub topology: Topology,
    /// Memory of the guest in MiB.
    pub memory: u32,
    /// Virtual processors.
    pub processors: u32,
    /// What its clocks count.
    pub clock: Clock,
    /// Huge pages of 2 MiB to reserve (some verbs tests want 64).
    pub huge_pages: u32,
    /// More words for the kernel's command line.
    pub kernel_arguments: String,
    /// More directories of the host, read-only in the guest at `/run/oxverbs/shares/NAME`; NAME is a word of letters,
    /// digits and `_`, at most 20 bytes.
    pub shares: Vec<(String, PathBuf)>,
    /// Shell commands run at the end of the guest's start, before the first step.
    pub setup: String,
    /// How long the start may take; emulation on a loaded machine is slow.
    pub boot_timeout: Duration,
    /// Ask the archive for newer packages first.
    pub refresh: bool,
    /// The checkout, shared at `/oxverbs/checkout`; `None`: the workspace that this crate was built in.
    pub checkout: Option<PathBuf>,
    /// The build directory, shared at `/oxverbs/target`; `None`: `$CARGO_TARGET_DIR`, else `target` of the checkout.
    pub target: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kernel: Kernel::default(),
            userland: Userland::default(),
            apps: false,
            provider: Provider::default(),
            drop_in: false,
            profile: Profile::default(),
            device: Device::default(),
            connectx: ConnectX::default(),
            peer: None,
            topology: Topology::default(),
            memory: 2048,
            processors: 2,
            clock: Clock::default(),
            huge_pages: 0,
            kernel_arguments: String::new(),
            shares: Vec::new(),
            setup: String::new(),
            boot_timeout: Duration::from_secs(180),
            refresh: false,
            checkout: None,
            target: None,
        }
    }
}

impl Config {
    /// Names of the guest's RDMA devices; those of VFIO are no kernel's.
    pub fn devices(&self) -> &'static [&'static str] {
        match self.device {
            Device::Rxe => self.topology.devices(),
            Device::Mlx5 if self.connectx.two => &["mlx5_0", "mlx5_1"],
            Device::Mlx5 => &["mlx5_0"],
            Device::Vfio if self.connectx.two => &["vfio:0000:01:00.0", "mlx5_0"],
            Device::Vfio => &["vfio:0000:01:00.0"],
        }
    }

    /// Refuses what was asked for and would have no effect.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let asked = |what: &str, of: &str| {
            anyhow::bail!("{what} is of {of}, and the device asked for is another")
        };
        match self.device {
            Device::Mlx5 | Device::Vfio if self.topology == Topology::Pair => {
                asked("a topology of two devices", "rxe")
            }
            Device::Rxe if self.connectx != ConnectX::default() => asked(
                "a link layer, a second device, a cable, strictness, a seed or a trace",
                "mlx5 or vfio",
            ),
            Device::Mlx5 | Device::Vfio
                if self.connectx.cable != Cable::default()
                    && !self.connectx.two
                    && self.peer.is_none() =>
            {
                anyhow::bail!("a cable has two ends: two devices, or two guests")
            }
            _ => Ok(()),
        }
    }

    /// Index of the GID that traffic uses: the IPv4 one of RoCE v2, on InfiniBand the only one.
    pub fn gid_index(&self) -> u32 {
        match (self.device, self.connectx.link) {
            // The kernel puts the link-local GIDs first; mlx5 has each in RoCE v1 and v2.
            (Device::Rxe, _) => 1,
            (Device::Mlx5 | Device::Vfio, Link::Ib) => 0,
            (Device::Mlx5, Link::Roce) => 3,
            // Without a kernel in between there are those that the driver makes of the port's own address, in v1 and v2.
            (Device::Vfio, Link::Roce) => 1,
        }
    }

    /// The checkout's root.
    pub fn checkout(&self) -> PathBuf {
        let built_in = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let path = self.checkout.clone().unwrap_or_else(built_in);
        path.canonicalize().unwrap_or(path)
    }

    /// The build directory.
    pub fn target(&self) -> PathBuf {
        let from_environment = || std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let path = self
            .target
            .clone()
            .or_else(from_environment)
            .unwrap_or_else(|| "target".into());
        self.checkout().join(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let rxe = Config::default();
        let mlx5 = Config {
            device: Device::Mlx5,
            ..Config::default()
        };
        let strict = ConnectX {
            strict: true,
            ..ConnectX::default()
        };
        assert!(rxe.check().is_ok() && mlx5.check().is_ok());
        let pair = Config {
            topology: Topology::Pair,
            ..rxe.clone()
        };
        assert!(pair.check().is_ok());
        let refused = |config: Config| config.check().unwrap_err().to_string();
        let message = refused(Config {
            device: Device::Mlx5,
            ..pair
        });
        assert!(message.contains("of rxe"), "{message}");
        let message = refused(Config {
            connectx: strict,
            ..rxe
        });
        assert!(message.contains("of mlx5"), "{message}");
    }
}

//! What sysfs tells of a function of PCI, and what keeps it from being driven by this process.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::sys::sysfs;

/// Mellanox' vendor id.
const MELLANOX: u64 = 0x15b3;

/// Device ids of mlx5 hardware: ConnectX from Connect-IB to 10 with their virtual functions, then BlueField (rdma-core 65
/// `providers/mlx5/mlx5.c`).
pub const MLX5_DEVICE_IDS: [u16; 25] = [
    0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c,
    0x101d, 0x101e, 0x101f, 0x1021, 0x1023, 0x1025, 0x1027, 0x2101, 0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc,
    0xa2df,
];

/// Where a function sits: `0000:3b:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl Address {
    /// Reads `0000:3b:00.0`, or `3b:00.0` of domain 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (front, function) = text.rsplit_once('.')?;
        let mut parts = front.rsplit(':');
        let hex = |text: &str, most: usize| {
            let plain = !text.is_empty()
                && text.len() <= most
                && text.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(text, 16).ok())?
        };
        let device = hex(parts.next()?, 2).filter(|&device| device < 32)?;
        let bus = hex(parts.next()?, 2)?;
        let domain = parts.next().map_or(Some(0), |text| hex(text, 8))?;
        let function = hex(function, 1).filter(|&function| function < 8)?;
        parts.next().is_none().then_some(Self {
            domain,
            bus: bus as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

/// A function as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Where it sits.
    pub address: Address,
    /// Device id, if it is mlx5 hardware.
    pub mlx5: Option<u16>,
    /// The kernel's driver that has it.
    pub driver: Option<String>,
    /// Its IOMMU group, if there is an IOMMU.
    pub group: Option<u32>,
    directory: PathBuf,
}

impl Function {
    /// Reads what sysfs, mounted at `root`, says of it; `None` if there is no such function.
    pub fn read(root: &Path, address: Address) -> Option<Self> {
        let directory = root.join("bus/pci/devices").join(address.to_string());
        Self::in_directory(directory, address)
    }

    fn in_directory(directory: PathBuf, address: Address) -> Option<Self> {
        let id = |name| {
            let text = sysfs::read(&directory.join(name)).ok()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let vendor = id("vendor")?;
        let device = u16::try_from(id("device")?).ok()?;
        let target = |name| {
            let link = fs::read_link(directory.join(name)).ok()?;
            Some(link.file_name()?.to_str()?.to_owned())
        };
        Some(Self {
            address,
            mlx5: (vendor == MELLANOX && MLX5_DEVICE_IDS.contains(&device)).then_some(device),
            driver: target("driver"),
            group: target("iommu_group").and_then(|group| group.parse().ok()),
            directory,
        })
    }

    /// All mlx5 functions of the machine, in ascending order.
    pub fn all_mlx5(root: &Path) -> Vec<Self> {
        let entries = fs::read_dir(root.join("bus/pci/devices"));
        let mut found: Vec<_> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let address = Address::parse(entry.file_name().to_str()?)?;
                Self::in_directory(entry.path(), address).filter(|found| found.mlx5.is_some())
            })
            .collect();
        found.sort_by_key(|function| function.address);
        found
    }

    /// Its directory in sysfs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a program could drive it: mlx5 hardware that vfio-pci has.
    pub fn is_for_programs(&self) -> bool {
        self.mlx5.is_some() && self.driver.as_deref().is_some_and(is_vfio)
    }

    /// The other functions of its group that keep the group from being given away: those that a driver of the kernel has.
    fn neighbours(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join("iommu_group/devices"));
        let mut found = Vec::new();
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let driver = fs::read_link(entry.path().join("driver")).ok();
            let driver = driver.as_deref().and_then(Path::file_name);
            let driver = driver.map(|name| name.to_string_lossy().into_owned());
            // The kernel lets bridges be (vfio.rst), and what no driver has.
            if let Some(driver) = driver
                && !is_vfio(&driver)
                && driver != "pci-stub"
                && driver != "pcieport"
            {
                found.push(format!("{name} ({driver})"));
            }
        }
        found.sort();
        found
    }

    /// What keeps a program from driving it, if anything, with what to do.
    pub fn check(&self) -> Result<u32> {
        let action = || format!("drive {} from user space", self.address);
        let address = self.address;
        if self.mlx5.is_none() {
            return Err(Error::refused(
                action(),
                format!(
                    "{address} is no mlx5 hardware (`lspci -nn -s {address}` tells what it is)"
                ),
            ));
        }
        let Some(group) = self.group else {
            return Err(Error::refused(
                action(),
                "the machine has no IOMMU, or it is off: turn it on in the firmware's setup (VT-d, AMD-Vi, SMMU) and on \
                 the kernel's command line (`intel_iommu=on` or `amd_iommu=on`); without it nothing would keep the \
                 device from all of memory",
            ));
        };
        match self.driver.as_deref() {
            Some(driver) if is_vfio(driver) => {}
            driver => return Err(Error::refused(action(), self.how_to_bind(driver))),
        }
        let neighbours = self.neighbours();
        if !neighbours.is_empty() {
            return Err(Error::refused(
                action(),
                format!(
                    "IOMMU group {group} has other devices in it, which drivers of the kernel have: {}; give them to \
                     vfio-pci too, or put the card into another slot",
                    neighbours.join(", ")
                ),
            ));
        }
        Ok(group)
    }

    fn how_to_bind(&self, driver: Option<&str>) -> String {
        let Self { address, .. } = self;
        let (has, unbind) = match driver {
            Some(driver) => (
                format!(
                    "{driver} has it, and its network and RDMA devices vanish when vfio-pci gets it"
                ),
                format!(" && echo {address} > /sys/bus/pci/devices/{address}/driver/unbind"),
            ),
            None => ("no driver has it".to_owned(), String::new()),
        };
        format!(
            "{has}; as root: `modprobe vfio-pci && echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override{unbind} \
             && echo {address} > /sys/bus/pci/drivers_probe`"
        )
    }
}

/// Drivers that give functions to programs: vfio-pci itself, and mlx5's variant of it for virtual machines.
fn is_vfio(driver: &str) -> bool {
    matches!(driver, "vfio-pci" | "mlx5_vfio_pci" | "mlx5-vfio-pci")
}

/// The function at an address, or which ones there are.
pub(super) fn function_at(root: &Path, text: &str) -> Result<Function> {
    let action = format!("find the PCI function {text}");
    let Some(address) = Address::parse(text) else {
        return Err(Error::refused(
            action,
            "a function is named like vfio:0000:3b:00.0: domain, bus, device, function (`lspci -D -d 15b3:`)",
        ));
    };
    Function::read(root, address).ok_or_else(|| {
        let others: Vec<_> = Function::all_mlx5(root)
            .iter()
            .map(|function| function.address.to_string())
            .collect();
        let advice = if others.is_empty() {
            "this machine has no mlx5 hardware".to_owned()
        } else {
            format!("mlx5 hardware is at {}", others.join(", "))
        };
        Error::refused(action, advice)
    })
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;

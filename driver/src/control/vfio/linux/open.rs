//! Opening a function, with errors that say what to do.

use std::fs;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Arc, Mutex};

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};

use super::function::{Function, function_at};
use super::{Region, VfioPci};
use crate::error::{Error, Result};
use crate::sys::process::ProcessId;
use crate::sys::{Errno, sysfs};

impl VfioPci {
    /// Opens the function at an address such as `0000:3b:00.0`. VFIO resets it.
    ///
    /// # Errors
    ///
    /// No such function, or none of mlx5's; no IOMMU; a driver of the kernel has it, or another device of its group; another
    /// process uses the group; no permission. Each says what to do.
    pub fn open(address: &str) -> Result<Self> {
        let function = function_at(&sysfs::root(), address)?;
        let group = function.check()?;
        let explained = |error: VfioError| explain(&function, group, error);
        let container = Arc::new(VfioContainer::new(None).map_err(explained)?);
        let device = VfioDevice::new(function.directory(), Arc::clone(&container) as _, false)
            .map_err(explained)?;
        let region = |index| Region {
            offset: device.get_region_offset(index),
            len: device.get_region_size(index),
        };
        let vectors = device
            .get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX)
            .map_or(0, |irq| u16::try_from(irq.count).unwrap_or(u16::MAX));
        Ok(Self {
            address: function.address,
            bar: region(VFIO_PCI_BAR0_REGION_INDEX),
            config: region(VFIO_PCI_CONFIG_REGION_INDEX),
            vectors,
            enabled: Mutex::new(0),
            owner: ProcessId::current(),
            device: ManuallyDrop::new(device),
            container: ManuallyDrop::new(container),
        })
    }
}

/// What an error of `vfio-ioctls` means here.
fn explain(function: &Function, group: u32, error: VfioError) -> Error {
    let action = format!("open {} by VFIO (group {group})", function.address);
    let errno = match &error {
        VfioError::OpenContainer(error) | VfioError::OpenGroup(error, _) => error.raw_os_error(),
        VfioError::ContainerSetIOMMU(error) | VfioError::GroupGetDeviceFD(error) => {
            Some(error.errno())
        }
        _ => None,
    };
    let node = match &error {
        VfioError::OpenContainer(_) => "/dev/vfio/vfio".to_owned(),
        _ => format!("/dev/vfio/{group}"),
    };
    let advice = match (&error, errno) {
        (VfioError::OpenContainer(_) | VfioError::OpenGroup(..), Some(libc::EACCES | libc::EPERM)) => {
            format!("this user may not use {node}: run as root, or `chown $USER {node}` as root")
        }
        (VfioError::OpenContainer(_), Some(libc::ENOENT | libc::ENODEV)) | (VfioError::VfioExtension, _) => {
            "VFIO's modules are not loaded (`modprobe -a vfio-pci vfio_iommu_type1`), or this container does not \
             have /dev/vfio"
                .to_owned()
        }
        (VfioError::OpenGroup(..), Some(libc::ENOENT)) => {
            format!("{node} is missing: does this container have it?")
        }
        (VfioError::OpenGroup(..) | VfioError::GroupGetDeviceFD(_), Some(libc::EBUSY))
        | (VfioError::GroupSetContainer, _) => busy(&node),
        (VfioError::GroupViable, _) => format!(
            "not all devices of IOMMU group {group} are vfio-pci's: \
             `ls -l /sys/kernel/iommu_groups/{group}/devices/*/driver`"
        ),
        (VfioError::ContainerSetIOMMU(_), Some(libc::EPERM)) => {
            "the IOMMU does not remap interrupts, so the device could send any: turn that on (`intremap=on`), or load \
             vfio_iommu_type1 with allow_unsafe_interrupts=1"
                .to_owned()
        }
        _ => error.to_string(),
    };
    match errno {
        Some(errno) => Error::kernel(action, Errno(errno)).advise(advice),
        None => Error::refused(action, advice),
    }
}

/// A group has one user at a time.
fn busy(node: &str) -> String {
    let users = users_of(Path::new("/proc"), Path::new(node));
    if users.is_empty() {
        format!("another process uses {node} (`fuser -v {node}` as root tells which)")
    } else {
        format!("{node} is used by {}", users.join(", "))
    }
}

/// Processes that have a file open, as far as this user may see them.
fn users_of(proc: &Path, node: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(id) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let files = fs::read_dir(process.path().join("fd"));
        let mut files = files.into_iter().flatten().flatten();
        if files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == node)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("process {id} ({})", name.trim_end()));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;

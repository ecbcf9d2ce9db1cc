//! Discovery by `/sys/class/infiniband_verbs`, where RDMA netlink gives no answer.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys::{Errno, sysfs};
use crate::verbs::advice;
use crate::verbs::device::{Device, Driver, NodeType};

pub(super) fn devices(sysfs_root: &Path) -> Result<Vec<Device>> {
    let class = sysfs_root.join("class/infiniband_verbs");
    let entries = fs::read_dir(&class).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let failed = Error::kernel(format!("list {}", class.display()), Errno::from(error));
        if missing {
            failed.advise(advice::NO_UVERBS)
        } else {
            failed
        }
    })?;
    let mut devices: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|uverbs_name| Some((number(&uverbs_name)?, device(sysfs_root, &uverbs_name)?)))
        .collect();
    devices.sort_by_key(|&(number, _)| number);
    Ok(devices.into_iter().map(|(_, device)| device).collect())
}

/// The number in `uverbs12`; other entries of the class are attributes.
fn number(uverbs_name: &str) -> Option<u32> {
    uverbs_name.strip_prefix("uverbs")?.parse().ok()
}

/// One device; `None` if it went away meanwhile or has files that make no sense.
fn device(sysfs_root: &Path, uverbs_name: &str) -> Option<Device> {
    let uverbs = sysfs_root.join("class/infiniband_verbs").join(uverbs_name);
    let name = sysfs::read(&uverbs.join("ibdev")).ok()?;
    let sysfs_path = sysfs_root.join("class/infiniband").join(&name);
    let node_type = sysfs::read_number(&sysfs_path.join("node_type")).ok()?;
    Some(Device {
        uverbs_name: uverbs_name.into(),
        node_type: NodeType::from(u8::try_from(node_type).unwrap_or(0)),
        guid: sysfs::read(&sysfs_path.join("node_guid"))
            .ok()?
            .parse()
            .ok()?,
        driver: driver(&uverbs, &sysfs_path, &name),
        abi_version: sysfs::read_number(&uverbs.join("abi_version"))
            .ok()?
            .try_into()
            .ok()?,
        name,
        sysfs_path,
    })
}

/// sysfs has no driver id. rxe hangs on no bus but names the network device that it is on in
/// `parent`; a PCI function links to its driver module's name.
fn driver(uverbs: &Path, sysfs_path: &Path, name: &str) -> Driver {
    if let Ok(driver) = fs::read_link(uverbs.join("device/driver")) {
        return match driver.file_name().and_then(|name| name.to_str()) {
            Some(driver) if driver.starts_with("mlx5_core") => Driver::Mlx5,
            _ => Driver::Unknown,
        };
    }
    if name.starts_with("rxe") || sysfs_path.join("parent").exists() {
        return Driver::Rxe;
    }
    Driver::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::device::Guid;

    /// A tree like the kernel's, with one rxe device.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join("class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (uverbs, name, guid) in [("uverbs10", "soft", "1"), ("uverbs2", "rxe0", "2")] {
            write(
                &format!("infiniband_verbs/{uverbs}/ibdev"),
                &format!("{name}\n"),
            );
            write(&format!("infiniband_verbs/{uverbs}/abi_version"), "2\n");
            write(&format!("infiniband/{name}/node_type"), "1: CA\n");
            write(
                &format!("infiniband/{name}/node_guid"),
                &format!("5054:00ff:fe12:345{guid}\n"),
            );
            write(&format!("infiniband/{name}/parent"), "eth0\n");
        }
        write("infiniband_verbs/abi_version", "6\n");
        // A device that is going away: its name is still there, the rest is not.
        write("infiniband_verbs/uverbs1/ibdev", "gone0\n");
        root
    }

    #[test]
    fn lists_devices_in_order_and_skips_half_gone_ones() {
        let root = tree();
        let devices = devices(root.path()).unwrap();
        let names: Vec<_> = devices
            .iter()
            .map(|d| (d.name(), d.uverbs_name()))
            .collect();
        assert_eq!(names, [("rxe0", "uverbs2"), ("soft", "uverbs10")]);
        assert_eq!(devices[0].guid(), Guid(0x5054_00ff_fe12_3452));
        assert_eq!(devices[0].node_path(), Path::new("/dev/infiniband/uverbs2"));
        assert_eq!(devices[1].driver(), Driver::Rxe);
        assert_eq!(devices[1].node_type(), NodeType::ChannelAdapter);
        assert_eq!(devices[1].abi_version(), 2);
        assert_eq!(devices[1].board_id(), None);
    }

    #[test]
    fn a_kernel_without_rdma_says_what_to_load() {
        let root = tempfile::tempdir().unwrap();
        let error = devices(root.path()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(error.to_string().contains("modprobe ib_uverbs"), "{error}");
    }
}

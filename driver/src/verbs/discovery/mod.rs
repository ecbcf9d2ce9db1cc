//! Which RDMA devices there are.

mod netlink;
mod sysfs;

use super::advice;
use super::device::Device;
use crate::control::vfio::linux::{Function, VFIO};
use crate::error::{Error, Result};
use crate::sys;

/// The RDMA devices that user programs can open, in the kernel's order.
///
/// # Errors
///
/// A kernel without user access to RDMA (module `ib_uverbs` not loaded). A machine with RDMA and
/// without devices answers an empty list.
pub fn devices() -> Result<Vec<Device>> {
    let sysfs_root = sys::sysfs::root();
    // Netlink knows the driver behind a device; sysfs says why there is no device, and works where netlink
    // is filtered.
    match netlink::devices(&sysfs_root) {
        Ok(devices) if !devices.is_empty() => Ok(devices),
        _ => sysfs::devices(&sysfs_root),
    }
}

/// Names of the mlx5 devices that no driver of the kernel has, but vfio-pci for programs such as this:
/// `vfio:0000:3b:00.0`. [`Context::open`](super::Context::open) takes them.
pub fn vfio_devices() -> Vec<String> {
    let all = Function::all_mlx5(&sys::sysfs::root());
    let mine = all.iter().filter(|function| function.is_for_programs());
    mine.map(|function| format!("{VFIO}{}", function.address))
        .collect()
}

/// The device called `name`, or an error that lists those there are.
pub(super) fn device_named(name: &str) -> Result<Device> {
    let mut devices = devices()?;
    match devices.iter().position(|device| device.name == name) {
        Some(index) => Ok(devices.swap_remove(index)),
        None => Err(no_such_device(name, &devices)),
    }
}

fn no_such_device(name: &str, devices: &[Device]) -> Error {
    let action = format!("find an RDMA device called {name}");
    if devices.is_empty() {
        return Error::refused(action, advice::NO_DEVICE);
    }
    let names: Vec<_> = devices.iter().map(Device::name).collect();
    Error::refused(action, format!("there is {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::device::{Driver, Guid, NodeType};

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let device = |name: &str| Device {
            name: name.into(),
            uverbs_name: "uverbs0".into(),
            node_type: NodeType::ChannelAdapter,
            guid: Guid(1),
            driver: Driver::Rxe,
            abi_version: 2,
            sysfs_path: "/sys/class/infiniband".into(),
        };
        assert_eq!(
            no_such_device("rxe7", &[device("rxe0"), device("mlx5_0")]).to_string(),
            "cannot find an RDMA device called rxe7; there is rxe0, mlx5_0"
        );
        let none = no_such_device("rxe0", &[]).to_string();
        assert!(
            none.contains("rdma link add rxe0 type rxe netdev"),
            "{none}"
        );
    }
}

//! Discovery by RDMA netlink, which names the driver of each device.

use std::path::Path;

use uverbs_abi::netlink::nldev;

use crate::sys::Errno;
use crate::sys::netlink::RdmaSocket;
use crate::verbs::device::{Device, Driver, Guid, NodeType};

/// What the list of devices says of one.
struct Found {
    index: u32,
    name: String,
    node_type: u8,
    guid: u64,
}

pub(super) fn devices(sysfs_root: &Path) -> Result<Vec<Device>, Errno> {
    let socket = RdmaSocket::open()?;
    let mut found = Vec::new();
    socket.ask(&nldev::get_devices(1), true, |payload| {
        // A device that makes no sense is not offered.
        if let Ok(device) = nldev::Device::parse(payload) {
            found.push(Found {
                index: device.index,
                name: device.name.to_owned(),
                node_type: device.node_type.0,
                guid: device.node_guid,
            });
        }
    })?;
    found.sort_by_key(|device| device.index);
    Ok(found
        .into_iter()
        .filter_map(|device| complete(&socket, device, sysfs_root))
        .collect())
}

/// Adds the device's node; `None` if it has none for user programs, or went away.
fn complete(socket: &RdmaSocket, found: Found, sysfs_root: &Path) -> Option<Device> {
    let mut node = None;
    let request = nldev::get_chardev(found.index, "uverbs", found.index);
    let asked = socket.ask(&request, false, |payload| {
        if let Ok(chardev) = nldev::Chardev::parse(payload) {
            let abi = u32::try_from(chardev.abi).unwrap_or(u32::MAX);
            node = Some((chardev.name.to_owned(), abi, Driver::from(chardev.driver.0)));
        }
    });
    asked.ok()?;
    let (uverbs_name, abi_version, driver) = node?;
    Some(Device {
        uverbs_name,
        node_type: NodeType::from(found.node_type),
        guid: Guid(found.guid),
        driver,
        abi_version,
        sysfs_path: sysfs_root.join("class/infiniband").join(&found.name),
        name: found.name,
    })
}

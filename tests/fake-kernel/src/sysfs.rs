//! The files of `/sys/class/infiniband*` by which programs find devices when RDMA netlink is absent.
//!
//! libibverbs takes another root than `/sys` from `SYSFS_PATH`.

use std::fs;
use std::io;
use std::path::Path;

use crate::device;
use crate::objects::Device;

/// Major number of uverbs devices (`IB_UVERBS_MAJOR`).
pub const MAJOR: u32 = 231;
/// Minor number of the first one (`IB_UVERBS_BASE_MINOR`).
pub const FIRST_MINOR: u32 = 192;

/// Writes the tree for `devices` devices under `root`.
///
/// # Errors
///
/// Those of making directories and files.
pub fn write_tree(root: &Path, devices: usize) -> io::Result<()> {
    let verbs = root.join("class/infiniband_verbs");
    fs::create_dir_all(&verbs)?;
    fs::write(verbs.join("abi_version"), "6\n")?;
    for index in 0..devices {
        let device = Device::new(index);
        let uverbs = verbs.join(format!("uverbs{index}"));
        fs::create_dir_all(&uverbs)?;
        fs::write(uverbs.join("ibdev"), format!("{}\n", device.name))?;
        let minor = FIRST_MINOR as usize + index;
        fs::write(uverbs.join("dev"), format!("{MAJOR}:{minor}\n"))?;
        fs::write(uverbs.join("abi_version"), "2\n")?;
        let ib = root.join("class/infiniband").join(&device.name);
        let port = ib.join("ports/1");
        for folder in ["gids", "pkeys", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(folder))?;
        }
        let guid = device::guid(index);
        let words: Vec<String> = guid
            .chunks(2)
            .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
            .collect();
        fs::write(ib.join("node_type"), "1: CA\n")?;
        fs::write(ib.join("node_guid"), format!("{}\n", words.join(":")))?;
        fs::write(ib.join("sys_image_guid"), format!("{}\n", words.join(":")))?;
        fs::write(ib.join("node_desc"), "fake\n")?;
        fs::write(ib.join("fw_ver"), "\n")?;
        fs::write(port.join("link_layer"), "Ethernet\n")?;
        fs::write(port.join("state"), "4: ACTIVE\n")?;
        fs::write(port.join("pkeys/0"), "0xffff\n")?;
        for (i, gid) in device.gids.iter().enumerate() {
            let words: Vec<String> = gid
                .chunks(2)
                .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
                .collect();
            fs::write(
                port.join(format!("gids/{i}")),
                format!("{}\n", words.join(":")),
            )?;
            fs::write(port.join(format!("gid_attrs/types/{i}")), "RoCE v2\n")?;
            fs::write(port.join(format!("gid_attrs/ndevs/{i}")), "lo\n")?;
        }
    }
    Ok(())
}

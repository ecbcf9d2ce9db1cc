//! The files of `/sys/class/infiniband*` by which programs find devices when RDMA netlink is absent.
//!
//! libibverbs takes another root than `/sys` from `SYSFS_PATH`.

use std::fs;
use std::io;
use std::path::Path;

use crate::config::{self, Config};
use crate::core::objects::Device;
use crate::{mlx5, rxe};

/// Major number of uverbs devices (`IB_UVERBS_MAJOR`).
pub const MAJOR: u32 = 231;
/// Minor number of the first one (`IB_UVERBS_BASE_MINOR`).
pub const FIRST_MINOR: u32 = 192;

/// What differs by family.
struct Family {
    /// What the driver says of its part of the ABI; by it libibverbs chooses the provider.
    abi_version: u32,
    guid: [u8; 8],
    fw_ver: &'static str,
    modalias: Option<&'static str>,
    link_layer: &'static str,
    /// Entries of the table of partition keys.
    pkeys: u32,
    /// Of even and of odd entries.
    gid_types: [&'static str; 2],
}

impl Family {
    fn of(config: &Config, index: usize) -> Self {
        match config.family {
            config::Family::Rxe => Self {
                abi_version: 2,
                guid: rxe::device::guid(index),
                fw_ver: "",
                modalias: None,
                link_layer: "Ethernet",
                pkeys: 1,
                gid_types: ["RoCE v2"; 2],
            },
            config::Family::Mlx5 => Self {
                abi_version: 1,
                guid: mlx5::device::guid(index),
                fw_ver: "16.35.2000",
                modalias: Some(mlx5::device::modalias()),
                link_layer: mlx5::device::link_layer(config),
                pkeys: mlx5::device::pkeys(config),
                gid_types: ["IB/RoCE v1", "RoCE v2"],
            },
        }
    }
}

/// Writes the tree for the devices of `config` under `root`.
///
/// # Errors
///
/// Those of making directories and files.
pub fn write_tree(root: &Path, config: &Config) -> io::Result<()> {
    let verbs = root.join("class/infiniband_verbs");
    fs::create_dir_all(&verbs)?;
    fs::write(verbs.join("abi_version"), "6\n")?;
    for index in 0..config.devices {
        let device = Device::new(index, config);
        let family = Family::of(config, index);
        let uverbs = verbs.join(format!("uverbs{index}"));
        fs::create_dir_all(&uverbs)?;
        fs::write(uverbs.join("ibdev"), format!("{}\n", device.name))?;
        let minor = FIRST_MINOR as usize + index;
        fs::write(uverbs.join("dev"), format!("{MAJOR}:{minor}\n"))?;
        fs::write(
            uverbs.join("abi_version"),
            format!("{}\n", family.abi_version),
        )?;
        let ib = root.join("class/infiniband").join(&device.name);
        let port = ib.join("ports/1");
        for folder in ["gids", "pkeys", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(folder))?;
        }
        let guid = family.guid;
        let words: Vec<String> = guid
            .chunks(2)
            .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
            .collect();
        fs::write(ib.join("node_type"), "1: CA\n")?;
        fs::write(ib.join("node_guid"), format!("{}\n", words.join(":")))?;
        fs::write(ib.join("sys_image_guid"), format!("{}\n", words.join(":")))?;
        fs::write(ib.join("node_desc"), "fake\n")?;
        fs::write(ib.join("fw_ver"), format!("{}\n", family.fw_ver))?;
        if let Some(modalias) = family.modalias {
            fs::create_dir_all(ib.join("device"))?;
            fs::write(ib.join("device/modalias"), format!("{modalias}\n"))?;
            let bus = uverbs.join("device");
            fs::create_dir_all(&bus)?;
            std::os::unix::fs::symlink("../../bus/pci/drivers/mlx5_core", bus.join("driver"))?;
        }
        let link_layer = format!("{}\n", family.link_layer);
        fs::write(port.join("link_layer"), link_layer)?;
        fs::write(port.join("state"), "4: ACTIVE\n")?;
        for i in 0..family.pkeys {
            let key = if i == 0 { "0xffff\n" } else { "0x0000\n" };
            fs::write(port.join(format!("pkeys/{i}")), key)?;
        }
        for (i, gid) in device.gids.iter().enumerate() {
            let words: Vec<String> = gid
                .chunks(2)
                .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
                .collect();
            fs::write(
                port.join(format!("gids/{i}")),
                format!("{}\n", words.join(":")),
            )?;
            let kind = format!("{}\n", family.gid_types[i % 2]);
            fs::write(port.join(format!("gid_attrs/types/{i}")), kind)?;
            fs::write(port.join(format!("gid_attrs/ndevs/{i}")), "lo\n")?;
        }
    }
    Ok(())
}

//! RDMA devices as the kernel lists them.

use std::fmt;
use std::path::{Path, PathBuf};

use super::discovery;
use crate::error::Result;
use crate::sys::sysfs;

/// An RDMA device of this machine that user programs can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub(crate) name: String,
    pub(crate) uverbs_name: String,
    pub(crate) node_type: NodeType,
    pub(crate) guid: Guid,
    pub(crate) driver: Driver,
    pub(crate) abi_version: u32,
    pub(crate) sysfs_path: PathBuf,
}

impl Device {
    /// Finds a device by its name, such as `rxe0`.
    ///
    /// # Errors
    ///
    /// Those of [`devices`](super::devices); a name that no device has, with those there are.
    pub fn named(name: &str) -> Result<Self> {
        discovery::device_named(name)
    }

    /// The device's name, such as `rxe0` or `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of its uverbs character device, such as `uverbs0`.
    pub fn uverbs_name(&self) -> &str {
        &self.uverbs_name
    }

    /// Path of its uverbs character device.
    pub fn node_path(&self) -> PathBuf {
        Path::new("/dev/infiniband").join(&self.uverbs_name)
    }

    /// What kind of node it is.
    pub fn node_type(&self) -> NodeType {
        self.node_type
    }

    /// What it speaks, which follows from the node type.
    pub fn transport(&self) -> Transport {
        self.node_type.transport()
    }

    /// Its node GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The kernel driver behind it.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Version of the kernel driver's part of the uverbs ABI.
    pub fn abi_version(&self) -> u32 {
        self.abi_version
    }

    /// Board id, if its driver has one.
    pub fn board_id(&self) -> Option<String> {
        sysfs::read(&self.sysfs_path.join("board_id"))
            .ok()
            .filter(|id| !id.is_empty())
    }

    /// Its directory below `class/infiniband` of sysfs.
    pub fn sysfs_path(&self) -> &Path {
        &self.sysfs_path
    }
}

/// A 64-bit globally unique identifier, shown as `5054:00ff:fe12:3456`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) & 0xffff);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl std::str::FromStr for Guid {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        u64::from_str_radix(&text.replace(':', ""), 16).map(Self)
    }
}

/// Kinds of RDMA nodes (`uapi rdma/rdma_netlink.h` and sysfs `node_type` share the numbers of
/// `enum rdma_node_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeType {
    /// Channel adapter: InfiniBand and RoCE.
    ChannelAdapter,
    /// Switch.
    Switch,
    /// Router.
    Router,
    /// iWARP network card.
    Rnic,
    /// Cisco usNIC.
    Usnic,
    /// Cisco usNIC over UDP.
    UsnicUdp,
    /// A device with a transport of its own.
    Unspecified,
    /// A number that this library does not know.
    Unknown(u8),
}

impl From<u8> for NodeType {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::ChannelAdapter,
            2 => Self::Switch,
            3 => Self::Router,
            4 => Self::Rnic,
            5 => Self::Usnic,
            6 => Self::UsnicUdp,
            7 => Self::Unspecified,
            other => Self::Unknown(other),
        }
    }
}

impl NodeType {
    /// The transport that nodes of this kind speak.
    pub fn transport(self) -> Transport {
        match self {
            Self::ChannelAdapter | Self::Switch | Self::Router => Transport::InfiniBand,
            Self::Rnic => Transport::Iwarp,
            Self::Usnic => Transport::Usnic,
            Self::UsnicUdp => Transport::UsnicUdp,
            Self::Unspecified => Transport::Unspecified,
            Self::Unknown(_) => Transport::Unknown,
        }
    }
}

/// Transports, with the numbers that `ibv_devinfo` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Transport {
    /// A node type that this library does not know.
    Unknown = -1,
    /// InfiniBand, also over Ethernet.
    InfiniBand = 0,
    /// iWARP.
    Iwarp = 1,
    /// Cisco usNIC.
    Usnic = 2,
    /// Cisco usNIC over UDP.
    UsnicUdp = 3,
    /// A transport of the device's own.
    Unspecified = 4,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "invalid transport",
            Self::InfiniBand => "InfiniBand",
            Self::Iwarp => "iWARP",
            Self::Usnic => "usNIC",
            Self::UsnicUdp => "usNIC UDP",
            Self::Unspecified => "unspecified",
        })
    }
}

/// Kernel drivers (`enum rdma_driver_id`, `uapi rdma/ib_user_ioctl_verbs.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// NVIDIA ConnectX-4 and later: `mlx5_ib`.
    Mlx5,
    /// Soft RoCE: `rdma_rxe`.
    Rxe,
    /// Another driver, by number.
    Other(u32),
    /// The kernel did not say, and nothing in sysfs told.
    Unknown,
}

impl From<u32> for Driver {
    fn from(id: u32) -> Self {
        match id {
            0 => Self::Unknown,
            1 => Self::Mlx5,
            14 => Self::Rxe,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_print_and_parse() {
        let guid = Guid(0x5054_00ff_fe12_3456);
        assert_eq!(guid.to_string(), "5054:00ff:fe12:3456");
        assert_eq!("5054:00ff:fe12:3456".parse(), Ok(guid));
        assert!("not:a:guid".parse::<Guid>().is_err());
    }

    #[test]
    fn transports_follow_node_types() {
        let transports = [1, 2, 3, 4, 5, 6, 7, 0, 8].map(|n| NodeType::from(n).transport() as i32);
        assert_eq!(transports, [0, 0, 0, 1, 2, 3, 4, -1, -1]);
    }
}

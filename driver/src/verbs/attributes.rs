//! What devices and ports say of themselves.

use std::fmt;
use std::ops::Deref;

use uverbs_abi::types::PortAttrEx;
use uverbs_abi::write::device::{ExQueryDeviceResp, PortAttr, QueryDeviceResp};

use super::device::Guid;

/// Attributes of a device. Derefs to the kernel's answer, which has the limits (`max_qp`, `max_cqe`, ...).
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttributes {
    /// All that the kernel answered; what an old kernel does not know is zero.
    pub extended: ExQueryDeviceResp,
    /// Completion vectors.
    pub num_comp_vectors: u32,
}

impl Deref for DeviceAttributes {
    type Target = QueryDeviceResp;

    fn deref(&self) -> &QueryDeviceResp {
        &self.extended.base
    }
}

impl DeviceAttributes {
    /// GUID of the node.
    pub fn node_guid(&self) -> Guid {
        Guid(u64::from_be_bytes(self.extended.base.node_guid))
    }

    /// GUID of the system that the node belongs to.
    pub fn sys_image_guid(&self) -> Guid {
        Guid(u64::from_be_bytes(self.extended.base.sys_image_guid))
    }

    /// Version of the firmware, three numbers of 16 bits, which rxe and mlx5 use alike.
    pub fn firmware_version(&self) -> (u16, u16, u16) {
        let version = self.extended.base.fw_ver;
        (
            (version >> 32) as u16,
            (version >> 16) as u16,
            version as u16,
        )
    }

    /// Time that so many cycles of the device's clock take, in nanoseconds; 0 of a device that does not say how fast its
    /// clock is.
    pub fn nanoseconds(&self, cycles: u64) -> u128 {
        // the frequency is in kHz: a cycle is a million nanoseconds divided by it
        let nanoseconds = u128::from(cycles) * 1_000_000;
        nanoseconds
            .checked_div(self.extended.hca_core_clock.into())
            .unwrap_or(0)
    }
}

/// Attributes of a port. Derefs to the kernel's answer.
#[derive(Clone, Copy, Debug)]
pub struct PortAttributes {
    /// All that the kernel answered.
    pub extended: PortAttrEx,
}

impl Deref for PortAttributes {
    type Target = PortAttr;

    fn deref(&self) -> &PortAttr {
        &self.extended.legacy_resp
    }
}

impl PortAttributes {
    /// State of the port.
    pub fn state(&self) -> PortState {
        PortState(self.extended.legacy_resp.state)
    }

    /// What it runs on.
    pub fn link_layer(&self) -> LinkLayer {
        LinkLayer(self.extended.legacy_resp.link_layer)
    }

    /// The most that a packet may carry now.
    pub fn active_mtu(&self) -> Option<Mtu> {
        Mtu::from_number(self.extended.legacy_resp.active_mtu)
    }

    /// The most that a packet may ever carry.
    pub fn max_mtu(&self) -> Option<Mtu> {
        Mtu::from_number(self.extended.legacy_resp.max_mtu)
    }
}

/// Bytes of payload in a packet (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Mtu {
    Bytes256 = 1,
    Bytes512 = 2,
    Bytes1024 = 3,
    Bytes2048 = 4,
    Bytes4096 = 5,
}

impl Mtu {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// The one with a number of `enum ibv_mtu`.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&mtu| mtu as u8 == number)
    }

    /// The one of so many bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// Bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }
}

/// State of a port (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortState(pub u8);

impl PortState {
    /// Data can flow.
    pub const ACTIVE: Self = Self(4);
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "PORT_DOWN",
            2 => "PORT_INIT",
            3 => "PORT_ARMED",
            4 => "PORT_ACTIVE",
            _ => "invalid state",
        })
    }
}

/// What a port runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkLayer(pub u8);

impl LinkLayer {
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(1);
    /// Ethernet: RoCE.
    pub const ETHERNET: Self = Self(2);
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "Unspecified",
            1 => "InfiniBand",
            2 => "Ethernet",
            _ => "Unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_have_the_numbers_of_the_header() {
        assert_eq!(Mtu::from_bytes(1024), Some(Mtu::Bytes1024));
        assert_eq!(Mtu::from_number(5).map(Mtu::bytes), Some(4096));
        assert_eq!((Mtu::from_number(0), Mtu::from_bytes(1500)), (None, None));
    }
}

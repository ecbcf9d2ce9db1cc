//! GIDs: addresses of ports.

use std::fmt;
use std::net::{AddrParseError, Ipv6Addr};
use std::str::FromStr;

use uverbs_abi::types;

/// A global identifier: 16 bytes, written like an IPv6 address (RoCE v2's are IP addresses, IPv4 ones as
/// `::ffff:10.9.0.1`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether the interface id (the lower half) is zero, as in an unused entry.
    pub fn has_no_interface(&self) -> bool {
        self.0[8..] == [0; 8]
    }

    /// Whether it is `fe80::/64`, the default GID that every port has.
    pub fn is_link_local(&self) -> bool {
        self.0[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(Self::from)
    }
}

/// Kind of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1, Ethernet frames.
    RoceV1,
    /// RoCE v2, UDP.
    RoceV2,
    /// A number that this library does not know.
    Unknown(u32),
}

impl From<types::GidType> for GidType {
    fn from(gid_type: types::GidType) -> Self {
        match gid_type {
            types::GidType::IB => Self::InfiniBand,
            types::GidType::ROCE_V1 => Self::RoceV1,
            types::GidType::ROCE_V2 => Self::RoceV2,
            types::GidType(other) => Self::Unknown(other),
        }
    }
}

/// A valid entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its kind.
    pub gid_type: GidType,
    /// Its port, from 1.
    pub port: u8,
    /// Its index in the port's table.
    pub index: u32,
    /// The network device that it belongs to, on RoCE.
    pub netdev_ifindex: Option<u32>,
}

impl From<types::GidEntry> for GidEntry {
    fn from(entry: types::GidEntry) -> Self {
        Self {
            gid: Gid(entry.gid),
            gid_type: entry.gid_type.into(),
            port: u8::try_from(entry.port_num).unwrap_or(u8::MAX),
            index: entry.gid_index,
            netdev_ifindex: (entry.netdev_ifindex != 0).then_some(entry.netdev_ifindex),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_ip_addresses() {
        let gid: Gid = "::ffff:10.9.0.1".parse().unwrap();
        assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
        assert_eq!(Gid::default().to_string(), "::");
        assert!(Gid::default().has_no_interface());
        assert!(
            "fe80::5054:ff:fe12:3456"
                .parse::<Gid>()
                .unwrap()
                .is_link_local()
        );
    }
}

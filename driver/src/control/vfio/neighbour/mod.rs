//! Who has which MAC address: what a network device does for a RoCE port, where there is none.
//!
//! A GID of RoCE is an IP address. Peers ask for the MAC address of ours, by ARP (RFC 826) or neighbour discovery
//! (RFC 4861), and we ask for that of theirs. All addresses count as neighbours: there is no table of routes, and whoever
//! is behind a router is told so by [`Objects::add_neighbour`](crate::control::vfio::objects::Objects::add_neighbour).
//!
//! Here is what is said and remembered; a queue pair of raw packets of [`verbs`](crate::verbs) carries it.

mod cache;
mod checksum;
mod packet;

use std::fmt;

pub use cache::Cache;
pub(super) use packet::{ARP, ICMPV6};
pub use packet::{Heard, Said};

use crate::sys::errno::Errno;

/// Bytes of a GID, which is an IPv6 address or an IPv4 address mapped into one (RFC 4291 2.5.5.2).
pub type Gid = [u8; 16];
/// A MAC address.
pub type Mac = [u8; 6];

/// The first bytes of an IPv4 address in a GID.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The IPv4 address that a GID is.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let (first, last) = gid.split_at(12);
    (first == MAPPED).then(|| [last[0], last[1], last[2], last[3]])
}

/// The GID that an IPv4 address is.
fn mapped(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    gid[..12].copy_from_slice(&MAPPED);
    gid[12..].copy_from_slice(&address);
    gid
}

/// Group to whose MAC address peers ask for an IPv6 address: the solicited-node address (RFC 4291 2.7.1), and its MAC
/// address (RFC 2464 7). `None` for IPv4, which is asked for by broadcast.
pub fn solicited(gid: &Gid) -> Option<Mac> {
    ipv4(gid)
        .is_none()
        .then(|| [0x33, 0x33, 0xff, gid[13], gid[14], gid[15]])
}

/// Group of all nodes of IPv6, and everybody.
pub const GROUPS: [Mac; 2] = [[0x33, 0x33, 0, 0, 0, 1], [0xff; 6]];

/// Asks the network of a RoCE port.
pub trait Network: Send + Sync + fmt::Debug {
    /// The MAC address of a neighbour; waits for it. `ETIMEDOUT` if nobody answers, `ENETUNREACH` if the addresses are of
    /// different kinds.
    fn ask(&self, source: &Gid, wanted: &Gid) -> Result<Mac, Errno>;

    /// Tells neighbours of an address that is new here.
    fn announce(&self, gid: &Gid);
}

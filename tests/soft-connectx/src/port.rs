//! The port: what it is called, and whether it is up.

use wqe_format::mlx5::firmware::PortChange;

use crate::config::Config;
use crate::device::Device;
use crate::events;

/// Bytes of payload of the largest packet.
pub(crate) const MTU: u16 = 4096;
/// Entries of an InfiniBand port's GID table (`gid_table_size` 0).
pub(crate) const GIDS: u16 = 8;
/// Entries of a port's table of partition keys (`pkey_table_size` 0).
pub(crate) const PKEYS: u16 = 128;
/// The partition everybody is a full member of.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// The port's state.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) up: bool,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    /// High half of every GID of an InfiniBand port.
    pub(crate) prefix: u64,
    pub(crate) guid: u64,
    pub(crate) node_guid: u64,
    /// What the administrator calls the node (`NODE_DESC`).
    pub(crate) description: [u8; 64],
}

impl Port {
    pub(crate) fn new(config: &Config) -> Port {
        Port {
            up: true,
            lid: config.lid(),
            sm_lid: 1,
            prefix: 0xfe80 << 48,
            guid: config.port_guid(),
            node_guid: config.node_guid(),
            description: [0; 64],
        }
    }

    /// An entry of an InfiniBand port's GID table.
    pub(crate) fn gid(&self, index: u16) -> [u8; 16] {
        let guid = if index == 0 { self.guid } else { 0 };
        (u128::from(self.prefix) << 64 | u128::from(guid)).to_be_bytes()
    }

    /// An entry of the table of partition keys.
    pub(crate) fn pkey(&self, index: u16) -> u16 {
        if index == 0 { DEFAULT_PKEY } else { 0 }
    }
}

/// Plugs the cable in or out, so that the driver is told.
pub(crate) fn set_link(device: &mut Device, up: bool) {
    if device.port.up == up {
        return;
    }
    device.port.up = up;
    events::port(
        device,
        if up {
            PortChange::ACTIVE
        } else {
            PortChange::DOWN
        },
    );
}

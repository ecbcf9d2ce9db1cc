//! The port: what it is called, and whether it is up.

use wqe_format::mlx5::firmware::PortChange;
use wqe_format::mlx5::firmware::nic_vport::NicVportContext;
use wqe_format::mlx5::firmware::roce::RoceAddrLayout;

use crate::config::Config;
use crate::device::Device;
use crate::events;
use crate::wire::Packet;

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
    /// Whether frames go in and out.
    pub(crate) up: bool,
    /// Whether the driver wants it up.
    pub(crate) wanted: bool,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    /// High half of every GID of an InfiniBand port.
    pub(crate) prefix: u64,
    pub(crate) guid: u64,
    pub(crate) node_guid: u64,
    /// `CapabilityMask` of the port (IBTA 14.2.5.6).
    pub(crate) capabilities: u32,
    /// What the administrator calls the node (`NODE_DESC`).
    pub(crate) description: [u8; 64],
    /// RDMA packets since power on or reset.
    pub(crate) traffic: Traffic,
    /// What an Ethernet port has.
    pub(crate) nic: NicPort,
}

/// RDMA packets of a port, those to itself too.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: Count,
    pub(crate) received: Count,
}

/// Packets, and octets in them from the first header to the invariant check sum, as an InfiniBand port's `PortXmitData`
/// counts (IBTA 16.1.3.5): to or from one port each, and multicast.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) unicast: (u64, u64),
    pub(crate) multicast: (u64, u64),
}

impl Count {
    pub(crate) fn count(&mut self, packet: &Packet, is_multicast: bool) {
        let (packets, octets) = match is_multicast {
            true => &mut self.multicast,
            false => &mut self.unicast,
        };
        *packets += 1;
        *octets += packet.octets() as u64;
    }
}

/// The Ethernet side of the port.
#[derive(Debug)]
pub(crate) struct NicPort {
    /// `nic_vport_context` as commands set it, without its list.
    pub(crate) context: [u8; 256],
    /// Addresses for one, addresses for many, VLANs that are let in, each as its list has it.
    pub(crate) lists: [Vec<u64>; 3],
    /// The GID table of a RoCE port.
    pub(crate) roce: Vec<RoceAddress>,
    /// `PFCC`, as it was written.
    pub(crate) flow_control: [u8; 32],
    /// Raw frames received and sent.
    pub(crate) received: FrameCount,
    pub(crate) sent: FrameCount,
}

/// Raw frames and octets in them, by whom they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameCount {
    pub(crate) unicast: (u64, u64),
    pub(crate) multicast: (u64, u64),
    pub(crate) broadcast: (u64, u64),
}

impl FrameCount {
    /// Counts a frame.
    pub(crate) fn count(&mut self, destination: [u8; 6], len: usize) {
        let (frames, octets) = match destination {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => &mut self.broadcast,
            [first, ..] if first & 1 != 0 => &mut self.multicast,
            _ => &mut self.unicast,
        };
        *frames += 1;
        *octets += len as u64;
    }
}

/// An entry of a RoCE port's GID table (`roce_addr_layout`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoceAddress {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
    pub(crate) vlan: Option<u16>,
    /// 0 is a GID of no IP address, 1 IPv4, 2 IPv6 (`MLX5_ROCE_L3_TYPE_*`).
    pub(crate) l3_type: u8,
    /// 0 is RoCE v1, 2 v2 (`MLX5_ROCE_VERSION_*`).
    pub(crate) version: u8,
}

impl RoceAddress {
    pub(crate) fn parse(layout: &RoceAddrLayout<&[u8]>) -> RoceAddress {
        let mut address = RoceAddress {
            vlan: layout.vlan_valid().then(|| layout.vlan_id()),
            l3_type: layout.roce_l3_type(),
            version: layout.roce_version(),
            ..RoceAddress::default()
        };
        address.gid.copy_from_slice(layout.source_l3_address());
        address.mac[..2].copy_from_slice(&layout.source_mac_47_32().to_be_bytes());
        address.mac[2..].copy_from_slice(&layout.source_mac_31_0().to_be_bytes());
        address
    }

    pub(crate) fn emit(&self, layout: &mut RoceAddrLayout<&mut [u8]>) {
        let [a, b, c, d, e, f] = self.mac;
        layout.source_l3_address_mut().copy_from_slice(&self.gid);
        layout.set_source_mac_47_32(u16::from_be_bytes([a, b]));
        layout.set_source_mac_31_0(u32::from_be_bytes([c, d, e, f]));
        layout
            .set_vlan_valid(self.vlan.is_some())
            .set_vlan_id(self.vlan.unwrap_or(0));
        layout
            .set_roce_l3_type(self.l3_type)
            .set_roce_version(self.version);
    }
}

impl NicPort {
    fn new(config: &Config) -> NicPort {
        let mut context = NicVportContext::zeroed();
        // Nobody gave a virtual function one, so its driver has to choose (Linux `mlx5e_set_netdev_dev_addr`).
        if !config.virtual_function {
            let [a, b, c, d, e, f] = config.mac();
            let mut address = context.permanent_address_mut();
            address.set_mac_addr_47_32(u16::from_be_bytes([a, b]));
            address.set_mac_addr_31_0(u32::from_be_bytes([c, d, e, f]));
        }
        context.set_mtu(1500);
        NicPort {
            context: context.into_inner(),
            lists: Default::default(),
            flow_control: [0; 32],
            received: FrameCount::default(),
            sent: FrameCount::default(),
            roce: vec![RoceAddress::default(); usize::from(crate::caps::ROCE_GIDS)],
        }
    }

    /// Whether RoCE is on (`roce_en`).
    pub(crate) fn roce_enabled(&self) -> bool {
        self.context[3] & 1 != 0
    }
}

impl Port {
    pub(crate) fn new(config: &Config) -> Port {
        Port {
            up: true,
            wanted: true,
            lid: config.lid(),
            sm_lid: 1,
            prefix: 0xfe80 << 48,
            guid: config.port_guid(),
            node_guid: config.node_guid(),
            // The GUID of the system image is told.
            capabilities: 1 << 11,
            description: [0; 64],
            traffic: Traffic::default(),
            nic: NicPort::new(config),
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

/// Whether the driver wants the port up (`PAOS`).
pub(crate) fn want(device: &mut Device, wanted: bool) {
    device.port.wanted = wanted;
    settle(device);
}

/// Plugs the cable in or out.
pub(crate) fn set_link(device: &mut Device, up: bool) {
    device.carrier = up;
    settle(device);
}

/// The port is up if it is wanted and there is somebody at the other end; the driver is told of a change.
fn settle(device: &mut Device) {
    let up = device.carrier && device.port.wanted;
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

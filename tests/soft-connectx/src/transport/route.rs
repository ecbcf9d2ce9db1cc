//! Which way packets go.

use wqe_format::mlx5::{DatagramSegment, udp_source_port};

use super::raw;
use crate::LinkLayer;
use crate::device::Device;
use crate::port::RoceAddress;
use crate::resources::{Path, Qp};
use crate::wire::{Global, Route};

/// The first multicast LID (IBTA 4.1.3).
const MULTICAST_LID: u16 = 0xc000;
const PERMISSIVE_LID: u16 = 0xffff;

/// `MLX5_ROCE_VERSION_2` of Linux include/linux/mlx5/device.h.
const ROCE_V2: u8 = 2;

/// What a source address index stands for.
struct Source {
    gid: [u8; 16],
    mac: [u8; 6],
    vlan: Option<u16>,
    /// RoCE v2.
    is_v2: bool,
}

fn source(device: &Device, index: u8) -> Source {
    let addresses = &device.port.nic.roce;
    match (device.config.link, addresses.get(usize::from(index))) {
        (LinkLayer::Ethernet, Some(address)) => Source {
            gid: address.gid,
            mac: address.mac,
            vlan: address.vlan,
            is_v2: address.version == ROCE_V2,
        },
        _ => Source {
            gid: device.port.gid(index.into()),
            mac: device.config.mac(),
            vlan: None,
            is_v2: true,
        },
    }
}

/// The path of a connection.
pub(super) fn connected(device: &Device, qp: &Qp) -> Route {
    let path: &Path = &qp.path;
    let source = source(device, path.source_index);
    let global = Global {
        source: source.gid,
        destination: path.rgid,
        tclass: path.traffic_class,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
    };
    match device.config.link {
        LinkLayer::InfiniBand => Route::InfiniBand {
            slid: device.port.lid,
            dlid: if path.force_loopback {
                device.port.lid
            } else {
                path.rlid
            },
            sl: path.sl,
            global: path.grh.then_some(global),
        },
        LinkLayer::Ethernet => Route::Ethernet {
            destination: path.rmac,
            source: source.mac,
            vlan: source.vlan,
            global,
            udp: source.is_v2.then_some(match path.udp_sport {
                0 => udp_source_port(qp.number ^ qp.remote_qpn),
                port => port,
            }),
        },
    }
}

/// The path of a datagram, or of a request of a dynamic connection.
pub(super) fn datagram(device: &Device, av: &DatagramSegment) -> Route {
    let word = av.grh_gid_fl;
    let source = source(device, word.sgid_index());
    let global = Global {
        source: source.gid,
        destination: av.rgid,
        tclass: av.tclass,
        flow_label: word.flow_label(),
        hop_limit: av.hop_limit,
    };
    match device.config.link {
        LinkLayer::InfiniBand => Route::InfiniBand {
            slid: device.port.lid,
            // The upper bit of the source path bits forces a loopback.
            dlid: if av.fl_mlid & 0x80 != 0 {
                device.port.lid
            } else {
                av.rlid.get()
            },
            sl: av.stat_rate_sl.sl(),
            global: word.grh().then_some(global),
        },
        LinkLayer::Ethernet => Route::Ethernet {
            destination: av.rmac,
            source: source.mac,
            vlan: source.vlan,
            global,
            udp: source.is_v2.then_some(av.rlid.get()),
        },
    }
}

pub(super) fn is_multicast(route: &Route) -> bool {
    match route {
        Route::InfiniBand { dlid, .. } => (MULTICAST_LID..PERMISSIVE_LID).contains(dlid),
        Route::Ethernet { destination, .. } => destination[0] & 1 != 0,
    }
}

fn is_own(device: &Device, route: &Route) -> bool {
    match route {
        Route::InfiniBand { dlid, .. } => *dlid == device.port.lid || *dlid == PERMISSIVE_LID,
        Route::Ethernet { destination, .. } => {
            let addresses = &device.port.nic.roce;
            let is_a_source = |it: &RoceAddress| it.mac == *destination && it.gid != [0; 16];
            raw::is_own(device, *destination)
                || !device.config.virtual_function && addresses.iter().any(is_a_source)
        }
    }
}

/// Whether a packet that goes there comes back here, and whether it goes out.
pub(super) fn directions(device: &Device, route: &Route) -> (bool, bool) {
    let (own, many) = (is_own(device, route), is_multicast(route));
    (own || many, device.port.up && (!own || many))
}

/// Whether a packet that came in is for this port.
pub(super) fn is_mine(device: &Device, route: &Route) -> bool {
    device.port.up && (is_own(device, route) || is_multicast(route))
}

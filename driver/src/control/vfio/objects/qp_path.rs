//! The way to a peer, in a queue pair's context.

use uverbs_abi::types::{GidType, QpAttrMask, QpType};
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use uverbs_abi::write::qp::{ModifyQp, QpDest};
use wqe_format::mlx5::firmware::qpc::Ads;
use wqe_format::mlx5::udp_source_port;

use super::Objects;
use crate::sys::errno::Errno;

/// The device's number of a static rate (`ib_rate_to_mlx5` of the kernel): `enum ibv_rate` counts from 2.5
/// Gbit/s as 2, the device from 7, and 0 is no limit.
fn rate(static_rate: u8) -> u8 {
    match static_rate {
        2.. => static_rate.saturating_add(5).min(15),
        _ => 0,
    }
}

/// And back.
fn static_rate(rate: u8) -> u8 {
    rate.saturating_sub(5)
}

/// The attributes of a path, as an address handle has them.
fn route(dest: &QpDest) -> AhAttr {
    AhAttr {
        grh: GlobalRoute {
            dgid: dest.dgid,
            flow_label: dest.flow_label,
            sgid_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
            ..GlobalRoute::default()
        },
        dlid: dest.dlid,
        sl: dest.sl,
        src_path_bits: dest.src_path_bits,
        static_rate: dest.static_rate,
        is_global: dest.is_global,
        port_num: dest.port_num,
        ..AhAttr::default()
    }
}

impl Objects {
    /// Writes the way to `dest` into a path. `EINVAL` for a GID index that there is not, or a path without
    /// global route on Ethernet.
    pub(super) fn set_path(
        &self,
        path: &mut Ads<&mut [u8]>,
        dest: &QpDest,
        qp_type: QpType,
        numbers: (u32, u32),
    ) -> Result<(), Errno> {
        let global = dest.is_global != 0;
        if self.caps.is_ethernet() {
            if !global {
                return Err(Errno(libc::EINVAL));
            }
            let entry = self.query_gid_entry(dest.port_num.into(), dest.sgid_index.into())?;
            // an initiator of dynamic connections says with each request where to, so the kernel does not ask for it
            let mac = match qp_type {
                QpType::DRIVER => [0; 6],
                _ => self.resolve(&route(dest))?,
            };
            let udp = entry.gid_type == GidType::ROCE_V2;
            let connected = matches!(
                qp_type,
                QpType::RC | QpType::UC | QpType::XRC_INI | QpType::XRC_TGT
            );
            path.set_rmac_47_32(u16::from_be_bytes([mac[0], mac[1]]))
                .set_rmac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]))
                .set_eth_prio(dest.sl & 7);
            if udp {
                path.set_dscp(dest.traffic_class >> 2);
            }
            if udp && connected {
                path.set_udp_sport(source_port(dest.flow_label, numbers));
            }
        } else {
            if global && u32::from(dest.sgid_index) >= self.gid_count() {
                return Err(Errno(libc::EINVAL));
            }
            path.set_rlid(dest.dlid)
                .set_mlid(dest.src_path_bits & 0x7f)
                .set_grh(global)
                .set_sl(dest.sl & 0xf);
        }
        if global {
            path.set_src_addr_index(dest.sgid_index)
                .set_hop_limit(dest.hop_limit)
                .set_tclass(dest.traffic_class)
                .set_flow_label(dest.flow_label);
            path.rgid_rip_mut().copy_from_slice(&dest.dgid);
        }
        path.set_stat_rate(rate(dest.static_rate))
            .set_vhca_port_num(dest.port_num);
        Ok(())
    }

    /// Reads a path; all zero if it was never set.
    pub(super) fn path(&self, path: &Ads<&[u8]>) -> QpDest {
        let port = path.vhca_port_num();
        if port == 0 || port > self.caps.general.num_ports() {
            return QpDest::default();
        }
        let ethernet = self.caps.is_ethernet();
        let mut dest = QpDest {
            dlid: if ethernet { 0 } else { path.rlid() },
            sl: if ethernet { path.eth_prio() } else { path.sl() },
            src_path_bits: path.mlid(),
            static_rate: static_rate(path.stat_rate()),
            port_num: port,
            ..QpDest::default()
        };
        if path.grh() || ethernet {
            dest.is_global = 1;
            dest.flow_label = path.flow_label();
            dest.sgid_index = path.src_addr_index();
            dest.hop_limit = path.hop_limit();
            dest.traffic_class = path.tclass();
            dest.dgid.copy_from_slice(path.rgid_rip());
        }
        dest
    }

    /// The fields of the first path that attributes of their own set.
    pub(super) fn set_of_path(path: &mut Ads<&mut [u8]>, attr: &ModifyQp) {
        let has = |bit| attr.attr_mask.contains(bit);
        if has(QpAttrMask::PKEY_INDEX) {
            path.set_pkey_index(attr.pkey_index);
        }
        if has(QpAttrMask::PORT) {
            path.set_vhca_port_num(attr.port_num);
        }
        if has(QpAttrMask::TIMEOUT) {
            path.set_ack_timeout(attr.timeout);
        }
    }
}

/// The UDP source port of a connection (`rdma_get_udp_sport`): of its flow label, or of both numbers.
fn source_port(flow_label: u32, (own, peer): (u32, u32)) -> u16 {
    let label = match flow_label {
        // `rdma_calc_flow_label`
        0 => {
            let mixed = u64::from(own).wrapping_mul(peer.into());
            let mixed = mixed ^ mixed >> 20 ^ mixed >> 40;
            (mixed & 0xf_ffff) as u32
        }
        label => label,
    };
    udp_source_port(label)
}

//! Address vectors: where a datagram goes, in the device's words.
//!
//! An address handle holds one, which posting copies into the WQE with the number of the queue pair. On
//! Ethernet the kernel says at which MAC address the destination is.

use uverbs_abi::write::ah::AhAttr;
use wqe_format::mlx5::{DatagramSegment, GrhGidFl, StatRateSl, udp_source_port};
use zerocopy::byteorder::big_endian::U16;

/// What a path goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet frames with a global route header (RoCE v1).
    RoceV1,
    /// UDP (RoCE v2).
    RoceV2,
}

/// The device's number of a static rate (`enum ibv_rate`): of the next faster one that it has, up to 120
/// Gbit/s, or 0 for no limit (IBTA 1.3, table 224; PRM, "Address Vector", `stat_rate`).
const fn rate(static_rate: u8) -> u8 {
    match static_rate {
        // 2.5 to 120 Gbit/s
        2..=10 => static_rate + 5,
        // 14 Gbit/s as 20
        11 => 11,
        // 25 and 28 as 30
        15 | 19 => 9,
        // 50 and 56 as 60
        12 | 20 => 13,
        // 100 and 112 as 120
        13 | 16 => 15,
        _ => 0,
    }
}

/// A UDP source port for a path without a flow label: any dynamic one, so that different paths spread
/// over the network.
fn any_port() -> u16 {
    use std::hash::{BuildHasher, RandomState};
    // a new state is new random keys
    RandomState::new().hash_one(0_u8) as u16 | 0xc000
}

/// The address vector of a path. `rmac` is the MAC address that the kernel answered, on Ethernet.
pub fn address_vector(attr: &AhAttr, wire: Wire, rmac: [u8; 6]) -> DatagramSegment {
    let grh = &attr.grh;
    let flow_label = grh.flow_label & 0xf_ffff;
    let infiniband = wire == Wire::InfiniBand;
    let mut av = DatagramSegment {
        stat_rate_sl: StatRateSl::new()
            .with_stat_rate(rate(attr.static_rate))
            .with_sl(if infiniband {
                attr.sl & 0xf
            } else {
                (attr.sl & 7) << 1
            }),
        ..DatagramSegment::default()
    };
    match wire {
        Wire::InfiniBand => {
            av.fl_mlid = attr.src_path_bits & 0x7f;
            av.rlid = U16::new(attr.dlid);
        }
        Wire::RoceV1 => {}
        Wire::RoceV2 => {
            av.rlid = U16::new(match flow_label {
                0 => any_port(),
                label => udp_source_port(label),
            });
        }
    }
    if attr.is_global != 0 {
        av.tclass = grh.traffic_class;
        av.hop_limit = grh.hop_limit;
        av.grh_gid_fl = GrhGidFl::new()
            .with_grh(infiniband)
            .with_sgid_index(grh.sgid_index)
            .with_flow_label(flow_label);
        av.rgid = grh.dgid;
    }
    if !infiniband {
        av.rmac = rmac;
    }
    av
}

#[cfg(test)]
mod tests {
    use uverbs_abi::write::ah::GlobalRoute;
    use zerocopy::IntoBytes;

    use super::*;

    fn attr() -> AhAttr {
        AhAttr {
            grh: GlobalRoute {
                dgid: [0x5a; 16],
                flow_label: 0xfff_1234,
                sgid_index: 3,
                hop_limit: 64,
                traffic_class: 0x60,
                ..GlobalRoute::default()
            },
            dlid: 0x1122,
            sl: 5,
            src_path_bits: 0x83,
            static_rate: 3,
            is_global: 1,
            port_num: 1,
            ..AhAttr::default()
        }
    }

    /// Bytes as a program on libmlx5 finds them in the WQE of a datagram.
    #[test]
    fn over_udp() {
        let av = address_vector(&attr(), Wire::RoceV2, [1, 2, 3, 4, 5, 6]);
        let bytes = av.to_qp(0x123, 0x1111_1111);
        let bytes = bytes.as_bytes();
        assert_eq!(bytes[..4], [0x11; 4]);
        assert_eq!(bytes[8..12], 0x8000_0123_u32.to_be_bytes());
        // 10 Gbit/s, priority 5
        assert_eq!(bytes[12..14], [0x8a, 0]);
        let port = 0xc000 | (0x1234 ^ (0xf_1234_u32 >> 14)) as u16;
        assert_eq!(bytes[14..16], port.to_be_bytes());
        assert_eq!(bytes[20..26], [1, 2, 3, 4, 5, 6]);
        assert_eq!(bytes[26..28], [0x60, 64]);
        assert_eq!(bytes[28..32], (3 << 20 | 0xf_1234_u32).to_be_bytes());
        assert_eq!(bytes[32..], [0x5a; 16]);
    }

    #[test]
    fn over_infiniband() {
        let av = address_vector(&attr(), Wire::InfiniBand, [9; 6]);
        let bytes = av.as_bytes();
        assert_eq!(bytes[12..14], [0x85, 3]);
        assert_eq!(bytes[14..16], [0x11, 0x22]);
        assert_eq!(bytes[20..26], [0; 6]);
        assert_eq!(
            bytes[28..32],
            (1 << 30 | 3 << 20 | 0xf_1234_u32).to_be_bytes()
        );
        let local = AhAttr {
            is_global: 0,
            ..attr()
        };
        let av = address_vector(&local, Wire::InfiniBand, [0; 6]);
        assert_eq!(av.as_bytes()[26..], [0; 22]);
    }

    #[test]
    fn a_path_without_flow_label_gets_some_dynamic_port() {
        let mut plain = attr();
        plain.grh.flow_label = 0;
        let port = || address_vector(&plain, Wire::RoceV2, [0; 6]).rlid.get();
        let ports: Vec<_> = (0..32).map(|_| port()).collect();
        assert!(ports.iter().all(|port| *port >= 0xc000));
        assert!(ports.iter().any(|port| *port != ports[0]));
        assert_eq!(address_vector(&plain, Wire::RoceV1, [0; 6]).rlid.get(), 0);
    }

    #[test]
    fn rates_of_libmlx5() {
        let rates = [
            0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0, 0, 0,
        ];
        for (static_rate, expected) in (0..).zip(rates) {
            assert_eq!(rate(static_rate), expected, "{static_rate}");
        }
        for wrong in [14, 17, 24, 255] {
            let odd = AhAttr {
                static_rate: wrong,
                ..attr()
            };
            let av = address_vector(&odd, Wire::RoceV1, [0; 6]);
            assert_eq!(av.as_bytes()[12], 0x0a);
        }
    }
}

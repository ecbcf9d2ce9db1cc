//! What a ConnectX-5 Ex says of itself on Linux 6.12 (`mlx5_ib_query_device` in
//! `drivers/infiniband/hw/mlx5/main.c`; numbers as `ibv_devinfo -v` prints them for one).

use oxverbs::sys::Errno;
use uverbs_abi::types::{DriverId, GidEntry, GidType, PortAttrEx, QpType, QueryPortFlags};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::device::{
    CqModerationCaps, ExQueryDeviceResp, OdpCaps, OdpTransportCaps, PortAttr, QueryDeviceResp,
    TmCaps,
};

use uverbs_abi::write::ah::AhAttr;
use zerocopy::IntoBytes;

use crate::config::{Config, Link};
use crate::core::facts::Facts;

/// Basic blocks of the largest send queue.
pub(crate) const MAX_SEND_WQEBB: u32 = 1 << 15;
/// Receive work requests of a queue.
pub(crate) const MAX_RECV_WR: u32 = 1 << 15;
/// Bytes of the longest send work request.
pub(crate) const MAX_SQ_DESC: u16 = 1024;
/// Bytes of the longest receive work request.
pub(crate) const MAX_RQ_DESC: u16 = 512;
/// Entries of the largest completion queue.
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;
/// Bytes of device memory.
pub(crate) const MAX_DM: u64 = 128 << 10;
/// `IB_MTU_4096`
const MTU: u8 = 5;
/// Outstanding reads and atomics.
const MAX_RD_ATOMIC: u8 = 16;
/// The port's LID on InfiniBand.
pub(crate) fn lid(index: usize) -> u16 {
    17 + index as u16
}

/// For the core.
pub(crate) const FACTS: Facts = Facts {
    driver_id: DriverId::MLX5.0,
    comp_vectors: 4,
    mtu: MTU,
    max_rd_atomic: MAX_RD_ATOMIC,
};

/// EUI-64 of an address out of the vendor's range.
pub(crate) fn guid(index: usize) -> [u8; 8] {
    [0x50, 0x6b, 0x4b, 0x03, 0x00, 0x0f, 0x4e, 0x10 + index as u8]
}

/// The Ethernet address that all destinations resolve to.
pub(crate) fn mac(index: usize) -> [u8; 6] {
    [0x52, 0x6b, 0x4b, 0x0f, 0x4e, 0x10 + index as u8]
}

/// GIDs: the link-local address (on Ethernet as RoCE v1 and v2), and 127.0.0.1 on Ethernet.
pub(crate) fn gids(index: usize, link: Link) -> Vec<[u8; 16]> {
    let mut link_local = [0; 16];
    link_local[..2].copy_from_slice(&[0xfe, 0x80]);
    link_local[8..].copy_from_slice(&guid(index));
    let mut v4 = [0; 16];
    v4[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, index as u8 + 1]);
    match link {
        Link::InfiniBand => vec![link_local],
        Link::Ethernet => vec![link_local, link_local, v4, v4],
    }
}

pub(crate) fn gid_type(index: u32, link: Link) -> GidType {
    match link {
        Link::InfiniBand => GidType::IB,
        Link::Ethernet if index.is_multiple_of(2) => GidType::ROCE_V1,
        Link::Ethernet => GidType::ROCE_V2,
    }
}

pub(crate) fn gid_entry(gids: &[[u8; 16]], index: u32, link: Link) -> Option<GidEntry> {
    Some(GidEntry {
        gid: *gids.get(index as usize)?,
        gid_index: index,
        port_num: 1,
        gid_type: gid_type(index, link),
        netdev_ifindex: u32::from(link == Link::Ethernet),
    })
}

pub(crate) fn query_device(index: usize) -> QueryDeviceResp {
    QueryDeviceResp {
        // 16.35.2000
        fw_ver: (16 << 32) | (35 << 16) | 2000,
        node_guid: guid(index),
        sys_image_guid: guid(index),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: 0x02c9,
        vendor_part_id: 4121,
        max_qp: 262_144,
        max_qp_wr: MAX_SEND_WQEBB,
        device_cap_flags: 0xed72_1c36,
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: 1 << 24,
        max_cqe: MAX_CQE,
        max_mr: 1 << 24,
        max_pd: 1 << 24,
        max_qp_rd_atom: MAX_RD_ATOMIC.into(),
        max_res_rd_atom: 16 * 262_144,
        max_qp_init_rd_atom: MAX_RD_ATOMIC.into(),
        // `IB_ATOMIC_HCA`
        atomic_cap: 1,
        max_mw: 1 << 24,
        max_mcast_grp: 2_097_152,
        max_mcast_qp_attach: 240,
        max_total_mcast_qp_attach: 503_316_480,
        max_ah: i32::MAX as u32,
        max_srq: 8_388_608,
        max_srq_wr: MAX_RECV_WR - 1,
        max_srq_sge: 31,
        max_pkeys: 128,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    }
}

pub(crate) fn query_device_ex(index: usize) -> ExQueryDeviceResp {
    let base = query_device(index);
    ExQueryDeviceResp {
        base,
        response_length: size_of::<ExQueryDeviceResp>() as u32,
        odp_caps: OdpCaps {
            // Support and implicit; what each transport can do (`enum ib_odp_transport_cap_bits`).
            general_caps: 0b11,
            per_transport_caps: OdpTransportCaps {
                rc_odp_caps: 0b1_1111,
                ud_odp_caps: 0b1,
                ..OdpTransportCaps::default()
            },
            ..OdpCaps::default()
        },
        timestamp_mask: u64::MAX,
        hca_core_clock: 156_250,
        device_cap_flags_ex: 0x30_0000_0000 | u64::from(base.device_cap_flags),
        max_wq_type_rq: 1 << 23,
        // Stripping of VLAN tags, scatter of FCS, IP checksum, delay drop.
        raw_packet_caps: 0b1111,
        tm_caps: TmCaps {
            max_rndv_hdr_size: 64,
            max_num_tags: 127,
            flags: 1,
            max_ops: 32_768,
            max_sge: 1,
            ..TmCaps::default()
        },
        cq_moderation_caps: CqModerationCaps {
            max_cq_moderation_count: 0xffff,
            max_cq_moderation_period: 0xfff,
            ..CqModerationCaps::default()
        },
        max_dm_size: MAX_DM,
        xrc_odp_caps: 0b1_1111,
        rss_caps: uverbs_abi::write::device::RssCaps {
            supported_qpts: 1 << QpType::RAW_PACKET.0,
            max_rwq_indirection_tables: 1 << 20,
            max_rwq_indirection_table_size: 2048,
            ..Default::default()
        },
        ..ExQueryDeviceResp::default()
    }
}

/// The driver's part of the extended answer.
pub(crate) fn query_device_udata() -> udata::QueryDeviceResp {
    let raw = 1 << QpType::RAW_PACKET.0;
    udata::QueryDeviceResp {
        response_length: size_of::<udata::QueryDeviceResp>() as u32,
        tso_caps: udata::TsoCaps {
            max_tso: 1 << 18,
            supported_qpts: raw | (1 << QpType::UD.0),
        },
        rss_caps: udata::RssCaps {
            rx_hash_fields_mask: udata::RxHashFields(0x8000_01ff),
            rx_hash_function: udata::RxHashFunction::TOEPLITZ,
            ..Default::default()
        },
        cqe_comp_caps: udata::CqeCompCaps {
            max_num: 64,
            supported_format: udata::CqeCompFormat(0b111),
        },
        packet_pacing_caps: udata::PacketPacingCaps {
            qp_rate_limit_min: 1,
            qp_rate_limit_max: 100_000_000,
            supported_qpts: raw,
            cap_flags: udata::PacketPacingCapFlags::BURST,
            ..Default::default()
        },
        mlx5_ib_support_multi_pkt_send_wqes: udata::MpwCaps(0b110),
        flags: udata::QueryDeviceFlags(0b1111),
        sw_parsing_caps: udata::SwParsingCaps {
            sw_parsing_offloads: udata::SwParsingOffloads(0b111),
            supported_qpts: raw,
        },
        striding_rq_caps: udata::StridingRqCaps {
            min_single_stride_log_num_of_bytes: 6,
            max_single_stride_log_num_of_bytes: 13,
            min_single_wqe_log_num_of_strides: 3,
            max_single_wqe_log_num_of_strides: 16,
            supported_qpts: raw,
            ..Default::default()
        },
        tunnel_offloads_caps: udata::TunnelOffloads(0b111),
        dci_streams_caps: udata::DciStreamsCaps {
            max_log_num_concurent: 7,
            max_log_num_errored: 7,
        },
        ..Default::default()
    }
}

pub(crate) fn query_port(index: usize, link: Link) -> PortAttrEx {
    let common = PortAttr {
        max_msg_sz: 1 << 30,
        state: 4,
        max_mtu: MTU,
        active_mtu: MTU,
        max_vl_num: 4,
        // 4X of EDR: 100 Gbit/s.
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        ..PortAttr::default()
    };
    let legacy_resp = match link {
        Link::InfiniBand => PortAttr {
            port_cap_flags: 0x2651_e848,
            gid_tbl_len: 8,
            pkey_tbl_len: 128,
            lid: lid(index),
            sm_lid: 1,
            lmc: 0,
            subnet_timeout: 18,
            link_layer: 1,
            ..common
        },
        Link::Ethernet => PortAttr {
            port_cap_flags: 0x0401_0000,
            gid_tbl_len: 256,
            pkey_tbl_len: 1,
            link_layer: 2,
            flags: QueryPortFlags::GRH_REQUIRED,
            ..common
        },
    };
    PortAttrEx {
        legacy_resp,
        ..PortAttrEx::default()
    }
}

/// `mlx5_ib_create_ah`: where the destination is.
pub(crate) fn create_ah(
    index: usize,
    config: &Config,
    attr: &AhAttr,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let has_answer = config.mlx5.has_ah_udata && config.mlx5.link == Link::Ethernet;
    if !has_answer || room == 0 {
        return Ok(Vec::new());
    }
    if room < size_of::<udata::CreateAhResp>() {
        return Err(Errno(libc::EINVAL));
    }
    // A group's address follows from its GID (`rdma_get_mcast_mac`).
    let dgid = &attr.grh.dgid;
    let mut dmac = mac(index);
    if dgid[0] == 0xff {
        dmac = [0x33, 0x33, dgid[12], dgid[13], dgid[14], dgid[15]];
    }
    let resp = udata::CreateAhResp {
        response_length: 12,
        dmac,
        ..Default::default()
    };
    Ok(resp.as_bytes().to_vec())
}

/// What `modalias` of the PCI function says; by it libibverbs chooses the provider.
pub(crate) fn modalias() -> &'static str {
    "pci:v000015B3d00001019sv000015B3sd00000008bc02sc07i00"
}

/// Entries of the table of partition keys.
pub(crate) fn pkeys(config: &Config) -> u32 {
    match config.mlx5.link {
        Link::InfiniBand => 128,
        Link::Ethernet => 1,
    }
}

/// The link layer's name in sysfs.
pub(crate) fn link_layer(config: &Config) -> &'static str {
    match config.mlx5.link {
        Link::InfiniBand => "InfiniBand",
        Link::Ethernet => "Ethernet",
    }
}

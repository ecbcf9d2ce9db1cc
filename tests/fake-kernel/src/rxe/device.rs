//! What an rxe device says of itself on Linux 6.12 (`drivers/infiniband/sw/rxe/rxe_param.h`; compared with
//! what `ibv_devinfo -v` prints on a real one).

use crate::core::facts::Facts;
use uverbs_abi::types::{DriverId, GidEntry, GidType, PortAttrEx, QpCap, QueryPortFlags};
use uverbs_abi::write::device::{ExQueryDeviceResp, PortAttr, QueryDeviceResp};

/// For the core.
pub(crate) const FACTS: Facts = Facts {
    driver_id: DriverId::RXE.0,
    comp_vectors: 2,
    mtu: MTU,
    max_rd_atomic: MAX_RD_ATOMIC,
};

/// Work requests of a queue.
const MAX_WR: u32 = 1 << 20;
/// Elements of a scatter list.
pub(crate) const MAX_SGE: u32 = 32;
/// Bytes of inline data: what the largest scatter list takes.
const MAX_INLINE: u32 = 16 * MAX_SGE;
/// Entries of a completion queue.
pub(crate) const MAX_CQE: u32 = (1 << 15) - 1;
/// Work requests of a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 20;
/// Elements of a scatter list of a shared receive queue.
pub(crate) const MAX_SRQ_SGE: u32 = 27;
/// Outstanding reads and atomics.
pub(crate) const MAX_RD_ATOMIC: u8 = 128;
/// The largest message.
pub(crate) const MAX_MESSAGE: u32 = 0x80_0000;
/// `IB_MTU_1024`, what a netdev of 1500 bytes gives.
pub(crate) const MTU: u8 = 3;
/// Entries of the GID table.
const GID_TABLE: u32 = 1024;

/// The first device's GIDs: its link-local address, and 127.0.0.1, for which a program that resolves
/// addresses finds a route on every machine.
pub(crate) fn gids(index: usize) -> Vec<[u8; 16]> {
    let mut link_local = [0; 16];
    link_local[..2].copy_from_slice(&[0xfe, 0x80]);
    link_local[8..].copy_from_slice(&guid(index));
    let mut v4 = [0; 16];
    v4[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, index as u8 + 1]);
    vec![link_local, v4]
}

/// EUI-64 of the Ethernet address 02:00:00:00:00:NN.
pub(crate) fn guid(index: usize) -> [u8; 8] {
    [0, 0, 0, 0xff, 0xfe, 0, 0, index as u8 + 1]
}

pub(crate) fn query_device(index: usize) -> QueryDeviceResp {
    QueryDeviceResp {
        node_guid: guid(index),
        sys_image_guid: guid(index),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        vendor_id: 0xff_ffff,
        max_qp: 1_048_560,
        max_qp_wr: MAX_WR,
        device_cap_flags: 0x0122_3c76,
        max_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_cq: 1 << 20,
        max_cqe: MAX_CQE,
        max_mr: (1 << 19) - 1,
        max_pd: 1 << 20,
        max_qp_rd_atom: MAX_RD_ATOMIC.into(),
        max_res_rd_atom: 0x3_f000,
        max_qp_init_rd_atom: MAX_RD_ATOMIC.into(),
        atomic_cap: 1,
        max_mw: (1 << 19) - 1,
        max_mcast_grp: 8192,
        max_mcast_qp_attach: 56,
        max_total_mcast_qp_attach: 8192 * 56,
        max_ah: 0x7fff,
        max_srq: 917_503,
        max_srq_wr: MAX_SRQ_WR,
        max_srq_sge: MAX_SRQ_SGE,
        max_pkeys: 64,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    }
}

pub(crate) fn query_device_ex(index: usize) -> ExQueryDeviceResp {
    let base = query_device(index);
    ExQueryDeviceResp {
        device_cap_flags_ex: u64::from(base.device_cap_flags) | (0b111 << 38),
        base,
        response_length: size_of::<ExQueryDeviceResp>() as u32,
        ..ExQueryDeviceResp::default()
    }
}

pub(crate) fn query_port() -> PortAttrEx {
    PortAttrEx {
        legacy_resp: PortAttr {
            // IP-based GIDs and communication management.
            port_cap_flags: 0x0401_0000,
            max_msg_sz: MAX_MESSAGE,
            gid_tbl_len: GID_TABLE,
            pkey_tbl_len: 1,
            state: 4,
            max_mtu: 5,
            active_mtu: MTU,
            max_vl_num: 1,
            active_width: 1,
            active_speed: 1,
            phys_state: 5,
            link_layer: 2,
            flags: QueryPortFlags::GRH_REQUIRED,
            ..PortAttr::default()
        },
        ..PortAttrEx::default()
    }
}

/// The entry at `index` of port 1.
pub(crate) fn gid_entry(gids: &[[u8; 16]], index: u32) -> Option<GidEntry> {
    let gid = gids.get(index as usize)?;
    Some(GidEntry {
        gid: *gid,
        gid_index: index,
        port_num: 1,
        gid_type: GidType::ROCE_V2,
        // The loopback device.
        netdev_ifindex: 1,
    })
}

/// Whether a queue pair of this capacity can be made (`rxe_qp_chk_cap`).
pub(crate) fn has_capacity(cap: &QpCap, receives: bool) -> bool {
    let send = cap.max_send_wr <= MAX_WR && cap.max_send_sge <= MAX_SGE;
    let recv = cap.max_recv_wr <= MAX_WR && cap.max_recv_sge <= MAX_SGE;
    send && (recv || !receives) && cap.max_inline_data <= MAX_INLINE
}

//! Values of the ABI as this suite has them.

use uverbs_abi::handle::Qp as QpHandle;
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpCap, QpState as AbiState, SrqAttrMask};
use uverbs_abi::write::device::{ExQueryDeviceResp, PortAttr as AbiPort};
use uverbs_abi::write::qp::{ModifyQp, QpDest, QueryQpResp};

use super::*;

pub(super) fn device(from: &ExQueryDeviceResp) -> DeviceAttr {
    let base = from.base;
    let flags = match from.device_cap_flags_ex {
        0 => base.device_cap_flags.into(),
        flags => flags,
    };
    DeviceAttr {
        node_guid: u64::from_be_bytes(base.node_guid),
        sys_image_guid: u64::from_be_bytes(base.sys_image_guid),
        max_mr_size: base.max_mr_size,
        page_size_cap: base.page_size_cap,
        cap_flags: flags,
        max_qp: base.max_qp,
        max_qp_wr: base.max_qp_wr,
        max_sge: base.max_sge,
        max_cq: base.max_cq,
        max_cqe: base.max_cqe,
        max_mr: base.max_mr,
        max_pd: base.max_pd,
        max_qp_rd_atom: base.max_qp_rd_atom,
        max_qp_init_rd_atom: base.max_qp_init_rd_atom,
        atomic_cap: base.atomic_cap,
        max_mw: base.max_mw,
        max_mcast_grp: base.max_mcast_grp,
        max_mcast_qp_attach: base.max_mcast_qp_attach,
        max_ah: base.max_ah,
        max_srq: base.max_srq,
        max_srq_wr: base.max_srq_wr,
        max_srq_sge: base.max_srq_sge,
        max_pkeys: base.max_pkeys,
        ports: base.phys_port_cnt,
    }
}

pub(super) fn port(from: &AbiPort) -> PortAttr {
    PortAttr {
        state: from.state.into(),
        max_mtu: from.max_mtu,
        active_mtu: from.active_mtu,
        gid_table_len: from.gid_tbl_len,
        pkey_table_len: from.pkey_tbl_len,
        max_msg_size: from.max_msg_sz,
        link_layer: from.link_layer,
        lid: from.lid,
    }
}

pub(super) fn caps(from: &QpCap) -> Caps {
    Caps {
        send_wr: from.max_send_wr,
        recv_wr: from.max_recv_wr,
        send_sge: from.max_send_sge,
        recv_sge: from.max_recv_sge,
        inline: from.max_inline_data,
    }
}

/// The other way round: what a queue pair is asked for.
pub(super) fn cap(from: &Caps) -> QpCap {
    QpCap {
        max_send_wr: from.send_wr,
        max_recv_wr: from.recv_wr,
        max_send_sge: from.send_sge,
        max_recv_sge: from.recv_sge,
        max_inline_data: from.inline,
    }
}

/// Which attributes of a shared receive queue are set.
pub(super) fn srq_mask(max_wr: Option<u32>, limit: Option<u32>) -> SrqAttrMask {
    let mut mask = SrqAttrMask::NONE;
    if max_wr.is_some() {
        mask |= SrqAttrMask::MAX_WR;
    }
    if limit.is_some() {
        mask |= SrqAttrMask::LIMIT;
    }
    mask
}

/// The command that sets what `attr` has.
pub(super) fn modification(handle: QpHandle, attr: &QpAttr) -> ModifyQp {
    let mut request = ModifyQp {
        qp_handle: handle,
        ..ModifyQp::default()
    };
    let mut mask = QpAttrMask::NONE;
    macro_rules! set {
        ($($field:ident => $abi:ident, $bit:ident;)*) => {$(
            if let Some(value) = attr.$field {
                request.$abi = value;
                mask |= QpAttrMask::$bit;
            }
        )*};
    }
    set! {
        pkey_index => pkey_index, PKEY_INDEX;
        port => port_num, PORT;
        qkey => qkey, QKEY;
        mtu => path_mtu, PATH_MTU;
        timeout => timeout, TIMEOUT;
        retry => retry_cnt, RETRY_CNT;
        rnr_retry => rnr_retry, RNR_RETRY;
        rq_psn => rq_psn, RQ_PSN;
        sq_psn => sq_psn, SQ_PSN;
        max_rd_atomic => max_rd_atomic, MAX_QP_RD_ATOMIC;
        max_dest_rd_atomic => max_dest_rd_atomic, MAX_DEST_RD_ATOMIC;
        min_rnr_timer => min_rnr_timer, MIN_RNR_TIMER;
        dest => dest_qp_num, DEST_QPN;
    }
    if let Some(to) = attr.state {
        request.qp_state = AbiState(to as u8);
        mask |= QpAttrMask::STATE;
    }
    if let Some(rights) = attr.access {
        request.qp_access_flags = AccessFlags(rights);
        mask |= QpAttrMask::ACCESS_FLAGS;
    }
    if let Some(route) = &attr.route {
        request.dest = QpDest {
            dgid: route.gid,
            dlid: route.lid,
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
            is_global: 1,
            port_num: route.port,
            ..QpDest::default()
        };
        mask |= QpAttrMask::AV;
    }
    request.attr_mask = mask;
    request
}

pub(super) fn report(a: &QueryQpResp) -> Answer<QpReport> {
    Ok(QpReport {
        state: State::from_number(a.qp_state.0.into())
            .ok_or_else(|| Fault::errno(libc::EPROTO, "understand a state"))?,
        access: a.qp_access_flags.0,
        pkey_index: a.pkey_index,
        port: a.port_num,
        qkey: a.qkey,
        mtu: a.path_mtu,
        timeout: a.timeout,
        retry: a.retry_cnt,
        rnr_retry: a.rnr_retry,
        rq_psn: a.rq_psn,
        sq_psn: a.sq_psn,
        max_rd_atomic: a.max_rd_atomic,
        max_dest_rd_atomic: a.max_dest_rd_atomic,
        min_rnr_timer: a.min_rnr_timer,
        dest: a.dest_qp_num,
        route: Route {
            gid: a.dest.dgid,
            lid: a.dest.dlid,
            sgid_index: a.dest.sgid_index,
            port: a.dest.port_num,
            hop_limit: a.dest.hop_limit,
            traffic_class: a.dest.traffic_class,
            flow_label: a.dest.flow_label,
        },
        caps: caps(&a.cap()),
    })
}

//! What every family's queue pairs have for the program: attributes, from C to the kernel and back, and `ibv_wr_*`.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use oxverbs::ffi_core::uverbs_abi::handle::Qp as QpHandle;
use oxverbs::ffi_core::uverbs_abi::types::{AccessFlags, QpAttrMask, QpCap, QpState};
use oxverbs::ffi_core::uverbs_abi::write::qp::{ModifyQp, QpDest, QueryQpResp};

use crate::abi::attr::{ibv_ah_attr, ibv_global_route, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr};
use crate::abi::driver::VERBS_QP_EX;
use crate::abi::objects::{ibv_gid, ibv_qp, ibv_qp_ex};
use crate::abi::work::wr_ops;
use crate::library::library;

/// Bytes for the largest `struct verbs_qp`, which a family's queue pair begins with.
pub(crate) const HEAD: usize = 384;

/// Fills the slots of `ibv_qp_ex` that this release has, and marks the queue pair as extended.
///
/// # Safety
///
/// `qp` is a new object that begins with [`HEAD`] bytes for `verbs_qp`.
pub(crate) unsafe fn offer_builder<T>(qp: *mut T, ops: &wr_ops) {
    let Some(library) = library() else { return };
    let slots = library.layout.wr_slots;
    let to = qp
        .wrapping_byte_add(offset_of!(ibv_qp_ex, ops))
        .cast::<*const c_void>();
    let from = (&raw const *ops).cast::<*const c_void>();
    // SAFETY: the head has room for 22 slots, and a release has no more.
    unsafe { from.copy_to_nonoverlapping(to, slots) };
    let mask = qp
        .wrapping_byte_add(library.layout.qp_comp_mask_offset())
        .cast::<u32>();
    // SAFETY: within the head.
    unsafe { mask.write(VERBS_QP_EX) };
}

pub(crate) fn caps(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// What a queue pair was made with, as `ibv_query_qp` answers it.
pub(crate) fn made_with(qp: &ibv_qp, cap: ibv_qp_cap, sq_sig_all: bool) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: qp.qp_context,
        send_cq: qp.send_cq,
        recv_cq: qp.recv_cq,
        srq: qp.srq,
        cap,
        qp_type: qp.qp_type,
        sq_sig_all: c_int::from(sq_sig_all),
    }
}

fn destination(attr: &ibv_ah_attr) -> QpDest {
    QpDest {
        dgid: attr.grh.dgid.raw,
        flow_label: attr.grh.flow_label,
        dlid: attr.dlid,
        sgid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global,
        port_num: attr.port_num,
        ..QpDest::default()
    }
}

/// The command for the attributes that `mask` names; the others stay zero, whatever the caller left in them.
pub(crate) fn modification(handle: QpHandle, attr: &ibv_qp_attr, mask: u32) -> ModifyQp {
    let mut to = ModifyQp {
        qp_handle: handle,
        attr_mask: QpAttrMask(mask),
        ..ModifyQp::default()
    };
    // Bits of `enum ibv_qp_attr_mask`.
    let has = |bit: u32| mask & (1 << bit) != 0;
    if has(0) {
        to.qp_state = QpState(attr.qp_state as u8);
    }
    if has(1) {
        to.cur_qp_state = QpState(attr.cur_qp_state as u8);
    }
    if has(2) {
        to.en_sqd_async_notify = attr.en_sqd_async_notify;
    }
    if has(3) {
        to.qp_access_flags = AccessFlags(attr.qp_access_flags);
    }
    if has(4) {
        to.pkey_index = attr.pkey_index;
    }
    if has(5) {
        to.port_num = attr.port_num;
    }
    if has(6) {
        to.qkey = attr.qkey;
    }
    if has(7) {
        to.dest = destination(&attr.ah_attr);
    }
    if has(8) {
        to.path_mtu = attr.path_mtu as u8;
    }
    if has(9) {
        to.timeout = attr.timeout;
    }
    if has(10) {
        to.retry_cnt = attr.retry_cnt;
    }
    if has(11) {
        to.rnr_retry = attr.rnr_retry;
    }
    if has(12) {
        to.rq_psn = attr.rq_psn;
    }
    if has(13) {
        to.max_rd_atomic = attr.max_rd_atomic;
    }
    if has(14) {
        to.alt_dest = destination(&attr.alt_ah_attr);
        to.alt_pkey_index = attr.alt_pkey_index;
        to.alt_port_num = attr.alt_port_num;
        to.alt_timeout = attr.alt_timeout;
    }
    if has(15) {
        to.min_rnr_timer = attr.min_rnr_timer;
    }
    if has(16) {
        to.sq_psn = attr.sq_psn;
    }
    if has(17) {
        to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    }
    if has(18) {
        to.path_mig_state = attr.path_mig_state as u8;
    }
    if has(20) {
        to.dest_qp_num = attr.dest_qp_num;
    }
    to
}

/// Attributes below `IBV_QP_RATE_LIMIT`: what libibverbs hands to the plain commands. Which of them exist is the kernel's
/// to say; programs query with all bits set.
pub(crate) const PLAIN_ATTRIBUTES: u32 = (1 << 25) - 1;

fn address(from: &QpDest) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.dgid },
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// What `ibv_query_qp` answers of the kernel's answer.
pub(crate) fn attributes(from: &QueryQpResp) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: c_uint::from(from.qp_state.0),
        cur_qp_state: c_uint::from(from.cur_qp_state.0),
        path_mtu: c_uint::from(from.path_mtu),
        path_mig_state: c_uint::from(from.path_mig_state),
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags.0,
        cap: caps(&from.cap()),
        ah_attr: address(&from.dest),
        alt_ah_attr: address(&from.alt_dest),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: 0,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    }
}

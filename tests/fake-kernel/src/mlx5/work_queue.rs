//! Receive work queues, and queue pairs that spread packets over an indirection table of them.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpCap, QpType};
use uverbs_abi::udata::mlx5 as udata;

use super::device;
use super::hca::{QueuePair, Ring};
use super::queues::{answer, completion_queue, pin, pin_record, request};
use crate::core::create::NewQp;
use crate::core::objects::QpKind;
use crate::core::work_queue::NewWq;
use crate::request::Uhw;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// Bytes of Toeplitz' key.
const KEY_LEN: u8 = 40;

/// `mlx5_ib_create_wq`.
pub(crate) fn create(
    st: &mut State,
    fd: RawFd,
    new: &NewWq,
    number: u32,
    uhw: &Uhw<'_>,
) -> Result<(Arc<QueuePair>, Vec<u8>), Errno> {
    // `IB_UVERBS_WQT_RQ`, and the flags up to padding of ends.
    if new.wq_type != 0 || new.flags & !0b1111 != 0 {
        return Err(EINVAL);
    }
    let least = std::mem::offset_of!(udata::CreateWq, single_wqe_log_num_of_strides);
    let sent: udata::CreateWq = request(uhw, least)?;
    let striding = udata::CreateWqMask::STRIDING_RQ;
    if !striding.contains(sent.comp_mask) {
        return Err(EOPNOTSUPP);
    }
    if sent.comp_mask.contains(striding) {
        let strides = 3..=16;
        let is_fit = (6..=13).contains(&sent.single_stride_log_num_of_bytes)
            && strides.contains(&sent.single_wqe_log_num_of_strides);
        if !is_fit {
            return Err(EINVAL);
        }
    }
    // Whatever the version of completions: they always name such a queue by its index.
    if sent.user_index > 0xff_ffff {
        return Err(EINVAL);
    }
    let count = sent.rq_wqe_count;
    if !count.is_power_of_two()
        || count > device::MAX_RECV_WR
        || sent.rq_wqe_shift > 12
        || new.max_wr > device::MAX_RECV_WR
    {
        return Err(EINVAL);
    }
    let ring = Ring {
        address: sent.buf_addr,
        count,
        shift: sent.rq_wqe_shift,
    };
    pin(ring.address, ring.len())?;
    pin_record(sent.db_addr)?;
    let queue = QueuePair {
        qpn: number,
        qp_type: QpType::RAW_PACKET,
        flags: 0,
        uidx: sent.user_index,
        has_user_index: true,
        dc_key: 0,
        user_handle: new.user_handle,
        send: None,
        recv: Some(ring),
        has_signature: sent.flags.contains(udata::CreateWqFlags::SIGNATURE),
        dbrec: sent.db_addr,
        uar: None,
        register: None,
        send_cq: None,
        recv_cq: completion_queue(st, fd, Some(new.cq))?,
        srq: None,
        is_alive: AtomicBool::new(true),
        progress: Mutex::default(),
    };
    let resp = udata::CreateWqResp {
        response_length: size_of::<udata::CreateWqResp>() as u32,
        ..Default::default()
    };
    Ok((Arc::new(queue), answer(uhw, &resp)))
}

/// A queue pair that spreads packets over an indirection table (`create_rss_raw_qp_tir`).
pub(crate) fn rss_qp(
    st: &mut State,
    fd: RawFd,
    new: &NewQp,
    mut made: QueuePair,
    uhw: &Uhw<'_>,
) -> Result<(QpCap, QpKind, Vec<u8>), Errno> {
    if new.qp_type != QpType::RAW_PACKET || new.srq.is_some() {
        return Err(EOPNOTSUPP);
    }
    let least = std::mem::offset_of!(udata::CreateQpRss, flags);
    let sent: udata::CreateQpRss = request(uhw, least)?;
    let known = udata::CreateQpFlags::TUNNEL_OFFLOADS
        | udata::CreateQpFlags::TIR_ALLOW_SELF_LB_UC
        | udata::CreateQpFlags::TIR_ALLOW_SELF_LB_MC;
    if sent.comp_mask != 0 || !known.contains(sent.flags) || !sent.reserved.is_zero() {
        return Err(EOPNOTSUPP);
    }
    let fields = sent.rx_hash_fields_mask.0 & !udata::RxHashFields::INNER.0;
    if fields != 0 {
        if sent.rx_hash_function != udata::RxHashFunction::TOEPLITZ || sent.rx_key_len != KEY_LEN {
            return Err(EINVAL);
        }
        let clash = |one: u64, other: u64| fields & one != 0 && fields & other != 0;
        // IPv4 with IPv6, TCP with UDP.
        if clash(0x3, 0xc) || clash(0x30, 0xc0) {
            return Err(EINVAL);
        }
    }
    made.flags = sent.flags.0;
    let mut resp = udata::CreateQpResp::default();
    if st.context(fd)?.mlx5.has_devx {
        resp.comp_mask = udata::CreateQpRespMask::TIRN;
        resp.tirn = made.qpn;
    }
    let kind = QpKind::Mlx5(Arc::new(made));
    Ok((QpCap::default(), kind, answer(uhw, &resp)))
}

//! Changing a queue pair.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpAttrMask, QpState, QpType};
use uverbs_abi::write::qp;

use crate::core::objects::QpKind;
use crate::core::qp_state;
use crate::mlx5;
use crate::request::{Uhw, WriteRequest};
use crate::rxe::engine;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);

/// By the legacy command.
pub(crate) fn legacy(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let modify = request.get()?;
    let answer = modify_qp(st, fd, &modify, &request.uhw())?;
    request.uhw_response = answer;
    Ok(())
}

/// By the extended command.
pub(crate) fn extended(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let modify: qp::ExModifyQp = request.get()?;
    if modify.base.attr_mask.contains(QpAttrMask::RATE_LIMIT) {
        st.only_mlx5()?;
    }
    let answer = modify_qp(st, fd, &modify.base, &request.uhw())?;
    request.uhw_response = answer;
    request.answer(qp::ExModifyQpResp {
        comp_mask: 0,
        response_length: size_of::<qp::ExModifyQpResp>() as u32,
    });
    Ok(())
}

/// Changes the queue pair; what the driver answers.
fn modify_qp(
    st: &mut State,
    fd: RawFd,
    modify: &qp::ModifyQp,
    uhw: &Uhw<'_>,
) -> Result<Vec<u8>, Errno> {
    use QpAttrMask as M;
    let qpn = st.qp_number(fd, modify.qp_handle.0)?;
    let facts = st.facts();
    let device = st.device(fd)?;
    let gids = device.gids.len();
    let dest = &modify.dest;
    let is_path = st.is_path(dest.port_num, dest.is_global != 0, dest.sgid_index, gids);
    let qp = st.device(fd)?.qps.get_mut(&qpn).ok_or(EINVAL)?;
    let mask = modify.attr_mask;
    let has = |flag: M| mask.contains(flag);
    let from = if has(M::CUR_STATE) {
        modify.cur_qp_state
    } else {
        qp.state
    };
    let to = if has(M::STATE) { modify.qp_state } else { from };
    let is_allowed = match &qp.kind {
        QpKind::Mlx5(own) if qp.qp_type == QpType::DRIVER => {
            mlx5::modify_qp::is_allowed(own, from, to, mask)
        }
        _ => qp_state::is_allowed(from, to, qp.qp_type, mask),
    };
    if from != qp.state || !is_allowed {
        return Err(EINVAL);
    }
    let answer = match &qp.kind {
        QpKind::Rxe(_) => Vec::new(),
        QpKind::Mlx5(own) => mlx5::modify_qp::answer(own, to, uhw)?,
    };
    let bad_port = has(M::PORT) && modify.port_num != 1;
    let bad_path = has(M::AV) && !is_path;
    let bad_mtu = has(M::PATH_MTU) && !(1..=facts.mtu).contains(&modify.path_mtu);
    let bad_depth = (has(M::MAX_QP_RD_ATOMIC) && modify.max_rd_atomic > facts.max_rd_atomic)
        || (has(M::MAX_DEST_RD_ATOMIC) && modify.max_dest_rd_atomic > facts.max_rd_atomic);
    let bad_timer = (has(M::TIMEOUT) && modify.timeout > 31)
        || (has(M::MIN_RNR_TIMER) && modify.min_rnr_timer > 31)
        || (has(M::RETRY_CNT) && modify.retry_cnt > 7)
        || (has(M::RNR_RETRY) && modify.rnr_retry > 7);
    let bad_pkey = has(M::PKEY_INDEX) && modify.pkey_index != 0;
    if bad_port || bad_path || bad_mtu || bad_depth || bad_timer || bad_pkey {
        return Err(EINVAL);
    }
    if to == QpState::RESET {
        match &mut qp.kind {
            QpKind::Rxe(own) => {
                own.send.clear();
                if let Some(recv) = &mut own.recv {
                    recv.clear();
                }
                own.wait = None;
            }
            QpKind::Mlx5(own) => own.reset(),
        }
        qp.attr = qp::ModifyQp::default();
    }
    let attr = &mut qp.attr;
    let mut take = |flag: M, copy: fn(&mut qp::ModifyQp, &qp::ModifyQp)| {
        if mask.contains(flag) {
            copy(attr, modify);
        }
    };
    take(M::ACCESS_FLAGS, |a, m| {
        a.qp_access_flags = m.qp_access_flags
    });
    take(M::PKEY_INDEX, |a, m| a.pkey_index = m.pkey_index);
    take(M::PORT, |a, m| a.port_num = m.port_num);
    take(M::QKEY, |a, m| a.qkey = m.qkey);
    take(M::AV, |a, m| a.dest = m.dest);
    take(M::PATH_MTU, |a, m| a.path_mtu = m.path_mtu);
    take(M::TIMEOUT, |a, m| a.timeout = m.timeout);
    take(M::RETRY_CNT, |a, m| a.retry_cnt = m.retry_cnt);
    take(M::RNR_RETRY, |a, m| a.rnr_retry = m.rnr_retry);
    take(M::RQ_PSN, |a, m| a.rq_psn = m.rq_psn & 0xff_ffff);
    take(M::SQ_PSN, |a, m| a.sq_psn = m.sq_psn & 0xff_ffff);
    take(M::DEST_QPN, |a, m| a.dest_qp_num = m.dest_qp_num);
    // rxe rounds both up to a power of two (`rxe_qp_from_attr`).
    take(M::MAX_QP_RD_ATOMIC, |a, m| {
        a.max_rd_atomic = round_up(m.max_rd_atomic)
    });
    take(M::MAX_DEST_RD_ATOMIC, |a, m| {
        a.max_dest_rd_atomic = round_up(m.max_dest_rd_atomic)
    });
    take(M::MIN_RNR_TIMER, |a, m| a.min_rnr_timer = m.min_rnr_timer);
    take(M::PATH_MIG_STATE, |a, m| {
        a.path_mig_state = m.path_mig_state
    });
    let left = qp.state;
    qp.state = to;
    let index = st.context(fd)?.device;
    if to == QpState::ERR && left != QpState::ERR {
        engine::fail(st, index, qpn);
    }
    engine::run(st);
    Ok(answer)
}

fn round_up(n: u8) -> u8 {
    if n == 0 { 0 } else { n.next_power_of_two() }
}

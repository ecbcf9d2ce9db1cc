//! mlx5's part in changing a queue pair: dynamically connected ones, and what the driver answers.

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpAttrMask as M, QpState as S};
use uverbs_abi::udata::mlx5 as udata;

use super::hca::QueuePair;
use super::queues::{answer as cut, request};
use crate::request::Uhw;

/// Whether a dynamically connected queue pair may go this way (`modify_dci_qp_is_ok` and
/// `mlx5_ib_modify_dct` in `mlx5/qp.c`).
pub(crate) fn is_allowed(qp: &QueuePair, from: S, to: S, mask: M) -> bool {
    let is_target = qp.flags & udata::CreateQpFlags::TYPE_DCT.0 != 0;
    let state = M::STATE;
    let (required, optional) = match (from, to) {
        (S::RESET, S::INIT) if is_target => (M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS, M::NONE),
        (S::INIT, S::RTR) if is_target => (M::MIN_RNR_TIMER | M::AV | M::PATH_MTU, M::NONE),
        _ if is_target => return false,
        (_, S::RESET) => (M::NONE, M::NONE),
        (S::RESET, S::INIT) => (M::PKEY_INDEX | M::PORT, M::NONE),
        (S::INIT, S::INIT) => (M::NONE, M::PKEY_INDEX | M::PORT),
        (S::INIT, S::RTR) => (M::PATH_MTU, M::PKEY_INDEX | M::AV),
        (S::RTR, S::RTS) => (
            M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC | M::SQ_PSN,
            M::MIN_RNR_TIMER,
        ),
        (from, S::ERR) if from != S::RESET => (M::NONE, M::NONE),
        _ => return false,
    };
    let required = required | state;
    mask.contains(required) && (required | optional).contains(mask)
}

/// What the driver is told and answers.
pub(crate) fn answer(qp: &QueuePair, to: S, uhw: &Uhw<'_>) -> Result<Vec<u8>, Errno> {
    let mut resp = udata::ModifyQpResp {
        response_length: size_of::<udata::ModifyQpResp>() as u32,
        ..Default::default()
    };
    if !uhw.input.is_empty() {
        let least = std::mem::offset_of!(udata::ModifyQp, ece_options);
        let sent: udata::ModifyQp = request(uhw, least)?;
        if sent.comp_mask.0 != 0 || !sent.burst_info.reserved.is_zero() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        resp.ece_options = sent.ece_options;
    }
    let is_target = qp.flags & udata::CreateQpFlags::TYPE_DCT.0 != 0;
    if is_target && to == S::RTR {
        // The target exists from now on, and has a number.
        if uhw.room < std::mem::offset_of!(udata::ModifyQpResp, ece_options) {
            return Err(Errno(libc::EINVAL));
        }
        resp.dctn = qp.qpn;
    }
    Ok(cut(uhw, &resp))
}

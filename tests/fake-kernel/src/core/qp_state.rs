//! Which modification of a queue pair Linux allows (`qp_state_table` in `drivers/infiniband/core/verbs.c`).
//!
//! Written down apart from the driver's own table, so that one checks the other.

use uverbs_abi::types::{QpAttrMask as M, QpState as S, QpType};

const fn set(flags: &[M]) -> u32 {
    let mut bits = 0;
    let mut i = 0;
    while i < flags.len() {
        bits |= flags[i].0;
        i += 1;
    }
    bits
}

/// Required and optional attributes of a transition; `None` if there is none.
fn rule(from: S, to: S, kind: QpType) -> Option<(u32, u32)> {
    let raw = kind == QpType::RAW_PACKET;
    let ud = kind == QpType::UD;
    // The two halves of a reliable connection, which an extended one has at different ends.
    let requester = matches!(kind, QpType::RC | QpType::XRC_INI);
    let responder = matches!(kind, QpType::RC | QpType::XRC_TGT);
    let when = |is: bool, flags: &[M]| if is { set(flags) } else { 0 };
    let running = if raw {
        set(&[M::CUR_STATE, M::RATE_LIMIT])
    } else if ud {
        set(&[M::CUR_STATE, M::QKEY])
    } else {
        set(&[
            M::CUR_STATE,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PATH_MIG_STATE,
        ]) | when(responder, &[M::MIN_RNR_TIMER])
    };
    let init = if raw {
        set(&[M::PORT])
    } else if ud {
        set(&[M::PKEY_INDEX, M::PORT, M::QKEY])
    } else {
        set(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS])
    };
    Some(match (from, to) {
        (S::RESET, S::ERR) => return None,
        (_, S::RESET | S::ERR) => (0, 0),
        (S::RESET, S::INIT) => (init, 0),
        (S::INIT, S::INIT) => (0, init),
        (S::INIT, S::RTR) if raw => (0, 0),
        (S::INIT, S::RTR) if ud => (0, set(&[M::PKEY_INDEX, M::QKEY])),
        (S::INIT, S::RTR) => {
            let path = set(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN]);
            let answers = when(responder, &[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);
            let optional = set(&[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX]);
            (path | answers, optional)
        }
        (S::RTR, S::RTS) if raw => (0, running),
        (S::RTR, S::RTS) => {
            let timeout = when(requester || responder, &[M::TIMEOUT]);
            let retries = when(
                requester,
                &[M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC],
            );
            (M::SQ_PSN.0 | timeout | retries, running)
        }
        (S::RTS, S::RTS) | (S::SQD, S::RTS) => (0, running),
        (S::RTS, S::SQD) => (0, M::EN_SQD_ASYNC_NOTIFY.0),
        (S::SQD, S::SQD) if raw => (0, 0),
        (S::SQD, S::SQD) if ud => (0, set(&[M::PKEY_INDEX, M::QKEY])),
        (S::SQD, S::SQD) => {
            let shared = set(&[
                M::AV,
                M::ALT_PATH,
                M::ACCESS_FLAGS,
                M::PKEY_INDEX,
                M::PATH_MIG_STATE,
            ]);
            let both = when(requester || responder, &[M::PORT, M::TIMEOUT]);
            let requests = when(
                requester,
                &[M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC],
            );
            let answers = when(responder, &[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);
            (0, shared | both | requests | answers)
        }
        (S::SQE, S::RTS) if raw => (0, 0),
        (S::SQE, S::RTS) if ud => (0, set(&[M::CUR_STATE, M::QKEY])),
        (S::SQE, S::RTS) if kind == QpType::UC => (0, set(&[M::CUR_STATE, M::ACCESS_FLAGS])),
        _ => return None,
    })
}

/// Whether the kernel takes the modification (`ib_modify_qp_is_ok`).
pub(crate) fn is_allowed(from: S, to: S, kind: QpType, mask: M) -> bool {
    if mask.contains(M::CUR_STATE) && !matches!(from, S::RTR | S::RTS | S::SQD | S::SQE) {
        return false;
    }
    let Some((required, optional)) = rule(from, to, kind) else {
        return false;
    };
    mask.0 & required == required && mask.0 & !(required | optional | M::STATE.0) == 0
}

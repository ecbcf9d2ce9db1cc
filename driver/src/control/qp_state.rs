//! Which attributes a queue pair needs and takes at each change of state.
//!
//! The kernel answers `EINVAL` and no more when an attribute is missing or too much; this says which.
//! The rules are those of IBTA 10.3.1 and table 91 of 11.2.5.3 (Modify Queue Pair) for RC, UC and UD, as
//! Linux applies them in `ib_modify_qp_is_ok` (`drivers/infiniband/core/verbs.c`).

use std::fmt;

use uverbs_abi::types::{QpAttrMask, QpState, QpType};

use crate::sys::errno::Errno;

/// Attributes of one change of state. [`QpAttrMask::STATE`] itself is always allowed and not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Must be set.
    pub required: QpAttrMask,
    /// May be set.
    pub optional: QpAttrMask,
}

/// A modify that the kernel would refuse.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BadTransition {
    /// Service type.
    pub qp_type: QpType,
    /// State that the queue pair is in.
    pub from: QpState,
    /// State that was asked for.
    pub to: QpState,
    /// What is wrong.
    pub reason: BadReason,
}

/// What is wrong with a modify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReason {
    /// No such change of state exists.
    NoSuchTransition,
    /// The change of state exists, with other attributes.
    Attributes {
        /// Required and not set.
        missing: QpAttrMask,
        /// Set and not allowed.
        superfluous: QpAttrMask,
    },
}

/// One line of the table: states, and a rule for each of RC, UC and UD (`None`: not for this type).
struct Line {
    from: QpState,
    to: QpState,
    rules: [Option<Rule>; 3],
}

const fn set(masks: &[QpAttrMask]) -> QpAttrMask {
    let mut all = QpAttrMask::NONE;
    let mut i = 0;
    while i < masks.len() {
        all = all.with(masks[i]);
        i += 1;
    }
    all
}

const fn rule(required: &[QpAttrMask], optional: &[QpAttrMask]) -> Option<Rule> {
    Some(Rule {
        required: set(required),
        optional: set(optional),
    })
}

const fn optional(optional: &[QpAttrMask]) -> Option<Rule> {
    rule(&[], optional)
}

const NOTHING: [Option<Rule>; 3] = [rule(&[], &[]), rule(&[], &[]), rule(&[], &[])];

const ACCESS: QpAttrMask = QpAttrMask::ACCESS_FLAGS;
const ALT: QpAttrMask = QpAttrMask::ALT_PATH;
const AV: QpAttrMask = QpAttrMask::AV;
const CUR: QpAttrMask = QpAttrMask::CUR_STATE;
const DEST: QpAttrMask = QpAttrMask::DEST_QPN;
const MIG: QpAttrMask = QpAttrMask::PATH_MIG_STATE;
const MTU: QpAttrMask = QpAttrMask::PATH_MTU;
const NOTIFY: QpAttrMask = QpAttrMask::EN_SQD_ASYNC_NOTIFY;
const PKEY: QpAttrMask = QpAttrMask::PKEY_INDEX;
const PORT: QpAttrMask = QpAttrMask::PORT;
const QKEY: QpAttrMask = QpAttrMask::QKEY;
const RD: QpAttrMask = QpAttrMask::MAX_QP_RD_ATOMIC;
const DEST_RD: QpAttrMask = QpAttrMask::MAX_DEST_RD_ATOMIC;
const RETRY: QpAttrMask = QpAttrMask::RETRY_CNT;
const RNR: QpAttrMask = QpAttrMask::RNR_RETRY;
const RNR_TIMER: QpAttrMask = QpAttrMask::MIN_RNR_TIMER;
const RQ_PSN: QpAttrMask = QpAttrMask::RQ_PSN;
const SQ_PSN: QpAttrMask = QpAttrMask::SQ_PSN;
const TIMEOUT: QpAttrMask = QpAttrMask::TIMEOUT;

const RESET: QpState = QpState::RESET;
const INIT: QpState = QpState::INIT;
const RTR: QpState = QpState::RTR;
const RTS: QpState = QpState::RTS;
const SQD: QpState = QpState::SQD;
const SQE: QpState = QpState::SQE;
const ERR: QpState = QpState::ERR;

/// Changes to RESET and to ERR take nothing and are possible from everywhere, but that a queue pair in
/// RESET cannot go to ERR; they are not listed.
const TABLE: &[Line] = &[
    Line {
        from: RESET,
        to: INIT,
        rules: [
            rule(&[PKEY, PORT, ACCESS], &[]),
            rule(&[PKEY, PORT, ACCESS], &[]),
            rule(&[PKEY, PORT, QKEY], &[]),
        ],
    },
    Line {
        from: INIT,
        to: INIT,
        rules: [
            optional(&[PKEY, PORT, ACCESS]),
            optional(&[PKEY, PORT, ACCESS]),
            optional(&[PKEY, PORT, QKEY]),
        ],
    },
    Line {
        from: INIT,
        to: RTR,
        rules: [
            rule(
                &[AV, MTU, DEST, RQ_PSN, DEST_RD, RNR_TIMER],
                &[ALT, ACCESS, PKEY],
            ),
            rule(&[AV, MTU, DEST, RQ_PSN], &[ALT, ACCESS, PKEY]),
            optional(&[PKEY, QKEY]),
        ],
    },
    Line {
        from: RTR,
        to: RTS,
        rules: [
            rule(
                &[TIMEOUT, RETRY, RNR, SQ_PSN, RD],
                &[CUR, ALT, ACCESS, RNR_TIMER, MIG],
            ),
            rule(&[SQ_PSN], &[CUR, ALT, ACCESS, MIG]),
            rule(&[SQ_PSN], &[CUR, QKEY]),
        ],
    },
    Line {
        from: RTS,
        to: RTS,
        rules: [
            optional(&[CUR, ACCESS, ALT, MIG, RNR_TIMER]),
            optional(&[CUR, ACCESS, ALT, MIG]),
            optional(&[CUR, QKEY]),
        ],
    },
    Line {
        from: RTS,
        to: SQD,
        rules: [
            optional(&[NOTIFY]),
            optional(&[NOTIFY]),
            optional(&[NOTIFY]),
        ],
    },
    Line {
        from: SQD,
        to: RTS,
        rules: [
            optional(&[CUR, ALT, ACCESS, RNR_TIMER, MIG]),
            optional(&[CUR, ALT, ACCESS, MIG]),
            optional(&[CUR, QKEY]),
        ],
    },
    Line {
        from: SQD,
        to: SQD,
        rules: [
            optional(&[
                PORT, AV, TIMEOUT, RETRY, RNR, RD, DEST_RD, ALT, ACCESS, PKEY, RNR_TIMER, MIG,
            ]),
            // IBTA and the kernel's table allow AV to UC as well; but uverbs adds PORT to it on the
            // way (`modify_qp` of uverbs_cmd.c), and the table does not allow that
            optional(&[ALT, ACCESS, PKEY, MIG]),
            optional(&[PKEY, QKEY]),
        ],
    },
    Line {
        from: SQE,
        to: RTS,
        // an RC queue pair has no SQE state: an error of its sends is an error of the whole
        rules: [
            rule(&[], &[]),
            optional(&[CUR, ACCESS]),
            optional(&[CUR, QKEY]),
        ],
    },
];

/// The rule for a change of state; `None` if there is no such change.
///
/// Only for RC, UC and UD.
pub fn rule_for(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    let column = match qp_type {
        QpType::RC => 0,
        QpType::UC => 1,
        QpType::UD => 2,
        _ => return None,
    };
    let rules = match (from, to) {
        (RESET, ERR) => return None,
        (RESET | INIT | RTR | RTS | SQD | SQE | ERR, RESET | ERR) => &NOTHING,
        _ => {
            let line = TABLE
                .iter()
                .find(|line| line.from == from && line.to == to)?;
            &line.rules
        }
    };
    rules[column]
}

/// Checks a modify before it is sent.
///
/// `current` is the state that the queue pair is believed to be in, or the one that the modify gives
/// with [`QpAttrMask::CUR_STATE`]; `next` the one that it gives with [`QpAttrMask::STATE`]. Types other
/// than RC, UC and UD pass, for the kernel to check.
pub fn check(
    qp_type: QpType,
    current: QpState,
    next: QpState,
    mask: QpAttrMask,
) -> Result<(), BadTransition> {
    if !matches!(qp_type, QpType::RC | QpType::UC | QpType::UD) {
        return Ok(());
    }
    let to = if mask.contains(QpAttrMask::STATE) {
        next
    } else {
        current
    };
    let bad = |reason| BadTransition {
        qp_type,
        from: current,
        to,
        reason,
    };
    let rule = rule_for(qp_type, current, to).ok_or(bad(BadReason::NoSuchTransition))?;
    let allowed = rule.required | rule.optional | QpAttrMask::STATE;
    let missing = QpAttrMask(rule.required.bits() & !mask.bits());
    let mut superfluous = QpAttrMask(mask.bits() & !allowed.bits());
    if !matches!(current, RTR | RTS | SQD | SQE) {
        superfluous |= mask & CUR;
    }
    if missing.is_empty() && superfluous.is_empty() {
        Ok(())
    } else {
        Err(bad(BadReason::Attributes {
            missing,
            superfluous,
        }))
    }
}

/// `IBV_QP_STATE, IBV_QP_AV`.
fn write_names(f: &mut fmt::Formatter<'_>, mask: QpAttrMask) -> fmt::Result {
    let mut rest = u64::from(mask.bits());
    let mut separator = "";
    for (name, bit) in QpAttrMask::NAMES {
        if rest & bit != 0 {
            write!(f, "{separator}{name}")?;
            separator = ", ";
            rest &= !bit;
        }
    }
    if rest != 0 {
        write!(f, "{separator}{rest:#x}")?;
    }
    Ok(())
}

impl fmt::Display for BadTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qp_type, from, to, ..
        } = self;
        write!(
            f,
            "{qp_type:?} queue pair cannot go from {from:?} to {to:?}"
        )?;
        match self.reason {
            BadReason::NoSuchTransition => f.write_str(": there is no such transition"),
            BadReason::Attributes {
                missing,
                superfluous,
            } => {
                let mut separator = ": ";
                if !missing.is_empty() {
                    write!(f, "{separator}missing ")?;
                    write_names(f, missing)?;
                    separator = "; ";
                }
                if !superfluous.is_empty() {
                    write!(f, "{separator}not allowed here ")?;
                    write_names(f, superfluous)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for BadTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BadTransition({self})")
    }
}

impl std::error::Error for BadTransition {}

impl From<BadTransition> for Errno {
    fn from(_: BadTransition) -> Self {
        Self(libc::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] = [RESET, INIT, RTR, RTS, SQD, SQE, ERR];

    #[test]
    fn the_usual_way_up() {
        let rtr = set(&[QpAttrMask::STATE, AV, MTU, DEST, RQ_PSN, DEST_RD, RNR_TIMER]);
        assert_eq!(check(QpType::RC, INIT, RTR, rtr), Ok(()));
        let init = set(&[QpAttrMask::STATE, PKEY, PORT, QKEY]);
        assert_eq!(check(QpType::UD, RESET, INIT, init), Ok(()));
    }

    #[test]
    fn names_what_is_missing_and_what_is_too_much() {
        let mask = set(&[QpAttrMask::STATE, MTU, DEST, RQ_PSN, RNR_TIMER, QKEY]);
        let error = check(QpType::RC, INIT, RTR, mask).unwrap_err();
        assert_eq!(
            error.to_string(),
            "RC queue pair cannot go from INIT to RTR: missing IBV_QP_AV, \
             IBV_QP_MAX_DEST_RD_ATOMIC; not allowed here IBV_QP_QKEY"
        );
        assert_eq!(Errno::from(error), Errno(libc::EINVAL));
    }

    #[test]
    fn skipping_a_state_is_no_transition() {
        let error = check(QpType::UC, RESET, RTS, QpAttrMask::STATE).unwrap_err();
        assert_eq!(error.reason, BadReason::NoSuchTransition);
    }

    #[test]
    fn reset_and_error_take_nothing() {
        for from in STATES {
            for to in [RESET, ERR] {
                let ok = check(QpType::RC, from, to, QpAttrMask::STATE).is_ok();
                assert_eq!(ok, (from, to) != (RESET, ERR), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn without_a_new_state_the_old_one_is_kept() {
        assert_eq!(check(QpType::RC, RTS, RESET, ACCESS), Ok(()));
        assert!(check(QpType::RC, RTR, RESET, ACCESS).is_err());
    }

    #[test]
    fn current_state_is_given_only_where_it_can_differ() {
        let mask = set(&[QpAttrMask::STATE, CUR]);
        assert!(check(QpType::UD, INIT, ERR, mask).is_err());
    }

    #[test]
    fn other_types_are_the_kernels() {
        assert_eq!(
            check(QpType::RAW_PACKET, RESET, RTS, QpAttrMask::NONE),
            Ok(())
        );
    }
}

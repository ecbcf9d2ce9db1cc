//! Why commands are refused.

use wqe_format::mlx5::firmware::{Short, Status};

/// Why a command is refused. The syndrome, a number that only firmware's authors can read on real
/// cards, is a hash of the reason, which the log has in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
}

impl Refusal {
    /// FNV-1a of the reason, never 0.
    pub(crate) fn syndrome(&self) -> u32 {
        let hash = self.reason.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        hash | 1
    }
}

impl From<Short> for Refusal {
    fn from(short: Short) -> Refusal {
        Refusal {
            status: Status::BAD_INP_LEN_ERR,
            reason: short.layout,
        }
    }
}

macro_rules! refusals {
    ($($name:ident $status:ident)+) => {
        $(pub(crate) fn $name(reason: &'static str) -> Refusal {
            Refusal { status: Status::$status, reason }
        })+
    };
}

refusals! {
    bad_operation BAD_OP_ERR
    bad_parameter BAD_PARAM_ERR
    bad_resource BAD_RES_ERR
    bad_system BAD_SYS_STATE_ERR
    bad_state BAD_RES_STATE_ERR
    bad_index IX_ERR
    bad_qp_state BAD_QP_STATE_ERR
    busy RES_BUSY
    limit LIM_ERR
    no_resources NO_RES_ERR
    outstanding BAD_SIZE_OUTS_CQES_ERR
}

//! What firmware commands change of a queue pair that verbs do not, and canceling what it has not sent yet.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;

use super::caps::Caps;
use super::change::Change;
use super::{EOPNOTSUPP, ours};
use crate::abi::dv::mlx5dv_qp_ex;
use crate::abi::objects::ibv_qp;
use crate::door::control;
use crate::mlx5::qp::dv as qp_dv;
use crate::mlx5::qp::qp_type::{DRIVER, RC, UC};

/// `IBV_QPS_RTS`.
pub(super) const RTS: u32 = 3;

/// Bits of rdma-core's providers/mlx5/mlx5_ifc.h: the capability (`rts2rts_qp_udp_sport`), in the context the port
/// (`udp_sport` of `primary_address_path`), and its bit in the mask (`MLX5_QPC_OPT_MASK_32_UDP_SPORT`).
mod udp_sport {
    pub(super) const CAPABILITY: usize = 0x151;
    pub(super) const PORT: (usize, usize) = (0xc0 + 0x110, 16);
    pub(super) const CHANGED: u64 = 1 << 2;
}

/// The UDP port that a connected queue pair's packets come from (RoCE version 2), once it sends.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, port: u16) -> c_int {
    control("mlx5dv_modify_qp_udp_sport", || {
        // SAFETY: the caller's queue pair.
        let qp = unsafe { &*qp };
        // SAFETY: its context is open.
        let uctx = unsafe { ours(qp.context) }?.context().uctx();
        let can =
            || Caps::of(uctx, CapType::GENERAL).is_some_and(|caps| caps.has(udp_sport::CAPABILITY));
        if !matches!(qp.qp_type, RC | UC) || qp.state != RTS || !can() {
            return Err(EOPNOTSUPP);
        }
        Change::new(Opcode::RTS2RTS_QP, qp.qp_num)
            .high(udp_sport::CHANGED, udp_sport::PORT, port.into())
            .run(uctx, qp)
    })
}

/// The same place: the capability of the context's extension (`qpc_extension`), in it the stream (`dci_stream_channel_id`),
/// and its bit in the mask (`MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`).
pub(super) const EXTENSION_CAPABILITY: usize = 0x122;
mod stream {
    pub(super) const NUMBER: (usize, usize) = (0x10, 16);
    pub(super) const CHANGED: u64 = 1;
}

/// Lets a stream of an initiator of dynamic connections go on after an error.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_dci_stream_id_reset(qp: *mut ibv_qp, stream_id: u16) -> c_int {
    control("mlx5dv_dci_stream_id_reset", || {
        // SAFETY: the caller's queue pair.
        let qp = unsafe { &*qp };
        // SAFETY: its context is open.
        let context = unsafe { ours(qp.context) }?.context();
        let extends = || {
            Caps::of(context.uctx(), CapType::GENERAL).is_some_and(|c| c.has(EXTENSION_CAPABILITY))
        };
        let streams = context.device().dci_streams_caps.max_log_num_errored != 0;
        if !streams || qp.state != RTS || !extends() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: a queue pair of ours.
        if qp.qp_type != DRIVER || !unsafe { qp_dv::is_initiator(qp) } {
            return Err(Errno(libc::EINVAL));
        }
        Change::new(Opcode::RTS2RTS_QP, qp.qp_num)
            .extended(stream::CHANGED, &[(stream::NUMBER, stream_id.into())])
            .run(context.uctx(), qp)
    })
}

/// Makes what was posted with this number, and that a drained queue pair (SQD) has not begun, requests that do nothing; says
/// how many, or an errno below zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_qp_cancel_posted_send_wrs(
    view: *mut mlx5dv_qp_ex,
    wr_id: u64,
) -> c_int {
    control("mlx5dv_qp_cancel_posted_send_wrs", || {
        // SAFETY: the view of a queue pair of ours.
        unsafe { qp_dv::cancel(view, wr_id) }
    })
}

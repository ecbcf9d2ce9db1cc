//! What firmware commands change of a queue pair that verbs do not.

use std::ffi::c_int;

use oxverbs::ffi_core::uverbs_abi::handle::mlx5::Any;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::qp_modify::{Rts2rtsQpIn, Rts2rtsQpOut};

use super::caps::Caps;
use super::{EOPNOTSUPP, ours};
use crate::abi::objects::ibv_qp;
use crate::door::control;

/// `IBV_QPT_RC` and `IBV_QPT_UC`.
const RC: u32 = 2;
const UC: u32 = 3;
/// `IBV_QPS_RTS`.
const RTS: u32 = 3;

/// Bits of rdma-core's providers/mlx5/mlx5_ifc.h that Linux' own calls reserved: the capability (`rts2rts_qp_udp_sport`), and
/// in RTS2RTS_QP's input the port (`udp_sport` of `ads`, in `qpc.primary_address_path`), the second half of the mask of
/// changes (`opt_param_mask_95_32`), and in it the port's bit (`MLX5_QPC_OPT_MASK_32_UDP_SPORT`).
mod udp_sport {
    pub(super) const CAPABILITY: usize = 0x151;
    pub(super) const PORT: (usize, usize) = (0xc0 + 0xc0 + 0x110, 16);
    pub(super) const MASK: (usize, usize) = (0x840, 64);
    pub(super) const CHANGED: u64 = 1 << 2;
}

/// The command.
fn with_udp_sport(qpn: u32, port: u16) -> [u8; 0x110] {
    let mut input = Rts2rtsQpIn::zeroed();
    input.set_opcode(Opcode::RTS2RTS_QP.0).set_qpn(qpn);
    let mut bytes = input.into_inner();
    bits::set(
        &mut bytes,
        udp_sport::PORT.0,
        udp_sport::PORT.1,
        port.into(),
    );
    bits::set(
        &mut bytes,
        udp_sport::MASK.0,
        udp_sport::MASK.1,
        udp_sport::CHANGED,
    );
    bytes
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
        let input = with_udp_sport(qp.qp_num, port);
        let mut output = Rts2rtsQpOut::zeroed().into_inner();
        uctx.devx_obj_modify(Any(qp.handle), &input, &mut output)
    })
}

//! Telling the device which queue pair an address is for.

use std::ffi::c_int;

use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::wqe_format::mlx5::DatagramSegment;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::object::GeneralObjOutCmdHdr;

use super::caps::Caps;
use super::object::{self, HEAD};
use super::{EOPNOTSUPP, ours};
use crate::abi::objects::ibv_ah;
use crate::door::control;
use crate::mlx5::ah;

/// Kind of the firmware's object (rdma-core's providers/mlx5/mlx5_ifc.h, `MLX5_OBJ_TYPE_AV_QP_MAPPING`).
const KIND: u16 = 0x3a;
/// Bytes behind the command's head, and what is in them (same place, `av_qp_mapping`, and its `remote_address_vector`): the
/// queue pair (`qpn`), `sl_or_eth_prio`, `src_addr_index`, and `rgid_or_rip` of 16 bytes.
const BODY: usize = 0x40;
const QPN: (usize, usize) = (0x60, 32);
const PRIORITY: (usize, usize) = (0xe4, 4);
const SOURCE: (usize, usize) = (0x164, 8);
const REMOTE: usize = 0x180;

/// CREATE_GENERAL_OBJECT.
fn command(av: &DatagramSegment, qpn: u32) -> [u8; HEAD + BODY] {
    let mut input = object::command(Opcode::CREATE_GENERAL_OBJECT, KIND, 0, 0);
    let body = &mut input[HEAD..];
    bits::set(body, QPN.0, QPN.1, qpn.into());
    bits::set(body, PRIORITY.0, PRIORITY.1, av.stat_rate_sl.sl().into());
    bits::set(body, SOURCE.0, SOURCE.1, av.grh_gid_fl.sgid_index().into());
    bits::part_mut(body, REMOTE, 128).copy_from_slice(&av.rgid);
    input
}

/// Says once for the life of an address handle which queue pair it leads to.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_map_ah_to_qp(ah: *mut ibv_ah, qp_num: u32) -> c_int {
    control("mlx5dv_map_ah_to_qp", || {
        // SAFETY: the caller's address handle.
        let context = unsafe { (*ah).context };
        // SAFETY: its context is open.
        let uctx = unsafe { ours(context) }?.context().uctx();
        let general = Caps::of(uctx, CapType::GENERAL);
        if !general.is_some_and(|caps| caps.has_object(KIND)) {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: one of ours.
        let ours = unsafe { ah::of(ah) };
        if !ours.is_global() {
            return Err(EOPNOTSUPP);
        }
        ours.map(|| {
            let mut output = GeneralObjOutCmdHdr::zeroed();
            let input = command(ours.vector(), qp_num);
            uctx.devx_obj_create(&input, output.as_bytes_mut())
                .map_err(|errno| reason(errno, output.as_bytes()))
        })
    })
}

//! Ports of a bond that queue pairs send through (link aggregation).

use std::ffi::c_int;

use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::Any;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::lag::{QueryLagIn, QueryLagOut};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::qp::{QueryQpIn, QueryQpOut};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::tis::{
    ModifyTisIn, ModifyTisOut, QueryTisIn, QueryTisOut,
};
use oxverbs::ffi_core::{Errno, Uctx};

use super::caps::Caps;
use super::change::Change;
use super::state::RTS;
use super::{EOPNOTSUPP, ours};
use crate::abi::objects::ibv_qp;
use crate::door::control;
use crate::mlx5::qp::dv as qp_dv;
use crate::mlx5::qp::qp_type::{DRIVER, RAW_PACKET, RC, UC, UD, XRC_SEND};

/// `mlx5_ifc.h`, `cmd_hca_cap`: ports of the bond (`num_lag_ports`), whether packets of a queue have a port of their own
/// (`lag_tx_port_affinity`), and whether that is changed while they are sent (rdma-core's, `rts2rts_lag_tx_port_affinity`).
const PORTS: (usize, usize) = (0x27c, 4);
const AFFINITY: usize = 0x278;
const CHANGES: usize = 0x152;
/// In a queue pair's context (`qpc.lag_tx_port_affinity`), and its bit in the mask of changes
/// (`MLX5_QPC_OPT_MASK_RTS2RTS_LAG_TX_PORT_AFFINITY`).
const PORT: (usize, usize) = (0x4, 4);
const CHANGED: u32 = 1 << 15;

/// A queue pair that sends through a bond.
struct Bonded<'a> {
    qp: &'a ibv_qp,
    uctx: &'a Uctx,
    caps: Caps,
}

/// What it is set to.
struct Ports {
    /// Of the queue pair.
    configured: u8,
    /// Through which packets leave now; none if the bond does not have the port.
    active: Option<u8>,
}

impl<'a> Bonded<'a> {
    /// # Safety
    ///
    /// A queue pair of an open context.
    unsafe fn new(qp: *mut ibv_qp) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        let qp: &'a ibv_qp = unsafe { &*qp };
        // SAFETY: as above.
        let uctx = unsafe { ours(qp.context) }?.context().uctx();
        let caps = Caps::of(uctx, CapType::GENERAL).ok_or(EOPNOTSUPP)?;
        let sends = match qp.qp_type {
            RC | UC | UD | RAW_PACKET | XRC_SEND => true,
            // SAFETY: a queue pair of ours.
            DRIVER => unsafe { qp_dv::is_initiator(qp) },
            _ => false,
        };
        if !sends || caps.bits(PORTS.0, PORTS.1) <= 1 {
            return Err(EOPNOTSUPP);
        }
        Ok(Self { qp, uctx, caps })
    }

    /// The number of what a raw queue pair's packets leave through.
    fn tisn(&self) -> Result<u32, Errno> {
        // SAFETY: a queue pair of ours, which it was made of.
        let placement = unsafe { qp_dv::placement(self.qp) }?;
        Ok(placement.answer.tisn)
    }

    fn ports(&self) -> Result<Ports, Errno> {
        let mut input = QueryLagIn::zeroed();
        input.set_opcode(Opcode::QUERY_LAG.0);
        let mut bond = QueryLagOut::zeroed();
        self.uctx
            .devx_command(input.as_bytes(), bond.as_bytes_mut())
            .map_err(|errno| reason(errno, bond.as_bytes()))?;
        if bond.ctx().lag_state() == 0 && !self.caps.has(AFFINITY) {
            return Err(EOPNOTSUPP);
        }
        let configured = if self.qp.qp_type == RAW_PACKET {
            let mut input = QueryTisIn::zeroed();
            input.set_opcode(Opcode::QUERY_TIS.0).set_tisn(self.tisn()?);
            let mut output = QueryTisOut::zeroed();
            self.query(input.as_bytes(), output.as_bytes_mut())?;
            output.tis_context().lag_tx_port_affinity()
        } else {
            let mut input = QueryQpIn::zeroed();
            input.set_opcode(Opcode::QUERY_QP.0).set_qpn(self.qp.qp_num);
            let mut output = QueryQpOut::zeroed();
            self.query(input.as_bytes(), output.as_bytes_mut())?;
            output.qpc().lag_tx_port_affinity()
        };
        let active = match configured {
            1 => Some(bond.ctx().tx_remap_affinity_1()),
            2 => Some(bond.ctx().tx_remap_affinity_2()),
            _ => None,
        };
        Ok(Ports { configured, active })
    }

    fn query(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        self.uctx
            .devx_obj_query(Any(self.qp.handle), input, output)
            .map_err(|errno| reason(errno, output))
    }

    fn set(&self, port: u8) -> Result<(), Errno> {
        match self.qp.qp_type {
            RAW_PACKET => {
                let mut input = ModifyTisIn::zeroed();
                input
                    .set_opcode(Opcode::MODIFY_TIS.0)
                    .set_tisn(self.tisn()?);
                input.bitmask_mut().set_lag_tx_port_affinity(true);
                input.ctx_mut().set_lag_tx_port_affinity(port);
                let mut output = ModifyTisOut::zeroed();
                let handle = Any(self.qp.handle);
                self.uctx
                    .devx_obj_modify(handle, input.as_bytes(), output.as_bytes_mut())
                    .map_err(|errno| reason(errno, output.as_bytes()))
            }
            XRC_SEND => Err(EOPNOTSUPP),
            _ if !self.caps.has(CHANGES) || self.qp.state != RTS => Err(EOPNOTSUPP),
            _ => Change::new(Opcode::RTS2RTS_QP, self.qp.qp_num)
                .low(CHANGED, PORT, port.into())
                .run(self.uctx, self.qp),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_query_qp_lag_port(
    qp: *mut ibv_qp,
    port: *mut u8,
    active_port: *mut u8,
) -> c_int {
    control("mlx5dv_query_qp_lag_port", || {
        // SAFETY: the caller's queue pair.
        let ports = unsafe { Bonded::new(qp) }?.ports()?;
        // SAFETY: the caller's memory.
        unsafe { port.write(ports.configured) };
        let active = ports.active.ok_or(EOPNOTSUPP)?;
        // SAFETY: as above.
        unsafe { active_port.write(active) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port: u8) -> c_int {
    control("mlx5dv_modify_qp_lag_port", || {
        // SAFETY: the caller's queue pair.
        let bonded = unsafe { Bonded::new(qp) }?;
        // Without a bond the firmware would take the change and do nothing.
        bonded.ports()?.active.ok_or(EOPNOTSUPP)?;
        bonded.set(port)
    })
}

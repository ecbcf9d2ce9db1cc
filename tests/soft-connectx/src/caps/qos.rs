//! Capabilities of quality of service. There is none: no pacing, no scheduling, no flow meters.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::caps::qos::QosCap;

/// `flow_meter_reg_id`, a bit for each metadata register that a flow meter could leave a packet's colour in (rdma-core
/// `tests/mlx5_prm_structs.py`, `QosCaps`); Linux calls it reserved. `flow_meter` and `log_max_flow_meter` beside it say
/// that there are no meters. Programs look for a register before they ask whether they can steer at all.
const METER_REGISTERS: (usize, usize) = (0x18, 8);

/// What is possible.
pub(super) fn maximum() -> Vec<u8> {
    let mut bytes = QosCap::zeroed().into_inner().to_vec();
    let (first, width) = METER_REGISTERS;
    bits::set(&mut bytes, first, width, 1);
    bytes
}

/// Clears what Linux calls reserved.
#[cfg(test)]
pub(super) fn forget_registers(bytes: &mut [u8]) {
    let (first, width) = METER_REGISTERS;
    bits::set(bytes, first, width, 0);
}

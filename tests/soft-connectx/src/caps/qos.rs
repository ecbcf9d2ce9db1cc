//! Capabilities of quality of service: packet pacing. There is no scheduling, and there are no flow meters.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::caps::qos::QosCap;

use crate::config::LinkLayer;

/// `flow_meter_reg_id`, a bit for each metadata register that a flow meter could leave a packet's colour in (rdma-core
/// `tests/mlx5_prm_structs.py`, `QosCaps`); Linux calls it reserved. `flow_meter` and `log_max_flow_meter` beside it say
/// that there are no meters. Programs look for a register before they ask whether they can steer at all.
const METER_REGISTERS: (usize, usize) = (0x18, 8);

/// Rates in kbit/s, and the table's entries with that of no limit.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 1..=100_000_000;
pub(crate) const RATE_ENTRIES: u16 = 128;

/// What is possible.
pub(super) fn maximum(link: LinkLayer) -> Vec<u8> {
    let mut caps = QosCap::zeroed();
    if link == LinkLayer::Ethernet {
        caps.set_packet_pacing(true)
            .set_packet_pacing_burst_bound(true)
            .set_packet_pacing_typical_size(true)
            .set_packet_pacing_min_rate(*RATES.start())
            .set_packet_pacing_max_rate(*RATES.end())
            .set_packet_pacing_rate_table_size(RATE_ENTRIES);
    }
    let mut bytes = caps.into_inner().to_vec();
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

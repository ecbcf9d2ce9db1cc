//! Reserved bits of commands.
//!
//! Firmware may give such a bit a meaning any day; a driver that sets one by mistake finds out then. What Linux'
//! `mlx5_ifc.h` calls reserved is meant, but for fields that other public sources have.

use wqe_format::mlx5::firmware::Opcode;

use crate::checks::{self, Fault};
use crate::device::Device;

/// Fields that `mlx5_ifc.h` lacks: command, first bit, width.
const KNOWN: [(Opcode, usize, usize); 14] = [
    // rdma-core tests/mlx5_prm_structs.py `CreateCqIn`: cqn, cq_umem_offset, cq_umem_id; `SwCqc`: dbr_umem_id.
    (Opcode::CREATE_CQ, 0x48, 0x18),
    (Opcode::CREATE_CQ, 0x280, 0x40),
    (Opcode::CREATE_CQ, 0x2c0, 0x20),
    (Opcode::CREATE_CQ, 0x80 + 0x20, 0x20),
    (Opcode::MODIFY_CQ, 0x280, 0x40),
    (Opcode::MODIFY_CQ, 0x2c0, 0x20),
    // rdma-core providers/mlx5/mlx5_ifc.h `qpc`: dbr_umem_id; data_in_order.
    (Opcode::CREATE_QP, 0xc0 + 0x720, 0x20),
    (Opcode::CREATE_QP, 0xc0 + 0x5a, 1),
    // The same, `init2init_qp_in` and `rts2rts_qp_in`: qpc_ext, opt_param_mask_95_32, and `dctc`: data_in_order.
    (Opcode::INIT2INIT_QP, 0x40, 1),
    (Opcode::INIT2INIT_QP, 0x840, 0x40),
    (Opcode::RTS2RTS_QP, 0x40, 1),
    (Opcode::RTS2RTS_QP, 0x840, 0x40),
    (Opcode::CREATE_DCT, 0x80 + 0x1d, 1),
    // The same: uid, as nearly every command has it.
    (Opcode::ALLOC_FLOW_COUNTER, 0x10, 0x10),
];

/// Reports the first reserved bit that is set, if the device is strict.
pub(super) fn check(device: &Device, opcode: Opcode, input: &[u8]) {
    if !device.config.strict {
        return;
    }
    let Some(layout) = opcode.input() else { return };
    let mut input = input.to_vec();
    for (_, offset, width) in KNOWN.iter().filter(|(known, ..)| *known == opcode) {
        wqe_format::mlx5::firmware::bits::set(&mut input, *offset, *width, 0);
    }
    if let Some(bit) = layout.reserved_bit_set(&input) {
        checks::report(device, Fault::ReservedCommandBit { opcode, bit });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Config, Interrupts, Ram};

    #[test]
    fn a_bit_without_a_name_is_noticed_and_known_ones_are_not() {
        struct Silent;
        impl Interrupts for Silent {
            fn raise(&self, _: u16) {}
        }
        for strict in [false, true] {
            let config = Config {
                strict,
                ..Config::default()
            };
            let device = Device::new(config, Arc::new(Ram::new(0)), Box::new(Silent));
            let mut input = [0; 0x110];
            input[..2].copy_from_slice(&Opcode::CREATE_CQ.0.to_be_bytes());
            input[2..4].fill(0xff); // uid
            input[0x50..0x5c].fill(0xff); // cq_umem_offset, cq_umem_id
            check(&device, Opcode::CREATE_CQ, &input);
            assert!(device.checks.faults().is_empty());
            input[0x64] = 0x40;
            check(&device, Opcode::CREATE_CQ, &input);
            let (opcode, bit) = (Opcode::CREATE_CQ, 0x321);
            let fault = Fault::ReservedCommandBit { opcode, bit };
            let expected: &[Fault] = if strict { &[fault] } else { &[] };
            assert_eq!(device.checks.faults(), expected);
        }
    }
}

//! Reserved bits of commands.
//!
//! Firmware may give such a bit a meaning any day; a driver that sets one by mistake finds out then. What Linux'
//! `mlx5_ifc.h` calls reserved is meant, but for fields that other public sources have ([`FIELDS`]).

use wqe_format::mlx5::firmware::Opcode;

use crate::checks::allowed::FIELDS;
use crate::checks::{self, Fault};
use crate::device::Device;

/// Reports the first reserved bit that is set, if the device is strict.
pub(super) fn check(device: &Device, opcode: Opcode, input: &[u8]) {
    if !device.config.strict {
        return;
    }
    let Some(layout) = opcode.input() else { return };
    let mut input = input.to_vec();
    for field in &FIELDS {
        if field.opcode.is_none_or(|known| known == opcode) {
            let (first, width) = field.bits;
            wqe_format::mlx5::firmware::bits::set(&mut input, first, width, 0);
        }
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

//! What atomic operations do.

use crate::wire::{AtomicEth, op};

/// The new value.
pub(super) fn run(operation: u8, old: u64, operands: &AtomicEth) -> u64 {
    match operation {
        op::FETCH_ADD => old.wrapping_add(operands.swap_add),
        op::MASKED_FETCH_ADD => masked_add(old, operands.swap_add, operands.compare_mask),
        op::COMPARE_SWAP if old == operands.compare => operands.swap_add,
        op::MASKED_COMPARE_SWAP if (old ^ operands.compare) & operands.compare_mask == 0 => {
            old & !operands.swap_mask | operands.swap_add & operands.swap_mask
        }
        _ => old,
    }
}

/// Adds field by field; a set bit of `ends` is the top bit of a field, out of which nothing is carried.
fn masked_add(old: u64, add: u64, ends: u64) -> u64 {
    // Without the top bits nothing leaves a field; they are added without a carry.
    let sum = (old & !ends).wrapping_add(add & !ends);
    sum ^ (old ^ add) & ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_carry() {
        assert_eq!(masked_add(0xff_ff, 0x01_01, 0x80_80), 0);
        assert_eq!(masked_add(0x00_ff, 0x00_01, 0x80_00), 0x01_00);
        assert_eq!(masked_add(0b111, 0b011, 0b101), 0);
        assert_eq!(masked_add(u64::MAX, 1, 0), 0);
        assert_eq!(masked_add(u64::MAX, 2, 1), 1);
    }

    #[test]
    fn swaps_look_first() {
        let swap = AtomicEth {
            swap_add: 9,
            compare: 5,
            ..AtomicEth::default()
        };
        assert_eq!(run(op::COMPARE_SWAP, 5, &swap), 9);
        assert_eq!(run(op::COMPARE_SWAP, 6, &swap), 6);
        let masked = AtomicEth {
            swap_mask: 0xff,
            compare_mask: 0xff00,
            swap_add: 0x1234,
            compare: 0xab00,
            ..AtomicEth::default()
        };
        assert_eq!(run(op::MASKED_COMPARE_SWAP, 0xcdab77, &masked), 0xcdab34);
        assert_eq!(run(op::MASKED_COMPARE_SWAP, 0xcdac77, &masked), 0xcdac77);
        assert_eq!(run(op::FETCH_ADD, u64::MAX, &masked), 0x1233);
    }
}

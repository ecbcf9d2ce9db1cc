//! Atomic operations, plain and under masks.

use super::keys::Memory;
use super::wqe::{Atomic, opcode};

/// Runs the operation; what was there before, in host order.
pub(super) fn run(memory: Memory, operation: u8, operands: &Atomic) -> Option<Vec<u8>> {
    let bytes = memory.read(operands.width.into())?;
    let old = match operands.width {
        4 => u32::from_ne_bytes(bytes.as_slice().try_into().ok()?).into(),
        _ => u64::from_ne_bytes(bytes.as_slice().try_into().ok()?),
    };
    let new = match operation {
        opcode::ATOMIC_FA => old.wrapping_add(operands.swap_add),
        opcode::ATOMIC_MASKED_FA => masked_add(old, operands.swap_add, operands.compare_mask),
        _ if (old ^ operands.compare) & operands.compare_mask == 0 => {
            (old & !operands.swap_mask) | (operands.swap_add & operands.swap_mask)
        }
        _ => old,
    };
    match operands.width {
        4 => memory.write(&(new as u32).to_ne_bytes())?,
        _ => memory.write(&new.to_ne_bytes())?,
    }
    Some(bytes)
}

/// Adds field by field; a set bit of `ends` is the top bit of a field, out of which nothing is carried.
fn masked_add(old: u64, add: u64, ends: u64) -> u64 {
    let mut sum = 0;
    let mut carry = 0;
    for bit in 0..64 {
        let total = ((old >> bit) & 1) + ((add >> bit) & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if (ends >> bit) & 1 == 1 {
            0
        } else {
            total >> 1
        };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::masked_add;

    /// Fields of a byte, of different widths, and one field.
    #[test]
    fn fields_do_not_carry() {
        assert_eq!(masked_add(0xff_ff, 0x01_01, 0x80_80), 0);
        assert_eq!(masked_add(0x00_ff, 0x00_01, 0x80_00), 0x01_00);
        assert_eq!(masked_add(0b111, 0b011, 0b101), 0);
        assert_eq!(masked_add(u64::MAX, 1, 0), 0);
        assert_eq!(masked_add(u64::MAX, 2, 1), 1);
    }
}

//! Fields by (bit offset, width), as `mlx5_ifc.h` counts: big-endian, bit 0 is the most
//! significant of the first dword.

/// The field's value; bits beyond the end of `bytes` read as zero.
pub(crate) fn get(bytes: &[u8], offset: usize, width: usize) -> u64 {
    (offset..offset + width).fold(0, |value, bit| {
        let byte = bytes.get(bit / 8).copied().unwrap_or(0);
        value << 1 | u64::from(byte >> (7 - bit % 8) & 1)
    })
}

/// Sets the field; what lies beyond the end of `bytes` is dropped.
pub(crate) fn set(bytes: &mut [u8], offset: usize, width: usize, value: u64) {
    for (place, bit) in (offset..offset + width).rev().enumerate() {
        if let Some(byte) = bytes.get_mut(bit / 8) {
            let mask = 1 << (7 - bit % 8);
            *byte = if value >> place & 1 != 0 {
                *byte | mask
            } else {
                *byte & !mask
            };
        }
    }
}

/// [`get`] of at most 32 bits.
pub(crate) fn get32(bytes: &[u8], offset: usize, width: usize) -> u32 {
    get(bytes, offset, width) as u32
}

/// Whether a bit is set.
pub(crate) fn flag(bytes: &[u8], offset: usize) -> bool {
    get(bytes, offset, 1) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian() {
        let mut bytes = [0; 8];
        set(&mut bytes, 0x8, 0x18, 0x12_3456);
        assert_eq!(bytes, [0, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
        set(&mut bytes, 0x3, 0x2, 0b11);
        assert_eq!(bytes[0], 0b0001_1000);
        assert_eq!(get(&bytes, 0, 0x20), 0x1812_3456);
        assert_eq!(get(&bytes, 0x38, 0x10), 0);
    }
}

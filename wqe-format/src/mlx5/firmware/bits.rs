//! Bits of big-endian structures as the manual counts them: bit 0 is the most significant bit of the first byte.
//!
//! Nothing here panics: bits outside the bytes read as zero and are not written.

/// The number in `width` (at most 64) bits from bit `offset`.
pub fn get(bytes: &[u8], offset: usize, width: usize) -> u64 {
    let (first, last) = span(offset, width);
    let mut value: u128 = 0;
    for index in first..=last {
        value = value << 8 | u128::from(bytes.get(index).copied().unwrap_or(0));
    }
    (value >> behind(offset, width)) as u64 & mask(width)
}

/// Writes a number into `width` (at most 64) bits from bit `offset`; bits of `value` that do not fit are cut off, the
/// neighbours are left alone.
pub fn set(bytes: &mut [u8], offset: usize, width: usize, value: u64) {
    let (first, last) = span(offset, width);
    let shift = behind(offset, width);
    let mut mask = u128::from(mask(width)) << shift;
    let mut value = (u128::from(value) << shift) & mask;
    for index in (first..=last).rev() {
        if let Some(byte) = bytes.get_mut(index) {
            *byte = (*byte & !(mask as u8)) | value as u8;
        }
        mask >>= 8;
        value >>= 8;
    }
}

/// The bytes of `width` bits from bit `offset`, both whole bytes; empty when they are not all there.
pub fn part(bytes: &[u8], offset: usize, width: usize) -> &[u8] {
    let (at, length) = (offset / 8, width / 8);
    bytes.get(at..at.saturating_add(length)).unwrap_or_default()
}

/// [`part`], to be written.
pub fn part_mut(bytes: &mut [u8], offset: usize, width: usize) -> &mut [u8] {
    let (at, length) = (offset / 8, width / 8);
    bytes
        .get_mut(at..at.saturating_add(length))
        .unwrap_or_default()
}

/// The bytes from bit `offset` to the end.
pub fn rest(bytes: &[u8], offset: usize) -> &[u8] {
    bytes.get(offset / 8..).unwrap_or_default()
}

/// [`rest`], to be written.
pub fn rest_mut(bytes: &mut [u8], offset: usize) -> &mut [u8] {
    bytes.get_mut(offset / 8..).unwrap_or_default()
}

/// First and last byte.
const fn span(offset: usize, width: usize) -> (usize, usize) {
    (offset / 8, (offset + width - 1) / 8)
}

/// Bits of the last byte behind the field.
const fn behind(offset: usize, width: usize) -> usize {
    (8 - (offset + width) % 8) % 8
}

const fn mask(width: usize) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

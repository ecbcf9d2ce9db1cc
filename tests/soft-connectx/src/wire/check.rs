//! Check sums of packets.

/// The invariant one: Ethernet's polynomial (IBTA 7.8.1). It goes out with the low byte first.
pub(super) fn invariant(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// x^16 + x^12 + x^3 + x + 1 with the low bit first (IBTA 7.8.2).
const VARIANT: u16 = 0xd008;

/// The variant one: over everything, on each hop anew.
pub(super) fn variant(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u16;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    value >> 1 ^ VARIANT
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(0xffff, |sum: u16, byte| {
        sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)]
    })
}

/// The ones' complement sum of bytes (RFC 1071), not yet folded.
pub(crate) fn add(bytes: &[u8], start: u64) -> u64 {
    let pairs = bytes.chunks(2).map(|pair| match *pair {
        [a, b] => u16::from_be_bytes([a, b]),
        [a] => u16::from_be_bytes([a, 0]),
        _ => 0,
    });
    pairs.fold(start, |sum, pair| sum + u64::from(pair))
}

/// Such a sum in 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

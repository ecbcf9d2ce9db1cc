//! The checksum of the Internet protocols (RFC 1071).

/// Sum of 16-bit words in one's complement, of parts that each begin at an even place.
pub(super) fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([word[0], low]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071, 3.
    #[test]
    fn the_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&[&bytes]), !0xddf2);
        assert_eq!(sum(&[&bytes[..2], &bytes[2..]]), !0xddf2);
        assert_eq!(sum(&[&[0x12]]), !0x1200);
    }
}

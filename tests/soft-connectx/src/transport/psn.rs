//! Packet sequence numbers: 24 bits that wrap (IBTA 9.7.2).

/// The bits of a number.
pub(crate) const MASK: u32 = 0xff_ffff;

/// The number `n` packets later.
pub(crate) fn add(psn: u32, n: u32) -> u32 {
    psn.wrapping_add(n) & MASK
}

/// How far `to` is ahead of `from`: negative if it is behind. Half of the numbers lie on each side.
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    // The difference's 24 bits in the upper ones, so that its sign is the word's.
    ((to.wrapping_sub(from) << 8) as i32) >> 8
}

/// Packets that `length` bytes take; a message without bytes takes one.
pub(crate) fn packets(length: u64, mtu: u32) -> u32 {
    length.div_ceil(mtu.max(1).into()).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::{add, distance, packets};

    #[test]
    fn numbers_wrap() {
        assert_eq!(add(0xff_ffff, 1), 0);
        assert_eq!(distance(0xff_fffe, 1), 3);
        assert_eq!(distance(1, 0xff_fffe), -3);
        assert_eq!(distance(5, 5), 0);
        assert_eq!(distance(0, 0x7f_ffff), 0x7f_ffff);
        assert_eq!(distance(0, 0x80_0000), -0x80_0000);
    }

    #[test]
    fn messages_are_cut_into_packets() {
        assert_eq!(packets(0, 1024), 1);
        assert_eq!(packets(1024, 1024), 1);
        assert_eq!(packets(1025, 1024), 2);
        assert_eq!(packets(1 << 31, 256), 1 << 23);
    }
}

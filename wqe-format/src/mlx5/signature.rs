//! Signatures of work requests: one byte that makes the exclusive or of everything 0xff.
//!
//! The byte itself counts as 0. rdma-core `providers/mlx5/mlx5.h` (`calc_sig`) and `qp.c`.

/// Complement of the exclusive or of all bytes.
pub const fn of_bytes(bytes: &[u8]) -> u8 {
    let mut xor = 0;
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        xor ^= *first;
        rest = tail;
    }
    !xor
}

/// Signature of a send request: of its `ds` units of 16 bytes, no more.
///
/// `bytes` starts at the control segment, whose signature is still 0; what lies behind the request's length, and units that
/// `bytes` does not hold, do not count.
pub fn of_wqe(bytes: &[u8]) -> u8 {
    let length = bytes.get(7).map_or(0, |ds| usize::from(ds & 0x3f) * 16);
    of_bytes(bytes.get(..length).unwrap_or(bytes))
}

/// Signature of a receive request on a queue with signatures: of the signature segment and scatter list `bytes`, of the
/// queue's number and of the slot's index.
pub const fn of_recv(bytes: &[u8], qpn: u32, index: u16) -> u8 {
    of_bytes(bytes) ^ of_bytes(&qpn.to_be_bytes()) ^ of_bytes(&index.to_be_bytes())
}

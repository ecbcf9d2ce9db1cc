//! General capabilities, second page, and what both say of general objects.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::caps::general2::CmdHcaCap2;

/// The kind of object that reserves numbers of queue pairs (rdma-core providers/mlx5/mlx5_ifc.h
/// `MLX5_OBJ_TYPE_RESERVED_QPN`).
pub(crate) const RESERVED_QPN: u16 = 0x2c;
/// Log of how many numbers an object reserves.
pub(crate) const LOG_RESERVED_QPNS: u8 = 5;

/// `log_reserved_qpn_granularity` of rdma-core's providers/mlx5/mlx5_ifc.h; Linux calls it reserved.
const GRANULARITY: (usize, usize) = (0x93, 5);

/// What is possible.
pub(super) fn maximum() -> Vec<u8> {
    let mut bytes = CmdHcaCap2::zeroed().into_inner().to_vec();
    let (first, width) = GRANULARITY;
    bits::set(&mut bytes, first, width, LOG_RESERVED_QPNS.into());
    bytes
}

/// Clears what Linux calls reserved.
#[cfg(test)]
pub(super) fn forget_granularity(bytes: &mut [u8]) {
    let (first, width) = GRANULARITY;
    bits::set(bytes, first, width, 0);
}

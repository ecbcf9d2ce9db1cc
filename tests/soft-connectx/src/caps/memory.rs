//! Capabilities of memory on the device.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::caps::memory::DeviceMemCap;

use crate::memic;

/// Access sizes of the two operations, a bit for each power of two from 1 byte on: programs look at these bytes, which
/// `mlx5_ifc.h` calls reserved (rdma-core `tests/test_mlx5_dm_ops.py`, `requires_memic_atomic_support`).
const SIZES_OF_OPERATIONS: [(usize, usize); 2] = [(0x20, 8), (0x30, 8)];

/// What is possible; nothing without memory.
pub(super) fn maximum(has_memory: bool) -> Vec<u8> {
    let mut caps = DeviceMemCap::zeroed();
    if has_memory {
        caps.set_memic(true)
            .set_log_min_memic_alloc_size(memic::LOG_UNIT)
            .set_log_max_memic_addr_alignment(memic::LOG_ALIGNMENT)
            .set_memic_bar_start_addr(memic::START)
            .set_memic_bar_size(memic::WINDOW as u32)
            .set_max_memic_size(memic::CAPACITY as u32)
            .set_memic_operations(memic::OPERATIONS);
    }
    let mut bytes = caps.into_inner().to_vec();
    if has_memory {
        for (first, width) in SIZES_OF_OPERATIONS {
            bits::set(&mut bytes, first, width, 0xf);
        }
    }
    bytes
}

/// Clears what no public layout has.
#[cfg(test)]
pub(super) fn forget_sizes(bytes: &mut [u8]) {
    for (first, width) in SIZES_OF_OPERATIONS {
        bits::set(bytes, first, width, 0);
    }
}

//! Capabilities of atomic operations.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of atomic operations (type 3).
    AtomicCaps = "atomic_caps", 0x100 {
        u8 atomic_req_8b_endianness_mode: 0x40, 0x2;
        bool supported_atomic_req_8b_endianness_mode_1: 0x46, 0x1;
        u16 atomic_operations: 0x90, 0x10;
        u16 atomic_size_qp: 0xb0, 0x10;
        u16 atomic_size_dc: 0xd0, 0x10;
    }
}

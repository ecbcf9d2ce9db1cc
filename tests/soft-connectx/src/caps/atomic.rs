//! Capabilities of atomic operations.

use wqe_format::mlx5::firmware::caps::atomic::AtomicCaps;

/// `atomic_req_8B_endianness_mode`: replies of 8 bytes come in the host's byte order. With 0 they come in the wire's
/// (mlx5_core `MLX5_ATOMIC_REQ_MODE_HOST_ENDIANNESS`).
pub(super) const HOST_ORDER: u8 = 1;

/// Compare and swap, fetch and add, and both under masks (Linux `MLX5_ATOMIC_OPS_*`).
const OPERATIONS: u16 = 0b1111;
/// A bit for each size that is a power of two: 8 bytes.
const SIZES: u16 = 8;

/// What is possible.
pub(super) fn maximum() -> Vec<u8> {
    let mut caps = AtomicCaps::zeroed();
    caps.set_supported_atomic_req_8b_endianness_mode_1(true)
        .set_atomic_req_8b_endianness_mode(HOST_ORDER);
    caps.set_atomic_operations(OPERATIONS)
        .set_atomic_size_qp(SIZES)
        .set_atomic_size_dc(SIZES);
    caps.into_inner().to_vec()
}

/// Makes of what is possible what is in force before the driver has said anything.
pub(super) fn start(bytes: &mut [u8]) {
    if let Ok(mut caps) = AtomicCaps::new(bytes) {
        caps.set_atomic_req_8b_endianness_mode(0);
    }
}

/// What is possible, with the byte order that the driver wants.
pub(super) fn with_order_of(maximum: &[u8], wanted: &[u8]) -> Vec<u8> {
    let mut bytes = maximum.to_vec();
    if let (Ok(mut caps), Ok(wanted)) = (AtomicCaps::new(&mut bytes[..]), AtomicCaps::new(wanted)) {
        caps.set_atomic_req_8b_endianness_mode(wanted.atomic_req_8b_endianness_mode());
    }
    bytes
}

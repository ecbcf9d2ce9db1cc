//! Capabilities of on-demand paging.

use wqe_format::mlx5::firmware::caps::odp::OdpCap;

/// What is possible: faults of memory keys, for what requests of these services touch; nothing without.
pub(super) fn maximum(is_there: bool) -> Vec<u8> {
    let mut caps = OdpCap::zeroed();
    if is_there {
        caps.set_mem_page_fault(true);
        let mut scheme = caps.memory_page_fault_scheme_cap_mut();
        scheme.set_page_prefetch(true);
        scheme
            .rc_odp_caps_mut()
            .set_send(true)
            .set_receive(true)
            .set_write(true)
            .set_read(true)
            .set_atomic(true)
            .set_srq_receive(true);
        scheme
            .xrc_odp_caps_mut()
            .set_send(true)
            .set_write(true)
            .set_read(true)
            .set_atomic(true)
            .set_srq_receive(true);
        scheme
            .dc_odp_caps_mut()
            .set_send(true)
            .set_write(true)
            .set_read(true)
            .set_atomic(true)
            .set_srq_receive(true);
        scheme.ud_odp_caps_mut().set_send(true);
    }
    caps.into_inner().to_vec()
}

/// What is in force before the driver has chosen a scheme.
pub(super) fn start(bytes: &mut [u8]) {
    if let Ok(mut caps) = OdpCap::new(bytes) {
        caps.set_mem_page_fault(false);
    }
}

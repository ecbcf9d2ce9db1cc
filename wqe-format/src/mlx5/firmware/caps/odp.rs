//! Capabilities of on-demand paging.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of on-demand paging (type 2).
    OdpCap = "odp_cap", 0x100 {
        (OdpSchemeCap) transport_page_fault_scheme_cap: 0x0, 0x200;
        (OdpSchemeCap) memory_page_fault_scheme_cap: 0x200, 0x200;
        bool mem_page_fault: 0x600, 0x1;
    }

    /// What on-demand paging can do, in one of its schemes.
    OdpSchemeCap = "odp_scheme_cap", 0x40 {
        bool sig: 0x40, 0x1;
        bool page_prefetch: 0x45, 0x1;
        (OdpPerTransportServiceCap) rc_odp_caps: 0x80, 0x20;
        (OdpPerTransportServiceCap) uc_odp_caps: 0xa0, 0x20;
        (OdpPerTransportServiceCap) ud_odp_caps: 0xc0, 0x20;
        (OdpPerTransportServiceCap) xrc_odp_caps: 0xe0, 0x20;
        (OdpPerTransportServiceCap) dc_odp_caps: 0x100, 0x20;
    }

    /// Operations of a service that may meet a page fault.
    OdpPerTransportServiceCap = "odp_per_transport_service_cap", 0x4 {
        bool send: 0x0, 0x1;
        bool receive: 0x1, 0x1;
        bool write: 0x2, 0x1;
        bool read: 0x3, 0x1;
        bool atomic: 0x4, 0x1;
        bool srq_receive: 0x5, 0x1;
    }
}

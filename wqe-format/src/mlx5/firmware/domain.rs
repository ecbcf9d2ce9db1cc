//! Protection domains, transport domains, XRC domains.

use super::layout::layouts;

layouts! {
    /// Input of ALLOC_PD (0x800).
    AllocPdIn = "alloc_pd_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of ALLOC_PD (0x800).
    AllocPdOut = "alloc_pd_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 pd: 0x48, 0x18;
    }

    /// Input of DEALLOC_PD (0x801).
    DeallocPdIn = "dealloc_pd_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 pd: 0x48, 0x18;
    }

    /// Output of DEALLOC_PD (0x801).
    DeallocPdOut = "dealloc_pd_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of ALLOC_TRANSPORT_DOMAIN (0x816).
    AllocTransportDomainIn = "alloc_transport_domain_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of ALLOC_TRANSPORT_DOMAIN (0x816).
    AllocTransportDomainOut = "alloc_transport_domain_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 transport_domain: 0x48, 0x18;
    }

    /// Input of DEALLOC_TRANSPORT_DOMAIN (0x817).
    DeallocTransportDomainIn = "dealloc_transport_domain_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 transport_domain: 0x48, 0x18;
    }

    /// Output of DEALLOC_TRANSPORT_DOMAIN (0x817).
    DeallocTransportDomainOut = "dealloc_transport_domain_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of ALLOC_XRCD (0x80e).
    AllocXrcdIn = "alloc_xrcd_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of ALLOC_XRCD (0x80e).
    AllocXrcdOut = "alloc_xrcd_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 xrcd: 0x48, 0x18;
    }

    /// Input of DEALLOC_XRCD (0x80f).
    DeallocXrcdIn = "dealloc_xrcd_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrcd: 0x48, 0x18;
    }

    /// Output of DEALLOC_XRCD (0x80f).
    DeallocXrcdOut = "dealloc_xrcd_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

//! Transport interface send: what a send queue's packets leave through.

use super::layout::layouts;

layouts! {
    /// Transport interface send context.
    Tisc = "tisc", 0xa0 {
        bool strict_lag_tx_port_affinity: 0x0, 0x1;
        bool tls_en: 0x1, 0x1;
        u8 lag_tx_port_affinity: 0x4, 0x4;
        u8 prio: 0xc, 0x4;
        u32 transport_domain: 0x128, 0x18;
        u32 underlay_qpn: 0x148, 0x18;
        u32 pd: 0x168, 0x18;
    }

    /// Which fields MODIFY_TIS means.
    ModifyTisBitmask = "modify_tis_bitmask", 0x8 {
        bool lag_tx_port_affinity: 0x3d, 0x1;
        bool strict_lag_tx_port_affinity: 0x3e, 0x1;
        bool prio: 0x3f, 0x1;
    }

    /// Input of CREATE_TIS (0x912).
    CreateTisIn = "create_tis_in", 0xc0 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Tisc) ctx: 0x100, 0x500;
    }

    /// Output of CREATE_TIS (0x912).
    CreateTisOut = "create_tis_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 tisn: 0x48, 0x18;
    }

    /// Input of MODIFY_TIS (0x913).
    ModifyTisIn = "modify_tis_in", 0xc0 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tisn: 0x48, 0x18;
        (ModifyTisBitmask) bitmask: 0x80, 0x40;
        (Tisc) ctx: 0x100, 0x500;
    }

    /// Output of MODIFY_TIS (0x913).
    ModifyTisOut = "modify_tis_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_TIS (0x914).
    DestroyTisIn = "destroy_tis_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tisn: 0x48, 0x18;
    }

    /// Output of DESTROY_TIS (0x914).
    DestroyTisOut = "destroy_tis_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_TIS (0x915).
    QueryTisIn = "query_tis_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tisn: 0x48, 0x18;
    }

    /// Output of QUERY_TIS (0x915).
    QueryTisOut = "query_tis_out", 0xb0 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Tisc) tis_context: 0x80, 0x500;
    }
}

//! Link aggregation.

use super::layout::layouts;

layouts! {
    /// How ports are aggregated.
    Lagc = "lagc", 0x8 {
        bool fdb_selection_mode: 0x0, 0x1;
        u8 port_select_mode: 0x15, 0x3;
        u8 lag_state: 0x1d, 0x3;
        u8 active_port: 0x2c, 0x4;
        u8 tx_remap_affinity_2: 0x34, 0x4;
        u8 tx_remap_affinity_1: 0x3c, 0x4;
    }

    /// Input of QUERY_LAG (0x842).
    QueryLagIn = "query_lag_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of QUERY_LAG (0x842).
    QueryLagOut = "query_lag_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Lagc) ctx: 0x40, 0x40;
    }
}

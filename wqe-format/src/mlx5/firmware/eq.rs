//! Event queues.

use super::layout::layouts;

layouts! {
    /// Event queue context.
    Eqc = "eqc", 0x40 {
        u8 status: 0x0, 0x4;
        bool ec: 0xd, 0x1;
        bool oi: 0xe, 0x1;
        u8 st: 0x14, 0x4;
        u8 page_offset: 0x54, 0x6;
        u8 log_eq_size: 0x63, 0x5;
        u32 uar_page: 0x68, 0x18;
        u16 intr: 0xb4, 0xc;
        u8 log_page_size: 0xc3, 0x5;
        u32 consumer_counter: 0x148, 0x18;
        u32 producer_counter: 0x168, 0x18;
    }

    /// Input of CREATE_EQ (0x301).
    CreateEqIn = "create_eq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Eqc) eq_context_entry: 0x80, 0x200;
        [u64; 4] event_bitmask: 0x2c0, 0x40;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of CREATE_EQ (0x301).
    CreateEqOut = "create_eq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u8 eq_number: 0x58, 0x8;
    }

    /// Input of DESTROY_EQ (0x302).
    DestroyEqIn = "destroy_eq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 eq_number: 0x58, 0x8;
    }

    /// Output of DESTROY_EQ (0x302).
    DestroyEqOut = "destroy_eq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_EQ (0x303).
    QueryEqIn = "query_eq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 eq_number: 0x58, 0x8;
    }

    /// Output of QUERY_EQ (0x303).
    QueryEqOut = "query_eq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Eqc) eq_context_entry: 0x80, 0x200;
        u64 event_bitmask: 0x2c0, 0x40;
        [u64] pas: 0x880, 0x40;
    }
}

//! Memory that the driver lends to the device.

use super::layout::layouts;

layouts! {
    /// Input of QUERY_PAGES (0x107).
    QueryPagesIn = "query_pages_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool embedded_cpu_function: 0x40, 0x1;
        u16 function_id: 0x50, 0x10;
    }

    /// Output of QUERY_PAGES (0x107).
    QueryPagesOut = "query_pages_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bool embedded_cpu_function: 0x40, 0x1;
        u16 function_id: 0x50, 0x10;
        u32 num_pages: 0x60, 0x20;
    }

    /// Input of MANAGE_PAGES (0x108).
    ManagePagesIn = "manage_pages_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool embedded_cpu_function: 0x40, 0x1;
        u16 function_id: 0x50, 0x10;
        u32 input_num_entries: 0x60, 0x20;
        [u64] pas: 0x80, 0x40;
    }

    /// Output of MANAGE_PAGES (0x108).
    ManagePagesOut = "manage_pages_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 output_num_entries: 0x40, 0x20;
        [u64] pas: 0x80, 0x40;
    }
}

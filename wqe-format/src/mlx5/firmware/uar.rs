//! Doorbell pages.

use super::layout::layouts;

layouts! {
    /// Input of ALLOC_UAR (0x802).
    AllocUarIn = "alloc_uar_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of ALLOC_UAR (0x802).
    AllocUarOut = "alloc_uar_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 uar: 0x48, 0x18;
    }

    /// Input of DEALLOC_UAR (0x803).
    DeallocUarIn = "dealloc_uar_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 uar: 0x48, 0x18;
    }

    /// Output of DEALLOC_UAR (0x803).
    DeallocUarOut = "dealloc_uar_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

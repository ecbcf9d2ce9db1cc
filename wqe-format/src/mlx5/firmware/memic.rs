//! Memory on the device.

use super::layout::layouts;

layouts! {
    /// Input of ALLOC_MEMIC (0x205).
    AllocMemicIn = "alloc_memic_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 log_memic_addr_alignment: 0x78, 0x8;
        u64 range_start_addr: 0x80, 0x40;
        u32 range_size: 0xc0, 0x20;
        u32 memic_size: 0xe0, 0x20;
    }

    /// Output of ALLOC_MEMIC (0x205).
    AllocMemicOut = "alloc_memic_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u64 memic_start_addr: 0x40, 0x40;
    }

    /// Input of DEALLOC_MEMIC (0x206).
    DeallocMemicIn = "dealloc_memic_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u64 memic_start_addr: 0x80, 0x40;
        u32 memic_size: 0xc0, 0x20;
    }

    /// Output of DEALLOC_MEMIC (0x206).
    DeallocMemicOut = "dealloc_memic_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of MODIFY_MEMIC (0x207).
    ModifyMemicIn = "modify_memic_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 memic_operation_type: 0x78, 0x8;
        u64 memic_start_addr: 0x80, 0x40;
    }

    /// Output of MODIFY_MEMIC (0x207).
    ModifyMemicOut = "modify_memic_out", 0x40 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u64 memic_operation_addr: 0x80, 0x40;
    }
}

//! Protection and signature values.

use super::layout::layouts;

layouts! {
    /// Input of CREATE_PSV (0x600).
    CreatePsvIn = "create_psv_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 num_psv: 0x40, 0x4;
        u32 pd: 0x48, 0x18;
    }

    /// Output of CREATE_PSV (0x600).
    CreatePsvOut = "create_psv_out", 0x20 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 psv0_index: 0x88, 0x18;
        u32 psv1_index: 0xa8, 0x18;
        u32 psv2_index: 0xc8, 0x18;
        u32 psv3_index: 0xe8, 0x18;
    }

    /// Input of DESTROY_PSV (0x601).
    DestroyPsvIn = "destroy_psv_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 psvn: 0x48, 0x18;
    }

    /// Output of DESTROY_PSV (0x601).
    DestroyPsvOut = "destroy_psv_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

//! Access to registers by a command.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Input of ACCESS_REG (0x805).
    AccessRegisterIn = "access_register_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 register_id: 0x50, 0x10;
        u32 argument: 0x60, 0x20;
        [u32] register_data: 0x80, 0x20;
    }

    /// Output of ACCESS_REG (0x805).
    AccessRegisterOut = "access_register_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        [u32] register_data: 0x80, 0x20;
    }
}

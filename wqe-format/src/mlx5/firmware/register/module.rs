//! Registers of a pluggable module.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// MCIA (0x9014): memory of a pluggable module.
    MciaReg = "mcia_reg", 0x90 {
        bool l: 0x0, 0x1;
        u8 module: 0x8, 0x8;
        u8 status: 0x18, 0x8;
        u8 i2c_device_address: 0x20, 0x8;
        u8 page_number: 0x28, 0x8;
        u16 device_address: 0x30, 0x10;
        u16 size: 0x50, 0x10;
        bytes dwords: 0x80, 0x400;
    }
}

//! Management datagrams through the firmware.

use super::layout::layouts;

layouts! {
    /// Input of MAD_IFC (0x50d).
    MadIfcIn = "mad_ifc_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 remote_lid: 0x40, 0x10;
        u8 plane_index: 0x50, 0x8;
        u8 port: 0x58, 0x8;
        bytes mad: 0x80, 0x800;
    }

    /// Output of MAD_IFC (0x50d).
    MadIfcOut = "mad_ifc_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bytes response_mad_packet: 0x80, 0x800;
    }
}

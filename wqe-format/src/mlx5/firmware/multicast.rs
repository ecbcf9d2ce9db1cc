//! Multicast groups.

use super::layout::layouts;

layouts! {
    /// Input of ATTACH_TO_MCG (0x806).
    AttachToMcgIn = "attach_to_mcg_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        bytes multicast_gid: 0x80, 0x80;
    }

    /// Output of ATTACH_TO_MCG (0x806).
    AttachToMcgOut = "attach_to_mcg_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DETACH_FROM_MCG (0x807).
    DetachFromMcgIn = "detach_from_mcg_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        bytes multicast_gid: 0x80, 0x80;
    }

    /// Output of DETACH_FROM_MCG (0x807).
    DetachFromMcgOut = "detach_from_mcg_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

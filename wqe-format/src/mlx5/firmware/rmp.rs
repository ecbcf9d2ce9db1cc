//! Receive memory pools: what a basic shared receive queue is made of.

use super::layout::layouts;
use super::wq::Wq;

layouts! {
    /// Receive memory pool context.
    Rmpc = "rmpc", 0xf0 {
        u8 state: 0x8, 0x4;
        bool basic_cyclic_rcv_wqe: 0x20, 0x1;
        (Wq) wq: 0x180, 0x600;
    }

    /// Which fields MODIFY_RMP means.
    RmpBitmask = "rmp_bitmask", 0x8 {
        bool lwm: 0x3f, 0x1;
    }

    /// Input of CREATE_RMP (0x90c).
    CreateRmpIn = "create_rmp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Rmpc) ctx: 0x100, 0x780;
    }

    /// Output of CREATE_RMP (0x90c).
    CreateRmpOut = "create_rmp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 rmpn: 0x48, 0x18;
    }

    /// Input of MODIFY_RMP (0x90d).
    ModifyRmpIn = "modify_rmp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 rmp_state: 0x40, 0x4;
        u32 rmpn: 0x48, 0x18;
        (RmpBitmask) bitmask: 0x80, 0x40;
        (Rmpc) ctx: 0x100, 0x780;
    }

    /// Output of MODIFY_RMP (0x90d).
    ModifyRmpOut = "modify_rmp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_RMP (0x90e).
    DestroyRmpIn = "destroy_rmp_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rmpn: 0x48, 0x18;
    }

    /// Output of DESTROY_RMP (0x90e).
    DestroyRmpOut = "destroy_rmp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_RMP (0x90f).
    QueryRmpIn = "query_rmp_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rmpn: 0x48, 0x18;
    }

    /// Output of QUERY_RMP (0x90f).
    QueryRmpOut = "query_rmp_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Rmpc) rmp_context: 0x100, 0x780;
    }
}

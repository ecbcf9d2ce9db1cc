//! XRC shared receive queues.

use super::layout::layouts;
use super::srqc::XrcSrqc;

layouts! {
    /// Input of CREATE_XRC_SRQ (0x705).
    CreateXrcSrqIn = "create_xrc_srq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (XrcSrqc) xrc_srq_context_entry: 0x80, 0x200;
        bool xrc_srq_umem_valid: 0x2e0, 0x1;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of CREATE_XRC_SRQ (0x705).
    CreateXrcSrqOut = "create_xrc_srq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 xrc_srqn: 0x48, 0x18;
    }

    /// Input of DESTROY_XRC_SRQ (0x706).
    DestroyXrcSrqIn = "destroy_xrc_srq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrc_srqn: 0x48, 0x18;
    }

    /// Output of DESTROY_XRC_SRQ (0x706).
    DestroyXrcSrqOut = "destroy_xrc_srq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_XRC_SRQ (0x707).
    QueryXrcSrqIn = "query_xrc_srq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrc_srqn: 0x48, 0x18;
    }

    /// Output of QUERY_XRC_SRQ (0x707).
    QueryXrcSrqOut = "query_xrc_srq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (XrcSrqc) xrc_srq_context_entry: 0x80, 0x200;
        [u64] pas: 0x880, 0x40;
    }

    /// Input of ARM_XRC_SRQ (0x708).
    ArmXrcSrqIn = "arm_xrc_srq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrc_srqn: 0x48, 0x18;
        u16 lwm: 0x70, 0x10;
    }

    /// Output of ARM_XRC_SRQ (0x708).
    ArmXrcSrqOut = "arm_xrc_srq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

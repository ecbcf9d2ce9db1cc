//! Shared receive queues.

use super::layout::layouts;
use super::srqc::Srqc;

layouts! {
    /// Input of CREATE_SRQ (0x700).
    CreateSrqIn = "create_srq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Srqc) srq_context_entry: 0x80, 0x200;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of CREATE_SRQ (0x700).
    CreateSrqOut = "create_srq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 srqn: 0x48, 0x18;
    }

    /// Input of DESTROY_SRQ (0x701).
    DestroySrqIn = "destroy_srq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 srqn: 0x48, 0x18;
    }

    /// Output of DESTROY_SRQ (0x701).
    DestroySrqOut = "destroy_srq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_SRQ (0x702).
    QuerySrqIn = "query_srq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 srqn: 0x48, 0x18;
    }

    /// Output of QUERY_SRQ (0x702).
    QuerySrqOut = "query_srq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Srqc) srq_context_entry: 0x80, 0x200;
        [u64] pas: 0x880, 0x40;
    }

    /// Input of ARM_RQ (0x703).
    ArmRqIn = "arm_rq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 srq_number: 0x48, 0x18;
        u16 lwm: 0x70, 0x10;
    }

    /// Output of ARM_RQ (0x703).
    ArmRqOut = "arm_rq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

//! Shared receive queues with tag matching.

use super::layout::layouts;
use super::wq::Wq;

layouts! {
    /// Context of a shared receive queue with tag matching.
    Xrqc = "xrqc", 0x140 {
        u8 state: 0x0, 0x4;
        bool rlkey: 0x4, 0x1;
        u8 topology: 0x14, 0x4;
        u8 offload: 0x1c, 0x4;
        u32 user_index: 0x28, 0x18;
        u32 cqn: 0x48, 0x18;
        (TagMatchingTopologyContext) tag_matching_topology_context: 0x100, 0x80;
        (Wq) wq: 0x400, 0x600;
    }

    /// Sizes of tag matching.
    TagMatchingTopologyContext = "tag_matching_topology_context", 0x10 {
        u8 log_matching_list_sz: 0x0, 0x4;
        u16 append_next_index: 0x10, 0x10;
        u16 sw_phase_cnt: 0x20, 0x10;
        u16 hw_phase_cnt: 0x30, 0x10;
    }

    /// Input of CREATE_XRQ (0x717).
    CreateXrqIn = "create_xrq_in", 0x150 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Xrqc) xrq_context: 0x80, 0xa00;
    }

    /// Output of CREATE_XRQ (0x717).
    CreateXrqOut = "create_xrq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 xrqn: 0x48, 0x18;
    }

    /// Input of DESTROY_XRQ (0x718).
    DestroyXrqIn = "destroy_xrq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrqn: 0x48, 0x18;
    }

    /// Output of DESTROY_XRQ (0x718).
    DestroyXrqOut = "destroy_xrq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_XRQ (0x719).
    QueryXrqIn = "query_xrq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrqn: 0x48, 0x18;
    }

    /// Output of QUERY_XRQ (0x719).
    QueryXrqOut = "query_xrq_out", 0x150 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Xrqc) xrq_context: 0x80, 0xa00;
    }

    /// Input of ARM_XRQ (0x71a).
    ArmXrqIn = "arm_xrq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 xrqn: 0x48, 0x18;
        u16 lwm: 0x70, 0x10;
    }

    /// Output of ARM_XRQ (0x71a).
    ArmXrqOut = "arm_xrq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

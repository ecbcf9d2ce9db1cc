//! Receive queues (Ethernet).

use super::layout::layouts;
use super::wq::Wq;

layouts! {
    /// Receive queue context.
    Rqc = "rqc", 0xf0 {
        bool rlky: 0x0, 0x1;
        bool delay_drop_en: 0x1, 0x1;
        bool scatter_fcs: 0x2, 0x1;
        bool vsd: 0x3, 0x1;
        u8 mem_rq_type: 0x4, 0x4;
        u8 state: 0x8, 0x4;
        bool flush_in_error_en: 0xd, 0x1;
        bool hairpin: 0xe, 0x1;
        u8 ts_format: 0x1a, 0x2;
        u32 user_index: 0x28, 0x18;
        u32 cqn: 0x48, 0x18;
        u8 counter_set_id: 0x60, 0x8;
        u32 rmpn: 0x88, 0x18;
        u32 hairpin_peer_sq: 0xa8, 0x18;
        u16 hairpin_peer_vhca: 0xd0, 0x10;
        u8 shampo_no_match_alignment_granularity: 0x126, 0x2;
        u8 shampo_match_criteria_type: 0x12e, 0x2;
        u16 reservation_timeout: 0x130, 0x10;
        (Wq) wq: 0x180, 0x600;
    }

    /// Input of CREATE_RQ (0x908).
    CreateRqIn = "create_rq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Rqc) ctx: 0x100, 0x780;
    }

    /// Output of CREATE_RQ (0x908).
    CreateRqOut = "create_rq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 rqn: 0x48, 0x18;
    }

    /// Input of MODIFY_RQ (0x909).
    ModifyRqIn = "modify_rq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 rq_state: 0x40, 0x4;
        u32 rqn: 0x48, 0x18;
        u64 modify_bitmask: 0x80, 0x40;
        (Rqc) ctx: 0x100, 0x780;
    }

    /// Output of MODIFY_RQ (0x909).
    ModifyRqOut = "modify_rq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_RQ (0x90a).
    DestroyRqIn = "destroy_rq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rqn: 0x48, 0x18;
    }

    /// Output of DESTROY_RQ (0x90a).
    DestroyRqOut = "destroy_rq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_RQ (0x90b).
    QueryRqIn = "query_rq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rqn: 0x48, 0x18;
    }

    /// Output of QUERY_RQ (0x90b).
    QueryRqOut = "query_rq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Rqc) rq_context: 0x100, 0x780;
    }
}

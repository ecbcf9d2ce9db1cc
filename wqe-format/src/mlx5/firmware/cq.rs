//! Completion queues.

use super::layout::layouts;

layouts! {
    /// Completion queue context.
    Cqc = "cqc", 0x40 {
        u8 status: 0x0, 0x4;
        bool dbr_umem_valid: 0x6, 0x1;
        bool apu_cq: 0x7, 0x1;
        u8 cqe_sz: 0x8, 0x3;
        bool cc: 0xb, 0x1;
        bool scqe_break_moderation_en: 0xd, 0x1;
        bool oi: 0xe, 0x1;
        u8 cq_period_mode: 0xf, 0x2;
        bool cqe_comp_en: 0x11, 0x1;
        u8 mini_cqe_res_format: 0x12, 0x2;
        u8 st: 0x14, 0x4;
        u8 cqe_compression_layout: 0x1e, 0x2;
        u8 page_offset: 0x54, 0x6;
        u8 log_cq_size: 0x63, 0x5;
        u32 uar_page: 0x68, 0x18;
        u16 cq_period: 0x84, 0xc;
        u16 cq_max_count: 0x90, 0x10;
        u32 c_eqn_or_apu_element: 0xa0, 0x20;
        u8 log_page_size: 0xc3, 0x5;
        u32 last_notified_index: 0x108, 0x18;
        u32 last_solicit_index: 0x128, 0x18;
        u32 consumer_counter: 0x148, 0x18;
        u32 producer_counter: 0x168, 0x18;
        u64 dbr_addr: 0x1c0, 0x40;
    }

    /// Input of CREATE_CQ (0x400).
    CreateCqIn = "create_cq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Cqc) cq_context: 0x80, 0x200;
        bool cq_umem_valid: 0x2e0, 0x1;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of CREATE_CQ (0x400).
    CreateCqOut = "create_cq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 cqn: 0x48, 0x18;
    }

    /// Input of DESTROY_CQ (0x401).
    DestroyCqIn = "destroy_cq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 cqn: 0x48, 0x18;
    }

    /// Output of DESTROY_CQ (0x401).
    DestroyCqOut = "destroy_cq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_CQ (0x402).
    QueryCqIn = "query_cq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 cqn: 0x48, 0x18;
    }

    /// Output of QUERY_CQ (0x402).
    QueryCqOut = "query_cq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Cqc) cq_context: 0x80, 0x200;
        [u64] pas: 0x880, 0x40;
    }

    /// Input of MODIFY_CQ (0x403).
    ModifyCqIn = "modify_cq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 cqn: 0x48, 0x18;
        u32 modify_field_select_resize_field_select: 0x60, 0x20;
        (Cqc) cq_context: 0x80, 0x200;
        bool cq_umem_valid: 0x2e0, 0x1;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of MODIFY_CQ (0x403).
    ModifyCqOut = "modify_cq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Which fields a modifying command means, by number.
    ModifyFieldSelect = "modify_field_select", 0x4 {
        u32 modify_field_select: 0x0, 0x20;
    }
}

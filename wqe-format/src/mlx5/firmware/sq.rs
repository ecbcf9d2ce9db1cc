//! Send queues (Ethernet).

use super::layout::layouts;
use super::wq::Wq;

layouts! {
    /// Send queue context.
    Sqc = "sqc", 0xf0 {
        bool rlky: 0x0, 0x1;
        bool cd_master: 0x1, 0x1;
        bool fre: 0x2, 0x1;
        bool flush_in_error_en: 0x3, 0x1;
        bool allow_multi_pkt_send_wqe: 0x4, 0x1;
        u8 min_wqe_inline_mode: 0x5, 0x3;
        u8 state: 0x8, 0x4;
        bool reg_umr: 0xc, 0x1;
        bool allow_swp: 0xd, 0x1;
        bool hairpin: 0xe, 0x1;
        bool non_wire: 0xf, 0x1;
        u8 ts_format: 0x1a, 0x2;
        u32 user_index: 0x28, 0x18;
        u32 cqn: 0x48, 0x18;
        u32 hairpin_peer_rq: 0x68, 0x18;
        u16 hairpin_peer_vhca: 0x90, 0x10;
        u32 ts_cqe_to_dest_cqn: 0xc8, 0x18;
        u16 packet_pacing_rate_limit_index: 0xf0, 0x10;
        u16 tis_lst_sz: 0x100, 0x10;
        u16 qos_queue_group_id: 0x110, 0x10;
        u32 tis_num_0: 0x168, 0x18;
        (Wq) wq: 0x180, 0x600;
    }

    /// Input of CREATE_SQ (0x904).
    CreateSqIn = "create_sq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Sqc) ctx: 0x100, 0x780;
    }

    /// Output of CREATE_SQ (0x904).
    CreateSqOut = "create_sq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 sqn: 0x48, 0x18;
    }

    /// Input of MODIFY_SQ (0x905).
    ModifySqIn = "modify_sq_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 sq_state: 0x40, 0x4;
        u32 sqn: 0x48, 0x18;
        u64 modify_bitmask: 0x80, 0x40;
        (Sqc) ctx: 0x100, 0x780;
    }

    /// Output of MODIFY_SQ (0x905).
    ModifySqOut = "modify_sq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_SQ (0x906).
    DestroySqIn = "destroy_sq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 sqn: 0x48, 0x18;
    }

    /// Output of DESTROY_SQ (0x906).
    DestroySqOut = "destroy_sq_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_SQ (0x907).
    QuerySqIn = "query_sq_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 sqn: 0x48, 0x18;
    }

    /// Output of QUERY_SQ (0x907).
    QuerySqOut = "query_sq_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Sqc) sq_context: 0x100, 0x780;
    }
}

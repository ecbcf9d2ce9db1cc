//! Tables of receive queues.

use super::layout::layouts;

layouts! {
    /// Receive queue table context.
    Rqtc = "rqtc", 0xf0 {
        u8 list_q_type: 0xa5, 0x3;
        u16 rqt_max_size: 0xb0, 0x10;
        bool rq_vhca_id_format: 0xc0, 0x1;
        u16 rqt_actual_size: 0xd0, 0x10;
        [(RqNum)] rq_num: 0x780, 0x20;
        [(RqVhca)] rq_vhca: 0x780, 0x40;
    }

    /// A receive queue in a table.
    RqNum = "rq_num", 0x4 {
        u32 rq_num: 0x8, 0x18;
    }

    /// A receive queue in a table, with the function that it is of.
    RqVhca = "rq_vhca", 0x8 {
        u32 rq_num: 0x8, 0x18;
        u16 rq_vhca_id: 0x30, 0x10;
    }

    /// Which fields MODIFY_RQT means.
    RqtBitmask = "rqt_bitmask", 0x8 {
        bool rqn_list: 0x3f, 0x1;
    }

    /// Input of CREATE_RQT (0x916).
    CreateRqtIn = "create_rqt_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Rqtc) rqt_context: 0x100, 0x780;
    }

    /// Output of CREATE_RQT (0x916).
    CreateRqtOut = "create_rqt_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 rqtn: 0x48, 0x18;
    }

    /// Input of MODIFY_RQT (0x917).
    ModifyRqtIn = "modify_rqt_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rqtn: 0x48, 0x18;
        (RqtBitmask) bitmask: 0x80, 0x40;
        (Rqtc) ctx: 0x100, 0x780;
    }

    /// Output of MODIFY_RQT (0x917).
    ModifyRqtOut = "modify_rqt_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_RQT (0x918).
    DestroyRqtIn = "destroy_rqt_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rqtn: 0x48, 0x18;
    }

    /// Output of DESTROY_RQT (0x918).
    DestroyRqtOut = "destroy_rqt_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_RQT (0x919).
    QueryRqtIn = "query_rqt_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 rqtn: 0x48, 0x18;
    }

    /// Output of QUERY_RQT (0x919).
    QueryRqtOut = "query_rqt_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Rqtc) rqt_context: 0x100, 0x780;
    }
}

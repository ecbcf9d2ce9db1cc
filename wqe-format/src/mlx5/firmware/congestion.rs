//! Congestion control.

use super::layout::layouts;

layouts! {
    /// Input of QUERY_CONG_STATUS (0x822).
    QueryCongStatusIn = "query_cong_status_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 priority: 0x58, 0x4;
        u8 cong_protocol: 0x5c, 0x4;
    }

    /// Output of QUERY_CONG_STATUS (0x822).
    QueryCongStatusOut = "query_cong_status_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bool enable: 0x60, 0x1;
        bool tag_enable: 0x61, 0x1;
    }

    /// Input of MODIFY_CONG_STATUS (0x823).
    ModifyCongStatusIn = "modify_cong_status_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 priority: 0x58, 0x4;
        u8 cong_protocol: 0x5c, 0x4;
        bool enable: 0x60, 0x1;
        bool tag_enable: 0x61, 0x1;
    }

    /// Output of MODIFY_CONG_STATUS (0x823).
    ModifyCongStatusOut = "modify_cong_status_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_CONG_PARAMS (0x824).
    QueryCongParamsIn = "query_cong_params_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 cong_protocol: 0x5c, 0x4;
    }

    /// Output of QUERY_CONG_PARAMS (0x824).
    QueryCongParamsOut = "query_cong_params_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bytes congestion_parameters: 0x80, 0x800;
    }

    /// Input of MODIFY_CONG_PARAMS (0x825).
    ModifyCongParamsIn = "modify_cong_params_in", 0x120 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 cong_protocol: 0x5c, 0x4;
        u32 field_select: 0x60, 0x20;
        bytes congestion_parameters: 0x100, 0x800;
    }

    /// Output of MODIFY_CONG_PARAMS (0x825).
    ModifyCongParamsOut = "modify_cong_params_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_CONG_STATISTICS (0x826).
    QueryCongStatisticsIn = "query_cong_statistics_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool clear: 0x40, 0x1;
    }

    /// Output of QUERY_CONG_STATISTICS (0x826).
    QueryCongStatisticsOut = "query_cong_statistics_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 rp_cur_flows: 0x80, 0x20;
        u32 sum_flows: 0xa0, 0x20;
        u32 rp_cnp_ignored_high: 0xc0, 0x20;
        u32 rp_cnp_ignored_low: 0xe0, 0x20;
        u32 rp_cnp_handled_high: 0x100, 0x20;
        u32 rp_cnp_handled_low: 0x120, 0x20;
        u32 time_stamp_high: 0x240, 0x20;
        u32 time_stamp_low: 0x260, 0x20;
        u32 accumulators_period: 0x280, 0x20;
        u32 np_ecn_marked_roce_packets_high: 0x2a0, 0x20;
        u32 np_ecn_marked_roce_packets_low: 0x2c0, 0x20;
        u32 np_cnp_sent_high: 0x2e0, 0x20;
        u32 np_cnp_sent_low: 0x300, 0x20;
    }
}

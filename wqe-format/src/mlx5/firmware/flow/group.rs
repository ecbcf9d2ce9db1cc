//! Flow groups: the entries of a table that look at the same bits.

use super::matching::FteMatchParam;
use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Input of CREATE_FLOW_GROUP (0x933).
    CreateFlowGroupIn = "create_flow_group_in", 0x400 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        u8 group_type: 0x8c, 0x4;
        u32 table_id: 0xa8, 0x18;
        bool source_eswitch_owner_vhca_id_valid: 0xc0, 0x1;
        u32 start_flow_index: 0xe0, 0x20;
        u32 end_flow_index: 0x120, 0x20;
        u16 match_definer_id: 0x150, 0x10;
        u8 match_criteria_enable: 0x1f8, 0x8;
        (FteMatchParam) match_criteria: 0x200, 0x1000;
    }

    /// Output of CREATE_FLOW_GROUP (0x933).
    CreateFlowGroupOut = "create_flow_group_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 group_id: 0x48, 0x18;
    }

    /// Input of DESTROY_FLOW_GROUP (0x934).
    DestroyFlowGroupIn = "destroy_flow_group_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        u32 group_id: 0xc0, 0x20;
    }

    /// Output of DESTROY_FLOW_GROUP (0x934).
    DestroyFlowGroupOut = "destroy_flow_group_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_FLOW_GROUP (0x935).
    QueryFlowGroupIn = "query_flow_group_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        u32 group_id: 0xc0, 0x20;
    }

    /// Output of QUERY_FLOW_GROUP (0x935).
    QueryFlowGroupOut = "query_flow_group_out", 0x400 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 start_flow_index: 0xe0, 0x20;
        u32 end_flow_index: 0x120, 0x20;
        u8 match_criteria_enable: 0x1f8, 0x8;
        (FteMatchParam) match_criteria: 0x200, 0x1000;
    }
}

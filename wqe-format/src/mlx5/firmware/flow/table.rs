//! Flow tables.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Flow table context.
    FlowTableContext = "flow_table_context", 0x28 {
        bool reformat_en: 0x0, 0x1;
        bool decap_en: 0x1, 0x1;
        bool sw_owner: 0x2, 0x1;
        bool termination_table: 0x3, 0x1;
        u8 table_miss_action: 0x4, 0x4;
        u8 level: 0x8, 0x8;
        bool rtc_valid: 0x10, 0x1;
        u8 log_size: 0x18, 0x8;
        u32 table_miss_id: 0x28, 0x18;
        u32 lag_master_next_table_id: 0x48, 0x18;
        bytes sws: 0xc0, 0x80;
        bytes hws: 0xc0, 0x80;
    }

    /// Input of CREATE_FLOW_TABLE (0x930).
    CreateFlowTableIn = "create_flow_table_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        (FlowTableContext) flow_table_context: 0xc0, 0x140;
    }

    /// Output of CREATE_FLOW_TABLE (0x930).
    CreateFlowTableOut = "create_flow_table_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 icm_address_63_40: 0x8, 0x18;
        u32 syndrome: 0x20, 0x20;
        u8 icm_address_39_32: 0x40, 0x8;
        u32 table_id: 0x48, 0x18;
        u32 icm_address_31_0: 0x60, 0x20;
    }

    /// Input of MODIFY_FLOW_TABLE (0x93c).
    ModifyFlowTableIn = "modify_flow_table_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u16 modify_field_select: 0x70, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        (FlowTableContext) flow_table_context: 0xc0, 0x140;
    }

    /// Output of MODIFY_FLOW_TABLE (0x93c).
    ModifyFlowTableOut = "modify_flow_table_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_FLOW_TABLE (0x931).
    DestroyFlowTableIn = "destroy_flow_table_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
    }

    /// Output of DESTROY_FLOW_TABLE (0x931).
    DestroyFlowTableOut = "destroy_flow_table_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_FLOW_TABLE (0x932).
    QueryFlowTableIn = "query_flow_table_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
    }

    /// Output of QUERY_FLOW_TABLE (0x932).
    QueryFlowTableOut = "query_flow_table_out", 0x40 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (FlowTableContext) flow_table_context: 0xc0, 0x140;
    }

    /// Input of SET_FLOW_TABLE_ROOT (0x92f).
    SetFlowTableRootIn = "set_flow_table_root_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        bool table_of_other_vport: 0x8f, 0x1;
        u16 table_vport_number: 0x90, 0x10;
        u32 table_id: 0xa8, 0x18;
        u32 underlay_qpn: 0xc8, 0x18;
        bool table_eswitch_owner_vhca_id_valid: 0xe0, 0x1;
        u16 table_eswitch_owner_vhca_id: 0xf0, 0x10;
    }

    /// Output of SET_FLOW_TABLE_ROOT (0x92f).
    SetFlowTableRootOut = "set_flow_table_root_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

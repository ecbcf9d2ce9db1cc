//! Flow table entries: what to do with packets that match.

use super::matching::FteMatchParam;
use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Flow table entry: what it matches and what is done then.
    FlowContext = "flow_context", 0x300 {
        (Vlan) push_vlan: 0x0, 0x20;
        u32 group_id: 0x20, 0x20;
        u32 flow_tag: 0x48, 0x18;
        u16 action: 0x70, 0x10;
        bool extended_destination: 0x80, 0x1;
        bool uplink_hairpin_en: 0x81, 0x1;
        u8 flow_source: 0x82, 0x2;
        u8 encrypt_decrypt_type: 0x84, 0x4;
        u32 destination_list_size: 0x88, 0x18;
        u32 flow_counter_list_size: 0xa8, 0x18;
        u32 packet_reformat_id: 0xc0, 0x20;
        u32 modify_header_id: 0xe0, 0x20;
        (Vlan) push_vlan_2: 0x100, 0x20;
        u32 encrypt_decrypt_obj_id: 0x120, 0x20;
        (FteMatchParam) match_value: 0x200, 0x1000;
        [(ExecuteAso); 4] execute_aso: 0x1200, 0x40;
        [bytes] destination: 0x1800, 0x80;
    }

    /// A VLAN tag.
    Vlan = "vlan", 0x4 {
        u16 ethtype: 0x0, 0x10;
        u8 prio: 0x10, 0x3;
        bool cfi: 0x13, 0x1;
        u16 vid: 0x14, 0xc;
    }

    /// Where a packet goes.
    DestFormatStruct = "dest_format_struct", 0x8 {
        u8 destination_type: 0x0, 0x8;
        u32 destination_id: 0x8, 0x18;
        bool destination_eswitch_owner_vhca_id_valid: 0x20, 0x1;
        bool packet_reformat: 0x21, 0x1;
        u8 destination_table_type: 0x28, 0x8;
        u16 destination_eswitch_owner_vhca_id: 0x30, 0x10;
    }

    /// Where a packet goes: kind and number.
    DestFormat = "dest_format", 0x8 {
        u8 destination_type: 0x0, 0x8;
        u32 destination_id: 0x8, 0x18;
        bool destination_eswitch_owner_vhca_id_valid: 0x20, 0x1;
        bool packet_reformat: 0x21, 0x1;
        u16 destination_eswitch_owner_vhca_id: 0x30, 0x10;
    }

    /// A counter of a flow table entry.
    FlowCounterList = "flow_counter_list", 0x8 {
        u32 flow_counter_id: 0x0, 0x20;
    }

    /// Where a packet goes, with a header to be added for that destination.
    ExtendedDestFormat = "extended_dest_format", 0x10 {
        (DestFormatStruct) destination_entry: 0x0, 0x40;
        u32 packet_reformat_id: 0x40, 0x20;
    }

    /// An object that is acted on when the entry matches.
    ExecuteAso = "execute_aso", 0x8 {
        bool valid: 0x0, 0x1;
        u32 aso_object_id: 0x8, 0x18;
        u32 exe_aso_ctrl: 0x20, 0x20;
    }

    /// Input of SET_FLOW_TABLE_ENTRY (0x936).
    SetFteIn = "set_fte_in", 0x340 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        bool ignore_flow_level: 0xc0, 0x1;
        u8 modify_enable_mask: 0xd8, 0x8;
        u32 flow_index: 0x100, 0x20;
        (FlowContext) flow_context: 0x200, 0x1800;
    }

    /// Output of SET_FLOW_TABLE_ENTRY (0x936).
    SetFteOut = "set_fte_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_FLOW_TABLE_ENTRY (0x937).
    QueryFteIn = "query_fte_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        u32 flow_index: 0x100, 0x20;
    }

    /// Output of QUERY_FLOW_TABLE_ENTRY (0x937).
    QueryFteOut = "query_fte_out", 0x340 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (FlowContext) flow_context: 0x200, 0x1800;
    }

    /// Input of DELETE_FLOW_TABLE_ENTRY (0x938).
    DeleteFteIn = "delete_fte_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 table_type: 0x80, 0x8;
        u32 table_id: 0xa8, 0x18;
        u32 flow_index: 0x100, 0x20;
    }

    /// Output of DELETE_FLOW_TABLE_ENTRY (0x938).
    DeleteFteOut = "delete_fte_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

//! The table of MAC addresses that reach this function.

use super::layout::layouts;
use super::nic_vport::MacAddressLayout;

layouts! {
    /// Input of SET_L2_TABLE_ENTRY (0x829).
    SetL2TableEntryIn = "set_l2_table_entry_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 table_index: 0xa8, 0x18;
        bool silent_mode_valid: 0xf0, 0x1;
        bool silent_mode: 0xf1, 0x1;
        bool vlan_valid: 0xf3, 0x1;
        u16 vlan: 0xf4, 0xc;
        (MacAddressLayout) mac_address: 0x100, 0x40;
    }

    /// Output of SET_L2_TABLE_ENTRY (0x829).
    SetL2TableEntryOut = "set_l2_table_entry_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_L2_TABLE_ENTRY (0x82a).
    QueryL2TableEntryIn = "query_l2_table_entry_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 table_index: 0xa8, 0x18;
    }

    /// Output of QUERY_L2_TABLE_ENTRY (0x82a).
    QueryL2TableEntryOut = "query_l2_table_entry_out", 0x40 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bool vlan_valid: 0xf3, 0x1;
        u16 vlan: 0xf4, 0xc;
        (MacAddressLayout) mac_address: 0x100, 0x40;
    }

    /// Input of DELETE_L2_TABLE_ENTRY (0x82b).
    DeleteL2TableEntryIn = "delete_l2_table_entry_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 table_index: 0xa8, 0x18;
    }

    /// Output of DELETE_L2_TABLE_ENTRY (0x82b).
    DeleteL2TableEntryOut = "delete_l2_table_entry_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

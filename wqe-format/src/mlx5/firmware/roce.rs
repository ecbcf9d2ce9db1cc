//! The GID table of a RoCE port.

use super::layout::layouts;

layouts! {
    /// An entry of a RoCE port's GID table.
    RoceAddrLayout = "roce_addr_layout", 0x20 {
        bytes source_l3_address: 0x0, 0x80;
        bool vlan_valid: 0x83, 0x1;
        u16 vlan_id: 0x84, 0xc;
        u16 source_mac_47_32: 0x90, 0x10;
        u32 source_mac_31_0: 0xa0, 0x20;
        u8 roce_l3_type: 0xd4, 0x4;
        u8 roce_version: 0xd8, 0x8;
    }

    /// Input of SET_ROCE_ADDRESS (0x761).
    SetRoceAddressIn = "set_roce_address_in", 0x30 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 roce_address_index: 0x40, 0x10;
        u8 vhca_port_num: 0x5c, 0x4;
        (RoceAddrLayout) roce_address: 0x80, 0x100;
    }

    /// Output of SET_ROCE_ADDRESS (0x761).
    SetRoceAddressOut = "set_roce_address_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_ROCE_ADDRESS (0x760).
    QueryRoceAddressIn = "query_roce_address_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 roce_address_index: 0x40, 0x10;
        u8 vhca_port_num: 0x5c, 0x4;
    }

    /// Output of QUERY_ROCE_ADDRESS (0x760).
    QueryRoceAddressOut = "query_roce_address_out", 0x30 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (RoceAddrLayout) roce_address: 0x80, 0x100;
    }
}

//! The Ethernet side of a virtual port.

use super::layout::layouts;

layouts! {
    /// Ethernet context of a virtual port.
    NicVportContext = "nic_vport_context", 0x100 {
        u8 min_wqe_inline_mode: 0x5, 0x3;
        bool disable_mc_local_lb: 0x1d, 0x1;
        bool disable_uc_local_lb: 0x1e, 0x1;
        bool roce_en: 0x1f, 0x1;
        bool arm_change_event: 0x20, 0x1;
        bool event_on_mtu: 0x3b, 0x1;
        bool event_on_promisc_change: 0x3c, 0x1;
        bool event_on_vlan_change: 0x3d, 0x1;
        bool event_on_mc_address_change: 0x3e, 0x1;
        bool event_on_uc_address_change: 0x3f, 0x1;
        bool vhca_id_type: 0x40, 0x1;
        u8 affiliation_criteria: 0x4c, 0x4;
        u16 affiliated_vhca_id: 0x50, 0x10;
        u8 sd_group: 0x101, 0x3;
        u16 mtu: 0x130, 0x10;
        u64 system_image_guid: 0x140, 0x40;
        u64 port_guid: 0x180, 0x40;
        u64 node_guid: 0x1c0, 0x40;
        u16 qkey_violation_counter: 0x340, 0x10;
        bool promisc_uc: 0x780, 0x1;
        bool promisc_mc: 0x781, 0x1;
        bool promisc_all: 0x782, 0x1;
        u8 allowed_list_type: 0x785, 0x3;
        u16 allowed_list_size: 0x794, 0xc;
        (MacAddressLayout) permanent_address: 0x7a0, 0x40;
        [u64] current_uc_mac_address: 0x800, 0x40;
    }

    /// A MAC address in a list.
    MacAddressLayout = "mac_address_layout", 0x8 {
        u16 mac_addr_47_32: 0x10, 0x10;
        u32 mac_addr_31_0: 0x20, 0x20;
    }

    /// A VLAN in a list.
    VlanLayout = "vlan_layout", 0x8 {
        u16 vlan: 0x14, 0xc;
    }

    /// Which fields MODIFY_NIC_VPORT_CONTEXT means.
    ModifyNicVportFieldSelect = "modify_nic_vport_field_select", 0x4 {
        bool affiliation: 0x12, 0x1;
        bool disable_uc_local_lb: 0x14, 0x1;
        bool disable_mc_local_lb: 0x15, 0x1;
        bool node_guid: 0x16, 0x1;
        bool port_guid: 0x17, 0x1;
        bool min_inline: 0x18, 0x1;
        bool mtu: 0x19, 0x1;
        bool change_event: 0x1a, 0x1;
        bool promisc: 0x1b, 0x1;
        bool permanent_address: 0x1c, 0x1;
        bool addresses_list: 0x1d, 0x1;
        bool roce_en: 0x1e, 0x1;
    }

    /// Input of QUERY_NIC_VPORT_CONTEXT (0x754).
    QueryNicVportContextIn = "query_nic_vport_context_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 allowed_list_type: 0x65, 0x3;
    }

    /// Output of QUERY_NIC_VPORT_CONTEXT (0x754).
    QueryNicVportContextOut = "query_nic_vport_context_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (NicVportContext) nic_vport_context: 0x80, 0x800;
    }

    /// Input of MODIFY_NIC_VPORT_CONTEXT (0x755).
    ModifyNicVportContextIn = "modify_nic_vport_context_in", 0x200 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        (ModifyNicVportFieldSelect) field_select: 0x60, 0x20;
        (NicVportContext) nic_vport_context: 0x800, 0x800;
    }

    /// Output of MODIFY_NIC_VPORT_CONTEXT (0x755).
    ModifyNicVportContextOut = "modify_nic_vport_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

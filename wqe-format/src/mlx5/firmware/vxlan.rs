//! UDP ports of VXLAN.

use super::layout::layouts;

layouts! {
    /// Input of ADD_VXLAN_UDP_DPORT (0x827).
    AddVxlanUdpDportIn = "add_vxlan_udp_dport_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 vxlan_udp_port: 0x70, 0x10;
    }

    /// Output of ADD_VXLAN_UDP_DPORT (0x827).
    AddVxlanUdpDportOut = "add_vxlan_udp_dport_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DELETE_VXLAN_UDP_DPORT (0x828).
    DeleteVxlanUdpDportIn = "delete_vxlan_udp_dport_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 vxlan_udp_port: 0x70, 0x10;
    }

    /// Output of DELETE_VXLAN_UDP_DPORT (0x828).
    DeleteVxlanUdpDportOut = "delete_vxlan_udp_dport_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}

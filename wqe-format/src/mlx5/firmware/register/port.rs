//! Registers of a port: speed, state, MTU, lanes.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// PAOS (0x5006): a port's administrative and operational state.
    PaosReg = "paos_reg", 0x10 {
        u8 swid: 0x0, 0x8;
        u8 local_port: 0x8, 0x8;
        u8 admin_status: 0x14, 0x4;
        u8 oper_status: 0x1c, 0x4;
        bool ase: 0x20, 0x1;
        bool ee: 0x21, 0x1;
        u8 e: 0x3e, 0x2;
    }

    /// PTYS (0x5004): a port's type, speeds and widths.
    PtysReg = "ptys_reg", 0x40 {
        bool an_disable_admin: 0x1, 0x1;
        bool an_disable_cap: 0x2, 0x1;
        u8 local_port: 0x8, 0x8;
        u8 plane_ind: 0x18, 0x4;
        u8 proto_mask: 0x1d, 0x3;
        u8 an_status: 0x20, 0x4;
        u16 data_rate_oper: 0x30, 0x10;
        u32 ext_eth_proto_capability: 0x40, 0x20;
        u32 eth_proto_capability: 0x60, 0x20;
        u16 ib_link_width_capability: 0x80, 0x10;
        u16 ib_proto_capability: 0x90, 0x10;
        u32 ext_eth_proto_admin: 0xa0, 0x20;
        u32 eth_proto_admin: 0xc0, 0x20;
        u16 ib_link_width_admin: 0xe0, 0x10;
        u16 ib_proto_admin: 0xf0, 0x10;
        u32 ext_eth_proto_oper: 0x100, 0x20;
        u32 eth_proto_oper: 0x120, 0x20;
        u16 ib_link_width_oper: 0x140, 0x10;
        u16 ib_proto_oper: 0x150, 0x10;
        u8 connector_type: 0x17c, 0x4;
        u32 eth_proto_lp_advertise: 0x180, 0x20;
    }

    /// PMTU (0x5003): a port's MTU.
    PmtuReg = "pmtu_reg", 0x10 {
        u8 local_port: 0x8, 0x8;
        u16 max_mtu: 0x20, 0x10;
        u16 admin_mtu: 0x40, 0x10;
        u16 oper_mtu: 0x60, 0x10;
    }

    /// PVLC (0x500f): a port's virtual lanes.
    PvlcReg = "pvlc_reg", 0x10 {
        u8 local_port: 0x8, 0x8;
        u8 vl_hw_cap: 0x3c, 0x4;
        u8 vl_admin: 0x5c, 0x4;
        u8 vl_operational: 0x7c, 0x4;
    }

    /// PCAP (0x5001): a port's capabilities.
    PcapReg = "pcap_reg", 0x14 {
        u8 local_port: 0x8, 0x8;
        [u32; 4] port_capability_mask: 0x20, 0x20;
    }

    /// PMLP (0x5002): which lanes of which module a port has.
    PmlpReg = "pmlp_reg", 0x40 {
        bool rxtx: 0x0, 0x1;
        u8 local_port: 0x8, 0x8;
        u8 width: 0x18, 0x8;
        u32 lane0_module_mapping: 0x20, 0x20;
        u32 lane1_module_mapping: 0x40, 0x20;
        u32 lane2_module_mapping: 0x60, 0x20;
        u32 lane3_module_mapping: 0x80, 0x20;
    }

    /// PFCC (0x5007): a port's flow control.
    PfccReg = "pfcc_reg", 0x20 {
        u8 buf_ownership: 0x4, 0x2;
        u8 local_port: 0x8, 0x8;
        bool ppan_mask_n: 0x1b, 0x1;
        bool minor_stall_mask: 0x1c, 0x1;
        bool critical_stall_mask: 0x1d, 0x1;
        u8 ppan: 0x20, 0x4;
        u8 prio_mask_tx: 0x28, 0x8;
        u8 prio_mask_rx: 0x38, 0x8;
        bool pptx: 0x40, 0x1;
        bool aptx: 0x41, 0x1;
        bool pptx_mask_n: 0x42, 0x1;
        u8 pfctx: 0x48, 0x8;
        bool pprx: 0x60, 0x1;
        bool aprx: 0x61, 0x1;
        bool pprx_mask_n: 0x62, 0x1;
        u8 pfcrx: 0x68, 0x8;
        u16 device_stall_minor_watermark: 0x80, 0x10;
        u16 device_stall_critical_watermark: 0x90, 0x10;
    }

    /// PUDE (0x5009): a port's change of state.
    PudeReg = "pude_reg", 0x10 {
        u8 swid: 0x0, 0x8;
        u8 local_port: 0x8, 0x8;
        u8 admin_status: 0x14, 0x4;
        u8 oper_status: 0x1c, 0x4;
    }

    /// PPLM (0x5023): a port's forward error correction.
    PplmReg = "pplm_reg", 0x50 {
        u8 local_port: 0x8, 0x8;
        u8 port_profile_mode: 0x40, 0x8;
        u8 static_port_profile: 0x48, 0x8;
        u8 active_port_profile: 0x50, 0x8;
        u8 retransmission_active: 0x60, 0x8;
        u32 fec_mode_active: 0x68, 0x18;
        u8 rs_fec_correction_bypass_cap: 0x80, 0x4;
        u8 fec_override_cap_56g: 0x8c, 0x4;
        u8 fec_override_cap_100g: 0x90, 0x4;
        u8 fec_override_cap_50g: 0x94, 0x4;
        u8 fec_override_cap_25g: 0x98, 0x4;
        u8 fec_override_cap_10g_40g: 0x9c, 0x4;
        u8 rs_fec_correction_bypass_admin: 0xa0, 0x4;
        u8 fec_override_admin_56g: 0xac, 0x4;
        u8 fec_override_admin_100g: 0xb0, 0x4;
        u8 fec_override_admin_50g: 0xb4, 0x4;
        u8 fec_override_admin_25g: 0xb8, 0x4;
        u8 fec_override_admin_10g_40g: 0xbc, 0x4;
        u16 fec_override_cap_400g_8x: 0xc0, 0x10;
        u16 fec_override_cap_200g_4x: 0xd0, 0x10;
        u16 fec_override_cap_100g_2x: 0xe0, 0x10;
        u16 fec_override_cap_50g_1x: 0xf0, 0x10;
        u16 fec_override_admin_400g_8x: 0x100, 0x10;
        u16 fec_override_admin_200g_4x: 0x110, 0x10;
        u16 fec_override_admin_100g_2x: 0x120, 0x10;
        u16 fec_override_admin_50g_1x: 0x130, 0x10;
        u16 fec_override_cap_800g_8x: 0x140, 0x10;
        u16 fec_override_cap_400g_4x: 0x150, 0x10;
        u16 fec_override_cap_200g_2x: 0x160, 0x10;
        u16 fec_override_cap_100g_1x: 0x170, 0x10;
        u16 fec_override_admin_800g_8x: 0x220, 0x10;
        u16 fec_override_admin_400g_4x: 0x230, 0x10;
        u16 fec_override_admin_200g_2x: 0x240, 0x10;
        u16 fec_override_admin_100g_1x: 0x250, 0x10;
    }

    /// PPAD (0x5005): a port's MAC address.
    PpadReg = "ppad_reg", 0x10 {
        bool single_mac: 0x3, 0x1;
        u8 local_port: 0x8, 0x8;
        u16 mac_47_32: 0x10, 0x10;
        u32 mac_31_0: 0x20, 0x20;
    }

    /// PCMR (0x5041): a port's checks.
    PcmrReg = "pcmr_reg", 0xc {
        u8 local_port: 0x8, 0x8;
        bool entropy_force_cap: 0x20, 0x1;
        bool entropy_calc_cap: 0x21, 0x1;
        bool entropy_gre_calc_cap: 0x22, 0x1;
        bool rx_ts_over_crc_cap: 0x32, 0x1;
        bool fcs_cap: 0x3e, 0x1;
        bool entropy_force: 0x40, 0x1;
        bool entropy_calc: 0x41, 0x1;
        bool entropy_gre_calc: 0x42, 0x1;
        bool rx_ts_over_crc: 0x52, 0x1;
        bool fcs_chk: 0x5e, 0x1;
    }
}

//! Registers that tell which registers there are.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// PCAM (0x507f): which registers of ports there are.
    PcamReg = "pcam_reg", 0x50 {
        u8 feature_group: 0x8, 0x8;
        u8 access_reg_group: 0x18, 0x8;
        bytes port_access_reg_cap_mask: 0x40, 0x80;
        bytes feature_cap_mask: 0x140, 0x80;
    }

    /// Features that PCAM tells.
    PcamEnhancedFeatures = "pcam_enhanced_features", 0x10 {
        bool fec_100g_per_lane_in_pplm: 0x48, 0x1;
        bool buffer_ownership: 0x53, 0x1;
        u32 resereved_at_54: 0x54, 0x14;
        bool fec_50g_per_lane_in_pplm: 0x68, 0x1;
        bool rx_icrc_encapsulated_counter: 0x6d, 0x1;
        bool ptys_extended_ethernet: 0x72, 0x1;
        bool pfcc_mask: 0x76, 0x1;
        bool per_lane_error_counters: 0x7a, 0x1;
        bool rx_buffer_fullness_counters: 0x7b, 0x1;
        bool ptys_connector_type: 0x7c, 0x1;
        bool ppcnt_discard_group: 0x7e, 0x1;
        bool ppcnt_statistical_group: 0x7f, 0x1;
    }

    /// Registers that PCAM tells.
    PcamRegs5000To507f = "pcam_regs_5000_to_507f", 0x10 {
        u32 port_access_reg_cap_mask_127_to_96: 0x0, 0x20;
        u32 port_access_reg_cap_mask_95_to_64: 0x20, 0x20;
        u32 port_access_reg_cap_mask_63_to_36: 0x40, 0x1c;
        bool pplm: 0x5c, 0x1;
        u8 port_access_reg_cap_mask_34_to_32: 0x5d, 0x3;
        u32 port_access_reg_cap_mask_31_to_13: 0x60, 0x13;
        bool pbmc: 0x73, 0x1;
        bool pptb: 0x74, 0x1;
        u8 port_access_reg_cap_mask_10_to_09: 0x75, 0x2;
        bool ppcnt: 0x77, 0x1;
        u8 port_access_reg_cap_mask_07_to_00: 0x78, 0x8;
    }

    /// MCAM (0x907f): which management registers there are.
    McamReg = "mcam_reg", 0x48 {
        u8 feature_group: 0x8, 0x8;
        u8 access_reg_group: 0x18, 0x8;
        bytes mng_access_reg_cap_mask: 0x40, 0x80;
        bytes mng_feature_cap_mask: 0x140, 0x80;
    }

    /// Features that MCAM tells.
    McamEnhancedFeatures = "mcam_enhanced_features", 0x10 {
        bool mtutc_freq_adj_units: 0x50, 0x1;
        bool mtutc_time_adjustment_extended_range: 0x51, 0x1;
        bool mcia_32dwords: 0x5d, 0x1;
        bool out_pulse_duration_ns: 0x5e, 0x1;
        bool npps_period: 0x5f, 0x1;
        bool reset_state: 0x6a, 0x1;
        bool ptpcyc2realtime_modify: 0x6b, 0x1;
        bool pci_status_and_power: 0x6e, 0x1;
        bool mark_tx_action_cnp: 0x74, 0x1;
        bool mark_tx_action_cqe: 0x75, 0x1;
        bool dynamic_tx_overflow: 0x76, 0x1;
        bool pcie_outbound_stalled: 0x7b, 0x1;
        bool tx_overflow_buffer_pkt: 0x7c, 0x1;
        bool mtpps_enh_out_per_adj: 0x7d, 0x1;
        bool mtpps_fs: 0x7e, 0x1;
        bool pcie_performance_group: 0x7f, 0x1;
    }

    /// Registers that MCAM tells.
    McamAccessReg = "mcam_access_reg", 0x10 {
        bool mcda: 0x1c, 0x1;
        bool mcc: 0x1d, 0x1;
        bool mcqi: 0x1e, 0x1;
        bool mcqs: 0x1f, 0x1;
        u8 regs_95_to_90: 0x20, 0x6;
        bool mpir: 0x26, 0x1;
        u8 regs_88_to_87: 0x27, 0x2;
        bool mpegc: 0x29, 0x1;
        bool mtutc: 0x2a, 0x1;
        u32 regs_84_to_68: 0x2b, 0x11;
        u8 tracer_registers: 0x3c, 0x4;
        u32 regs_63_to_46: 0x40, 0x12;
        bool mrtc: 0x52, 0x1;
        u8 regs_44_to_41: 0x53, 0x4;
        bool mfrl: 0x57, 0x1;
        u8 regs_39_to_32: 0x58, 0x8;
        u32 regs_31_to_11: 0x60, 0x15;
        bool mtmp: 0x75, 0x1;
        u16 regs_9_to_0: 0x76, 0xa;
    }

    /// QCAM (0x4019): which registers of quality of service there are.
    QcamReg = "qcam_reg", 0x48 {
        u8 feature_group: 0x8, 0x8;
        u8 access_reg_group: 0x18, 0x8;
        bytes qos_access_reg_cap_mask: 0x40, 0x80;
        bytes qos_feature_cap_mask: 0x140, 0x80;
    }
}

//! Counters of a port.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// PPCNT (0x5008): a port's counters, in groups.
    PpcntReg = "ppcnt_reg", 0x100 {
        u8 swid: 0x0, 0x8;
        u8 local_port: 0x8, 0x8;
        u8 pnat: 0x10, 0x2;
        u8 grp: 0x1a, 0x6;
        bool clr: 0x20, 0x1;
        u8 plane_ind: 0x34, 0x4;
        u8 prio_tc: 0x3b, 0x5;
        bytes counter_set: 0x40, 0x7c0;
    }

    /// InfiniBand counters (group 0x20).
    IbPortCntrsGrpDataLayout = "ib_port_cntrs_grp_data_layout", 0x28 {
        u16 symbol_error_counter: 0x0, 0x10;
        u8 link_error_recovery_counter: 0x10, 0x8;
        u8 link_downed_counter: 0x18, 0x8;
        u16 port_rcv_errors: 0x20, 0x10;
        u16 port_rcv_remote_physical_errors: 0x30, 0x10;
        u16 port_rcv_switch_relay_errors: 0x40, 0x10;
        u16 port_xmit_discards: 0x50, 0x10;
        u8 port_xmit_constraint_errors: 0x60, 0x8;
        u8 port_rcv_constraint_errors: 0x68, 0x8;
        u8 link_overrun_errors: 0x78, 0x8;
        u16 vl_15_dropped: 0x90, 0x10;
        u32 port_xmit_wait: 0x120, 0x20;
    }

    /// InfiniBand extended counters (group 0x21).
    IbExtPortCntrsGrpDataLayout = "ib_ext_port_cntrs_grp_data_layout", 0xf8 {
        u32 port_xmit_data_high: 0x300, 0x20;
        u32 port_xmit_data_low: 0x320, 0x20;
        u32 port_rcv_data_high: 0x340, 0x20;
        u32 port_rcv_data_low: 0x360, 0x20;
        u32 port_xmit_pkts_high: 0x380, 0x20;
        u32 port_xmit_pkts_low: 0x3a0, 0x20;
        u32 port_rcv_pkts_high: 0x3c0, 0x20;
        u32 port_rcv_pkts_low: 0x3e0, 0x20;
        u32 port_unicast_xmit_pkts_high: 0x480, 0x20;
        u32 port_unicast_xmit_pkts_low: 0x4a0, 0x20;
        u32 port_multicast_xmit_pkts_high: 0x4c0, 0x20;
        u32 port_multicast_xmit_pkts_low: 0x4e0, 0x20;
        u32 port_unicast_rcv_pkts_high: 0x500, 0x20;
        u32 port_unicast_rcv_pkts_low: 0x520, 0x20;
        u32 port_multicast_rcv_pkts_high: 0x540, 0x20;
        u32 port_multicast_rcv_pkts_low: 0x560, 0x20;
    }

    /// IEEE 802.3 counters (group 0).
    Eth8023CntrsGrpDataLayout = "eth_802_3_cntrs_grp_data_layout", 0xf8 {
        u32 a_frames_transmitted_ok_high: 0x0, 0x20;
        u32 a_frames_transmitted_ok_low: 0x20, 0x20;
        u32 a_frames_received_ok_high: 0x40, 0x20;
        u32 a_frames_received_ok_low: 0x60, 0x20;
        u32 a_frame_check_sequence_errors_high: 0x80, 0x20;
        u32 a_frame_check_sequence_errors_low: 0xa0, 0x20;
        u32 a_alignment_errors_high: 0xc0, 0x20;
        u32 a_alignment_errors_low: 0xe0, 0x20;
        u32 a_octets_transmitted_ok_high: 0x100, 0x20;
        u32 a_octets_transmitted_ok_low: 0x120, 0x20;
        u32 a_octets_received_ok_high: 0x140, 0x20;
        u32 a_octets_received_ok_low: 0x160, 0x20;
        u32 a_multicast_frames_xmitted_ok_high: 0x180, 0x20;
        u32 a_multicast_frames_xmitted_ok_low: 0x1a0, 0x20;
        u32 a_broadcast_frames_xmitted_ok_high: 0x1c0, 0x20;
        u32 a_broadcast_frames_xmitted_ok_low: 0x1e0, 0x20;
        u32 a_multicast_frames_received_ok_high: 0x200, 0x20;
        u32 a_multicast_frames_received_ok_low: 0x220, 0x20;
        u32 a_broadcast_frames_received_ok_high: 0x240, 0x20;
        u32 a_broadcast_frames_received_ok_low: 0x260, 0x20;
        u32 a_in_range_length_errors_high: 0x280, 0x20;
        u32 a_in_range_length_errors_low: 0x2a0, 0x20;
        u32 a_out_of_range_length_field_high: 0x2c0, 0x20;
        u32 a_out_of_range_length_field_low: 0x2e0, 0x20;
        u32 a_frame_too_long_errors_high: 0x300, 0x20;
        u32 a_frame_too_long_errors_low: 0x320, 0x20;
        u32 a_symbol_error_during_carrier_high: 0x340, 0x20;
        u32 a_symbol_error_during_carrier_low: 0x360, 0x20;
        u32 a_mac_control_frames_transmitted_high: 0x380, 0x20;
        u32 a_mac_control_frames_transmitted_low: 0x3a0, 0x20;
        u32 a_mac_control_frames_received_high: 0x3c0, 0x20;
        u32 a_mac_control_frames_received_low: 0x3e0, 0x20;
        u32 a_unsupported_opcodes_received_high: 0x400, 0x20;
        u32 a_unsupported_opcodes_received_low: 0x420, 0x20;
        u32 a_pause_mac_ctrl_frames_received_high: 0x440, 0x20;
        u32 a_pause_mac_ctrl_frames_received_low: 0x460, 0x20;
        u32 a_pause_mac_ctrl_frames_transmitted_high: 0x480, 0x20;
        u32 a_pause_mac_ctrl_frames_transmitted_low: 0x4a0, 0x20;
    }

    /// RFC 2863 counters (group 1).
    Eth2863CntrsGrpDataLayout = "eth_2863_cntrs_grp_data_layout", 0xf8 {
        u32 if_in_octets_high: 0x0, 0x20;
        u32 if_in_octets_low: 0x20, 0x20;
        u32 if_in_ucast_pkts_high: 0x40, 0x20;
        u32 if_in_ucast_pkts_low: 0x60, 0x20;
        u32 if_in_discards_high: 0x80, 0x20;
        u32 if_in_discards_low: 0xa0, 0x20;
        u32 if_in_errors_high: 0xc0, 0x20;
        u32 if_in_errors_low: 0xe0, 0x20;
        u32 if_in_unknown_protos_high: 0x100, 0x20;
        u32 if_in_unknown_protos_low: 0x120, 0x20;
        u32 if_out_octets_high: 0x140, 0x20;
        u32 if_out_octets_low: 0x160, 0x20;
        u32 if_out_ucast_pkts_high: 0x180, 0x20;
        u32 if_out_ucast_pkts_low: 0x1a0, 0x20;
        u32 if_out_discards_high: 0x1c0, 0x20;
        u32 if_out_discards_low: 0x1e0, 0x20;
        u32 if_out_errors_high: 0x200, 0x20;
        u32 if_out_errors_low: 0x220, 0x20;
        u32 if_in_multicast_pkts_high: 0x240, 0x20;
        u32 if_in_multicast_pkts_low: 0x260, 0x20;
        u32 if_in_broadcast_pkts_high: 0x280, 0x20;
        u32 if_in_broadcast_pkts_low: 0x2a0, 0x20;
        u32 if_out_multicast_pkts_high: 0x2c0, 0x20;
        u32 if_out_multicast_pkts_low: 0x2e0, 0x20;
        u32 if_out_broadcast_pkts_high: 0x300, 0x20;
        u32 if_out_broadcast_pkts_low: 0x320, 0x20;
    }

    /// RFC 2819 counters (group 2).
    Eth2819CntrsGrpDataLayout = "eth_2819_cntrs_grp_data_layout", 0xf8 {
        u32 ether_stats_drop_events_high: 0x0, 0x20;
        u32 ether_stats_drop_events_low: 0x20, 0x20;
        u32 ether_stats_octets_high: 0x40, 0x20;
        u32 ether_stats_octets_low: 0x60, 0x20;
        u32 ether_stats_pkts_high: 0x80, 0x20;
        u32 ether_stats_pkts_low: 0xa0, 0x20;
        u32 ether_stats_broadcast_pkts_high: 0xc0, 0x20;
        u32 ether_stats_broadcast_pkts_low: 0xe0, 0x20;
        u32 ether_stats_multicast_pkts_high: 0x100, 0x20;
        u32 ether_stats_multicast_pkts_low: 0x120, 0x20;
        u32 ether_stats_crc_align_errors_high: 0x140, 0x20;
        u32 ether_stats_crc_align_errors_low: 0x160, 0x20;
        u32 ether_stats_undersize_pkts_high: 0x180, 0x20;
        u32 ether_stats_undersize_pkts_low: 0x1a0, 0x20;
        u32 ether_stats_oversize_pkts_high: 0x1c0, 0x20;
        u32 ether_stats_oversize_pkts_low: 0x1e0, 0x20;
        u32 ether_stats_fragments_high: 0x200, 0x20;
        u32 ether_stats_fragments_low: 0x220, 0x20;
        u32 ether_stats_jabbers_high: 0x240, 0x20;
        u32 ether_stats_jabbers_low: 0x260, 0x20;
        u32 ether_stats_collisions_high: 0x280, 0x20;
        u32 ether_stats_collisions_low: 0x2a0, 0x20;
        u32 ether_stats_pkts64octets_high: 0x2c0, 0x20;
        u32 ether_stats_pkts64octets_low: 0x2e0, 0x20;
        u32 ether_stats_pkts65to127octets_high: 0x300, 0x20;
        u32 ether_stats_pkts65to127octets_low: 0x320, 0x20;
        u32 ether_stats_pkts128to255octets_high: 0x340, 0x20;
        u32 ether_stats_pkts128to255octets_low: 0x360, 0x20;
        u32 ether_stats_pkts256to511octets_high: 0x380, 0x20;
        u32 ether_stats_pkts256to511octets_low: 0x3a0, 0x20;
        u32 ether_stats_pkts512to1023octets_high: 0x3c0, 0x20;
        u32 ether_stats_pkts512to1023octets_low: 0x3e0, 0x20;
        u32 ether_stats_pkts1024to1518octets_high: 0x400, 0x20;
        u32 ether_stats_pkts1024to1518octets_low: 0x420, 0x20;
        u32 ether_stats_pkts1519to2047octets_high: 0x440, 0x20;
        u32 ether_stats_pkts1519to2047octets_low: 0x460, 0x20;
        u32 ether_stats_pkts2048to4095octets_high: 0x480, 0x20;
        u32 ether_stats_pkts2048to4095octets_low: 0x4a0, 0x20;
        u32 ether_stats_pkts4096to8191octets_high: 0x4c0, 0x20;
        u32 ether_stats_pkts4096to8191octets_low: 0x4e0, 0x20;
        u32 ether_stats_pkts8192to10239octets_high: 0x500, 0x20;
        u32 ether_stats_pkts8192to10239octets_low: 0x520, 0x20;
    }

    /// RFC 3635 counters (group 3).
    Eth3635CntrsGrpDataLayout = "eth_3635_cntrs_grp_data_layout", 0xf8 {
        u32 dot3stats_alignment_errors_high: 0x0, 0x20;
        u32 dot3stats_alignment_errors_low: 0x20, 0x20;
        u32 dot3stats_fcs_errors_high: 0x40, 0x20;
        u32 dot3stats_fcs_errors_low: 0x60, 0x20;
        u32 dot3stats_single_collision_frames_high: 0x80, 0x20;
        u32 dot3stats_single_collision_frames_low: 0xa0, 0x20;
        u32 dot3stats_multiple_collision_frames_high: 0xc0, 0x20;
        u32 dot3stats_multiple_collision_frames_low: 0xe0, 0x20;
        u32 dot3stats_sqe_test_errors_high: 0x100, 0x20;
        u32 dot3stats_sqe_test_errors_low: 0x120, 0x20;
        u32 dot3stats_deferred_transmissions_high: 0x140, 0x20;
        u32 dot3stats_deferred_transmissions_low: 0x160, 0x20;
        u32 dot3stats_late_collisions_high: 0x180, 0x20;
        u32 dot3stats_late_collisions_low: 0x1a0, 0x20;
        u32 dot3stats_excessive_collisions_high: 0x1c0, 0x20;
        u32 dot3stats_excessive_collisions_low: 0x1e0, 0x20;
        u32 dot3stats_internal_mac_transmit_errors_high: 0x200, 0x20;
        u32 dot3stats_internal_mac_transmit_errors_low: 0x220, 0x20;
        u32 dot3stats_carrier_sense_errors_high: 0x240, 0x20;
        u32 dot3stats_carrier_sense_errors_low: 0x260, 0x20;
        u32 dot3stats_frame_too_longs_high: 0x280, 0x20;
        u32 dot3stats_frame_too_longs_low: 0x2a0, 0x20;
        u32 dot3stats_internal_mac_receive_errors_high: 0x2c0, 0x20;
        u32 dot3stats_internal_mac_receive_errors_low: 0x2e0, 0x20;
        u32 dot3stats_symbol_errors_high: 0x300, 0x20;
        u32 dot3stats_symbol_errors_low: 0x320, 0x20;
        u32 dot3control_in_unknown_opcodes_high: 0x340, 0x20;
        u32 dot3control_in_unknown_opcodes_low: 0x360, 0x20;
        u32 dot3in_pause_frames_high: 0x380, 0x20;
        u32 dot3in_pause_frames_low: 0x3a0, 0x20;
        u32 dot3out_pause_frames_high: 0x3c0, 0x20;
        u32 dot3out_pause_frames_low: 0x3e0, 0x20;
    }

    /// Extended Ethernet counters (group 5).
    EthExtendedCntrsGrpDataLayout = "eth_extended_cntrs_grp_data_layout", 0xf8 {
        u32 port_transmit_wait_high: 0x0, 0x20;
        u32 port_transmit_wait_low: 0x20, 0x20;
        u32 rx_buffer_almost_full_high: 0x140, 0x20;
        u32 rx_buffer_almost_full_low: 0x160, 0x20;
        u32 rx_buffer_full_high: 0x180, 0x20;
        u32 rx_buffer_full_low: 0x1a0, 0x20;
        u32 rx_icrc_encapsulated_high: 0x1c0, 0x20;
        u32 rx_icrc_encapsulated_low: 0x1e0, 0x20;
    }

    /// Counters of a priority (group 0x10).
    EthPerPrioGrpDataLayout = "eth_per_prio_grp_data_layout", 0xf8 {
        u32 rx_octets_high: 0x0, 0x20;
        u32 rx_octets_low: 0x20, 0x20;
        u32 rx_frames_high: 0x100, 0x20;
        u32 rx_frames_low: 0x120, 0x20;
        u32 tx_octets_high: 0x140, 0x20;
        u32 tx_octets_low: 0x160, 0x20;
        u32 tx_frames_high: 0x240, 0x20;
        u32 tx_frames_low: 0x260, 0x20;
        u32 rx_pause_high: 0x280, 0x20;
        u32 rx_pause_low: 0x2a0, 0x20;
        u32 rx_pause_duration_high: 0x2c0, 0x20;
        u32 rx_pause_duration_low: 0x2e0, 0x20;
        u32 tx_pause_high: 0x300, 0x20;
        u32 tx_pause_low: 0x320, 0x20;
        u32 tx_pause_duration_high: 0x340, 0x20;
        u32 tx_pause_duration_low: 0x360, 0x20;
        u32 rx_pause_transition_high: 0x380, 0x20;
        u32 rx_pause_transition_low: 0x3a0, 0x20;
        u32 rx_discards_high: 0x3c0, 0x20;
        u32 rx_discards_low: 0x3e0, 0x20;
        u32 device_stall_minor_watermark_cnt_high: 0x400, 0x20;
        u32 device_stall_minor_watermark_cnt_low: 0x420, 0x20;
        u32 device_stall_critical_watermark_cnt_high: 0x440, 0x20;
        u32 device_stall_critical_watermark_cnt_low: 0x460, 0x20;
    }

    /// Counters of the physical layer (group 0x12).
    PhysLayerCntrs = "phys_layer_cntrs", 0xf8 {
        u32 time_since_last_clear_high: 0x0, 0x20;
        u32 time_since_last_clear_low: 0x20, 0x20;
        u32 symbol_errors_high: 0x40, 0x20;
        u32 symbol_errors_low: 0x60, 0x20;
        u32 sync_headers_errors_high: 0x80, 0x20;
        u32 sync_headers_errors_low: 0xa0, 0x20;
        u32 edpl_bip_errors_lane0_high: 0xc0, 0x20;
        u32 edpl_bip_errors_lane0_low: 0xe0, 0x20;
        u32 edpl_bip_errors_lane1_high: 0x100, 0x20;
        u32 edpl_bip_errors_lane1_low: 0x120, 0x20;
        u32 edpl_bip_errors_lane2_high: 0x140, 0x20;
        u32 edpl_bip_errors_lane2_low: 0x160, 0x20;
        u32 edpl_bip_errors_lane3_high: 0x180, 0x20;
        u32 edpl_bip_errors_lane3_low: 0x1a0, 0x20;
        u32 fc_fec_corrected_blocks_lane0_high: 0x1c0, 0x20;
        u32 fc_fec_corrected_blocks_lane0_low: 0x1e0, 0x20;
        u32 fc_fec_corrected_blocks_lane1_high: 0x200, 0x20;
        u32 fc_fec_corrected_blocks_lane1_low: 0x220, 0x20;
        u32 fc_fec_corrected_blocks_lane2_high: 0x240, 0x20;
        u32 fc_fec_corrected_blocks_lane2_low: 0x260, 0x20;
        u32 fc_fec_corrected_blocks_lane3_high: 0x280, 0x20;
        u32 fc_fec_corrected_blocks_lane3_low: 0x2a0, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane0_high: 0x2c0, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane0_low: 0x2e0, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane1_high: 0x300, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane1_low: 0x320, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane2_high: 0x340, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane2_low: 0x360, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane3_high: 0x380, 0x20;
        u32 fc_fec_uncorrectable_blocks_lane3_low: 0x3a0, 0x20;
        u32 rs_fec_corrected_blocks_high: 0x3c0, 0x20;
        u32 rs_fec_corrected_blocks_low: 0x3e0, 0x20;
        u32 rs_fec_uncorrectable_blocks_high: 0x400, 0x20;
        u32 rs_fec_uncorrectable_blocks_low: 0x420, 0x20;
        u32 rs_fec_no_errors_blocks_high: 0x440, 0x20;
        u32 rs_fec_no_errors_blocks_low: 0x460, 0x20;
        u32 rs_fec_single_error_blocks_high: 0x480, 0x20;
        u32 rs_fec_single_error_blocks_low: 0x4a0, 0x20;
        u32 rs_fec_corrected_symbols_total_high: 0x4c0, 0x20;
        u32 rs_fec_corrected_symbols_total_low: 0x4e0, 0x20;
        u32 rs_fec_corrected_symbols_lane0_high: 0x500, 0x20;
        u32 rs_fec_corrected_symbols_lane0_low: 0x520, 0x20;
        u32 rs_fec_corrected_symbols_lane1_high: 0x540, 0x20;
        u32 rs_fec_corrected_symbols_lane1_low: 0x560, 0x20;
        u32 rs_fec_corrected_symbols_lane2_high: 0x580, 0x20;
        u32 rs_fec_corrected_symbols_lane2_low: 0x5a0, 0x20;
        u32 rs_fec_corrected_symbols_lane3_high: 0x5c0, 0x20;
        u32 rs_fec_corrected_symbols_lane3_low: 0x5e0, 0x20;
        u32 link_down_events: 0x600, 0x20;
        u32 successful_recovery_events: 0x620, 0x20;
    }

    /// Statistics of the physical layer (group 0x16).
    PhysLayerStatisticalCntrs = "phys_layer_statistical_cntrs", 0xf8 {
        u32 time_since_last_clear_high: 0x0, 0x20;
        u32 time_since_last_clear_low: 0x20, 0x20;
        u32 phy_received_bits_high: 0x40, 0x20;
        u32 phy_received_bits_low: 0x60, 0x20;
        u32 phy_symbol_errors_high: 0x80, 0x20;
        u32 phy_symbol_errors_low: 0xa0, 0x20;
        u32 phy_corrected_bits_high: 0xc0, 0x20;
        u32 phy_corrected_bits_low: 0xe0, 0x20;
        u32 phy_corrected_bits_lane0_high: 0x100, 0x20;
        u32 phy_corrected_bits_lane0_low: 0x120, 0x20;
        u32 phy_corrected_bits_lane1_high: 0x140, 0x20;
        u32 phy_corrected_bits_lane1_low: 0x160, 0x20;
        u32 phy_corrected_bits_lane2_high: 0x180, 0x20;
        u32 phy_corrected_bits_lane2_low: 0x1a0, 0x20;
        u32 phy_corrected_bits_lane3_high: 0x1c0, 0x20;
        u32 phy_corrected_bits_lane3_low: 0x1e0, 0x20;
    }
}

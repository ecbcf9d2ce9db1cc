//! Capabilities of flow tables.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of a function's flow tables (type 7).
    FlowTableNicCap = "flow_table_nic_cap", 0x1000 {
        bool nic_rx_multi_path_tirs: 0x0, 0x1;
        bool nic_rx_multi_path_tirs_fts: 0x1, 0x1;
        bool allow_sniffer_and_nic_rx_shared_tir: 0x2, 0x1;
        bool sw_owner_reformat_supported: 0x7, 0x1;
        bool encap_general_header: 0x20, 0x1;
        u8 log_max_packet_reformat_context: 0x2b, 0x5;
        u16 max_encap_header_size: 0x36, 0xa;
        (FlowTablePropLayout) flow_table_properties_nic_receive: 0x200, 0x200;
        (FlowTablePropLayout) flow_table_properties_nic_receive_rdma: 0x400, 0x200;
        (FlowTablePropLayout) flow_table_properties_nic_receive_sniffer: 0x600, 0x200;
        (FlowTablePropLayout) flow_table_properties_nic_transmit: 0x800, 0x200;
        (FlowTablePropLayout) flow_table_properties_nic_transmit_rdma: 0xa00, 0x200;
        (FlowTablePropLayout) flow_table_properties_nic_transmit_sniffer: 0xc00, 0x200;
        (FlowTableFieldsSupported2) ft_field_support_2_nic_receive: 0x1400, 0x80;
        (FlowTableFieldsSupported2) ft_field_support_2_nic_receive_rdma: 0x1500, 0x80;
        (FlowTableFieldsSupported2) ft_field_support_2_nic_transmit_rdma: 0x1800, 0x80;
        u64 sw_steering_nic_rx_action_drop_icm_address: 0x2000, 0x40;
        u64 sw_steering_nic_tx_action_drop_icm_address: 0x2040, 0x40;
        u64 sw_steering_nic_tx_action_allow_icm_address: 0x2080, 0x40;
    }

    /// What flow tables of one kind can do.
    FlowTablePropLayout = "flow_table_prop_layout", 0x40 {
        bool ft_support: 0x0, 0x1;
        bool flow_counter: 0x2, 0x1;
        bool flow_modify_en: 0x3, 0x1;
        bool modify_root: 0x4, 0x1;
        bool identified_miss_table_mode: 0x5, 0x1;
        bool flow_table_modify: 0x6, 0x1;
        bool reformat: 0x7, 0x1;
        bool decap: 0x8, 0x1;
        bool reset_root_to_default: 0x9, 0x1;
        bool pop_vlan: 0xa, 0x1;
        bool push_vlan: 0xb, 0x1;
        bool pop_vlan_2: 0xd, 0x1;
        bool push_vlan_2: 0xe, 0x1;
        bool reformat_and_vlan_action: 0xf, 0x1;
        bool sw_owner: 0x11, 0x1;
        bool reformat_l3_tunnel_to_l2: 0x12, 0x1;
        bool reformat_l2_to_l3_tunnel: 0x13, 0x1;
        bool reformat_and_modify_action: 0x14, 0x1;
        bool ignore_flow_level: 0x15, 0x1;
        bool table_miss_action_domain: 0x17, 0x1;
        bool termination_table: 0x18, 0x1;
        bool reformat_and_fwd_to_table: 0x19, 0x1;
        bool ipsec_encrypt: 0x1c, 0x1;
        bool ipsec_decrypt: 0x1d, 0x1;
        bool sw_owner_v2: 0x1e, 0x1;
        bool termination_table_raw_traffic: 0x20, 0x1;
        u8 log_max_ft_size: 0x22, 0x6;
        u8 log_max_modify_header_context: 0x28, 0x8;
        u8 max_modify_header_actions: 0x30, 0x8;
        u8 max_ft_level: 0x38, 0x8;
        bool reformat_add_esp_trasport: 0x40, 0x1;
        bool reformat_l2_to_l3_esp_tunnel: 0x41, 0x1;
        bool reformat_add_esp_transport_over_udp: 0x42, 0x1;
        bool reformat_del_esp_trasport: 0x43, 0x1;
        bool reformat_l3_esp_tunnel_to_l2: 0x44, 0x1;
        bool reformat_del_esp_transport_over_udp: 0x45, 0x1;
        bool execute_aso: 0x46, 0x1;
        bool reformat_insert: 0x62, 0x1;
        bool reformat_remove: 0x63, 0x1;
        bool macsec_encrypt: 0x64, 0x1;
        bool macsec_decrypt: 0x65, 0x1;
        bool reformat_add_macsec: 0x68, 0x1;
        bool reformat_remove_macsec: 0x69, 0x1;
        bool reparse: 0x6a, 0x1;
        bool cross_vhca_object: 0x6c, 0x1;
        bool reformat_l2_to_l3_audp_tunnel: 0x6d, 0x1;
        bool reformat_l3_audp_tunnel_to_l2: 0x6e, 0x1;
        bool ignore_flow_level_rtc_valid: 0x6f, 0x1;
        u8 log_max_ft_num: 0x78, 0x8;
        u8 log_max_flow_counter: 0x90, 0x8;
        u8 log_max_destination: 0x98, 0x8;
        u8 log_max_flow: 0xb8, 0x8;
        (FlowTableFieldsSupported) ft_field_support: 0x100, 0x80;
        (FlowTableFieldsSupported) ft_field_bitmask_support: 0x180, 0x80;
    }

    /// Fields that a flow table can look at.
    FlowTableFieldsSupported = "flow_table_fields_supported", 0x10 {
        bool outer_dmac: 0x0, 0x1;
        bool outer_smac: 0x1, 0x1;
        bool outer_ether_type: 0x2, 0x1;
        bool outer_ip_version: 0x3, 0x1;
        bool outer_first_prio: 0x4, 0x1;
        bool outer_first_cfi: 0x5, 0x1;
        bool outer_first_vid: 0x6, 0x1;
        bool outer_ipv4_ttl: 0x7, 0x1;
        bool outer_second_prio: 0x8, 0x1;
        bool outer_second_cfi: 0x9, 0x1;
        bool outer_second_vid: 0xa, 0x1;
        bool outer_sip: 0xc, 0x1;
        bool outer_dip: 0xd, 0x1;
        bool outer_frag: 0xe, 0x1;
        bool outer_ip_protocol: 0xf, 0x1;
        bool outer_ip_ecn: 0x10, 0x1;
        bool outer_ip_dscp: 0x11, 0x1;
        bool outer_udp_sport: 0x12, 0x1;
        bool outer_udp_dport: 0x13, 0x1;
        bool outer_tcp_sport: 0x14, 0x1;
        bool outer_tcp_dport: 0x15, 0x1;
        bool outer_tcp_flags: 0x16, 0x1;
        bool outer_gre_protocol: 0x17, 0x1;
        bool outer_gre_key: 0x18, 0x1;
        bool outer_vxlan_vni: 0x19, 0x1;
        bool outer_geneve_vni: 0x1a, 0x1;
        bool outer_geneve_oam: 0x1b, 0x1;
        bool outer_geneve_protocol_type: 0x1c, 0x1;
        bool outer_geneve_opt_len: 0x1d, 0x1;
        bool source_vhca_port: 0x1e, 0x1;
        bool source_eswitch_port: 0x1f, 0x1;
        bool inner_dmac: 0x20, 0x1;
        bool inner_smac: 0x21, 0x1;
        bool inner_ether_type: 0x22, 0x1;
        bool inner_ip_version: 0x23, 0x1;
        bool inner_first_prio: 0x24, 0x1;
        bool inner_first_cfi: 0x25, 0x1;
        bool inner_first_vid: 0x26, 0x1;
        bool inner_second_prio: 0x28, 0x1;
        bool inner_second_cfi: 0x29, 0x1;
        bool inner_second_vid: 0x2a, 0x1;
        bool inner_sip: 0x2c, 0x1;
        bool inner_dip: 0x2d, 0x1;
        bool inner_frag: 0x2e, 0x1;
        bool inner_ip_protocol: 0x2f, 0x1;
        bool inner_ip_ecn: 0x30, 0x1;
        bool inner_ip_dscp: 0x31, 0x1;
        bool inner_udp_sport: 0x32, 0x1;
        bool inner_udp_dport: 0x33, 0x1;
        bool inner_tcp_sport: 0x34, 0x1;
        bool inner_tcp_dport: 0x35, 0x1;
        bool inner_tcp_flags: 0x36, 0x1;
        bool geneve_tlv_option_0_data: 0x40, 0x1;
        bool geneve_tlv_option_0_exist: 0x41, 0x1;
        u8 outer_first_mpls_over_udp: 0x45, 0x4;
        u8 outer_first_mpls_over_gre: 0x49, 0x4;
        u8 inner_first_mpls: 0x4d, 0x4;
        u8 outer_first_mpls: 0x51, 0x4;
        bool outer_esp_spi: 0x57, 0x1;
        bool bth_dst_qp: 0x5a, 0x1;
        bool metadata_reg_c_7: 0x78, 0x1;
        bool metadata_reg_c_6: 0x79, 0x1;
        bool metadata_reg_c_5: 0x7a, 0x1;
        bool metadata_reg_c_4: 0x7b, 0x1;
        bool metadata_reg_c_3: 0x7c, 0x1;
        bool metadata_reg_c_2: 0x7d, 0x1;
        bool metadata_reg_c_1: 0x7e, 0x1;
        bool metadata_reg_c_0: 0x7f, 0x1;
    }

    /// More fields that a flow table can look at.
    FlowTableFieldsSupported2 = "flow_table_fields_supported_2", 0x10 {
        bool inner_l4_type: 0x2, 0x1;
        bool outer_l4_type: 0x3, 0x1;
        bool bth_opcode: 0xe, 0x1;
        bool tunnel_header_0_1: 0x10, 0x1;
    }
}

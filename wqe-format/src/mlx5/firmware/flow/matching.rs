//! What flow table entries look at.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Values or masks of what a flow table entry looks at.
    FteMatchParam = "fte_match_param", 0x200 {
        (FteMatchSetLyr24) outer_headers: 0x0, 0x200;
        (FteMatchSetMisc) misc_parameters: 0x200, 0x200;
        (FteMatchSetLyr24) inner_headers: 0x400, 0x200;
        (FteMatchSetMisc2) misc_parameters_2: 0x600, 0x200;
        (FteMatchSetMisc3) misc_parameters_3: 0x800, 0x200;
        (FteMatchSetMisc4) misc_parameters_4: 0xa00, 0x200;
        (FteMatchSetMisc5) misc_parameters_5: 0xc00, 0x200;
    }

    /// Fields of Ethernet, IP, TCP and UDP.
    FteMatchSetLyr24 = "fte_match_set_lyr_2_4", 0x40 {
        u32 smac_47_16: 0x0, 0x20;
        u16 smac_15_0: 0x20, 0x10;
        u16 ethertype: 0x30, 0x10;
        u32 dmac_47_16: 0x40, 0x20;
        u16 dmac_15_0: 0x60, 0x10;
        u8 first_prio: 0x70, 0x3;
        bool first_cfi: 0x73, 0x1;
        u16 first_vid: 0x74, 0xc;
        u8 ip_protocol: 0x80, 0x8;
        u8 ip_dscp: 0x88, 0x6;
        u8 ip_ecn: 0x8e, 0x2;
        bool cvlan_tag: 0x90, 0x1;
        bool svlan_tag: 0x91, 0x1;
        bool frag: 0x92, 0x1;
        u8 ip_version: 0x93, 0x4;
        u16 tcp_flags: 0x97, 0x9;
        u16 tcp_sport: 0xa0, 0x10;
        u16 tcp_dport: 0xb0, 0x10;
        u8 l4_type: 0xc0, 0x2;
        u8 ipv4_ihl: 0xd0, 0x4;
        u8 ttl_hoplimit: 0xd8, 0x8;
        u16 udp_sport: 0xe0, 0x10;
        u16 udp_dport: 0xf0, 0x10;
        bytes src_ipv4_src_ipv6: 0x100, 0x80;
        bytes dst_ipv4_dst_ipv6: 0x180, 0x80;
    }

    /// An IPv4 address.
    Ipv4Layout = "ipv4_layout", 0x10 {
        u32 ipv4: 0x60, 0x20;
    }

    /// An IPv6 address.
    Ipv6Layout = "ipv6_layout", 0x10 {
        bytes ipv6: 0x0, 0x80;
    }

    /// Fields beside the headers.
    FteMatchSetMisc = "fte_match_set_misc", 0x40 {
        bool gre_c_present: 0x0, 0x1;
        bool gre_k_present: 0x2, 0x1;
        bool gre_s_present: 0x3, 0x1;
        u8 source_vhca_port: 0x4, 0x4;
        u32 source_sqn: 0x8, 0x18;
        u16 source_eswitch_owner_vhca_id: 0x20, 0x10;
        u16 source_port: 0x30, 0x10;
        u8 outer_second_prio: 0x40, 0x3;
        bool outer_second_cfi: 0x43, 0x1;
        u16 outer_second_vid: 0x44, 0xc;
        u8 inner_second_prio: 0x50, 0x3;
        bool inner_second_cfi: 0x53, 0x1;
        u16 inner_second_vid: 0x54, 0xc;
        bool outer_second_cvlan_tag: 0x60, 0x1;
        bool inner_second_cvlan_tag: 0x61, 0x1;
        bool outer_second_svlan_tag: 0x62, 0x1;
        bool inner_second_svlan_tag: 0x63, 0x1;
        u16 gre_protocol: 0x70, 0x10;
        (GreKey) gre_key: 0x80, 0x20;
        u32 vxlan_vni: 0xa0, 0x18;
        u8 bth_opcode: 0xb8, 0x8;
        u32 geneve_vni: 0xc0, 0x18;
        bool geneve_tlv_option_0_exist: 0xde, 0x1;
        bool geneve_oam: 0xdf, 0x1;
        u32 outer_ipv6_flow_label: 0xec, 0x14;
        u32 inner_ipv6_flow_label: 0x10c, 0x14;
        u8 geneve_opt_len: 0x12a, 0x6;
        u16 geneve_protocol_type: 0x130, 0x10;
        u32 bth_dst_qp: 0x148, 0x18;
        u32 inner_esp_spi: 0x160, 0x20;
        u32 outer_esp_spi: 0x180, 0x20;
    }

    /// Key of GRE, whole.
    GreKey = "gre_key", 0x4 {
        (NvgreKey) nvgre: 0x0, 0x20;
        u32 key: 0x0, 0x20;
    }

    /// Key of GRE as NVGRE divides it.
    NvgreKey = "nvgre_key", 0x4 {
        u32 hi: 0x0, 0x18;
        u8 lo: 0x18, 0x8;
    }

    /// Fields of MPLS and metadata registers.
    FteMatchSetMisc2 = "fte_match_set_misc2", 0x40 {
        (FteMatchMpls) outer_first_mpls: 0x0, 0x20;
        (FteMatchMpls) inner_first_mpls: 0x20, 0x20;
        (FteMatchMpls) outer_first_mpls_over_gre: 0x40, 0x20;
        (FteMatchMpls) outer_first_mpls_over_udp: 0x60, 0x20;
        u32 metadata_reg_c_7: 0x80, 0x20;
        u32 metadata_reg_c_6: 0xa0, 0x20;
        u32 metadata_reg_c_5: 0xc0, 0x20;
        u32 metadata_reg_c_4: 0xe0, 0x20;
        u32 metadata_reg_c_3: 0x100, 0x20;
        u32 metadata_reg_c_2: 0x120, 0x20;
        u32 metadata_reg_c_1: 0x140, 0x20;
        u32 metadata_reg_c_0: 0x160, 0x20;
        u32 metadata_reg_a: 0x180, 0x20;
        u8 macsec_syndrome: 0x1a8, 0x8;
        u8 ipsec_syndrome: 0x1b0, 0x8;
    }

    /// Fields of an MPLS label.
    FteMatchMpls = "fte_match_mpls", 0x4 {
        u32 mpls_label: 0x0, 0x14;
        u8 mpls_exp: 0x14, 0x3;
        bool mpls_s_bos: 0x17, 0x1;
        u8 mpls_ttl: 0x18, 0x8;
    }

    /// Fields of tunnels, ICMP and TCP numbers.
    FteMatchSetMisc3 = "fte_match_set_misc3", 0x40 {
        u32 inner_tcp_seq_num: 0x0, 0x20;
        u32 outer_tcp_seq_num: 0x20, 0x20;
        u32 inner_tcp_ack_num: 0x40, 0x20;
        u32 outer_tcp_ack_num: 0x60, 0x20;
        u32 outer_vxlan_gpe_vni: 0x88, 0x18;
        u8 outer_vxlan_gpe_next_protocol: 0xa0, 0x8;
        u8 outer_vxlan_gpe_flags: 0xa8, 0x8;
        u32 icmp_header_data: 0xc0, 0x20;
        u32 icmpv6_header_data: 0xe0, 0x20;
        u8 icmp_type: 0x100, 0x8;
        u8 icmp_code: 0x108, 0x8;
        u8 icmpv6_type: 0x110, 0x8;
        u8 icmpv6_code: 0x118, 0x8;
        u32 geneve_tlv_option_0_data: 0x120, 0x20;
        u32 gtpu_teid: 0x140, 0x20;
        u8 gtpu_msg_type: 0x160, 0x8;
        u8 gtpu_msg_flags: 0x168, 0x8;
        u32 gtpu_dw_2: 0x180, 0x20;
        u32 gtpu_first_ext_dw_0: 0x1a0, 0x20;
        u32 gtpu_dw_0: 0x1c0, 0x20;
    }

    /// Fields that a flexible parser took.
    FteMatchSetMisc4 = "fte_match_set_misc4", 0x40 {
        u32 prog_sample_field_value_0: 0x0, 0x20;
        u32 prog_sample_field_id_0: 0x20, 0x20;
        u32 prog_sample_field_value_1: 0x40, 0x20;
        u32 prog_sample_field_id_1: 0x60, 0x20;
        u32 prog_sample_field_value_2: 0x80, 0x20;
        u32 prog_sample_field_id_2: 0xa0, 0x20;
        u32 prog_sample_field_value_3: 0xc0, 0x20;
        u32 prog_sample_field_id_3: 0xe0, 0x20;
    }

    /// Fields of MACsec and of tunnel headers.
    FteMatchSetMisc5 = "fte_match_set_misc5", 0x40 {
        u32 macsec_tag_0: 0x0, 0x20;
        u32 macsec_tag_1: 0x20, 0x20;
        u32 macsec_tag_2: 0x40, 0x20;
        u32 macsec_tag_3: 0x60, 0x20;
        u32 tunnel_header_0: 0x80, 0x20;
        u32 tunnel_header_1: 0xa0, 0x20;
        u32 tunnel_header_2: 0xc0, 0x20;
        u32 tunnel_header_3: 0xe0, 0x20;
    }
}

//! Capabilities of Ethernet offloads.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of Ethernet offloads (type 1).
    PerProtocolNetworkingOffloadCaps = "per_protocol_networking_offload_caps", 0x100 {
        bool csum_cap: 0x0, 0x1;
        bool vlan_cap: 0x1, 0x1;
        bool lro_cap: 0x2, 0x1;
        bool lro_psh_flag: 0x3, 0x1;
        bool lro_time_stamp: 0x4, 0x1;
        bool wqe_vlan_insert: 0x7, 0x1;
        bool self_lb_en_modifiable: 0x8, 0x1;
        u8 max_lso_cap: 0xb, 0x5;
        u8 multi_pkt_send_wqe: 0x10, 0x2;
        u8 wqe_inline_mode: 0x12, 0x2;
        u8 rss_ind_tbl_cap: 0x14, 0x4;
        bool reg_umr_sq: 0x18, 0x1;
        bool scatter_fcs: 0x19, 0x1;
        bool enhanced_multi_pkt_send_wqe: 0x1a, 0x1;
        bool tunnel_lso_const_out_ip_id: 0x1b, 0x1;
        bool tunnel_lro_gre: 0x1c, 0x1;
        bool tunnel_lro_vxlan: 0x1d, 0x1;
        bool tunnel_stateless_gre: 0x1e, 0x1;
        bool tunnel_stateless_vxlan: 0x1f, 0x1;
        bool swp: 0x20, 0x1;
        bool swp_csum: 0x21, 0x1;
        bool swp_lso: 0x22, 0x1;
        bool cqe_checksum_full: 0x23, 0x1;
        bool tunnel_stateless_geneve_tx: 0x24, 0x1;
        bool tunnel_stateless_mpls_over_udp: 0x25, 0x1;
        bool tunnel_stateless_mpls_over_gre: 0x26, 0x1;
        bool tunnel_stateless_vxlan_gpe: 0x27, 0x1;
        bool tunnel_stateless_ipv4_over_vxlan: 0x28, 0x1;
        bool tunnel_stateless_ip_over_ip: 0x29, 0x1;
        bool insert_trailer: 0x2a, 0x1;
        bool tunnel_stateless_ip_over_ip_rx: 0x2c, 0x1;
        bool tunnel_stateless_ip_over_ip_tx: 0x2d, 0x1;
        u8 max_vxlan_udp_ports: 0x30, 0x8;
        bool swp_csum_l4_partial: 0x38, 0x1;
        bool max_geneve_opt_len: 0x3e, 0x1;
        bool tunnel_stateless_geneve_rx: 0x3f, 0x1;
        u16 lro_min_mss_size: 0x50, 0x10;
        [u32; 4] lro_timer_supported_periods: 0x180, 0x20;
    }
}

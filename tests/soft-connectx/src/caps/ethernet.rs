//! Capabilities that an Ethernet port adds: RoCE, offloads, flow tables.

use wqe_format::mlx5::firmware::caps::ethernet::PerProtocolNetworkingOffloadCaps;
use wqe_format::mlx5::firmware::caps::flow_table::{
    FlowTableFieldsSupported, FlowTableNicCap, FlowTablePropLayout,
};
use wqe_format::mlx5::firmware::caps::roce::RoceCap;

/// Entries of the GID table.
pub(crate) const GIDS: u16 = 32;

/// RoCE v1 and v2 (a bit each, 0 and 2) over Ethernet, IPv4 and IPv6 (`l3_type`).
pub(super) fn roce() -> Vec<u8> {
    let mut caps = RoceCap::zeroed();
    caps.set_roce_version(0b101)
        .set_l3_type(0b111)
        .set_roce_address_table_size(GIDS);
    // IANA's port of RoCE v2, and the source ports that flows are spread over (IBTA annex A17).
    caps.set_r_roce_dest_udp_port(4791)
        .set_r_roce_min_src_udp_port(0xc000)
        .set_r_roce_max_src_udp_port(0xffff);
    caps.into_inner().to_vec()
}

/// Check sums, VLANs, large sends, spreading over queues.
pub(super) fn offloads() -> Vec<u8> {
    /// `MLX5_CAP_INLINE_MODE_NOT_REQUIRED`: a send request need not carry its packet's headers.
    const INLINE_NOT_REQUIRED: u8 = 2;
    let mut caps = PerProtocolNetworkingOffloadCaps::zeroed();
    caps.set_csum_cap(true)
        .set_vlan_cap(true)
        .set_wqe_vlan_insert(true)
        .set_self_lb_en_modifiable(true)
        .set_scatter_fcs(true);
    caps.set_max_lso_cap(18)
        .set_rss_ind_tbl_cap(11)
        .set_wqe_inline_mode(INLINE_NOT_REQUIRED);
    caps.into_inner().to_vec()
}

/// Tables of what is received, and the fields that they can look at.
pub(super) fn flow_tables() -> Vec<u8> {
    let mut caps = FlowTableNicCap::zeroed();
    let mut receive = caps.flow_table_properties_nic_receive_mut();
    properties(&mut receive);
    fields(&mut receive.ft_field_support_mut());
    fields(&mut receive.ft_field_bitmask_support_mut());
    caps.into_inner().to_vec()
}

/// InfiniBand has none, which rdma-core's tests look for here.
pub(super) fn no_flow_tables() -> Vec<u8> {
    FlowTableNicCap::zeroed().into_inner().to_vec()
}

fn properties(caps: &mut FlowTablePropLayout<&mut [u8]>) {
    caps.set_ft_support(true)
        .set_flow_counter(true)
        .set_flow_modify_en(true)
        .set_modify_root(true)
        .set_identified_miss_table_mode(true)
        .set_flow_table_modify(true);
    // Linux 6.12 makes the last table of its NIC tree at level 66.
    caps.set_max_ft_level(128)
        .set_log_max_ft_size(16)
        .set_log_max_ft_num(8)
        .set_log_max_flow(16)
        .set_log_max_destination(8)
        .set_log_max_flow_counter(15);
}

fn fields(caps: &mut FlowTableFieldsSupported<&mut [u8]>) {
    caps.set_outer_dmac(true)
        .set_outer_smac(true)
        .set_outer_ether_type(true)
        .set_outer_ip_version(true);
    caps.set_outer_first_prio(true)
        .set_outer_first_cfi(true)
        .set_outer_first_vid(true);
    caps.set_outer_sip(true)
        .set_outer_dip(true)
        .set_outer_frag(true)
        .set_outer_ip_protocol(true)
        .set_outer_ip_ecn(true)
        .set_outer_ip_dscp(true);
    caps.set_outer_udp_sport(true)
        .set_outer_udp_dport(true)
        .set_outer_tcp_sport(true)
        .set_outer_tcp_dport(true)
        .set_outer_tcp_flags(true);
}

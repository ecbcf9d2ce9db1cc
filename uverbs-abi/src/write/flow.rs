//! Flow steering rules.
//!
//! A [`CreateFlow`] is followed by its specifications, each a header, a value and a mask; a packet matches
//! if it equals the value under the mask in every specification.

use zerocopy::network_endian::{U16, U32};

use crate::{Reserved, handle};

abi_structs! {
    /// Start of a rule; `num_of_specs` specifications follow.
    "ib_uverbs_flow_attr" FlowAttr [16] {
        0 r#type: u32,
        /// Bytes of the rule with its specifications.
        4 size: u16,
        6 priority: u16,
        8 num_of_specs: u8,
        9 reserved: Reserved<2>,
        11 port: u8,
        12 flags: u32,
    }

    /// Makes a rule.
    "ib_uverbs_create_flow" CreateFlow [24] {
        /// None is defined.
        0 comp_mask: u32,
        4 qp_handle: handle::Qp,
        8 flow_attr: FlowAttr,
    }

    /// Answer to [`CreateFlow`].
    "ib_uverbs_create_flow_resp" CreateFlowResp [8] {
        0 comp_mask: u32,
        4 flow_handle: handle::Flow,
    }

    /// Destroys a rule.
    "ib_uverbs_destroy_flow" DestroyFlow [8] {
        /// None is defined.
        0 comp_mask: u32,
        4 flow_handle: handle::Flow,
    }

    /// Start of a specification.
    "ib_uverbs_flow_spec_hdr" FlowSpecHdr [8] {
        0 r#type: u32,
        /// Bytes of the specification with this header.
        4 size: u16,
        6 reserved: Reserved<2>,
    }

    /// Fields of an Ethernet header.
    "ib_uverbs_flow_eth_filter" EthFilter [16] {
        0 dst_mac: [u8; 6],
        6 src_mac: [u8; 6],
        12 ether_type: U16,
        14 vlan_tag: U16,
    }

    /// Matches an Ethernet header.
    "ib_uverbs_flow_spec_eth" FlowSpecEth [40] {
        0 hdr: FlowSpecHdr,
        8 val: EthFilter,
        24 mask: EthFilter,
    }

    /// Fields of an IPv4 header.
    "ib_uverbs_flow_ipv4_filter" Ipv4Filter [12] {
        0 src_ip: U32,
        4 dst_ip: U32,
        8 proto: u8,
        9 tos: u8,
        10 ttl: u8,
        11 flags: u8,
    }

    /// Matches an IPv4 header.
    "ib_uverbs_flow_spec_ipv4" FlowSpecIpv4 [32] {
        0 hdr: FlowSpecHdr,
        8 val: Ipv4Filter,
        20 mask: Ipv4Filter,
    }

    /// Fields of a TCP or UDP header.
    "ib_uverbs_flow_tcp_udp_filter" TcpUdpFilter [4] {
        0 dst_port: U16,
        2 src_port: U16,
    }

    /// Matches a TCP or UDP header.
    "ib_uverbs_flow_spec_tcp_udp" FlowSpecTcpUdp [16] {
        0 hdr: FlowSpecHdr,
        8 val: TcpUdpFilter,
        12 mask: TcpUdpFilter,
    }

    /// Fields of an IPv6 header.
    "ib_uverbs_flow_ipv6_filter" Ipv6Filter [40] {
        0 src_ip: [u8; 16],
        16 dst_ip: [u8; 16],
        32 flow_label: U32,
        36 next_hdr: u8,
        37 traffic_class: u8,
        38 hop_limit: u8,
        39 reserved: Reserved<1>,
    }

    /// Matches an IPv6 header.
    "ib_uverbs_flow_spec_ipv6" FlowSpecIpv6 [88] {
        0 hdr: FlowSpecHdr,
        8 val: Ipv6Filter,
        48 mask: Ipv6Filter,
    }

    /// Fields of a VXLAN header.
    "ib_uverbs_flow_tunnel_filter" TunnelFilter [4] {
        0 tunnel_id: U32,
    }

    /// Matches a VXLAN header.
    "ib_uverbs_flow_spec_tunnel" FlowSpecTunnel [16] {
        0 hdr: FlowSpecHdr,
        8 val: TunnelFilter,
        12 mask: TunnelFilter,
    }

    /// Fields of an ESP header.
    "ib_uverbs_flow_spec_esp_filter" EspFilter [8] {
        0 spi: u32,
        4 seq: u32,
    }

    /// Matches an ESP header.
    "ib_uverbs_flow_spec_esp" FlowSpecEsp [24] {
        0 hdr: FlowSpecHdr,
        8 val: EspFilter,
        16 mask: EspFilter,
    }

    /// Fields of a GRE header.
    "ib_uverbs_flow_gre_filter" GreFilter [8] {
        /// Flags and version, the first 16 bits of the header.
        0 c_ks_res0_ver: U16,
        2 protocol: U16,
        4 key: U32,
    }

    /// Matches a GRE header.
    "ib_uverbs_flow_spec_gre" FlowSpecGre [24] {
        0 hdr: FlowSpecHdr,
        8 val: GreFilter,
        16 mask: GreFilter,
    }

    /// Fields of an MPLS label.
    "ib_uverbs_flow_mpls_filter" MplsFilter [4] {
        0 label: U32,
    }

    /// Matches an MPLS label.
    "ib_uverbs_flow_spec_mpls" FlowSpecMpls [16] {
        0 hdr: FlowSpecHdr,
        8 val: MplsFilter,
        12 mask: MplsFilter,
    }

    /// Marks matching packets.
    "ib_uverbs_flow_spec_action_tag" FlowSpecActionTag [16] {
        0 hdr: FlowSpecHdr,
        8 tag_id: u32,
        12 reserved1: Reserved<4>,
    }

    /// Drops matching packets.
    "ib_uverbs_flow_spec_action_drop" FlowSpecActionDrop [8] {
        0 hdr: FlowSpecHdr,
    }

    /// Hands matching packets to a flow action.
    "ib_uverbs_flow_spec_action_handle" FlowSpecActionHandle [16] {
        0 hdr: FlowSpecHdr,
        8 handle: handle::FlowAction,
        12 reserved1: Reserved<4>,
    }

    /// Counts matching packets.
    "ib_uverbs_flow_spec_action_count" FlowSpecActionCount [16] {
        0 hdr: FlowSpecHdr,
        8 handle: handle::Counters,
        12 reserved1: Reserved<4>,
    }
}

write_commands! {
    "IB_USER_VERBS_EX_CMD_CREATE_FLOW" 50 extended: CreateFlow => CreateFlowResp;
    "IB_USER_VERBS_EX_CMD_DESTROY_FLOW" 51 extended: DestroyFlow => ();
}

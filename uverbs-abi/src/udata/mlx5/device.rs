//! The device, protection domains, address handles, memory windows, flow rules.

use crate::Reserved;

flag_sets! {
    /// How compressed completions may look, of [`CqeCompCaps::supported_format`] and, one of them, of
    /// [`CreateCq::cqe_comp_res_format`](super::CreateCq::cqe_comp_res_format).
    "mlx5_ib_cqe_comp_res_format" CqeCompFormat(u32) {
        "MLX5_IB_CQE_RES_FORMAT_HASH" HASH = 1 << 0,
        "MLX5_IB_CQE_RES_FORMAT_CSUM" CSUM = 1 << 1,
        "MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX" CSUM_STRIDX = 1 << 2,
    }

    /// Of [`PacketPacingCaps::cap_flags`].
    "mlx5_ib_packet_pacing_cap_flags" PacketPacingCapFlags(u8) {
        "MLX5_IB_PP_SUPPORT_BURST" BURST = 1 << 0,
    }

    /// Sending many packets with one WQE.
    "mlx5_ib_mpw_caps" MpwCaps(u32) {
        "MPW_RESERVED" RESERVED = 1 << 0,
        "MLX5_IB_ALLOW_MPW" ALLOW_MPW = 1 << 1,
        "MLX5_IB_SUPPORT_EMPW" SUPPORT_EMPW = 1 << 2,
    }

    /// Header parsing that software directs.
    "mlx5_ib_sw_parsing_offloads" SwParsingOffloads(u32) {
        "MLX5_IB_SW_PARSING" SW_PARSING = 1 << 0,
        "MLX5_IB_SW_PARSING_CSUM" CSUM = 1 << 1,
        "MLX5_IB_SW_PARSING_LSO" LSO = 1 << 2,
    }

    /// Of [`QueryDeviceResp::flags`].
    "mlx5_ib_query_dev_resp_flags" QueryDeviceFlags(u32) {
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP" CQE_128B_COMP = 1 << 0,
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD" CQE_128B_PAD = 1 << 1,
        "MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE" PACKET_BASED_CREDIT_MODE = 1 << 2,
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT" SCAT2CQE_DCT = 1 << 3,
        /// Not before 6.13.
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP" OOO_DP = 1 << 4,
    }

    /// Tunnels whose inner packet the device looks into.
    "mlx5_ib_tunnel_offloads" TunnelOffloads(u32) {
        "MLX5_IB_TUNNELED_OFFLOADS_VXLAN" VXLAN = 1 << 0,
        "MLX5_IB_TUNNELED_OFFLOADS_GRE" GRE = 1 << 1,
        "MLX5_IB_TUNNELED_OFFLOADS_GENEVE" GENEVE = 1 << 2,
        "MLX5_IB_TUNNELED_OFFLOADS_MPLS_GRE" MPLS_GRE = 1 << 3,
        "MLX5_IB_TUNNELED_OFFLOADS_MPLS_UDP" MPLS_UDP = 1 << 4,
    }

    /// Hash functions that spread received packets.
    "mlx5_rx_hash_function_flags" RxHashFunction(u8) {
        "MLX5_RX_HASH_FUNC_TOEPLITZ" TOEPLITZ = 1 << 0,
    }

    /// Fields of a packet that the hash covers.
    "mlx5_rx_hash_fields" RxHashFields(u64) {
        "MLX5_RX_HASH_SRC_IPV4" SRC_IPV4 = 1 << 0,
        "MLX5_RX_HASH_DST_IPV4" DST_IPV4 = 1 << 1,
        "MLX5_RX_HASH_SRC_IPV6" SRC_IPV6 = 1 << 2,
        "MLX5_RX_HASH_DST_IPV6" DST_IPV6 = 1 << 3,
        "MLX5_RX_HASH_SRC_PORT_TCP" SRC_PORT_TCP = 1 << 4,
        "MLX5_RX_HASH_DST_PORT_TCP" DST_PORT_TCP = 1 << 5,
        "MLX5_RX_HASH_SRC_PORT_UDP" SRC_PORT_UDP = 1 << 6,
        "MLX5_RX_HASH_DST_PORT_UDP" DST_PORT_UDP = 1 << 7,
        "MLX5_RX_HASH_IPSEC_SPI" IPSEC_SPI = 1 << 8,
        /// The fields of a tunnel's inner packet.
        "MLX5_RX_HASH_INNER" INNER = 1 << 31,
    }
}

abi_structs! {
    /// Response of alloc_pd.
    "mlx5_ib_alloc_pd_resp" AllocPdResp [4] {
        /// The device's number of the domain.
        0 pdn: u32,
    }

    /// Segmentation of large sends.
    "mlx5_ib_tso_caps" TsoCaps [8] {
        /// Bytes of one send.
        0 max_tso: u32,
        /// `1 << qp_type` for each type.
        4 supported_qpts: u32,
    }

    /// Spreading of received packets.
    "mlx5_ib_rss_caps" RssCaps [16] {
        0 rx_hash_fields_mask: RxHashFields,
        8 rx_hash_function: RxHashFunction,
        9 reserved: Reserved<7>,
    }

    /// Compressed completions.
    "mlx5_ib_cqe_comp_caps" CqeCompCaps [8] {
        /// Completions in one block.
        0 max_num: u32,
        4 supported_format: CqeCompFormat,
    }

    /// Rate limits.
    "mlx5_packet_pacing_caps" PacketPacingCaps [16] {
        /// In kbit/s.
        0 qp_rate_limit_min: u32,
        /// In kbit/s.
        4 qp_rate_limit_max: u32,
        /// `1 << qp_type` for each type.
        8 supported_qpts: u32,
        12 cap_flags: PacketPacingCapFlags,
        13 reserved: Reserved<3>,
    }

    /// Header parsing that software directs.
    "mlx5_ib_sw_parsing_caps" SwParsingCaps [8] {
        0 sw_parsing_offloads: SwParsingOffloads,
        /// `1 << qp_type` for each type.
        4 supported_qpts: u32,
    }

    /// Receive queues whose entries hold many packets.
    "mlx5_ib_striding_rq_caps" StridingRqCaps [24] {
        0 min_single_stride_log_num_of_bytes: u32,
        4 max_single_stride_log_num_of_bytes: u32,
        8 min_single_wqe_log_num_of_strides: u32,
        12 max_single_wqe_log_num_of_strides: u32,
        /// `1 << qp_type` for each type.
        16 supported_qpts: u32,
        20 reserved: Reserved<4>,
    }

    /// Streams of dynamically connected initiators.
    "mlx5_ib_dci_streams_caps" DciStreamsCaps [2] {
        0 max_log_num_concurent: u8,
        1 max_log_num_errored: u8,
    }

    /// A value of a device register and which bits of it count.
    "mlx5_ib_uapi_reg" Reg [8] {
        0 value: u32,
        4 mask: u32,
    }

    /// Response of query_device_ex.
    "mlx5_ib_query_device_resp" QueryDeviceResp [112] {
        0 comp_mask: u32,
        /// Bytes that the kernel filled, counted from the start.
        4 response_length: u32,
        8 tso_caps: TsoCaps,
        16 rss_caps: RssCaps,
        32 cqe_comp_caps: CqeCompCaps,
        40 packet_pacing_caps: PacketPacingCaps,
        56 mlx5_ib_support_multi_pkt_send_wqes: MpwCaps,
        60 flags: QueryDeviceFlags,
        64 sw_parsing_caps: SwParsingCaps,
        72 striding_rq_caps: StridingRqCaps,
        96 tunnel_offloads_caps: TunnelOffloads,
        100 dci_streams_caps: DciStreamsCaps,
        102 reserved: Reserved<2>,
        /// What loop-back of an eswitch manager matches. Not in 6.1, whose struct ends here.
        104 reg_c0: Reg,
    }

    /// Response of create_ah, if [`CmdsSuppUhw::CREATE_AH`](super::CmdsSuppUhw::CREATE_AH).
    "mlx5_ib_create_ah_resp" CreateAhResp [16] {
        0 response_length: u32,
        /// Where the destination, or the router to it, is.
        4 dmac: [u8; 6],
        10 reserved: Reserved<6>,
    }

    /// Request of alloc_mw; libmlx5 sends none.
    "mlx5_ib_alloc_mw" AllocMw [8] {
        0 comp_mask: u32,
        4 num_klms: u8,
        5 reserved1: Reserved<1>,
        6 reserved2: Reserved<2>,
    }

    /// What one counter counts.
    "mlx5_ib_flow_counters_desc" FlowCountersDesc [8] {
        /// 0 packets, 1 bytes.
        0 description: u32,
        /// Where it stands in the answer of a read.
        4 index: u32,
    }

    /// The counters of one counters object.
    "mlx5_ib_flow_counters_data" FlowCountersData [16] {
        /// Address of [`FlowCountersDesc`]s.
        0 counters_data: u64,
        8 ncounters: u32,
        12 reserved: Reserved<4>,
    }

    /// Request of create_flow; `ncounters_data` times [`FlowCountersData`] follow, as many as the
    /// rule names counters objects.
    "mlx5_ib_create_flow" CreateFlow [8] {
        0 ncounters_data: u32,
        4 reserved: Reserved<4>,
    }
}

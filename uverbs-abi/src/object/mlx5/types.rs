//! Values of mlx5's attributes.

use crate::Reserved;
use crate::udata::mlx5::Reg;

open_enums! {
    /// Kind of a doorbell page.
    "mlx5_ib_uapi_uar_alloc_type" UarAllocType(u32) {
        /// Mapped write-combining, for BlueFlame; `EOPNOTSUPP` where the platform cannot.
        "MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF" BF = 0,
        /// Mapped uncached.
        "MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC" NC = 1,
    }

    /// Kind of device memory.
    "mlx5_ib_uapi_dm_type" DmType(u32) {
        "MLX5_IB_UAPI_DM_TYPE_MEMIC" MEMIC = 0,
        "MLX5_IB_UAPI_DM_TYPE_STEERING_SW_ICM" STEERING_SW_ICM = 1,
        "MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_SW_ICM" HEADER_MODIFY_SW_ICM = 2,
        "MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM" HEADER_MODIFY_PATTERN_SW_ICM = 3,
        /// Not in 6.1.
        "MLX5_IB_UAPI_DM_TYPE_ENCAP_SW_ICM" ENCAP_SW_ICM = 4,
    }

    /// Where a flow table stands.
    "mlx5_ib_uapi_flow_table_type" FlowTableType(u32) {
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX" NIC_RX = 0,
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX" NIC_TX = 1,
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB" FDB = 2,
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX" RDMA_RX = 3,
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX" RDMA_TX = 4,
    }

    /// What becomes of a packet's headers.
    "mlx5_ib_uapi_flow_action_packet_reformat_type" PacketReformatType(u32) {
        "MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2" L2_TUNNEL_TO_L2 = 0,
        "MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL" L2_TO_L2_TUNNEL = 1,
        "MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2" L3_TUNNEL_TO_L2 = 2,
        "MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL" L2_TO_L3_TUNNEL = 3,
    }

    /// Kind of a matcher's rules.
    "mlx5_ib_flow_type" FlowType(u32) {
        /// With a priority, a `u16`, as its payload.
        "MLX5_IB_FLOW_TYPE_NORMAL" NORMAL = 0,
        "MLX5_IB_FLOW_TYPE_SNIFFER" SNIFFER = 1,
        "MLX5_IB_FLOW_TYPE_ALL_DEFAULT" ALL_DEFAULT = 2,
        "MLX5_IB_FLOW_TYPE_MC_DEFAULT" MC_DEFAULT = 3,
    }
}

flag_sets! {
    /// How a file of events is made.
    "mlx5_ib_uapi_devx_create_event_channel_flags" DevxEventChannelFlags(u32) {
        /// Events are cookies only.
        "MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA" OMIT_DATA = 1 << 0,
    }

    /// How a rate is allocated.
    "mlx5_ib_uapi_pp_alloc_flags" PpAllocFlags(u32) {
        /// Not shared with others who want the same rate.
        "MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX" DEDICATED_INDEX = 1 << 0,
    }

    /// How a dma-buf is registered. Not in 6.1.
    "mlx5_ib_uapi_reg_dmabuf_flags" RegDmabufFlags(u32) {
        "MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT" DATA_DIRECT = 1 << 0,
    }

    /// What a rule does without a destination.
    "mlx5_ib_create_flow_flags" CreateFlowFlags(u32) {
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS" DEFAULT_MISS = 1 << 0,
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP" DROP = 1 << 1,
    }

    /// How an ESP action is made.
    "mlx5_ib_uapi_flow_action_flags" FlowActionFlags(u32) {
        "MLX5_IB_UAPI_FLOW_ACTION_FLAGS_REQUIRE_METADATA" REQUIRE_METADATA = 1 << 0,
    }

    /// Fields that are valid, of [`QueryPort::flags`].
    "mlx5_ib_uapi_query_port_flags" QueryPortFlags(u64) {
        "MLX5_IB_UAPI_QUERY_PORT_VPORT" VPORT = 1 << 0,
        "MLX5_IB_UAPI_QUERY_PORT_VPORT_VHCA_ID" VPORT_VHCA_ID = 1 << 1,
        "MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_RX" VPORT_STEERING_ICM_RX = 1 << 2,
        "MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_TX" VPORT_STEERING_ICM_TX = 1 << 3,
        "MLX5_IB_UAPI_QUERY_PORT_VPORT_REG_C0" VPORT_REG_C0 = 1 << 4,
        "MLX5_IB_UAPI_QUERY_PORT_ESW_OWNER_VHCA_ID" ESW_OWNER_VHCA_ID = 1 << 5,
    }
}

/// Words of the longest match mask or value.
#[doc(alias = "MLX5_IB_DW_MATCH_PARAM")]
pub const DW_MATCH_PARAM: usize = 0xa0;

abi_structs! {
    /// A port of an eswitch.
    "mlx5_ib_uapi_query_port" QueryPort [40] {
        0 flags: QueryPortFlags,
        8 vport: u16,
        10 vport_vhca_id: u16,
        12 esw_owner_vhca_id: u16,
        14 rsvd0: Reserved<2>,
        16 vport_steering_icm_rx: u64,
        24 vport_steering_icm_tx: u64,
        32 reg_c0: Reg,
    }

    /// Start of a record read from a file of answers; the firmware's output follows.
    "mlx5_ib_uapi_devx_async_cmd_hdr" DevxAsyncCmdHdr [8] {
        0 wr_id: u64,
    }

    /// Start of a record read from a file of events; the event's data follows.
    "mlx5_ib_uapi_devx_async_event_hdr" DevxAsyncEventHdr [8] {
        0 cookie: u64,
    }
}

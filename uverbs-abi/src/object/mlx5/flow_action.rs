//! What flow rules do to a packet's headers, in the firmware's terms.

methods! {
    FLOW_ACTION;

    /// Changes fields.
    "MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER" modify_header = 0x1000 {
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE" HANDLE = 0x1000: NewHandle<handle::FlowAction>, required;
        /// Actions of 8 bytes, as the manual has them.
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM" ACTIONS = 0x1001: SliceIn<[u8; 8]>, required;
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE" FT_TYPE = 0x1002: Const<crate::object::mlx5::FlowTableType>, required;
    }

    /// Adds or removes a tunnel's headers.
    "MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT" packet_reformat = 0x1001 {
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE" HANDLE = 0x1000: NewHandle<handle::FlowAction>, required;
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE" TYPE = 0x1001: Const<crate::object::mlx5::PacketReformatType>, required;
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE" FT_TYPE = 0x1002: Const<crate::object::mlx5::FlowTableType>, required;
        /// The headers.
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF" DATA = 0x1003: SliceIn<u8>, optional;
    }
}

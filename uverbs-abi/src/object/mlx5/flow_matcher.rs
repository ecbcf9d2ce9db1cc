//! What flow rules look at.

methods! {
    MLX5_FLOW_MATCHER;

    /// Makes a matcher.
    "MLX5_IB_METHOD_FLOW_MATCHER_CREATE" create = 0x1000 {
        "MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::FlowMatcher>, required;
        /// At most [`DW_MATCH_PARAM`](crate::object::mlx5::DW_MATCH_PARAM) words.
        "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK" MATCH_MASK = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE" FLOW_TYPE = 0x1002: EnumIn<crate::object::mlx5::FlowType>, required;
        /// Parts of the mask that are not zero, a bit each.
        "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA" MATCH_CRITERIA = 0x1003: In<u8>, required;
        "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS" FLOW_FLAGS = 0x1004: Flags<u32>, optional;
        "MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE" FT_TYPE = 0x1005: Const<crate::object::mlx5::FlowTableType>, optional;
    }

    /// Destroys a matcher. `EBUSY` while rules use it.
    "MLX5_IB_METHOD_FLOW_MATCHER_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::FlowMatcher>, required;
    }
}

//! Flow rules in the firmware's terms.

methods! {
    FLOW;

    /// Makes a rule.
    "MLX5_IB_METHOD_CREATE_FLOW" create = 0x1000 {
        "MLX5_IB_ATTR_CREATE_FLOW_HANDLE" HANDLE = 0x1000: NewHandle<handle::Flow>, required;
        /// As long as the matcher's mask.
        "MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE" MATCH_VALUE = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_CREATE_FLOW_DEST_QP" DEST_QP = 0x1002: HandleIn<handle::Qp>, optional;
        "MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX" DEST_DEVX = 0x1003: HandleIn<handle::mlx5::DevxObj>, optional;
        "MLX5_IB_ATTR_CREATE_FLOW_MATCHER" MATCHER = 0x1004: HandleIn<handle::mlx5::FlowMatcher>, required;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS" ACTIONS = 0x1005: HandlesIn<handle::FlowAction>, optional;
        /// Comes back in completions.
        "MLX5_IB_ATTR_CREATE_FLOW_TAG" TAG = 0x1006: In<u32>, optional;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX" COUNTERS_DEVX = 0x1007: HandlesIn<handle::mlx5::DevxObj>, optional;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET" COUNTERS_DEVX_OFFSET = 0x1008: SliceIn<u32>, optional;
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS" FLAGS = 0x1009: Flags<crate::object::mlx5::CreateFlowFlags>, optional;
    }

    /// Destroys a rule; the core's method does the same.
    "MLX5_IB_METHOD_DESTROY_FLOW" destroy = 0x1001 {
        "MLX5_IB_ATTR_DESTROY_FLOW_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::Flow>, required;
    }
}

//! Flow tables that firmware commands may name.

methods! {
    MLX5_STEERING_ANCHOR;

    /// Makes an anchor.
    "MLX5_IB_METHOD_STEERING_ANCHOR_CREATE" create = 0x1000 {
        "MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::SteeringAnchor>, required;
        "MLX5_IB_ATTR_STEERING_ANCHOR_FT_TYPE" FT_TYPE = 0x1001: Const<crate::object::mlx5::FlowTableType>, required;
        "MLX5_IB_ATTR_STEERING_ANCHOR_PRIORITY" PRIORITY = 0x1002: In<u16>, required;
        /// The device's number of the table.
        "MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID" FT_ID = 0x1003: Out<u32>, required;
    }

    /// Destroys an anchor.
    "MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::SteeringAnchor>, required;
    }
}

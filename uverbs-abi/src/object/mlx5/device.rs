//! Methods of the device that only mlx5 has.

methods! {
    DEVICE;

    /// A port as the eswitch knows it. Since kernel 5.14.
    "MLX5_IB_METHOD_QUERY_PORT" query_port = 0x1000 {
        /// From 1.
        "MLX5_IB_ATTR_QUERY_PORT_PORT_NUM" PORT_NUM = 0x1000: In<u32>, required;
        "MLX5_IB_ATTR_QUERY_PORT" RESP = 0x1001: Out<crate::object::mlx5::QueryPort>, required;
    }

    /// Path in sysfs of the function that reaches dma-bufs directly; `ENODEV` without one. Not in 6.1.
    "MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH" get_data_direct_sysfs_path = 0x1001 {
        "MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH" PATH = 0x1000: SliceOut<u8>, required;
    }
}

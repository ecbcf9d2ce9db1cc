//! Firmware commands without an object, and numbers of the device's. All of DEVX needs a context that
//! was made with [`DEVX`](crate::udata::mlx5::AllocUcontextFlags::DEVX).

methods! {
    MLX5_DEVX;

    /// Runs a firmware command of a kind that makes nothing, such as QUERY_HCA_CAP. `EREMOTEIO` if the
    /// firmware refused it since about kernel 5.18, and the output then says why; `EINVAL` and others, by the
    /// firmware's status, before.
    "MLX5_IB_METHOD_DEVX_OTHER" other = 0x1000 {
        /// At least 16 bytes.
        "MLX5_IB_ATTR_DEVX_OTHER_CMD_IN" CMD_IN = 0x1000: SliceIn<u8>, required;
        /// At least 16 bytes.
        "MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT" CMD_OUT = 0x1001: SliceOut<u8>, required;
    }

    /// The device's number of one of the context's doorbell pages.
    "MLX5_IB_METHOD_DEVX_QUERY_UAR" query_uar = 0x1001 {
        "MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX" USER_IDX = 0x1000: In<u32>, required;
        "MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX" DEV_IDX = 0x1001: Out<u32>, required;
    }

    /// The device's number of the event queue of a completion vector.
    "MLX5_IB_METHOD_DEVX_QUERY_EQN" query_eqn = 0x1002 {
        "MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC" USER_VEC = 0x1000: In<u32>, required;
        "MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN" DEV_EQN = 0x1001: Out<u32>, required;
    }

    /// Asks for events, of an object or of the device.
    "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT" subscribe_event = 0x1003 {
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE" FD_HANDLE = 0x1000: FdIn<handle::mlx5::DevxAsyncEvent>, required;
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE" OBJ_HANDLE = 0x1001: HandleIn<handle::mlx5::DevxObj>, optional;
        /// Event numbers of the firmware's.
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST" TYPE_NUM_LIST = 0x1002: SliceIn<u16>, required;
        /// An eventfd to signal instead of making records.
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM" FD_NUM = 0x1003: In<u32>, optional;
        /// Comes back in records.
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE" COOKIE = 0x1004: In<u64>, optional;
    }
}

//! Files from which the device's events are read.

methods! {
    MLX5_DEVX_ASYNC_EVENT_FD;

    /// Makes a file; closing it ends it.
    "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC" alloc = 0x1000 {
        "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE" HANDLE = 0x1000: NewFd<handle::mlx5::DevxAsyncEvent>, required;
        "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS" FLAGS = 0x1001: Flags<crate::object::mlx5::DevxEventChannelFlags>, required;
    }
}

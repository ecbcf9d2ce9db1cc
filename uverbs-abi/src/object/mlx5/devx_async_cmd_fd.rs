//! Files from which answers of asynchronous firmware commands are read.

methods! {
    MLX5_DEVX_ASYNC_CMD_FD;

    /// Makes a file; closing it ends it.
    "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC" alloc = 0x1000 {
        "MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE" HANDLE = 0x1000: NewFd<handle::mlx5::DevxAsyncCmd>, required;
    }
}

//! Objects that firmware commands make; the kernel remembers how to destroy them.

methods! {
    MLX5_DEVX_OBJ;

    /// Runs a firmware command that makes an object.
    "MLX5_IB_METHOD_DEVX_OBJ_CREATE" create = 0x1000 {
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::DevxObj>, required;
        /// At least 16 bytes.
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN" CMD_IN = 0x1001: SliceIn<u8>, required;
        /// At least 16 bytes.
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT" CMD_OUT = 0x1002: SliceOut<u8>, required;
    }

    /// Destroys an object.
    "MLX5_IB_METHOD_DEVX_OBJ_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::DevxObj>, required;
    }

    /// Runs a firmware command that changes an object, which may be a verbs object too.
    "MLX5_IB_METHOD_DEVX_OBJ_MODIFY" modify = 0x1002 {
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE" HANDLE = 0x1000: HandleIn<handle::mlx5::Any>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN" CMD_IN = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT" CMD_OUT = 0x1002: SliceOut<u8>, required;
    }

    /// Runs a firmware command that reads an object, which may be a verbs object too.
    "MLX5_IB_METHOD_DEVX_OBJ_QUERY" query = 0x1003 {
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE" HANDLE = 0x1000: HandleIn<handle::mlx5::Any>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN" CMD_IN = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT" CMD_OUT = 0x1002: SliceOut<u8>, required;
    }

    /// The same without waiting: the output is read from a file.
    "MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY" async_query = 0x1004 {
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE" HANDLE = 0x1000: HandleIn<handle::mlx5::Any>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN" CMD_IN = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD" FD = 0x1002: FdIn<handle::mlx5::DevxAsyncCmd>, required;
        /// Comes back with the output.
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID" WR_ID = 0x1003: In<u64>, required;
        /// Bytes of the output.
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN" OUT_LEN = 0x1004: Const<u16>, required;
    }
}

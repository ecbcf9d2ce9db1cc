//! Methods of device memory that only mlx5 has.

methods! {
    DM;

    /// Makes an address at which a store is an operation on the memory. Since kernel 5.13.
    "MLX5_IB_METHOD_DM_MAP_OP_ADDR" map_op_addr = 0x1000 {
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE" HANDLE = 0x1000: HandleIn<handle::Dm>, required;
        /// The operation's number.
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP" OP = 0x1001: In<u8>, required;
        /// Bytes from the start of the page.
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET" START_OFFSET = 0x1002: Out<u64>, required;
        /// Index for [`MmapCommand::DEVICE_MEM`](crate::udata::mlx5::mmap::MmapCommand::DEVICE_MEM).
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX" PAGE_INDEX = 0x1003: Out<u16>, required;
    }

    /// Where the memory can be mapped, for a process that was given the handle. Since kernel 5.13.
    "MLX5_IB_METHOD_DM_QUERY" query = 0x1001 {
        "MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE" HANDLE = 0x1000: HandleIn<handle::Dm>, required;
        /// Bytes from the start of the page.
        "MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET" START_OFFSET = 0x1001: Out<u64>, required;
        /// Index for [`MmapCommand::DEVICE_MEM`](crate::udata::mlx5::mmap::MmapCommand::DEVICE_MEM).
        "MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX" PAGE_INDEX = 0x1002: Out<u16>, required;
        "MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH" LENGTH = 0x1003: Out<u64>, required;
    }
}

//! Doorbell pages for virtio queues.

methods! {
    MLX5_VAR;

    /// Allocates a page.
    "MLX5_IB_METHOD_VAR_OBJ_ALLOC" alloc = 0x1000 {
        "MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::Var>, required;
        /// For mmap(2) on the device file.
        "MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET" MMAP_OFFSET = 0x1001: Out<u64>, required;
        /// Bytes to map.
        "MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH" MMAP_LENGTH = 0x1002: Out<u32>, required;
        /// The device's number of the page.
        "MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID" PAGE_ID = 0x1003: Out<u32>, required;
    }

    /// Frees a page.
    "MLX5_IB_METHOD_VAR_OBJ_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::Var>, required;
    }
}

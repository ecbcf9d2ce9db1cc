//! Doorbell pages. Since kernel 5.7.

methods! {
    MLX5_UAR;

    /// Allocates a page.
    "MLX5_IB_METHOD_UAR_OBJ_ALLOC" alloc = 0x1000 {
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::Uar>, required;
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE" TYPE = 0x1001: Const<crate::object::mlx5::UarAllocType>, required;
        /// For mmap(2) on the device file.
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET" MMAP_OFFSET = 0x1002: Out<u64>, required;
        /// Bytes to map: a page of the kernel's.
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH" MMAP_LENGTH = 0x1003: Out<u32>, required;
        /// The device's number of the page.
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID" PAGE_ID = 0x1004: Out<u32>, required;
    }

    /// Frees a page.
    "MLX5_IB_METHOD_UAR_OBJ_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::Uar>, required;
    }
}

//! Memory that firmware commands may name.

methods! {
    MLX5_DEVX_UMEM;

    /// Pins memory and tells the device.
    "MLX5_IB_METHOD_DEVX_UMEM_REG" reg = 0x1000 {
        "MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::DevxUmem>, required;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR" ADDR = 0x1001: In<u64>, required;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_LEN" LEN = 0x1002: In<u64>, required;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS" ACCESS = 0x1003: Flags<types::AccessFlags>, optional;
        /// The device's number of the memory.
        "MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID" OUT_ID = 0x1004: Out<u32>, required;
        /// Page sizes that may be used, a bit each. Since kernel 5.11.
        "MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP" PGSZ_BITMAP = 0x1005: Const<u64>, optional;
        /// The memory is a range of this dma-buf. Since kernel 6.1.
        "MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD" DMABUF_FD = 0x1006: FdIn<handle::mlx5::Dmabuf>, optional;
    }

    /// Forgets it.
    "MLX5_IB_METHOD_DEVX_UMEM_DEREG" dereg = 0x1001 {
        "MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::DevxUmem>, required;
    }
}

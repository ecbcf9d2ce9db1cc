//! Rates for packet pacing.

methods! {
    MLX5_PP;

    /// Allocates a rate.
    "MLX5_IB_METHOD_PP_OBJ_ALLOC" alloc = 0x1000 {
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE" HANDLE = 0x1000: NewHandle<handle::mlx5::Pp>, required;
        /// The firmware's `set_pp_rate_limit_context`, or its start.
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX" CTX = 0x1001: SliceIn<u8>, required;
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS" FLAGS = 0x1002: Flags<crate::object::mlx5::PpAllocFlags>, required;
        /// The device's number of the rate.
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX" INDEX = 0x1003: Out<u16>, required;
    }

    /// Frees a rate.
    "MLX5_IB_METHOD_PP_OBJ_DESTROY" destroy = 0x1001 {
        "MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE" HANDLE = 0x1000: DestroyHandle<handle::mlx5::Pp>, required;
    }
}

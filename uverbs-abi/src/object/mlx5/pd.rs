//! The method of protection domains that only mlx5 has.

methods! {
    PD;

    /// The device's number of a domain, for a process that was given the handle.
    "MLX5_IB_METHOD_PD_QUERY" query = 0x1000 {
        "MLX5_IB_ATTR_QUERY_PD_HANDLE" HANDLE = 0x1000: HandleIn<handle::Pd>, required;
        "MLX5_IB_ATTR_QUERY_PD_RESP_PDN" PDN = 0x1001: Out<u32>, required;
    }
}

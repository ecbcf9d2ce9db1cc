//! Signatures of memory keys as programs describe them, and errors of them (`infiniband/mlx5dv.h`).

use std::ffi::{c_uint, c_void};

use super::layout;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_t10dif {
    pub bg_type: c_uint,
    pub bg: u16,
    pub app_tag: u16,
    pub ref_tag: u32,
    pub flags: u16,
}
layout!(mlx5dv_sig_t10dif, 16, { bg_type @ 0, bg @ 4, app_tag @ 6, ref_tag @ 8, flags @ 12 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_crc {
    pub r#type: c_uint,
    pub seed: u64,
}
layout!(mlx5dv_sig_crc, 16, { r#type @ 0, seed @ 8 });

/// `sig` is a union: a pointer to one of the two above.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_block_domain {
    pub sig_type: c_uint,
    pub sig: *const c_void,
    pub block_size: c_uint,
    pub comp_mask: u64,
}
layout!(mlx5dv_sig_block_domain, 32, { sig_type @ 0, sig @ 8, block_size @ 16, comp_mask @ 24 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_block_attr {
    pub mem: *const mlx5dv_sig_block_domain,
    pub wire: *const mlx5dv_sig_block_domain,
    pub flags: u32,
    pub check_mask: u8,
    pub copy_mask: u8,
    pub comp_mask: u64,
}
layout!(mlx5dv_sig_block_attr, 32, {
    mem @ 0, wire @ 8, flags @ 16, check_mask @ 20, copy_mask @ 21, comp_mask @ 24
});

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_sig_err {
    pub actual_value: u64,
    pub expected_value: u64,
    pub offset: u64,
}
layout!(mlx5dv_sig_err, 24, { actual_value @ 0, expected_value @ 8, offset @ 16 });

/// `err` is a union with one member.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mlx5dv_mkey_err {
    pub err_type: c_uint,
    pub err: mlx5dv_sig_err,
}
layout!(mlx5dv_mkey_err, 32, { err_type @ 0, err @ 8 });

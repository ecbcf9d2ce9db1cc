//! Names that are there because programs link them, and that answer `EOPNOTSUPP`: software steering, cryptography, the official
//! entry points of VFIO, and what devices and kernels of ours do not do.
//!
//! The arguments are not looked at, so the prototypes need none.

use std::ffi::{c_int, c_void};

use crate::door::set_errno;

/// Functions that answer an errno.
macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            set_errno(libc::EOPNOTSUPP);
            libc::EOPNOTSUPP
        }
    )*};
}

/// Functions that answer an object.
macro_rules! nothing {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            set_errno(libc::EOPNOTSUPP);
            std::ptr::null_mut()
        }
    )*};
}

/// Functions that answer a descriptor.
macro_rules! no_file {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            set_errno(libc::EOPNOTSUPP);
            -1
        }
    )*};
}

/// Functions that answer nothing.
macro_rules! silent {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}

refused! {
    mlx5dv_crypto_login
    mlx5dv_crypto_login_destroy
    mlx5dv_crypto_login_query
    mlx5dv_crypto_login_query_state
    mlx5dv_crypto_logout
    mlx5dv_dek_destroy
    mlx5dv_dek_query
    mlx5dv_devx_destroy_eq
    mlx5dv_devx_free_msi_vector
    mlx5dv_dr_action_destroy
    mlx5dv_dr_action_modify_aso
    mlx5dv_dr_action_modify_flow_meter
    mlx5dv_dr_aso_other_domain_link
    mlx5dv_dr_aso_other_domain_unlink
    mlx5dv_dr_domain_destroy
    mlx5dv_dr_domain_sync
    mlx5dv_dr_matcher_destroy
    mlx5dv_dr_matcher_set_layout
    mlx5dv_dr_rule_destroy
    mlx5dv_dr_table_destroy
    mlx5dv_dump_dr_domain
    mlx5dv_dump_dr_matcher
    mlx5dv_dump_dr_rule
    mlx5dv_dump_dr_table
    mlx5dv_vfio_process_events
}

nothing! {
    mlx5dv_create_flow_action_esp
    mlx5dv_crypto_login_create
    mlx5dv_dek_create
    mlx5dv_devx_alloc_msi_vector
    mlx5dv_devx_create_eq
    mlx5dv_dr_action_create_aso
    mlx5dv_dr_action_create_default_miss
    mlx5dv_dr_action_create_dest_array
    mlx5dv_dr_action_create_dest_devx_tir
    mlx5dv_dr_action_create_dest_ib_port
    mlx5dv_dr_action_create_dest_ibv_qp
    mlx5dv_dr_action_create_dest_root_table
    mlx5dv_dr_action_create_dest_table
    mlx5dv_dr_action_create_dest_vport
    mlx5dv_dr_action_create_drop
    mlx5dv_dr_action_create_flow_counter
    mlx5dv_dr_action_create_flow_meter
    mlx5dv_dr_action_create_flow_sampler
    mlx5dv_dr_action_create_modify_header
    mlx5dv_dr_action_create_packet_reformat
    mlx5dv_dr_action_create_pop_vlan
    mlx5dv_dr_action_create_push_vlan
    mlx5dv_dr_action_create_tag
    mlx5dv_dr_domain_create
    mlx5dv_dr_matcher_create
    mlx5dv_dr_rule_create
    mlx5dv_dr_table_create
    mlx5dv_get_vfio_device_list
}

silent! {
    mlx5dv_dr_domain_allow_duplicate_rules
    mlx5dv_dr_domain_set_reclaim_device_memory
}

no_file! {
    mlx5dv_devx_uar_export_dmabuf_fd
    mlx5dv_vfio_get_events_fd
}

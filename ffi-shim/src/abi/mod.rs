//! The C ABI between libibverbs and a provider, and between `verbs.h`'s inline functions and both.
//!
//! Types carry C's names so that a search for `ibv_send_wr` finds the C declaration and ours. Sizes
//! and offsets are for 64-bit Linux (x86-64 and AArch64 agree); they are asserted beside each
//! struct, and `tests/layout.rs` compares every number with a C program built from rdma-core's own
//! headers. What differs between releases is in [`release`].

#![allow(
    non_camel_case_types,
    missing_docs,
    reason = "C's names; the C headers document the fields"
)]

pub mod attr;
pub mod domain;
pub mod driver;
pub mod dv;
pub mod objects;
pub mod protection;
pub mod release;
pub mod work;
pub mod wq;

/// One struct, as a C program should find it.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// C type, with `struct` or `union`.
    pub c_type: &'static str,
    /// First release whose struct is this one.
    pub since: u32,
    /// Size, unless only a part of the C struct is described.
    pub size: Option<usize>,
    /// Where this part starts in the C struct.
    pub base: usize,
    /// Field paths and their offsets in the part.
    pub fields: &'static [(&'static str, usize)],
}

/// A type whose layout is C's.
pub trait CLayout {
    /// The numbers.
    const LAYOUT: StructLayout;
}

/// Asserts size and offsets at compile time and records them for the comparison with C.
macro_rules! layout {
    (@ $t:ty, $size:literal, $since:expr, $c:expr, $csize:expr, $base:expr,
        { $($($f:ident).+ @ $off:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$t>() == $size);
            $(assert!(std::mem::offset_of!($t, $($f).+) == $off);)*
        };
        impl $crate::abi::CLayout for $t {
            const LAYOUT: $crate::abi::StructLayout = $crate::abi::StructLayout {
                c_type: $c,
                since: $since,
                size: $csize,
                base: $base,
                fields: &[$((stringify!($($f).+), $off)),*],
            };
        }
    };
    ($t:ident, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, 0, concat!("struct ", stringify!($t)), Some($size), 0, $fields);
    };
    ($t:ident as $c:literal, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, 0, $c, Some($size), 0, $fields);
    };
    ($t:ident since $since:literal, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, $since, concat!("struct ", stringify!($t)), Some($size), 0, $fields);
    };
    ($t:ident head, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, 0, concat!("struct ", stringify!($t)), None, 0, $fields);
    };
    ($t:ident in $outer:literal at $base:literal, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, 0, concat!("struct ", $outer), None, $base, $fields);
    };
    ($t:ident in $outer:literal at $base:literal since $since:literal, $size:literal, $fields:tt) => {
        layout!(@ $t, $size, $since, concat!("struct ", $outer), None, $base, $fields);
    };
}
use layout;

/// Every struct that crosses the boundary.
pub const STRUCTS: &[StructLayout] = &[
    objects::ibv_gid::LAYOUT,
    objects::ibv_device::LAYOUT,
    objects::ibv_context_ops::LAYOUT,
    objects::ibv_context::LAYOUT,
    objects::ibv_pd::LAYOUT,
    objects::ibv_mr::LAYOUT,
    objects::ibv_mw::LAYOUT,
    objects::ibv_ah::LAYOUT,
    objects::ibv_comp_channel::LAYOUT,
    objects::ibv_cq::LAYOUT,
    objects::ibv_cq_ex::LAYOUT,
    objects::ibv_srq::LAYOUT,
    objects::ibv_qp::LAYOUT,
    objects::ibv_qp_ex::LAYOUT,
    work::ibv_sge::LAYOUT,
    work::ibv_data_buf::LAYOUT,
    work::ibv_mw_bind_info::LAYOUT,
    work::ibv_send_wr::LAYOUT,
    work::ibv_recv_wr::LAYOUT,
    work::ibv_ops_wr::LAYOUT,
    work::ibv_mw_bind::LAYOUT,
    work::ibv_wc::LAYOUT,
    work::ibv_poll_cq_attr::LAYOUT,
    work::cq_ex_ops::LAYOUT,
    work::wr_ops::LAYOUT,
    attr::ibv_device_attr::LAYOUT,
    attr::ibv_odp_caps::LAYOUT,
    attr::ibv_tso_caps::LAYOUT,
    attr::ibv_rss_caps::LAYOUT,
    attr::ibv_packet_pacing_caps::LAYOUT,
    attr::ibv_tm_caps::LAYOUT,
    attr::ibv_device_attr_ex::LAYOUT,
    attr::ibv_port_attr::LAYOUT,
    attr::ibv_global_route::LAYOUT,
    attr::ibv_ah_attr::LAYOUT,
    attr::ibv_qp_cap::LAYOUT,
    attr::ibv_qp_init_attr::LAYOUT,
    attr::ibv_qp_init_attr_ex::LAYOUT,
    attr::ibv_qp_attr::LAYOUT,
    attr::ibv_cq_init_attr_ex::LAYOUT,
    attr::ibv_srq_attr::LAYOUT,
    attr::ibv_srq_init_attr::LAYOUT,
    attr::ibv_srq_init_attr_ex::LAYOUT,
    attr::ibv_ece::LAYOUT,
    attr::ibv_values_ex::LAYOUT,
    attr::ibv_moderate_cq::LAYOUT,
    attr::ibv_modify_cq_attr::LAYOUT,
    attr::ibv_qp_rate_limit_attr::LAYOUT,
    work::ibv_wc_tm_info::LAYOUT,
    domain::ibv_td::LAYOUT,
    domain::ibv_td_init_attr::LAYOUT,
    domain::ibv_parent_domain_init_attr::LAYOUT,
    domain::verbs_xrcd::LAYOUT,
    domain::ibv_xrcd_init_attr::LAYOUT,
    domain::ibv_qp_open_attr::LAYOUT,
    domain::ibv_alloc_dm_attr::LAYOUT,
    domain::ibv_dm::LAYOUT,
    domain::verbs_dm::LAYOUT,
    wq::ibv_wq::LAYOUT,
    wq::ibv_wq_init_attr::LAYOUT,
    wq::ibv_wq_attr::LAYOUT,
    wq::ibv_rwq_ind_table::LAYOUT,
    wq::ibv_rwq_ind_table_init_attr::LAYOUT,
    wq::ibv_flow::LAYOUT,
    wq::ibv_flow_attr::LAYOUT,
    wq::ibv_counters::LAYOUT,
    wq::ibv_counters_init_attr::LAYOUT,
    wq::ibv_counter_attach_attr::LAYOUT,
    driver::verbs_match_ent::LAYOUT,
    driver::verbs_sysfs_dev::LAYOUT,
    driver::verbs_device_ops::LAYOUT,
    driver::verbs_device::LAYOUT,
    driver::verbs_mr::LAYOUT,
    driver::verbs_srq::LAYOUT,
];

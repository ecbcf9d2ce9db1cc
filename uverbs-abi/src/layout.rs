//! The size and the offsets of each struct, as data.
//!
//! `tests/headers.rs` generates C from this and compares with the installed headers;
//! [`trace`](crate::trace) names the fields of commands by it.

/// A struct that is described in this way.
pub trait HasLayout {
    /// The description.
    const LAYOUT: &'static Layout;
}

/// One struct of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tag of the C struct.
    pub c_name: &'static str,
    /// Its size without a trailing flexible array.
    pub size: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

/// One field of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The C name (`r#type` for Rust's keywords).
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// Every struct of this crate, by module.
pub const ALL: &[(&str, &[&Layout])] = &[
    ("ioctl::wire", crate::ioctl::wire::LAYOUTS),
    ("types", crate::types::LAYOUTS),
    ("event", crate::event::LAYOUTS),
    ("netlink", crate::netlink::LAYOUTS),
    ("write::frame", crate::write::frame::LAYOUTS),
    ("write::ah", crate::write::ah::LAYOUTS),
    ("write::context", crate::write::context::LAYOUTS),
    ("write::cq", crate::write::cq::LAYOUTS),
    ("write::device", crate::write::device::LAYOUTS),
    ("write::flow", crate::write::flow::LAYOUTS),
    ("write::mcast", crate::write::mcast::LAYOUTS),
    ("write::mr", crate::write::mr::LAYOUTS),
    ("write::pd", crate::write::pd::LAYOUTS),
    ("write::post", crate::write::post::LAYOUTS),
    ("write::qp", crate::write::qp::LAYOUTS),
    ("write::srq", crate::write::srq::LAYOUTS),
    ("write::wq", crate::write::wq::LAYOUTS),
    ("write::xrcd", crate::write::xrcd::LAYOUTS),
    ("object::mlx5", crate::object::mlx5::LAYOUTS),
    ("udata::mlx5::context", crate::udata::mlx5::context::LAYOUTS),
    ("udata::mlx5::device", crate::udata::mlx5::device::LAYOUTS),
    ("udata::mlx5::queue", crate::udata::mlx5::queue::LAYOUTS),
    (
        "udata::mlx5::work_queue",
        crate::udata::mlx5::work_queue::LAYOUTS,
    ),
    ("udata::rxe", crate::udata::rxe::LAYOUTS),
];

//! What mlx5 adds to the object tree: objects of its own, methods and attributes of core objects.
//!
//! Source: `uapi rdma/mlx5_user_ioctl_cmds.h`, `rdma/mlx5_user_ioctl_verbs.h`; which attributes a method
//! requires, and what they hold, from `drivers/infiniband/hw/mlx5/{devx,dm,fs,main,qos,std_types}.c`.
//! Numbers as of Linux 6.12; younger ones than 6.1 say so.
//!
//! The numbers are those of a driver's name space, so they mean this only in a request whose driver
//! is [`DriverId::MLX5`](crate::types::DriverId::MLX5).

use super::Object;
use crate::ioctl::{AttributeSpec, MethodSpec};

pub mod device;
pub mod devx;
pub mod devx_async_cmd_fd;
pub mod devx_async_event_fd;
pub mod devx_obj;
pub mod devx_umem;
pub mod dm;
pub mod extra;
pub mod flow;
pub mod flow_action;
pub mod flow_matcher;
pub mod pd;
pub mod pp;
pub mod steering_anchor;
mod types;
pub mod uar;
pub mod var;

pub use types::*;

/// mlx5's own objects.
impl Object {
    /// `MLX5_IB_OBJECT_DEVX`
    pub const MLX5_DEVX: Self = Self(0x1000);
    /// `MLX5_IB_OBJECT_DEVX_OBJ`
    pub const MLX5_DEVX_OBJ: Self = Self(0x1001);
    /// `MLX5_IB_OBJECT_DEVX_UMEM`
    pub const MLX5_DEVX_UMEM: Self = Self(0x1002);
    /// `MLX5_IB_OBJECT_FLOW_MATCHER`
    pub const MLX5_FLOW_MATCHER: Self = Self(0x1003);
    /// `MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD`
    pub const MLX5_DEVX_ASYNC_CMD_FD: Self = Self(0x1004);
    /// `MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD`
    pub const MLX5_DEVX_ASYNC_EVENT_FD: Self = Self(0x1005);
    /// `MLX5_IB_OBJECT_VAR`
    pub const MLX5_VAR: Self = Self(0x1006);
    /// `MLX5_IB_OBJECT_PP`
    pub const MLX5_PP: Self = Self(0x1007);
    /// `MLX5_IB_OBJECT_UAR`
    pub const MLX5_UAR: Self = Self(0x1008);
    /// `MLX5_IB_OBJECT_STEERING_ANCHOR`
    pub const MLX5_STEERING_ANCHOR: Self = Self(0x1009);
    /// No object of the tree, but a handle of any (`UVERBS_IDR_ANY_OBJECT`).
    pub const ANY: Self = Self(0xffff);
}

/// C names of mlx5's own objects and their numbers.
pub const OBJECT_NAMES: &[(&str, u64)] = &[
    ("MLX5_IB_OBJECT_DEVX", 0x1000),
    ("MLX5_IB_OBJECT_DEVX_OBJ", 0x1001),
    ("MLX5_IB_OBJECT_DEVX_UMEM", 0x1002),
    ("MLX5_IB_OBJECT_FLOW_MATCHER", 0x1003),
    ("MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD", 0x1004),
    ("MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD", 0x1005),
    ("MLX5_IB_OBJECT_VAR", 0x1006),
    ("MLX5_IB_OBJECT_PP", 0x1007),
    ("MLX5_IB_OBJECT_UAR", 0x1008),
    ("MLX5_IB_OBJECT_STEERING_ANCHOR", 0x1009),
];

/// The methods of its own objects and those that it adds to core objects.
pub const OBJECTS: &[(Object, &[&MethodSpec])] = &[
    (Object::DEVICE, device::METHODS),
    (Object::PD, pd::METHODS),
    (Object::FLOW, flow::METHODS),
    (Object::FLOW_ACTION, flow_action::METHODS),
    (Object::DM, dm::METHODS),
    (Object::MLX5_DEVX, devx::METHODS),
    (Object::MLX5_DEVX_OBJ, devx_obj::METHODS),
    (Object::MLX5_DEVX_UMEM, devx_umem::METHODS),
    (Object::MLX5_FLOW_MATCHER, flow_matcher::METHODS),
    (Object::MLX5_DEVX_ASYNC_CMD_FD, devx_async_cmd_fd::METHODS),
    (
        Object::MLX5_DEVX_ASYNC_EVENT_FD,
        devx_async_event_fd::METHODS,
    ),
    (Object::MLX5_VAR, var::METHODS),
    (Object::MLX5_PP, pp::METHODS),
    (Object::MLX5_UAR, uar::METHODS),
    (Object::MLX5_STEERING_ANCHOR, steering_anchor::METHODS),
];

/// The description of a method that is mlx5's.
pub fn find(object: Object, method: u16) -> Option<&'static MethodSpec> {
    let (_, methods) = OBJECTS.iter().find(|(id, _)| *id == object)?;
    methods.iter().copied().find(|spec| spec.id == method)
}

/// The description of an attribute that mlx5 adds to a method of the core.
pub fn extra_attribute(
    object: Object,
    method: u16,
    attribute: u16,
) -> Option<&'static AttributeSpec> {
    extra::ATTRIBUTES
        .iter()
        .find(|(spec, _)| spec.object == object && spec.id == method)
        .and_then(|(_, attributes)| attributes.iter().find(|spec| spec.id == attribute))
}

//! The core object tree: one module per object, in it one module per method.
//!
//! Source: `uapi rdma/ib_user_ioctl_cmds.h`; which attributes a method requires, and what they hold,
//! from `drivers/infiniband/core/uverbs_std_types*.c`. Numbers up to kernel 6.12; a kernel that does
//! not know a method answers `EPROTONOSUPPORT`.

use crate::ioctl::MethodSpec;
use crate::types::DriverId;

pub mod ah;
pub mod async_event;
pub mod counters;
pub mod cq;
pub mod device;
pub mod dm;
pub mod flow;
pub mod flow_action;
pub mod mlx5;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod rwq_ind_tbl;
pub mod srq;
pub mod wq;
pub mod xrcd;

open_enums! {
    /// An object's number in the ioctl.
    "uverbs_default_objects" Object(u16) {
        "UVERBS_OBJECT_DEVICE" DEVICE = 0,
        "UVERBS_OBJECT_PD" PD = 1,
        "UVERBS_OBJECT_COMP_CHANNEL" COMP_CHANNEL = 2,
        "UVERBS_OBJECT_CQ" CQ = 3,
        "UVERBS_OBJECT_QP" QP = 4,
        "UVERBS_OBJECT_SRQ" SRQ = 5,
        "UVERBS_OBJECT_AH" AH = 6,
        "UVERBS_OBJECT_MR" MR = 7,
        "UVERBS_OBJECT_MW" MW = 8,
        "UVERBS_OBJECT_FLOW" FLOW = 9,
        "UVERBS_OBJECT_XRCD" XRCD = 10,
        "UVERBS_OBJECT_RWQ_IND_TBL" RWQ_IND_TBL = 11,
        "UVERBS_OBJECT_WQ" WQ = 12,
        "UVERBS_OBJECT_FLOW_ACTION" FLOW_ACTION = 13,
        "UVERBS_OBJECT_DM" DM = 14,
        "UVERBS_OBJECT_COUNTERS" COUNTERS = 15,
        "UVERBS_OBJECT_ASYNC_EVENT" ASYNC_EVENT = 16,
    }
}

/// The methods of every object. A completion channel has none: a write command makes it, and closing
/// its descriptor ends it.
pub const OBJECTS: &[(Object, &[&MethodSpec])] = &[
    (Object::DEVICE, device::METHODS),
    (Object::PD, pd::METHODS),
    (Object::COMP_CHANNEL, &[]),
    (Object::CQ, cq::METHODS),
    (Object::QP, qp::METHODS),
    (Object::SRQ, srq::METHODS),
    (Object::AH, ah::METHODS),
    (Object::MR, mr::METHODS),
    (Object::MW, mw::METHODS),
    (Object::FLOW, flow::METHODS),
    (Object::XRCD, xrcd::METHODS),
    (Object::RWQ_IND_TBL, rwq_ind_tbl::METHODS),
    (Object::WQ, wq::METHODS),
    (Object::FLOW_ACTION, flow_action::METHODS),
    (Object::DM, dm::METHODS),
    (Object::COUNTERS, counters::METHODS),
    (Object::ASYNC_EVENT, async_event::METHODS),
];

/// The description of a method of the core.
pub fn find(object: Object, method: u16) -> Option<&'static MethodSpec> {
    let (_, methods) = OBJECTS.iter().find(|(id, _)| *id == object)?;
    methods.iter().copied().find(|spec| spec.id == method)
}

/// The description of a method, of the core or of the driver.
pub fn find_of(driver: DriverId, object: Object, method: u16) -> Option<&'static MethodSpec> {
    let own = || match driver {
        DriverId::MLX5 => mlx5::find(object, method),
        _ => None,
    };
    find(object, method).or_else(own)
}

//! The ConnectX driver `mlx5_ib` (`uapi rdma/mlx5-abi.h`).
//!
//! The program allocates every ring and every doorbell record and tells the kernel where they are;
//! the kernel answers the device's numbers. A kernel answers as much of a response as it knows, so a
//! zero may mean "not there": each response whose fields grew has a `response_length`.
//!
//! Structs as of Linux 6.13; what older headers lack says so.

pub mod context;
pub mod device;
pub mod mmap;
pub mod queue;
pub mod work_queue;

use crate::layout::{HasLayout, Layout};

pub use context::*;
pub use device::*;
pub use queue::*;
pub use work_queue::*;

/// Layouts of all of them, for tests against C and for tools.
pub const LAYOUTS: &[&[&Layout]] = &[
    context::LAYOUTS,
    device::LAYOUTS,
    queue::LAYOUTS,
    work_queue::LAYOUTS,
];

/// The struct of a request's driver data, `len` bytes of it; `call` is the C name of the method or of the
/// write command. For tracers.
pub fn request_layout(call: &str, len: usize) -> Option<&'static Layout> {
    let layout = match call {
        "UVERBS_METHOD_GET_CONTEXT" | "IB_USER_VERBS_CMD_GET_CONTEXT" => AllocUcontextReqV2::LAYOUT,
        "UVERBS_METHOD_CQ_CREATE"
        | "IB_USER_VERBS_CMD_CREATE_CQ"
        | "IB_USER_VERBS_EX_CMD_CREATE_CQ" => CreateCq::LAYOUT,
        "IB_USER_VERBS_CMD_RESIZE_CQ" => ResizeCq::LAYOUT,
        "UVERBS_METHOD_SRQ_CREATE"
        | "IB_USER_VERBS_CMD_CREATE_SRQ"
        | "IB_USER_VERBS_CMD_CREATE_XSRQ" => CreateSrq::LAYOUT,
        "UVERBS_METHOD_QP_CREATE"
        | "IB_USER_VERBS_CMD_CREATE_QP"
        | "IB_USER_VERBS_EX_CMD_CREATE_QP" => match len {
            0..=56 => CreateQp::LAYOUT,
            _ => CreateQpRss::LAYOUT,
        },
        "IB_USER_VERBS_EX_CMD_MODIFY_QP" => ModifyQp::LAYOUT,
        "UVERBS_METHOD_WQ_CREATE" | "IB_USER_VERBS_EX_CMD_CREATE_WQ" => CreateWq::LAYOUT,
        "IB_USER_VERBS_EX_CMD_MODIFY_WQ" => ModifyWq::LAYOUT,
        "IB_USER_VERBS_CMD_ALLOC_MW" => AllocMw::LAYOUT,
        _ => return None,
    };
    // the kernel takes the start of a struct, which older programs send
    (len <= layout.size).then_some(layout)
}

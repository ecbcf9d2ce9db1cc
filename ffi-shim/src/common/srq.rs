//! Attributes of shared receive queues.

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::handle::Srq as SrqHandle;

use crate::abi::attr::ibv_srq_attr;
use crate::abi::objects::ibv_srq;
use crate::context::uctx;

/// `IBV_SRQ_INIT_ATTR_TYPE`.
pub(crate) const ATTR_TYPE: u32 = 1;
/// `IBV_SRQ_INIT_ATTR_PD`.
pub(crate) const ATTR_PD: u32 = 2;

/// What the kernel says of a queue. Its sizes are those that programs know from the official providers: on mlx5 they count
/// entries that wait too.
///
/// # Safety
///
/// A shared receive queue of ours (C1).
pub(crate) unsafe fn query(srq: *mut ibv_srq) -> Result<ibv_srq_attr, Errno> {
    // SAFETY: the caller's promise.
    let base = unsafe { &*srq };
    // SAFETY: its context is open.
    let answer = unsafe { uctx(base.context) }?.query_srq(SrqHandle(base.handle))?;
    Ok(ibv_srq_attr {
        max_wr: answer.max_wr,
        max_sge: answer.max_sge,
        srq_limit: answer.srq_limit,
    })
}

//! Queue pairs that copy memory (`mlx5dv_wr_memcpy`).

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{Operation, PostError, SendFlags};

use super::dv::{held, qp_of};
use super::{Send, attr, of};
use crate::abi::attr::ibv_qp_init_attr_ex;
use crate::abi::dv::mlx5dv_qp_ex;
use crate::abi::objects::ibv_context;
use crate::context::family;
use crate::mlx5::dv::device::Copying;
use crate::mlx5::{Mlx5, domain};

/// How a queue pair copies memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    /// Bytes that one work request copies at most.
    pub(super) max: usize,
    /// The firmware is to be told of it in INIT.
    pub(super) to_enable: bool,
    /// Where the device keeps the state of a copy: key and address, which live as long as the protection domain.
    state: (u32, u64),
}

impl Copies {
    /// # Safety
    ///
    /// As for the verb.
    pub(super) unsafe fn new(
        context: *mut ibv_context,
        init: &ibv_qp_init_attr_ex,
    ) -> Result<Self, Errno> {
        if init.comp_mask & attr::PD == 0 || init.pd.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open mlx5 device (C1).
        let can = Copying::of(unsafe { family::<Mlx5>(context) }?);
        if can.max == 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(Self {
            max: can.max,
            to_enable: can.enabled_by_queue_pair,
            // SAFETY: a protection domain of ours (C1).
            state: unsafe { domain::copy_state(init.pd) }?,
        })
    }
}

/// One request that copies, from `wr_start` to `wr_complete`.
///
/// # Safety
///
/// As for [`held`].
pub(super) unsafe extern "C" fn wr_memcpy(
    view: *mut mlx5dv_qp_ex,
    to_lkey: u32,
    to: u64,
    from_lkey: u32,
    from: u64,
    length: usize,
) {
    // SAFETY: between start and complete (C1).
    let Some(Send { queue, draft, .. }) = (unsafe { held(view) }) else {
        return;
    };
    let qp = qp_of(view);
    // SAFETY: a queue pair of ours.
    let Some(copies) = unsafe { of(qp) }.copies else {
        return draft.refuse(PostError::Opcode);
    };
    let operation = Operation::Memcpy {
        to_lkey,
        to,
        from_lkey,
        from,
        length: length as u64,
        state_lkey: copies.state.0,
        state: copies.state.1,
    };
    // SAFETY: a field of a live object, written by this thread.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = SendFlags(unsafe { (*qp).wr_flags });
    // SAFETY: no headers are read. An error is kept in the batch.
    let _ = unsafe { queue.open(draft, wr_id, flags, &operation) };
}

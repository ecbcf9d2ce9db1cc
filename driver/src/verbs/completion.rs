//! Completions.

use wqe_format::rxe::{Cqe, WcFlags, WcOpcode, WcStatus};

use super::id::ObjectId;

/// A completed work request, as the queue has it; fields are decoded when asked for.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    pub(super) queue: ObjectId,
    pub(super) cqe: Cqe,
}

impl Completion {
    /// The number that the work request was posted with.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.cqe.wr_id
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> WcStatus {
        self.cqe.status()
    }

    /// Whether it ended well.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.cqe.status() == WcStatus::SUCCESS
    }

    /// What completed; of a failed work request, not defined.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        self.cqe.opcode()
    }

    /// Bytes transferred; for datagrams with the 40 bytes of the global route header.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.cqe.byte_len
    }

    /// Number of the local queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.cqe.qp_num
    }

    /// Number of the remote queue pair, for datagrams.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        self.cqe.src_qp
    }

    /// Immediate data, if there is some.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.cqe.immediate()
    }

    /// The key that the sender invalidated, if it did.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.cqe.invalidated_rkey()
    }

    /// Flags.
    #[inline]
    pub fn flags(&self) -> WcFlags {
        self.cqe.flags()
    }

    /// The device's own number of an error.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        self.cqe.vendor_err
    }
}

//! Completions.

use wqe_format::rxe::{Cqe, WcFlags, WcOpcode, WcStatus};

use super::id::ObjectId;
use crate::data::mlx5;
use crate::data::mlx5::cq::wc_flag;

/// A completed work request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    pub(super) queue: ObjectId,
    pub(super) data: Data,
}

/// As the queue gives it; fields are decoded when asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Data {
    Rxe(Cqe),
    Mlx5(mlx5::Completion),
}

impl Completion {
    /// The number that the work request was posted with.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        match &self.data {
            Data::Rxe(cqe) => cqe.wr_id,
            Data::Mlx5(wc) => wc.wr_id,
        }
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> WcStatus {
        match &self.data {
            Data::Rxe(cqe) => cqe.status(),
            Data::Mlx5(wc) => wc.status(),
        }
    }

    /// Whether it ended well.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.status() == WcStatus::SUCCESS
    }

    /// What completed; of a failed work request, not defined.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        match &self.data {
            Data::Rxe(cqe) => cqe.opcode(),
            Data::Mlx5(wc) => WcOpcode(wc.opcode),
        }
    }

    /// Bytes transferred; for datagrams with the 40 bytes of the global route header.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        match &self.data {
            Data::Rxe(cqe) => cqe.byte_len,
            Data::Mlx5(wc) => wc.byte_len,
        }
    }

    /// Number of the local queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        match &self.data {
            Data::Rxe(cqe) => cqe.qp_num,
            Data::Mlx5(wc) => wc.qp_num,
        }
    }

    /// Number of the remote queue pair, for datagrams.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        match &self.data {
            Data::Rxe(cqe) => cqe.src_qp,
            Data::Mlx5(wc) => wc.src_qp,
        }
    }

    /// Immediate data, if there is some.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        match &self.data {
            Data::Rxe(cqe) => cqe.immediate(),
            Data::Mlx5(wc) => wc.immediate(),
        }
    }

    /// The key that the sender invalidated, if it did.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        match &self.data {
            Data::Rxe(cqe) => cqe.invalidated_rkey(),
            Data::Mlx5(wc) => wc.invalidated_rkey(),
        }
    }

    /// Flags.
    #[inline]
    pub fn flags(&self) -> WcFlags {
        match &self.data {
            Data::Rxe(cqe) => cqe.flags(),
            Data::Mlx5(wc) => mlx5_flags(wc.wc_flags),
        }
    }

    /// What a completion says about a list of tags; all is off where there is none.
    #[inline]
    pub fn tags(&self) -> TagFlags {
        match &self.data {
            Data::Rxe(_) => TagFlags::default(),
            Data::Mlx5(wc) => TagFlags {
                met: wc.wc_flags & wc_flag::TM_MATCH != 0,
                has_data: wc.wc_flags & wc_flag::TM_DATA_VALID != 0,
                wants_sync: wc.wc_flags & wc_flag::TM_SYNC_REQ != 0,
            },
        }
    }

    /// The device's own number of an error.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        match &self.data {
            Data::Rxe(cqe) => cqe.vendor_err,
            Data::Mlx5(wc) => wc.vendor_err,
        }
    }
}

/// Of a completion about a [list of tags](crate::TagMatchingQueue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagFlags {
    /// A message met a tag (`IBV_WC_TM_MATCH`).
    pub met: bool,
    /// The message is in the tag's buffer as a whole (`IBV_WC_TM_DATA_VALID`).
    pub has_data: bool,
    /// The device waits to hear how many messages that met no tag were looked at
    /// (`IBV_WC_TM_SYNC_REQ`, [`TagMatchingQueue::sync`](crate::TagMatchingQueue::sync)).
    pub wants_sync: bool,
}

/// The flags of libibverbs' numbers as those of the kernel, which differ in one.
#[inline]
fn mlx5_flags(flags: u32) -> WcFlags {
    let same = flags & (WcFlags::GRH.0 | WcFlags::WITH_IMM.0);
    let invalidate = if flags & wc_flag::WITH_INV != 0 {
        WcFlags::WITH_INVALIDATE.0
    } else {
        0
    };
    WcFlags(same | invalidate)
}

//! What a poll tells about one completed work request.

use wqe_format::rxe::WcStatus;

/// A completion: `struct ibv_wc` field by field, in its order and with its numbers, so that the plug-in polls
/// straight into the caller's array (infiniband/verbs.h; the layout is asserted below and tested against C).
///
/// Fields that do not apply to the operation are 0, never what an earlier completion left. Of a failed work
/// request, libibverbs defines `wr_id`, `status`, `qp_num` and `vendor_err` only; `opcode` is then that of the
/// direction (SEND or RECV), because programs look at it all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The number that the work request was posted with.
    pub wr_id: u64,
    /// How it ended: `enum ibv_wc_status`.
    pub status: u32,
    /// What completed: `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// The device's own number of an error.
    pub vendor_err: u32,
    /// Bytes received, or read from the peer.
    pub byte_len: u32,
    /// Immediate data in network order as it stands in memory, or the invalidated key as a number; the flags say
    /// which (in C a union of `__be32 imm_data` and `uint32_t invalidated_rkey`).
    pub imm_or_rkey: u32,
    /// Number of the local queue pair.
    pub qp_num: u32,
    /// Number of the remote queue pair, for datagrams.
    pub src_qp: u32,
    /// `enum ibv_wc_flags`.
    pub wc_flags: u32,
    /// Index of the partition key, for datagrams.
    pub pkey_index: u16,
    /// Local identifier of the sender.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the destination's local identifier.
    pub dlid_path_bits: u8,
    /// The C structure's padding: zero.
    pub reserved: [u8; 2],
}

const _: () = assert!(size_of::<Completion>() == 48 && align_of::<Completion>() == 8);
const _: () = assert!(core::mem::offset_of!(Completion, imm_or_rkey) == 24);
const _: () = assert!(core::mem::offset_of!(Completion, pkey_index) == 40);
const _: () = assert!(core::mem::offset_of!(Completion, dlid_path_bits) == 45);

impl Completion {
    /// How it ended.
    #[inline]
    pub const fn status(&self) -> WcStatus {
        WcStatus(self.status)
    }

    /// Whether it ended well.
    #[inline]
    pub const fn is_success(&self) -> bool {
        self.status == WcStatus::SUCCESS.0
    }

    /// Immediate data as the sender's number, if there is some.
    #[inline]
    pub const fn immediate(&self) -> Option<u32> {
        if self.wc_flags & flag::WITH_IMM != 0 {
            Some(u32::from_be(self.imm_or_rkey))
        } else {
            None
        }
    }

    /// The key that the sender invalidated, if it did.
    #[inline]
    pub const fn invalidated_rkey(&self) -> Option<u32> {
        if self.wc_flags & flag::WITH_INV != 0 {
            Some(self.imm_or_rkey)
        } else {
            None
        }
    }
}

/// The place of a [`Completion`], written by six stores of eight bytes.
///
/// One word at a time, each from what was read just before: fewer values are in the way of each other than in a whole
/// [`Completion`], so the loops that do this need no registers saved.
#[derive(Clone, Copy)]
pub(super) struct Place(*mut u64);

/// A word of two halves, as they follow each other in memory.
#[inline(always)]
pub(super) const fn pair(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        first as u64 | (second as u64) << 32
    } else {
        second as u64 | (first as u64) << 32
    }
}

/// As [`pair`], of half the size.
#[inline(always)]
pub(super) const fn half_pair(first: u16, second: u16) -> u32 {
    if cfg!(target_endian = "little") {
        first as u32 | (second as u32) << 16
    } else {
        second as u32 | (first as u32) << 16
    }
}

impl Place {
    /// The words: the number; status, opcode; vendor error, length; immediate data, queue pair; source, flags; the rest.
    pub(super) const WR_ID: usize = 0;
    pub(super) const STATUS_OPCODE: usize = 1;
    pub(super) const VENDOR_LENGTH: usize = 2;
    pub(super) const IMM_QUEUE: usize = 3;
    pub(super) const SOURCE_FLAGS: usize = 4;
    pub(super) const REST: usize = 5;

    /// # Safety
    ///
    /// `out` is valid for a write and aligned, as long as this is used.
    #[inline(always)]
    pub(super) unsafe fn new(out: *mut Completion) -> Self {
        Self(out.cast())
    }

    /// Writes a word, of the six above.
    #[inline(always)]
    pub(super) fn set<const WORD: usize>(self, value: u64) {
        const { assert!(WORD < 6) };
        // SAFETY: one of the six words.
        let word = unsafe { self.0.add(WORD) };
        // SAFETY: writable and aligned by `new`'s contract.
        unsafe { word.write(value) };
    }
}

const _: () = {
    assert!(core::mem::offset_of!(Completion, wr_id) == 8 * Place::WR_ID);
    assert!(core::mem::offset_of!(Completion, status) == 8 * Place::STATUS_OPCODE);
    assert!(core::mem::offset_of!(Completion, opcode) == 8 * Place::STATUS_OPCODE + 4);
    assert!(core::mem::offset_of!(Completion, vendor_err) == 8 * Place::VENDOR_LENGTH);
    assert!(core::mem::offset_of!(Completion, byte_len) == 8 * Place::VENDOR_LENGTH + 4);
    assert!(core::mem::offset_of!(Completion, imm_or_rkey) == 8 * Place::IMM_QUEUE);
    assert!(core::mem::offset_of!(Completion, qp_num) == 8 * Place::IMM_QUEUE + 4);
    assert!(core::mem::offset_of!(Completion, src_qp) == 8 * Place::SOURCE_FLAGS);
    assert!(core::mem::offset_of!(Completion, wc_flags) == 8 * Place::SOURCE_FLAGS + 4);
    assert!(core::mem::offset_of!(Completion, pkey_index) == 8 * Place::REST);
    assert!(core::mem::offset_of!(Completion, slid) == 8 * Place::REST + 2);
    assert!(core::mem::offset_of!(Completion, sl) == 8 * Place::REST + 4);
};

/// `enum ibv_wc_opcode` (infiniband/verbs.h), which has numbers that the kernel's enumeration lacks.
#[allow(missing_docs, reason = "the field's names")]
pub mod opcode {
    pub const SEND: u32 = 0;
    pub const RDMA_WRITE: u32 = 1;
    pub const RDMA_READ: u32 = 2;
    pub const COMP_SWAP: u32 = 3;
    pub const FETCH_ADD: u32 = 4;
    pub const BIND_MW: u32 = 5;
    pub const LOCAL_INV: u32 = 6;
    pub const TSO: u32 = 7;
    pub const RECV: u32 = 128;
    pub const RECV_RDMA_WITH_IMM: u32 = 129;
    pub const TM_ADD: u32 = 130;
    pub const TM_DEL: u32 = 131;
    pub const TM_SYNC: u32 = 132;
    pub const TM_RECV: u32 = 133;
    pub const TM_NO_TAG: u32 = 134;
    pub const DRIVER1: u32 = 135;
    pub const DRIVER2: u32 = 136;
    pub const DRIVER3: u32 = 137;
}

/// `enum ibv_wc_flags` (infiniband/verbs.h).
#[allow(missing_docs, reason = "the field's names")]
pub mod flag {
    pub const GRH: u32 = 1 << 0;
    pub const WITH_IMM: u32 = 1 << 1;
    pub const IP_CSUM_OK: u32 = 1 << 2;
    pub const WITH_INV: u32 = 1 << 3;
    pub const TM_SYNC_REQ: u32 = 1 << 4;
    pub const TM_MATCH: u32 = 1 << 5;
    pub const TM_DATA_VALID: u32 = 1 << 6;
}

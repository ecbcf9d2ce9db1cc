//! Where the memory of objects is, for programs that drive the rings themselves (`mlx5dv_init_obj`).
//!
//! Addresses are numbers of exposed pointers, valid as long as the object and, of a completion queue, as long as it is not
//! resized. A program that writes there does not use the verbs that would.

use uverbs_abi::udata::mlx5::CreateQpResp;

/// Memory and numbers of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpPlacement {
    /// Two big-endian counters: of receives, of sends.
    pub doorbell: u64,
    /// Start of the send ring.
    pub send_ring: u64,
    /// Basic blocks of 64 bytes in it.
    pub send_blocks: u32,
    /// Start of the receive ring.
    pub receive_ring: u64,
    /// Entries in it.
    pub receive_entries: u32,
    /// An entry is 2 to the power of this many bytes.
    pub receive_shift: u32,
    /// Start of the doorbell register; 0 without.
    pub register: u64,
    /// Bytes of one of its halves; 0 if work requests may not be copied into it.
    pub register_half: u32,
    /// Where its page is mapped from the device's file.
    pub mmap_offset: Option<u64>,
    /// Numbers of the device's objects behind a raw queue pair.
    pub answer: CreateQpResp,
}

/// A ring and its doorbell record.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingPlacement {
    /// Start of the ring.
    pub ring: u64,
    /// Start of the doorbell record.
    pub doorbell: u64,
    /// Entries.
    pub entries: u32,
    /// An entry is 2 to the power of this many bytes.
    pub shift: u32,
}

//! Doorbell records and registers.
//!
//! A doorbell record is two big-endian words in memory; a register is a page of the device. Values here have the bytes
//! that memory must hold: they are stored as they are, without a swap.

/// Word of a queue pair's record that counts receives.
pub const RECORD_RECV: usize = 0;
/// Word of a queue pair's record that counts basic blocks of the send queue.
pub const RECORD_SEND: usize = 1;
/// Word of a completion queue's record that holds the consumer index.
pub const RECORD_CQ_CONSUMER: usize = 0;
/// Word of a completion queue's record that holds the last arming.
pub const RECORD_CQ_ARM: usize = 1;

/// Where the arming register stands in a page (mlx5dv.h `MLX5_CQ_DOORBELL`).
#[doc(alias = "MLX5_CQ_DOORBELL")]
pub const CQ_DOORBELL_OFFSET: usize = 0x20;
/// Where the first BlueFlame register stands in a page (Linux include/linux/mlx5/device.h `MLX5_BF_OFFSET`).
pub const BLUE_FLAME_OFFSET: usize = 0x800;

/// The record's word for `posted` basic blocks (send) or requests (receive): modulo 2^16.
#[inline]
pub const fn queue_record(posted: u32) -> u32 {
    (posted & 0xffff).to_be()
}

/// The record's word for a consumer index: modulo 2^24.
#[inline]
pub const fn cq_consumer(consumer_index: u32) -> u32 {
    (consumer_index & 0xff_ffff).to_be()
}

/// The record's word when a completion queue is armed.
///
/// `sequence` counts the events that were taken (modulo 4), not the armings.
#[inline]
pub const fn arm_word(sequence: u32, solicited_only: bool, consumer_index: u32) -> u32 {
    arm(sequence, solicited_only, consumer_index).to_be()
}

/// The register's value when a completion queue is armed, for a store of 8 bytes at [`CQ_DOORBELL_OFFSET`].
#[inline]
pub const fn cq_doorbell(
    sequence: u32,
    solicited_only: bool,
    consumer_index: u32,
    cqn: u32,
) -> u64 {
    let high = arm(sequence, solicited_only, consumer_index) as u64;
    (high << 32 | cqn as u64).to_be()
}

/// Sequence in bits 29 and 28, command in 24 (mlx5dv.h `MLX5_CQ_DB_REQ_NOT_SOL`, `MLX5_CQ_DB_REQ_NOT`), index in 23 to 0.
#[inline]
const fn arm(sequence: u32, solicited_only: bool, consumer_index: u32) -> u32 {
    (sequence & 3) << 28 | (solicited_only as u32) << 24 | consumer_index & 0xff_ffff
}

//! Asking for an event.
//!
//! An arming says which event it asks for by a sequence number that counts the events taken, and which entries the program
//! has seen by the consumer index: the device makes an event if there is an entry past that index, so nothing is lost
//! between the last poll and the arming.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wqe_format::mlx5::doorbell;

use super::handover;
use crate::sys::barrier;

/// Counts the events that were taken of one completion queue. Who takes events has a copy of it, and needs nothing else
/// of the queue.
#[derive(Clone, Debug, Default)]
pub struct EventCount(Arc<AtomicU32>);

impl EventCount {
    /// An event of the queue was taken from its channel.
    #[inline]
    pub fn event_taken(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The two words that the device reads of a completion queue, and the register that arms it.
#[derive(Clone, Copy)]
pub(super) struct Doorbell {
    record: NonNull<u32>,
    register: NonNull<u64>,
}

// SAFETY: both are memory of the process or the device, not of a thread; they are only accessed atomically.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// # Safety
    ///
    /// `record` has two words, aligned to 8; `uar` is a page of device registers (or memory in its place) of at least 40
    /// bytes, aligned to 8; both stay as long as this is used.
    pub(super) unsafe fn new(record: NonNull<u32>, uar: NonNull<u8>) -> Self {
        // SAFETY: inside the page by contract.
        let register = unsafe { uar.add(doorbell::CQ_DOORBELL_OFFSET) };
        Self {
            record,
            register: register.cast(),
        }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < 2);
        // SAFETY: one of the two words.
        let word = unsafe { self.record.add(index) };
        // SAFETY: aligned, lives as long as `self` is used, and only accessed atomically.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }
    }

    /// Gives all entries before `ci` back to the device.
    #[inline(always)]
    pub(super) fn publish(&self, ci: u32) {
        handover::give_back(
            self.word(doorbell::RECORD_CQ_CONSUMER),
            doorbell::cq_consumer(ci),
        );
    }

    /// The consumer index that the device was told last, modulo 2^24.
    pub(super) fn told(&self) -> u32 {
        u32::from_be(
            self.word(doorbell::RECORD_CQ_CONSUMER)
                .load(Ordering::Relaxed),
        )
    }

    /// Asks for an event.
    #[inline]
    pub(super) fn arm(&self, sequence: u32, solicited_only: bool, ci: u32, cqn: u32) {
        let word = doorbell::arm_word(sequence, solicited_only, ci);
        self.word(doorbell::RECORD_CQ_ARM)
            .store(word, Ordering::Relaxed);
        barrier::device_sees_doorbell_record_before_register();
        let value = doorbell::cq_doorbell(sequence, solicited_only, ci, cqn);
        // SAFETY: the register is inside the page by `new`'s contract, aligned to 8; one whole store, so queues may share it.
        let register = unsafe { AtomicU64::from_ptr(self.register.as_ptr()) };
        register.store(value, Ordering::Relaxed);
        barrier::register_stores_leave_the_processor();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").finish_non_exhaustive()
    }
}

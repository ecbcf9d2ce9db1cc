//! Shared receive queues as the device sees them: a list of entries linked by index.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cq::CompletionQueue;
use super::memory;
use super::qp::Ring;

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    /// Number in the device.
    pub srqn: u32,
    /// `enum ib_uverbs_srq_type`: 0 basic, 1 XRC, 2 tag matching.
    pub srq_type: u32,
    /// `uidx` of the driver's request.
    pub uidx: u32,
    /// The core's `user_handle`.
    pub user_handle: u64,
    /// The entries.
    pub ring: Ring,
    /// Whether the second segment of each entry is a signature.
    pub has_signature: bool,
    /// Address of the doorbell record: the counter.
    pub dbrec: u64,
    /// Where its receives complete, of those that are not basic.
    pub cq: Option<Arc<CompletionQueue>>,
    pub(crate) is_alive: AtomicBool,
    pub(crate) progress: Mutex<Progress>,
}

/// How far the device is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Entries taken, counted over and over.
    pub(crate) taken: u16,
    /// Index of the next entry.
    pub(crate) next: u16,
}

impl SharedReceiveQueue {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not been destroyed.
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    /// The counter in the doorbell record.
    pub fn doorbell(&self) -> Option<u16> {
        if !self.is_alive() {
            return None;
        }
        // SAFETY: mapped while the queue lives; checked when it was made.
        Some(unsafe { memory::read_be32(self.dbrec) } as u16)
    }

    /// Entries that wait.
    pub fn waiting(&self) -> u16 {
        let taken = self.progress().taken;
        self.doorbell().map_or(0, |rung| rung.wrapping_sub(taken))
    }

    /// Takes the next entry: its index, by which the completion names it, and its bytes.
    pub fn next(&self) -> Option<(u16, Vec<u8>)> {
        let rung = self.doorbell()?;
        let mut progress = self.progress();
        if rung == progress.taken {
            return None;
        }
        let index = progress.next;
        let mut bytes = vec![0; 1 << self.ring.shift];
        // SAFETY: an entry of the ring, mapped while the queue lives.
        unsafe { memory::read(self.ring.entry(index.into()), &mut bytes) };
        // `next_wqe_index` at offset 2 of `struct mlx5_wqe_srq_next_seg`.
        progress.next = u16::from_be_bytes([bytes[2], bytes[3]]);
        progress.taken = progress.taken.wrapping_add(1);
        Some((index, bytes))
    }
}

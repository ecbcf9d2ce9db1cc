//! Moving to a ring of another size.
//!
//! The kernel is asked to resize while the old ring still has completions. The device then writes a mark (an entry of
//! opcode RESIZE_CQ) as the last one into the old ring, and goes on in the new one, at the index after the mark's. What is
//! before the mark is the program's to carry over: entry `i` goes to `i + 1`, so that all stand in front of the device's
//! first, and the mark's own place vanishes.

use std::fmt;
use std::ptr::NonNull;

use wqe_format::mlx5::CqeOpcode;

use super::super::record::KeepAlive;
use super::ring::CqRing;
use super::{BadCqGeometry, CompletionQueue};

/// A ring that is prepared for a resize, until the kernel has done it.
pub struct NewRing {
    ring: CqRing,
    memory: Option<KeepAlive>,
}

impl fmt::Debug for NewRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRing")
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}

/// Why completions could not be carried over. The queue has the new ring, without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The device has not written its mark although the kernel says that it is done.
    NoMark,
    /// More completions than the new ring holds: the kernel should have refused.
    TooMany,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMark => "the device did not mark the end of the old completion ring",
            Self::TooMany => {
                "the new completion ring is too small for the completions in the old one"
            }
        })
    }
}

impl std::error::Error for ResizeError {}

impl CompletionQueue {
    /// Prepares a ring of `entries` entries, of the same size as the present ones; marked as never written.
    ///
    /// # Errors
    ///
    /// See [`BadCqGeometry`].
    ///
    /// # Safety
    ///
    /// As for the ring of [`CompletionQueue::new`], as long as `memory` or the value or the queue exists.
    pub unsafe fn prepare_ring(
        &self,
        ring: NonNull<u8>,
        entries: u32,
        memory: Option<KeepAlive>,
    ) -> Result<NewRing, BadCqGeometry> {
        let ring =
            CqRing::new(ring, entries, self.ring.entry_size() as u32).ok_or(BadCqGeometry)?;
        // SAFETY: ours alone by contract.
        unsafe { ring.mark_never_written() };
        Ok(NewRing { ring, memory })
    }

    /// Completions that wait in the ring: a new one must hold them and the mark.
    pub fn waiting(&mut self) -> u32 {
        let mut end = self.ci;
        while end.wrapping_sub(self.ci) < self.ring.count() && self.entry_at(end).is_some() {
            end = end.wrapping_add(1);
        }
        end.wrapping_sub(self.ci)
    }

    /// Goes over to the new ring, after the kernel has. The memory of the ring before is dropped if an earlier resize gave
    /// it; that of the first ring is kept with the doorbell record's.
    ///
    /// # Errors
    ///
    /// See [`ResizeError`]; the queue uses the new ring all the same, as the device does.
    pub fn use_ring(&mut self, new: NewRing) -> Result<(), ResizeError> {
        let result = self.carry_over(&new.ring);
        self.ring = new.ring;
        self.go_to(self.ci);
        // Only now: the old ring is not used any more.
        self.ring_memory = new.memory;
        self.current = super::lazy::Current::nothing(self.ring.at(self.ci));
        self.doorbell.publish(self.ci);
        result
    }

    fn carry_over(&mut self, new: &CqRing) -> Result<(), ResizeError> {
        let mut mark = self.ci;
        loop {
            if mark.wrapping_sub(self.ci) >= self.ring.count() {
                return Err(ResizeError::NoMark);
            }
            let Some(entry) = self.entry_at(mark) else {
                return Err(ResizeError::NoMark);
            };
            if entry.get().opcode() == CqeOpcode::RESIZE_CQ {
                break;
            }
            mark = mark.wrapping_add(1);
        }
        let waiting = mark.wrapping_sub(self.ci);
        // The mark's index is where the device goes on, less one; entries further back would be its own already.
        if waiting >= new.count() {
            self.ci = mark.wrapping_add(1);
            return Err(ResizeError::TooMany);
        }
        for step in 0..waiting {
            let from = self.ci.wrapping_add(step);
            // SAFETY: the old entry is ours, before the mark; in the new ring the device starts behind the mark's index,
            // and `waiting` entries in front of that are less than a lap of it.
            unsafe { self.move_entry(from, new, from.wrapping_add(1)) };
        }
        self.ci = self.ci.wrapping_add(1);
        Ok(())
    }
}

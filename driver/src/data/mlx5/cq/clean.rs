//! Taking a dead queue's entries out.
//!
//! When a queue pair is destroyed or reset, its completions must not be polled any more: its records are going away and its
//! number may soon be another's. The kernel has stopped the queue before this is called, so the device adds none of its
//! entries meanwhile.

use std::sync::atomic::{Ordering, fence};

use wqe_format::mlx5::CqeOpcode;

use super::super::srq::SrqShared;
use super::super::tags::TagList;
use super::CompletionQueue;
use super::parse::TAG_MATCHING;
use super::ring::Entry;

impl CompletionQueue {
    /// Removes all entries about a queue, whose user index (version 1) or queue pair number (version 0) is `number`. Receives
    /// that came from `shared` give their places back. Says how many were removed; the device is told if any were.
    ///
    /// The order of a destroy: the kernel's object first, then this for both completion queues (once if they are the
    /// same), then the record leaves the table.
    pub fn clean(&mut self, number: u32, shared: Option<&SrqShared>) -> u32 {
        // Entries that are ours, oldest first: no more than a lap, whatever the owner bits say.
        let mut end = self.ci;
        while end.wrapping_sub(self.ci) < self.ring.count() && self.entry_at(end).is_some() {
            end = end.wrapping_add(1);
        }
        let mut removed = 0u32;
        // Backwards, so that what stays moves towards the device's end and keeps its order.
        let mut at = end;
        while at != self.ci {
            at = at.wrapping_sub(1);
            let entry = self.ring.at(at);
            if self.is_about(entry, number) {
                if let Some(srq) = shared
                    && self.came_from_shared(entry)
                {
                    srq.release(entry.get().wqe_counter.get().into());
                }
                removed += 1;
            } else if removed != 0 {
                let to = at.wrapping_add(removed);
                // SAFETY: both entries are ours: between the consumer's index and `end`.
                unsafe { self.move_entry(at, &self.ring, to) };
            }
        }
        if removed != 0 {
            self.go_to(self.ci.wrapping_add(removed));
            // The entries are in place before the device may write over those before them.
            fence(Ordering::Release);
            self.doorbell.publish(self.ci);
        }
        removed
    }

    fn is_about(&self, entry: Entry, number: u32) -> bool {
        let cqe = entry.get();
        // It is about a key, whatever stands where others name a queue.
        if cqe.opcode() == CqeOpcode::SIG_ERR {
            return false;
        }
        number == if self.v1 { cqe.user_index() } else { cqe.qpn() }
    }

    /// Whether the entry used a place of a shared receive queue, if its queue has one.
    fn came_from_shared(&self, entry: Entry) -> bool {
        let cqe = entry.get();
        let opcode = cqe.opcode();
        // Of what is about tags, most is not.
        if cqe.app == TAG_MATCHING && !opcode.is_error() && !TagList::is_of_receive(&cqe) {
            return false;
        }
        if self.v1 {
            opcode.is_responder() || opcode == CqeOpcode::RESP_ERR
        } else {
            cqe.user_index() != 0
        }
    }
}

//! Receive queues: a queue pair's own, or a shared one.

use wqe_format::rxe::queue::BadGeometry;
use wqe_format::rxe::{DmaInfo, RecvWqe, Sge};

use super::error::PostError;
use super::ring::Ring;
use crate::sys::mapping::SharedMapping;

/// A queue of receive work requests. There is no doorbell: the kernel looks when a message arrives.
#[derive(Debug)]
pub struct RecvQueue {
    ring: Ring,
    max_sge: u32,
    /// Entry after the last that was given to the kernel.
    producer: u32,
    accepting: bool,
}

impl RecvQueue {
    /// A queue over the kernel's mapping. `accepting` is true for shared receive queues; a queue pair's own takes work
    /// requests from INIT on.
    ///
    /// # Errors
    ///
    /// The header does not fit the mapping, or entries are too short for `max_sge` elements.
    pub fn new(mapping: SharedMapping, max_sge: u32, accepting: bool) -> Result<Self, BadGeometry> {
        let ring = Ring::new(mapping, least(max_sge))?;
        let producer = ring.producer();
        Ok(Self {
            ring,
            max_sge,
            producer,
            accepting,
        })
    }

    /// Puts the mapping in place that the kernel made when the queue was resized; it carried the entries over.
    ///
    /// # Errors
    ///
    /// The new header does not fit the new mapping; the queue stays as it was, though the kernel uses it no more.
    pub fn replace(&mut self, mapping: SharedMapping) -> Result<(), BadGeometry> {
        self.ring = Ring::new(mapping, least(self.max_sge))?;
        self.producer = self.ring.producer();
        Ok(())
    }

    /// Scatter elements of one work request.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Work requests that the queue holds when it is full.
    pub fn capacity(&self) -> u32 {
        self.ring.geometry().mask()
    }

    /// Whether the queue pair's state lets work requests in: from INIT on.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
    }

    /// Takes up the indices that the kernel left after the queue pair went to RESET.
    pub fn reset(&mut self) {
        self.accepting = false;
        self.producer = self.ring.producer();
    }

    /// Posts one work request.
    #[inline]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if !self.accepting {
            return Err(PostError::WrongState);
        }
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let geometry = self.ring.geometry();
        if geometry.is_full(self.producer, self.ring.consumer()) {
            return Err(PostError::QueueFull);
        }
        let mut length: u64 = 0;
        for sge in sges {
            length += u64::from(sge.length);
        }
        // Buffers of more than 4 GiB are fine to receive into; the field counts no further.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let wqe = RecvWqe::new(wr_id, DmaInfo::new(length, sges.len() as u32));
        // SAFETY: the entry after the last published one is free, and `&mut self` is the only poster.
        unsafe { self.ring.write(self.producer, 0, wqe) };
        for (place, sge) in sges.iter().enumerate() {
            let at = RecvWqe::PAYLOAD + place * size_of::<Sge>();
            // SAFETY: as above.
            unsafe { self.ring.write(self.producer, at, *sge) };
        }
        self.producer = geometry.next(self.producer);
        self.ring.publish_producer(self.producer);
        Ok(())
    }
}

const fn least(max_sge: u32) -> usize {
    RecvWqe::PAYLOAD + max_sge as usize * size_of::<Sge>()
}

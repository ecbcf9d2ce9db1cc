//! The completion queue.

use wqe_format::rxe::Cqe;
use wqe_format::rxe::queue::BadGeometry;

use super::ring::Ring;
use crate::sys::mapping::SharedMapping;

/// A completion queue: the kernel produces, we consume.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: Ring,
    /// The next entry to look at.
    consumer: u32,
}

impl CompletionQueue {
    /// A queue over the kernel's mapping.
    ///
    /// # Errors
    ///
    /// The header does not fit the mapping.
    pub fn new(mapping: SharedMapping) -> Result<Self, BadGeometry> {
        let ring = Ring::new(mapping, size_of::<Cqe>())?;
        let consumer = ring.consumer();
        Ok(Self { ring, consumer })
    }

    /// Puts the mapping in place that the kernel made when the queue was resized; it carried the completions over.
    ///
    /// # Errors
    ///
    /// The new header does not fit the new mapping; the queue stays as it was, though the kernel uses it no more.
    pub fn replace(&mut self, mapping: SharedMapping) -> Result<(), BadGeometry> {
        *self = Self::new(mapping)?;
        Ok(())
    }

    /// Completions that the queue holds when it is full.
    pub fn capacity(&self) -> u32 {
        self.ring.geometry().mask()
    }

    /// Whether there is no completion.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.producer() == self.consumer
    }

    /// The next completion, without taking it.
    #[inline]
    pub fn peek(&self) -> Option<Cqe> {
        if self.is_empty() {
            return None;
        }
        Some(self.ring.read(self.consumer, 0))
    }

    /// Steps over the completion that [`peek`](Self::peek) shows; the kernel gets the entry back with
    /// [`publish`](Self::publish). Does nothing if there is none.
    #[inline]
    pub fn step(&mut self) {
        if !self.is_empty() {
            self.consumer = self.ring.geometry().next(self.consumer);
        }
    }

    /// Gives the entries that were stepped over back to the kernel.
    #[inline]
    pub fn publish(&self) {
        self.ring.publish_consumer(self.consumer);
    }

    /// Takes the next completion.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let cqe = self.peek()?;
        self.consumer = self.ring.geometry().next(self.consumer);
        self.publish();
        Some(cqe)
    }
}

//! Completion queues as the device sees them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cqe::{Cqe, opcode};
use super::memory;
use crate::mlx5::uar::UarPage;

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    /// Number in the device.
    pub cqn: u32,
    /// The core's `user_handle`.
    pub user_handle: u64,
    /// Address of the doorbell record: consumer counter, arm word.
    pub dbrec: u64,
    /// The page in which it is armed.
    pub uar: Option<Arc<UarPage>>,
    /// Whether the program asked for compressed completions, and in which format.
    pub compression: Option<u8>,
    /// Whether entries may be overwritten that the program has not taken (`IGNORE_OVERRUN`).
    pub ignores_overrun: bool,
    pub(crate) is_alive: AtomicBool,
    pub(crate) inner: Mutex<Inner>,
}

/// What changes.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) buffer: Buffer,
    /// Entries written, counted over and over.
    pub(crate) producer: u32,
    /// The arm word that was used up by an event.
    pub(crate) spent_arm: u32,
    /// Counter behind the last solicited completion.
    pub(crate) last_solicited: u32,
    /// Whether it overran: nothing is written any more.
    pub(crate) is_broken: bool,
    /// The doorbell that was used up by an event.
    pub(crate) spent_bell: [u8; 8],
}

/// The entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where they begin.
    pub address: u64,
    /// How many, a power of two.
    pub count: u32,
    /// Bytes of one, 64 or 128.
    pub entry: u32,
}

impl Buffer {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.count as usize * self.entry as usize
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn slot(&self, index: u32) -> u64 {
        self.address + u64::from(index & (self.count - 1)) * u64::from(self.entry)
    }
}

/// Why a completion was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The program has not taken the entry that would be overwritten.
    Overrun,
    /// That happened to an earlier completion.
    Broken,
    /// The queue was destroyed.
    Destroyed,
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// For the next completion.
    Any,
    /// For the next solicited one.
    Solicited,
}

impl CompletionQueue {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not been destroyed.
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    /// Where its entries are now.
    pub fn buffer(&self) -> Buffer {
        self.inner().buffer
    }

    /// Completions written, counted over and over.
    pub fn producer(&self) -> u32 {
        self.inner().producer
    }

    /// Counter behind the last solicited completion.
    pub(crate) fn last_solicited(&self) -> u32 {
        self.inner().last_solicited
    }

    /// Moves the counter, for tests of what happens at a wrap. The program's own counter is not moved.
    pub fn set_producer(&self, producer: u32) {
        self.inner().producer = producer;
    }

    /// The program's counter, 24 bits.
    pub fn consumer(&self) -> u32 {
        if !self.is_alive() {
            return 0;
        }
        // SAFETY: mapped while the queue lives; checked when it was made.
        unsafe { memory::read_be32(self.dbrec) & 0xff_ffff }
    }

    /// The arm word of the doorbell record.
    pub fn arm_word(&self) -> u32 {
        if !self.is_alive() {
            return 0;
        }
        // SAFETY: as above.
        unsafe { memory::read_be32(self.dbrec + 4) }
    }

    /// Writes a completion at the next index; no event is sent ([`Hca::complete`](super::Hca::complete) does).
    ///
    /// # Errors
    ///
    /// If there is no room, or no queue any more.
    pub fn push(&self, cqe: &Cqe) -> Result<(), Refused> {
        self.reserve(1)?;
        let mut inner = self.inner();
        Self::write(&inner.buffer, inner.producer, cqe);
        inner.producer = inner.producer.wrapping_add(1);
        if cqe.is_solicited {
            inner.last_solicited = inner.producer;
        }
        Ok(())
    }

    /// Completions that the program has not taken.
    pub(crate) fn held(&self) -> u32 {
        let producer = self.producer();
        producer.wrapping_sub(self.consumer()) & 0xff_ffff
    }

    /// Whether `n` completions can be written. One that cannot breaks the queue, as it does the device's: until it
    /// is destroyed nothing more is written.
    pub(crate) fn reserve(&self, n: u32) -> Result<(), Refused> {
        if !self.is_alive() {
            return Err(Refused::Destroyed);
        }
        let held = self.held();
        let mut inner = self.inner();
        if inner.is_broken {
            return Err(Refused::Broken);
        }
        if held + n > inner.buffer.count && !self.ignores_overrun {
            inner.is_broken = true;
            return Err(Refused::Overrun);
        }
        Ok(())
    }

    /// Writes a completion at an index that has been reserved, with its owner bit.
    pub(crate) fn write_at(&self, index: u32, cqe: &Cqe) {
        Self::write(&self.inner().buffer, index, cqe);
    }

    /// Completions that were written count.
    pub(crate) fn advance(&self, n: u32) {
        let mut inner = self.inner();
        inner.producer = inner.producer.wrapping_add(n);
    }

    fn write(buffer: &Buffer, index: u32, cqe: &Cqe) {
        let slot = buffer.slot(index);
        let owner = u8::from(index & buffer.count != 0);
        let mut at = slot;
        if buffer.entry == 128 {
            // SAFETY: the entry is mapped while the queue lives, and the device's to write.
            unsafe { memory::write(slot, &cqe.before) };
            at += 64;
        }
        // SAFETY: as above; the first 56 bytes, whole words.
        unsafe { memory::write(at, &cqe.bytes[..56]) };
        // SAFETY: as above; all that is left but the last byte.
        unsafe { memory::write(at + 56, &cqe.bytes[56..63]) };
        // SAFETY: as above.
        unsafe { memory::publish(at + 63, (cqe.bytes[63] & !1) | owner) };
    }

    /// Writes raw bytes into the slot of index `index`, owner bit and all, and moves nothing: for mini
    /// completions and for what no device would write.
    ///
    /// # Panics
    ///
    /// If `bytes` is longer than an entry.
    pub fn poke(&self, index: u32, bytes: &[u8]) {
        let inner = self.inner();
        assert!(bytes.len() <= inner.buffer.entry as usize);
        if self.is_alive() {
            // SAFETY: inside an entry, mapped while the queue lives.
            unsafe { memory::write(inner.buffer.slot(index), bytes) };
        }
    }

    /// The bytes of the slot of index `index`.
    pub fn peek(&self, index: u32) -> Vec<u8> {
        let inner = self.inner();
        let mut bytes = vec![0; inner.buffer.entry as usize];
        if self.is_alive() {
            // SAFETY: an entry, mapped while the queue lives.
            unsafe { memory::read(inner.buffer.slot(index), &mut bytes) };
        }
        bytes
    }

    /// The device changes to new entries: the last of the old ones says so.
    pub(crate) fn resize(&self, buffer: Buffer) {
        let mut inner = self.inner();
        Self::write(&inner.buffer, inner.producer, &Cqe::new(opcode::RESIZE_CQ));
        inner.producer = inner.producer.wrapping_add(1);
        inner.buffer = buffer;
    }

    /// What the program waits for, if it has armed the queue since the last event.
    ///
    /// The truth is in the arm word of the doorbell record: sequence number in bits 28 and 29, command in
    /// bit 24, consumer counter below. The first word of a queue may equal what was there before; the
    /// doorbell at offset 0x20 of the page helps then.
    pub fn armed(&self) -> Option<Armed> {
        let inner = self.inner();
        let word = self.arm_word();
        let bell = self.uar.as_ref().map(|uar| uar.read(0x20));
        let rung =
            bell.filter(|bell| *bell != inner.spent_bell && bell[4..] == self.cqn.to_be_bytes());
        if word == inner.spent_arm && rung.is_none() {
            return None;
        }
        Some(if word & (1 << 24) == 0 {
            Armed::Any
        } else {
            Armed::Solicited
        })
    }

    /// An event was sent.
    pub(crate) fn disarm(&self) {
        let mut inner = self.inner();
        inner.spent_arm = self.arm_word();
        if let Some(uar) = &self.uar {
            inner.spent_bell = uar.read(0x20);
        }
    }
}

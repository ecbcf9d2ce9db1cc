//! Receive queues: a queue pair's own, or a receive work queue of an indirection table.
//!
//! An entry is a scatter list, whole or ended by a terminator. With signatures, 16 bytes stand before it. Entries never run
//! over the ring's end.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wqe_format::mlx5::{DS_UNIT, DataSegment, RecvSignatureSegment, doorbell, signature};
use wqe_format::rxe::Sge;
use zerocopy::IntoBytes;

use super::error::{PostError, Refused};
use super::record::{QueueRecord, RecvShared, WrIds};
use super::ring::{Unit, unit};
use super::srq::RecvRequest;
use crate::sys::barrier;

/// What a receive queue is made of.
#[derive(Debug)]
pub struct RecvParts {
    /// Shared with pollers; has the ring.
    pub record: Arc<QueueRecord>,
    /// The doorbell record's word that counts receives.
    pub doorbell: NonNull<u32>,
    /// Work requests that can be posted and not complete: the entries, or half of them where data may arrive out of order.
    pub max_wr: u32,
    /// Scatter elements of one.
    pub max_sge: u32,
}

/// A queue of receive work requests. There is no register: the device reads the doorbell record when a message arrives.
pub struct RecvQueue {
    ring: NonNull<Unit>,
    /// Entries, less one.
    mask: u32,
    /// An entry is 2 to the power of this many units.
    units_shift: u32,
    /// The same in bytes.
    stride: u32,
    max_sge: u32,
    max_wr: u32,
    signature: bool,
    /// Which work requests of one element [`Hot`] writes.
    quick: Quick,
    accepting: bool,
    /// Whether the doorbell record is not to be stored yet.
    held_back: bool,
    /// Work requests that were posted.
    head: u32,
    /// At this `head` the queue may be full.
    stop: u32,
    doorbell: NonNull<u32>,
    record: Arc<QueueRecord>,
}

// SAFETY: the ring and the doorbell record are the process's, not a thread's; they are written through `&mut`.
unsafe impl Send for RecvQueue {}

impl RecvQueue {
    /// A queue.
    ///
    /// # Panics
    ///
    /// If the record has no receive queue, `max_wr` is not between 1 and the number of entries, or `max_sge` elements do not
    /// fit an entry.
    ///
    /// # Safety
    ///
    /// The doorbell record's word is writable and aligned as long as the queue exists. Nobody but the device, and the record's
    /// pollers, accesses the ring, which is aligned to 16 bytes. There is no other queue over the same ring.
    pub unsafe fn new(parts: RecvParts) -> Self {
        let RecvParts {
            record,
            doorbell,
            max_wr,
            max_sge,
        } = parts;
        let shared = record.recv().expect("a record with a receive queue");
        let units_shift = shared.stride_shift() - DS_UNIT.ilog2();
        let signature = shared.has_signature();
        assert!(max_wr != 0 && max_wr <= shared.entries());
        assert!(u64::from(max_sge) + u64::from(signature) <= 1 << units_shift);
        Self {
            ring: shared.ring().cast(),
            mask: shared.entries() - 1,
            units_shift,
            stride: 1 << shared.stride_shift(),
            max_sge,
            max_wr,
            signature,
            quick: match max_sge {
                _ if signature => Quick::None,
                0 => Quick::None,
                1 => Quick::Whole,
                _ => Quick::Ended,
            },
            accepting: false,
            held_back: false,
            head: 0,
            stop: 0,
            doorbell,
            record,
        }
    }

    /// What is shared with pollers.
    #[inline]
    pub fn record(&self) -> &Arc<QueueRecord> {
        &self.record
    }

    /// Scatter elements of one work request.
    #[inline]
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Work requests that were posted.
    pub fn head(&self) -> u32 {
        self.head
    }

    #[inline(always)]
    fn shared(&self) -> &RecvShared {
        match self.record.recv() {
            Some(shared) => shared,
            // SAFETY: `new` saw that there is one, and a record never changes.
            None => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Whether the queue's state lets work requests in: a queue pair's from INIT on.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
        // The next post looks.
        self.stop = self.head;
    }

    /// Whether the device is not to be told of work requests yet: a raw packet queue before RTR, which would receive
    /// packets in a state that must not. Told of all at once when it ends.
    pub fn hold_back(&mut self, held_back: bool) {
        let ends = self.held_back && !held_back;
        self.held_back = held_back;
        if ends {
            self.store_doorbell();
        }
    }

    /// Back to nothing posted, after the queue went to RESET and its completions were removed. The doorbell record is cleared
    /// too.
    pub fn reset(&mut self) {
        self.accepting = false;
        self.head = 0;
        self.stop = 0;
        self.shared().reset();
        self.store_doorbell();
    }

    /// Starts the counter elsewhere, so that tests need not post 65536 work requests to see it wrap.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, head: u32) {
        self.head = head;
        self.stop = head;
        self.shared().start_at(head);
    }

    /// Posts work requests until one is refused or there is none; says how many were posted. The device is told once.
    ///
    /// # Errors
    ///
    /// The one that was refused and why; those before it are posted.
    #[inline(always)]
    pub fn post<R: RecvRequest>(
        &mut self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<u32, Refused<R>> {
        // The most frequent kind of queue has its loop where it is called; what a call saves is as much as a work request costs.
        if self.quick == Quick::Whole {
            self.post_quick(requests, Quick::Whole)
        } else {
            self.post_any(requests)
        }
    }

    #[inline(never)]
    fn post_any<R: RecvRequest>(
        &mut self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<u32, Refused<R>> {
        self.post_quick(requests, self.quick)
    }

    /// `quick` is the queue's.
    #[inline(always)]
    fn post_quick<R: RecvRequest>(
        &mut self,
        requests: impl IntoIterator<Item = R>,
        quick: Quick,
    ) -> Result<u32, Refused<R>> {
        let mut head = self.head;
        let mut stop = self.stop;
        let mut result = Ok(());
        let hot = Hot {
            quick,
            ..self.hot()
        };
        for request in requests {
            if head == stop || !hot.put(head, &request) {
                match self.put(head, stop, request) {
                    Ok(found) => stop = found,
                    Err(refused) => {
                        result = Err(refused);
                        break;
                    }
                }
            }
            head = head.wrapping_add(1);
        }
        self.stop = stop;
        let posted = head.wrapping_sub(self.head);
        if posted != 0 {
            self.head = head;
            if !self.held_back {
                self.store_doorbell();
            }
        }
        result.map(|()| posted)
    }

    /// Posts one work request: [`post`](Self::post) of a list of one, in fewer steps.
    ///
    /// # Errors
    ///
    /// Why it was refused.
    #[inline(always)]
    pub fn post_one<R: RecvRequest>(&mut self, request: R) -> Result<(), Refused<R>> {
        let head = self.head;
        if head == self.stop || self.held_back || !self.hot().put(head, &request) {
            return self.post_other(request);
        }
        self.head = head.wrapping_add(1);
        self.store_doorbell();
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn post_other<R: RecvRequest>(&mut self, request: R) -> Result<(), Refused<R>> {
        self.post_any(std::iter::once(request)).map(|_| ())
    }

    #[inline(always)]
    fn hot(&self) -> Hot<'_> {
        Hot {
            ring: self.ring,
            wr_ids: self.shared().wr_ids(),
            mask: self.mask,
            stride: self.stride,
            quick: self.quick,
        }
    }

    #[inline(always)]
    fn store_doorbell(&self) {
        barrier::device_sees_wqe_before_doorbell_record();
        // SAFETY: writable and aligned by the promise of who made the queue.
        let word = unsafe { AtomicU32::from_ptr(self.doorbell.as_ptr()) };
        word.store(doorbell::queue_record(self.head), Ordering::Relaxed);
    }

    /// Where the queue may be full, as far as pollers said by now.
    fn look_for_room(&self, head: u32) -> Result<u32, PostError> {
        if !self.accepting {
            return Err(PostError::WrongState);
        }
        let stop = self.shared().tail().wrapping_add(self.max_wr);
        if stop == head {
            return Err(PostError::QueueFull);
        }
        Ok(stop)
    }

    /// Writes any work request, if there is room for it. Says at which head to ask here again.
    #[inline(never)]
    fn put<R: RecvRequest>(&self, head: u32, stop: u32, request: R) -> Result<u32, Refused<R>> {
        let room = if head == stop {
            self.look_for_room(head)
        } else {
            Ok(stop)
        };
        let put = room.and_then(|stop| {
            let sges = request.sges();
            if sges.len() > self.max_sge as usize {
                return Err(PostError::TooManySges);
            }
            let index = head & self.mask;
            // SAFETY: an entry of the ring.
            let entry = unsafe { self.ring.add((index as usize) << self.units_shift) };
            if self.signature {
                self.put_signed(entry, head, sges)?;
            } else {
                // SAFETY: a free entry, which holds `max_sge` elements.
                unsafe { put_list(entry, sges, self.max_sge) }?;
            }
            self.shared().set_wr_id(index, request.wr_id());
            Ok(stop)
        });
        put.map_err(|error| Refused { error, request })
    }

    fn put_signed(&self, entry: NonNull<Unit>, head: u32, sges: &[Sge]) -> Result<(), PostError> {
        let units = 1 << self.units_shift;
        for place in 0..units {
            // SAFETY: within the entry.
            let at = unsafe { entry.add(place) };
            // SAFETY: a free entry.
            unsafe { at.write([0; 2]) };
        }
        // SAFETY: the second unit.
        let list = unsafe { entry.add(1) };
        // SAFETY: a free entry, which holds `max_sge` elements behind the signature.
        unsafe { put_list(list, sges, self.max_sge) }?;
        // Signed is as much of the entry as elements were given, whether they are empty or not.
        let mut bytes = Vec::with_capacity((sges.len() + 1) * DS_UNIT);
        for place in 0..=sges.len() {
            // SAFETY: within the entry.
            let at = unsafe { entry.add(place) };
            // SAFETY: written above.
            let unit: Unit = unsafe { at.read() };
            bytes.extend_from_slice(unit.as_bytes());
        }
        let segment = RecvSignatureSegment {
            signature: signature::of_recv(&bytes, self.record.number(), head as u16),
            ..RecvSignatureSegment::default()
        };
        // SAFETY: the first unit.
        unsafe { entry.write(unit(segment)) };
        Ok(())
    }
}

/// What a loop over work requests keeps in registers.
#[derive(Clone, Copy, Debug)]
struct Hot<'a> {
    ring: NonNull<Unit>,
    wr_ids: WrIds<'a>,
    mask: u32,
    /// Bytes of an entry.
    stride: u32,
    quick: Quick,
}

/// Which work requests of one element are written in few steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quick {
    /// None: the queue signs, or takes no element.
    None,
    /// All; an element fills the list.
    Whole,
    /// All; a terminator follows.
    Ended,
}

impl Hot<'_> {
    /// Writes a work request, of whose entry the ring has one free, if it has one element and the queue does not sign.
    #[inline(always)]
    fn put<R: RecvRequest>(&self, head: u32, request: &R) -> bool {
        let [sge] = request.sges() else {
            return false;
        };
        // None of no bytes, and none with the mark of inline data.
        if (sge.length as i32) <= 0 || self.quick == Quick::None {
            return false;
        }
        let index = head & self.mask;
        // SAFETY: an entry of the ring.
        let entry = unsafe { self.ring.byte_add(index as usize * self.stride as usize) };
        let segment = DataSegment::new(sge.addr, sge.length, sge.lkey).unit();
        // SAFETY: a free entry.
        unsafe { entry.write(segment) };
        if self.quick == Quick::Ended {
            // SAFETY: the entry has a second element.
            let end = unsafe { entry.add(1) };
            // SAFETY: as above.
            unsafe { end.write(unit(DataSegment::TERMINATOR)) };
        }
        // SAFETY: there are as many ids as entries.
        unsafe { self.wr_ids.set(index, request.wr_id()) };
        true
    }
}

/// Writes a scatter list of up to `room` elements, and a terminator if it is shorter.
///
/// # Safety
///
/// `room` units are writable at `at`, and the device does not read them now. There are no more elements than that.
#[inline(always)]
pub(super) unsafe fn put_list(
    mut at: NonNull<Unit>,
    sges: &[Sge],
    room: u32,
) -> Result<(), PostError> {
    let mut left = room;
    for sge in sges {
        // The device takes an empty element for one of 2 GiB.
        if sge.length != 0 {
            // The mark of inline data.
            if sge.length >> 31 != 0 {
                return Err(PostError::TooLong);
            }
            let segment = unit(DataSegment::new(sge.addr, sge.length, sge.lkey));
            // SAFETY: the caller's promise: fewer than `room` were written.
            unsafe { at.write(segment) };
            // SAFETY: at most the end of the list.
            at = unsafe { at.add(1) };
            left -= 1;
        }
    }
    if left != 0 {
        // SAFETY: as above.
        unsafe { at.write(unit(DataSegment::TERMINATOR)) };
    }
    Ok(())
}

impl fmt::Debug for RecvQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvQueue")
            .field("number", &self.record.number())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

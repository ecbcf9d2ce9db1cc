//! Polling entries of one kind in a row: all sends, or all receives, which is what a busy queue mostly has.
//!
//! The loops call nothing, so all they work with stays in registers. The first one takes what is frequent and asks each
//! question once: whether an entry is ours, of the kind and has its data elsewhere is one comparison; whether its queue
//! exists, sends, and what was posted was plain, another. What it does not know it leaves to the second loop as it was,
//! which takes all that has no data inside; that one leaves errors and the like to the general loop of `batch`.

use wqe_format::mlx5::CqeOpcode;
use wqe_format::rxe::WcStatus;

use super::CompletionQueue;
use super::arrange::{Arrange, Best};
use super::batch::{REQUEST, SOLICITED, is_plain_receive, write_receive, write_request};
use super::completion::{Completion, Place, opcode, pair};
use super::handover::is_ours;
use super::parse::{self, Finders};
use super::ring::Entry;
use crate::sys::barrier;

impl CompletionQueue {
    /// The first loop, with entries of 64 bytes.
    ///
    /// # Safety
    ///
    /// As for [`poll_run`](Self::poll_run), but `room` may be 0; and the processor can do what [`Best`] needs.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3,movbe"))]
    #[inline(never)]
    pub(super) unsafe fn poll_frequent<const SENDS: bool>(
        &mut self,
        first: Entry,
        out: *mut Completion,
        room: usize,
    ) -> usize {
        let finders = self.readers.finders();
        self.readers.begin_one_sided();
        let parity = self.parity;
        let places = self.ring.end().places_from::<false>(first).min(room);
        let take = |cqe: Entry, place| {
            let op_own = cqe.op_own();
            barrier::completion_is_read_after_its_owner_bit();
            // The one after the next, which the device may have written from afar.
            cqe.prefetch::<false>(2);
            if SENDS {
                // SAFETY: a visit has begun; as many places are used as entries are taken.
                unsafe { take_send::<Best>(finders, cqe, op_own, parity, place) }
            } else {
                // SAFETY: as above.
                unsafe { take_receive::<Best>(finders, cqe, op_own, parity, place) }
            }
        };
        let (mut next, mut place) = (first, out);
        if !places.is_multiple_of(2) {
            if !take(next, place) {
                // SAFETY: passed on.
                return unsafe { self.end_frequent::<SENDS>(next, place, room) };
            }
            // SAFETY: the entry was before the end.
            next = unsafe { next.after::<false>() };
            // SAFETY: a place was used, so this is at most the array's end.
            place = unsafe { place.add(1) };
        }
        // Two in a turn.
        for _ in 0..places / 2 {
            if !take(next, place) {
                // SAFETY: passed on.
                return unsafe { self.end_frequent::<SENDS>(next, place, room) };
            }
            // SAFETY: as above.
            let second = unsafe { next.after::<false>() };
            // SAFETY: as above.
            let second_place = unsafe { place.add(1) };
            if !take(second, second_place) {
                // SAFETY: passed on.
                return unsafe { self.end_frequent::<SENDS>(second, second_place, room) };
            }
            // SAFETY: as above.
            next = unsafe { second.after::<false>() };
            // SAFETY: as above.
            place = unsafe { second_place.add(1) };
        }
        // If there were not as many places as there is room, the end was reached.
        if next == self.ring.end() {
            // SAFETY: passed on.
            return unsafe { self.end_frequent::<SENDS>(next, place, room) };
        }
        self.ci = self.ci.wrapping_add(room as u32);
        self.next = next;
        self.readers.end::<true>();
        room
    }

    /// All before `next` was taken, but not all, or up to the ring's end; `place` is behind what was written. A function of
    /// its own so that the loop need not keep up to date what this needs.
    ///
    /// # Safety
    ///
    /// As for [`poll_rest`](Self::poll_rest).
    #[inline(never)]
    unsafe fn end_frequent<const SENDS: bool>(
        &mut self,
        next: Entry,
        place: *mut Completion,
        room: usize,
    ) -> usize {
        let taken = next.places_from::<false>(self.next);
        self.ci = self.ci.wrapping_add(taken as u32);
        self.next = next;
        if next == self.ring.end() {
            self.turn();
        }
        if taken != room && is_ours(self.next.op_own(), self.parity) {
            // SAFETY: passed on, for the rest of the array; the visit goes on.
            return unsafe { self.poll_on::<SENDS>(place, room - taken, room) };
        }
        self.readers.end::<true>();
        taken
    }

    /// There are more, which are not so frequent or behind the ring's end.
    ///
    /// # Safety
    ///
    /// As for [`poll_rest`](Self::poll_rest); the next entry is ours, and a place is left.
    #[cold]
    unsafe fn poll_on<const SENDS: bool>(
        &mut self,
        out: *mut Completion,
        left: usize,
        room: usize,
    ) -> usize {
        barrier::completion_is_read_after_its_owner_bit();
        // SAFETY: passed on; the next entry is ours, and a place is left.
        unsafe { self.run::<false, SENDS>(self.next, out, left, room) }
    }

    /// The second loop.
    ///
    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into); `first` is the next entry and ours, `room` is not 0; entries have 128 bytes if
    /// and only if `WIDE`, and version 1.
    #[inline(never)]
    pub(super) unsafe fn poll_run<const WIDE: bool, const SENDS: bool>(
        &mut self,
        first: Entry,
        out: *mut Completion,
        room: usize,
    ) -> usize {
        self.readers.begin::<true>();
        // SAFETY: passed on.
        unsafe { self.run::<WIDE, SENDS>(first, out, room, room) }
    }

    /// Takes entries into `left` places at `out` of an array of `room`. Says how many places of the array are used then.
    ///
    /// # Safety
    ///
    /// As for [`poll_run`](Self::poll_run); a visit has begun, which ends here.
    #[inline(always)]
    unsafe fn run<const WIDE: bool, const SENDS: bool>(
        &mut self,
        first: Entry,
        out: *mut Completion,
        left: usize,
        room: usize,
    ) -> usize {
        let finders = self.readers.finders();
        let parity = self.parity;
        let places = self.ring.end().places_from::<WIDE>(first).min(left);
        // SAFETY: at most the ring's end.
        let end = unsafe { first.ahead::<WIDE>(places) };
        let mut next = first;
        let mut place = out;
        let full = loop {
            let op_own = next.op_own();
            barrier::completion_is_read_after_its_owner_bit();
            next.prefetch::<WIDE>(2);
            // SAFETY: a visit has begun; as many places are used as entries are taken.
            let taken = unsafe { take_plain::<SENDS>(finders, next, op_own, parity, place) };
            if !taken {
                break is_ours(op_own, parity);
            }
            // SAFETY: before the end.
            next = unsafe { next.after::<WIDE>() };
            // SAFETY: a place was used, so this is at most the array's end.
            place = unsafe { place.add(1) };
            if next == end {
                break true;
            }
        };
        let taken = next.places_from::<WIDE>(first);
        self.ci = self.ci.wrapping_add(taken as u32);
        self.next = next;
        if next == self.ring.end() {
            self.turn();
        }
        if full && taken != left {
            // SAFETY: passed on, for the rest of the array; there may be more, and the visit goes on.
            return unsafe { self.poll_rest::<true>(place, left - taken, room) };
        }
        self.readers.end::<true>();
        room - left + taken
    }
}

/// Takes a send that says nothing but what completed, by a queue pair that posted it so; else nothing has happened.
///
/// # Safety
///
/// A visit has begun, during which `finders` are used. `out` is valid for a write. The processor can `A`.
#[inline(always)]
pub(super) unsafe fn take_send<A: Arrange>(
    finders: Finders,
    cqe: Entry,
    op_own: u8,
    parity: u8,
    out: *mut Completion,
) -> bool {
    // Owner bit, opcode, format, and that nobody asked for an event, which a send's entry does not say.
    if op_own != REQUEST | parity {
        return false;
    }
    // SAFETY: passed on.
    let queue = unsafe { finders.any(cqe) };
    let work = queue.work(cqe.last_word());
    let kind = parse::send_kind(cqe.get().send_opcode());
    // Both have their mark where a number has its sign; what the kind has below that is above the head.
    let both = work.rest | kind;
    if (both as i64) < 0 {
        return false;
    }
    // SAFETY: the record is plain.
    unsafe { queue.send_unchecked() }.complete(both as u32);
    // SAFETY: passed on.
    let place = unsafe { Place::new(out) };
    place.set::<{ Place::WR_ID }>(work.wr_id);
    place.set::<{ Place::STATUS_OPCODE }>(parse::status_opcode(kind));
    // SAFETY: passed on.
    unsafe { A::send(out, cqe) };
    true
}

/// Takes a receive of a message without more, into a receive queue of its own, of which nothing is to be said of
/// checksums; else nothing has happened.
///
/// # Safety
///
/// As for [`take_send`].
#[inline(always)]
pub(super) unsafe fn take_receive<A: Arrange>(
    finders: Finders,
    cqe: Entry,
    op_own: u8,
    parity: u8,
    out: *mut Completion,
) -> bool {
    if op_own & !SOLICITED != CqeOpcode::RESP_SEND.0 << 4 | parity {
        return false;
    }
    // SAFETY: passed on.
    let queue = unsafe { finders.any(cqe) };
    let Some(recv) = queue.plain_receive() else {
        return false;
    };
    let wr_id = recv.wr_id(cqe.last_word() >> 16);
    recv.complete_one();
    // SAFETY: passed on.
    let place = unsafe { Place::new(out) };
    place.set::<{ Place::WR_ID }>(wr_id);
    place.set::<{ Place::STATUS_OPCODE }>(pair(WcStatus::SUCCESS.0, opcode::RECV));
    // SAFETY: passed on.
    unsafe { A::receive(out, cqe) };
    true
}

/// Takes an entry if it is ours, of the given direction and without data inside; else nothing has happened.
///
/// # Safety
///
/// A visit has begun, during which `finders` are used. `out` is valid for a write.
#[inline(always)]
pub(super) unsafe fn take_plain<const SENDS: bool>(
    finders: Finders,
    cqe: Entry,
    op_own: u8,
    parity: u8,
    out: *mut Completion,
) -> bool {
    // Owner bit, opcode and format in one comparison.
    let kind = (op_own ^ parity) & !SOLICITED;
    if SENDS {
        if kind != REQUEST {
            return false;
        }
        // SAFETY: passed on.
        let queue = unsafe { finders.any(cqe) };
        let work = queue.work(cqe.last_word());
        if !work.is_plain() {
            return false;
        }
        // SAFETY: the record is plain.
        unsafe { queue.send_unchecked() }.complete(work.head());
        // SAFETY: passed on.
        unsafe { write_request(out, work, cqe, WcStatus::SUCCESS) };
    } else {
        if !is_plain_receive(kind) {
            return false;
        }
        // SAFETY: passed on.
        let Some(receive) = (unsafe { parse::complete_receive::<true>(finders, cqe, None) }) else {
            return false;
        };
        // SAFETY: passed on.
        unsafe { write_receive(out, &receive, cqe, op_own) };
    }
    true
}

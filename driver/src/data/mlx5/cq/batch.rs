//! Polling into an array: `ibv_poll_cq`.

use wqe_format::mlx5::{CqeFormat, CqeOpcode};
use wqe_format::rxe::WcStatus;

use super::super::record::RawRecord;
use super::arrange::{self, Best, Portable};
use super::completion::{Completion, Place, flag, opcode, pair};
use super::handover::is_ours;
use super::parse::{self, Finders, Receive};
use super::ring::Entry;
use super::run::{take_receive, take_send};
use super::tagged::is_tagged;
use super::{CompletionQueue, Mode};
use crate::sys::barrier;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A completion.
    Completion,
    /// No completion: the queue's own affair (a page fault that was repaired, the mark of a resize, an error
    /// that is kept at its key), or dropped.
    Nothing,
    /// It is not ours.
    Empty,
}

impl CompletionQueue {
    /// Takes completions: as many as there are, up to the array's length. The array's rest is left as it was.
    ///
    /// The device learns once per call how far the program came, also if it found nothing, as libmlx5 does.
    #[inline]
    pub fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let room = completions.len();
        // SAFETY: as many places as the slice has.
        unsafe { self.poll_into(completions.as_mut_ptr(), room) }
    }

    /// As [`poll`](Self::poll), into memory that may be uninitialised, such as a C program's `struct ibv_wc`s.
    ///
    /// # Safety
    ///
    /// `out` is valid for writes of `room` completions and aligned for them.
    #[inline(always)]
    pub unsafe fn poll_into(&mut self, out: *mut Completion, room: usize) -> usize {
        let (first, parity) = (self.next, self.parity);
        let op_own = first.op_own();
        let taken = if op_own == REQUEST | parity && self.mode == Mode::Frequent {
            // A send that is ours, in one comparison.
            barrier::completion_is_read_after_its_owner_bit();
            if room == 1 {
                // SAFETY: passed on; the entry is the next one, and ours.
                unsafe { self.poll_single(first, op_own, parity, out) }
            } else {
                // SAFETY: as above, and the processor has what that needs.
                unsafe { self.poll_frequent::<true>(first, out, room) }
            }
        } else if is_ours(op_own, parity) {
            barrier::completion_is_read_after_its_owner_bit();
            // SAFETY: as above.
            unsafe { self.poll_some(first, op_own, out, room) }
        } else if self.mode == Mode::Compressed {
            // SAFETY: passed on.
            unsafe { self.poll_compressed(out, room) }
        } else {
            0
        };
        self.doorbell.publish(self.ci);
        taken
    }

    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into); `first` is the next entry and ours.
    #[inline(always)]
    unsafe fn poll_some(
        &mut self,
        first: Entry,
        op_own: u8,
        out: *mut Completion,
        room: usize,
    ) -> usize {
        let sends = op_own < RECEIVE_FIRST;
        if self.mode != Mode::Frequent || sends {
            // SAFETY: passed on.
            return unsafe { self.poll_otherwise(first, sends, out, room) };
        }
        if room == 1 {
            // SAFETY: passed on; the processor has what that needs.
            return unsafe { self.poll_single_receive(first, op_own, out) };
        }
        // SAFETY: as above.
        unsafe { self.poll_frequent::<false>(first, out, room) }
    }

    /// # Safety
    ///
    /// As for [`poll_some`](Self::poll_some).
    #[cold]
    unsafe fn poll_otherwise(
        &mut self,
        first: Entry,
        sends: bool,
        out: *mut Completion,
        room: usize,
    ) -> usize {
        if room == 0 {
            return 0;
        }
        match (self.mode, sends) {
            // SAFETY: passed on.
            (Mode::Frequent | Mode::Narrow, true) => unsafe {
                self.poll_run::<false, true>(first, out, room)
            },
            // SAFETY: passed on.
            (Mode::Narrow, false) => unsafe { self.poll_run::<false, false>(first, out, room) },
            // SAFETY: passed on.
            (Mode::Wide, true) => unsafe { self.poll_run::<true, true>(first, out, room) },
            // SAFETY: passed on.
            (Mode::Wide, false) => unsafe { self.poll_run::<true, false>(first, out, room) },
            _ => {
                self.readers.begin::<false>();
                // SAFETY: passed on; a visit has begun.
                unsafe { self.poll_rest::<false>(out, room, room) }
            }
        }
    }

    /// Takes one entry of 64 bytes, if it is a frequent send. Apart from the loops of `run` because a poll for one completion
    /// is what programs do that care for each nanosecond.
    ///
    /// # Safety
    ///
    /// As for [`poll_some`](Self::poll_some), with room for one; the mode is [`Mode::Frequent`].
    #[inline(always)]
    unsafe fn poll_single(
        &mut self,
        first: Entry,
        op_own: u8,
        parity: u8,
        out: *mut Completion,
    ) -> usize {
        let finders = self.readers.finders();
        let mark = self.readers.begin_one_sided();
        first.prefetch::<false>(1);
        // SAFETY: a visit has begun; the place is the caller's.
        if !unsafe { take_send::<Portable>(finders, first, op_own, parity, out) } {
            // SAFETY: passed on; the visit goes on.
            return unsafe { self.poll_rest::<true>(out, 1, 1) };
        }
        // SAFETY: the mark of the visit that begun above.
        unsafe { self.readers.end_one_sided(mark) };
        self.step::<false>(first);
        1
    }

    /// The same of a receive, out of line: what is inlined into each poll is for sends.
    ///
    /// # Safety
    ///
    /// As for [`poll_single`](Self::poll_single); and the processor can do what [`Best`] needs.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3,movbe"))]
    #[inline(never)]
    unsafe fn poll_single_receive(
        &mut self,
        first: Entry,
        op_own: u8,
        out: *mut Completion,
    ) -> usize {
        let finders = self.readers.finders();
        let mark = self.readers.begin_one_sided();
        first.prefetch::<false>(1);
        // SAFETY: a visit has begun; the place is the caller's, and the processor can.
        if !unsafe { take_receive::<Best>(finders, first, op_own, self.parity, out) } {
            // SAFETY: passed on; the visit goes on.
            return unsafe { self.poll_rest::<true>(out, 1, 1) };
        }
        // SAFETY: the mark of the visit that begun above.
        unsafe { self.readers.end_one_sided(mark) };
        self.step::<false>(first);
        1
    }

    /// Takes entries of any kind, into `left` places at `out` of an array of `room`. Says how many places of the array are
    /// used then.
    ///
    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into); a visit has begun, which ends here.
    #[inline(never)]
    pub(super) unsafe fn poll_rest<const V1: bool>(
        &mut self,
        mut out: *mut Completion,
        mut left: usize,
        room: usize,
    ) -> usize {
        let finders = self.readers.finders();
        // At most a lap without filling the array: a device may write what is dropped as fast as it is read.
        let mut lap = self.ring.count();
        while left != 0 && lap != 0 {
            let (entry, parity) = (self.next, self.parity);
            let op_own = entry.op_own();
            // SAFETY: a visit has begun; a place is left.
            match unsafe { self.take_entry::<V1>(finders, entry, op_own, parity, out) } {
                Taken::Completion => {
                    // SAFETY: a place was used, so this is at most the array's end.
                    out = unsafe { out.add(1) };
                    left -= 1;
                }
                Taken::Nothing => lap -= 1,
                Taken::Empty => break,
            }
            self.go_to(self.ci.wrapping_add(1));
        }
        self.readers.end::<V1>();
        room - left
    }

    /// # Safety
    ///
    /// A visit has begun, during which `finders` are used. `out` is valid for a write.
    #[inline(always)]
    pub(super) unsafe fn take_entry<const V1: bool>(
        &mut self,
        finders: Finders,
        cqe: Entry,
        op_own: u8,
        parity: u8,
        out: *mut Completion,
    ) -> Taken {
        if !is_ours(op_own, parity) {
            return Taken::Empty;
        }
        barrier::completion_is_read_after_its_owner_bit();
        let kind = (op_own ^ parity) & !SOLICITED;
        if kind == REQUEST {
            // SAFETY: passed on.
            return match unsafe { parse::complete_request::<V1>(finders, cqe) } {
                Some(request) => {
                    // SAFETY: the caller's place.
                    unsafe { write_request(out, request.work, cqe, WcStatus::SUCCESS) };
                    Taken::Completion
                }
                None => self.drop_entry(),
            };
        }
        if is_plain_receive(kind) {
            // SAFETY: passed on.
            return match unsafe { parse::complete_receive::<V1>(finders, cqe, None) } {
                Some(receive) => {
                    // SAFETY: the caller's place.
                    unsafe { write_receive(out, &receive, cqe, op_own) };
                    Taken::Completion
                }
                // SAFETY: passed on.
                None => unsafe { self.take_tagged::<V1>(cqe, out) },
            };
        }
        // SAFETY: passed on.
        unsafe { self.take_seldom::<V1>(cqe, op_own, out) }
    }

    #[cold]
    pub(super) fn drop_entry(&mut self) -> Taken {
        self.dropped += 1;
        Taken::Nothing
    }

    /// Entries with data inside, errors, and what makes no completion.
    ///
    /// # Safety
    ///
    /// As for [`take_entry`](Self::take_entry).
    #[cold]
    #[inline(never)]
    unsafe fn take_seldom<const V1: bool>(
        &mut self,
        cqe: Entry,
        op_own: u8,
        out: *mut Completion,
    ) -> Taken {
        let finders = self.readers.finders();
        let compressed = cqe.get().format() == CqeFormat::COMPRESSED;
        match CqeOpcode(op_own >> 4) {
            _ if !compressed && is_tagged(&cqe.get()) => {
                // SAFETY: passed on.
                return unsafe { self.take_tagged::<V1>(cqe, out) };
            }
            CqeOpcode::REQ if !compressed => {
                let kind = parse::request_kind(cqe.get().send_opcode());
                let length = kind.byte_len(cqe.get().byte_cnt.get());
                let Some(data) = self.inline_data(cqe, length) else {
                    return self.drop_entry();
                };
                // SAFETY: passed on.
                match unsafe { parse::complete_read::<V1>(finders, cqe, data) } {
                    // SAFETY: the caller's place.
                    Some((request, status)) => unsafe {
                        write_request(out, request.work, cqe, status);
                    },
                    None => return self.drop_entry(),
                }
            }
            opcode if opcode.is_responder() && !compressed => {
                let length = cqe.get().byte_cnt.get();
                let Some(data) = self.inline_data(cqe, length) else {
                    return self.drop_entry();
                };
                // SAFETY: passed on.
                match unsafe { parse::complete_receive::<V1>(finders, cqe, Some(data)) } {
                    // SAFETY: the caller's place.
                    Some(receive) => unsafe { write_receive(out, &receive, cqe, op_own) },
                    None => return self.drop_entry(),
                }
            }
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
                // SAFETY: passed on.
                return unsafe { self.take_error::<V1>(cqe, out) };
            }
            CqeOpcode::RESIZE_CQ => return Taken::Nothing,
            CqeOpcode::SIG_ERR => {
                self.keep_signature_error(cqe);
                return Taken::Nothing;
            }
            _ => return self.drop_entry(),
        }
        Taken::Completion
    }

    /// # Safety
    ///
    /// As for [`take_entry`](Self::take_entry).
    unsafe fn take_error<const V1: bool>(&mut self, cqe: Entry, out: *mut Completion) -> Taken {
        // SAFETY: passed on.
        let Some(failed) = (unsafe { self.complete_error::<V1>(cqe) }) else {
            return self.drop_entry();
        };
        let Some(failed) = failed else {
            return Taken::Nothing;
        };
        let error = cqe.get().as_error();
        let opcode = if cqe.get().opcode() == CqeOpcode::REQ_ERR {
            parse::request_opcode(parse::request_kind(cqe.get().send_opcode()), failed.work)
        } else {
            opcode::RECV
        };
        let completion = Completion {
            wr_id: failed.wr_id,
            status: error.syndrome.wc_status(),
            opcode,
            vendor_err: error.vendor_err_synd.into(),
            qp_num: cqe.get().qpn(),
            ..Completion::default()
        };
        // SAFETY: the caller's place.
        unsafe { out.write(completion) };
        Taken::Completion
    }

    /// What an error means for its queue, or nothing inside if it was a page fault that was repaired. `None`: no such
    /// queue.
    ///
    /// # Safety
    ///
    /// As for [`take_entry`](Self::take_entry).
    #[cold]
    pub(super) unsafe fn complete_error<const V1: bool>(
        &mut self,
        cqe: Entry,
    ) -> Option<Option<Failed>> {
        let finders = self.readers.finders();
        self.error_log.error_completion(&cqe.get().as_error());
        if cqe.get().opcode() == CqeOpcode::REQ_ERR {
            // SAFETY: passed on.
            let request = unsafe { parse::complete_request::<V1>(finders, cqe) }?;
            return Some(Some(Failed {
                wr_id: request.work.wr_id,
                work: request.work,
                cookie: request.queue.cookie(),
            }));
        }
        // SAFETY: passed on.
        if let Some(srq) = unsafe { parse::faulted_shared_queue::<V1>(finders, cqe) } {
            srq.repost_after_fault(cqe.get().wqe_counter.get().into());
            return Some(None);
        }
        // SAFETY: passed on.
        let receive = unsafe { parse::complete_receive::<V1>(finders, cqe, None) }?;
        Some(Some(Failed {
            wr_id: receive.wr_id,
            work: RawRecord::NONE,
            cookie: receive.queue.cookie(),
        }))
    }
}

/// A work request that failed.
pub(super) struct Failed {
    pub(super) wr_id: u64,
    /// What was posted, of a send.
    pub(super) work: RawRecord,
    pub(super) cookie: usize,
}

/// `op_own` with the owner bit as expected taken out, and without the solicited bit: of a send completion with its data
/// where they belong.
pub(super) const REQUEST: u8 = CqeOpcode::REQ.0 << 4;
/// The same of receive completions: the first and the last.
const RECEIVE_FIRST: u8 = CqeOpcode::RESP_WR_IMM.0 << 4;
const RECEIVE_LAST: u8 = CqeOpcode::RESP_SEND_INV.0 << 4;
/// The bit in `op_own` that says that the sender asked for an event.
pub(super) const SOLICITED: u8 = 1 << 1;

/// Whether `op_own`, with the expected owner bit taken out and without the solicited bit, is that of a receive whose data
/// are where they belong.
#[inline(always)]
pub(super) const fn is_plain_receive(kind: u8) -> bool {
    // RECEIVE_FIRST to RECEIVE_LAST in steps of 16: rotated, the low bits stand above them all.
    kind.wrapping_sub(RECEIVE_FIRST).rotate_right(4) <= (RECEIVE_LAST - RECEIVE_FIRST) >> 4
}

/// # Safety
///
/// `out` is valid for a write.
#[inline(always)]
pub(super) unsafe fn write_request(
    out: *mut Completion,
    work: RawRecord,
    cqe: Entry,
    status: WcStatus,
) {
    // SAFETY: passed on.
    let place = unsafe { Place::new(out) };
    let kind = parse::request_kind(cqe.get().send_opcode());
    place.set::<{ Place::WR_ID }>(work.wr_id);
    if work.is_plain() && status == WcStatus::SUCCESS {
        place.set::<{ Place::STATUS_OPCODE }>(kind.status_opcode);
    } else {
        let opcode = parse::request_opcode(kind, work);
        place.set::<{ Place::STATUS_OPCODE }>(pair(status.0, opcode));
    }
    let length = if kind.reads {
        kind.byte_len(cqe.get().byte_cnt.get())
    } else {
        0
    };
    place.set::<{ Place::VENDOR_LENGTH }>(pair(0, length));
    place.set::<{ Place::IMM_QUEUE }>(pair(0, cqe.get().qpn()));
    place.set::<{ Place::SOURCE_FLAGS }>(kind.source_flags);
    place.set::<{ Place::REST }>(0);
}

/// # Safety
///
/// `out` is valid for a write.
#[inline(always)]
pub(super) unsafe fn write_receive(
    out: *mut Completion,
    receive: &Receive<'_>,
    cqe: Entry,
    op_own: u8,
) {
    // SAFETY: passed on.
    let place = unsafe { Place::new(out) };
    place.set::<{ Place::WR_ID }>(receive.wr_id);
    let source = cqe.get().flags_rqpn.into_bits().get();
    let number = cqe.get().imm_inval_pkey.get();
    let mut flags = 0;
    if CqeOpcode(op_own >> 4) == CqeOpcode::RESP_SEND && receive.status == WcStatus::SUCCESS {
        // Mostly that, and without what the others need.
        place.set::<{ Place::STATUS_OPCODE }>(pair(WcStatus::SUCCESS.0, opcode::RECV));
        place.set::<{ Place::IMM_QUEUE }>(pair(0, cqe.get().qpn()));
    } else {
        let kind = parse::receive_kind(op_own);
        flags = kind.flags;
        place.set::<{ Place::STATUS_OPCODE }>(pair(receive.status.0, kind.opcode));
        place.set::<{ Place::IMM_QUEUE }>(pair(kind.imm_or_rkey(number), cqe.get().qpn()));
    }
    place.set::<{ Place::VENDOR_LENGTH }>(pair(0, cqe.get().byte_cnt.get()));
    if source >> 28 & 3 != 0 {
        flags |= flag::GRH;
    }
    if receive.checksums && cqe.get().is_ip_checksum_ok() {
        flags |= flag::IP_CSUM_OK;
    }
    place.set::<{ Place::SOURCE_FLAGS }>(pair(source & 0xff_ffff, flags));
    place.set::<{ Place::REST }>(arrange::rest(cqe, source));
}

//! Polling into an array: `ibv_poll_cq`.

use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode};
use wqe_format::rxe::WcStatus;

use super::CompletionQueue;
use super::completion::{Completion, flag, opcode};
use super::parse::{self, Request};
use super::ring::is_ours;
use crate::sys::barrier;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A completion.
    Completion,
    /// None: the queue's own affair (a page fault that was repaired, the mark of a resize).
    Handled,
    /// None: see [`CompletionQueue::dropped`].
    Dropped,
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
    #[inline]
    pub unsafe fn poll_into(&mut self, out: *mut Completion, room: usize) -> usize {
        let ci = self.ci;
        let taken = if is_ours(self.ring.op_own(ci), self.ring.parity(ci)) {
            // SAFETY: passed on.
            unsafe { self.poll_some(out, room) }
        } else {
            0
        };
        self.doorbell.publish(self.ci);
        taken
    }

    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into).
    #[inline]
    unsafe fn poll_some(&mut self, out: *mut Completion, room: usize) -> usize {
        match (self.v1, self.ring.is_wide()) {
            // SAFETY: passed on.
            (true, false) => unsafe { self.poll_loop::<true, false>(out, room) },
            // SAFETY: passed on.
            (true, true) => unsafe { self.poll_loop::<true, true>(out, room) },
            // SAFETY: passed on.
            (false, _) => unsafe { self.poll_version_0(out, room) },
        }
    }

    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into).
    #[cold]
    unsafe fn poll_version_0(&mut self, out: *mut Completion, room: usize) -> usize {
        if self.ring.is_wide() {
            // SAFETY: passed on.
            unsafe { self.poll_loop::<false, true>(out, room) }
        } else {
            // SAFETY: passed on.
            unsafe { self.poll_loop::<false, false>(out, room) }
        }
    }

    /// # Safety
    ///
    /// As for [`poll_into`](Self::poll_into).
    #[inline(never)]
    unsafe fn poll_loop<const V1: bool, const WIDE: bool>(
        &mut self,
        out: *mut Completion,
        room: usize,
    ) -> usize {
        let ring = self.ring.of_width::<WIDE>();
        // The index stays in a register: the stores below could be to anything.
        let mut ci = self.ci;
        let mut taken = 0;
        let mut to_drop = ring.count();
        self.readers.begin();
        while taken < room {
            let op_own = ring.op_own(ci);
            if !is_ours(op_own, ring.parity(ci)) {
                break;
            }
            barrier::completion_is_read_after_its_owner_bit();
            let cqe = ring.read(ci);
            // SAFETY: below the array's length.
            let place = unsafe { out.add(taken) };
            // SAFETY: a visit has begun and ends after the loop; the place is the caller's.
            let what = unsafe { self.take_entry::<V1>(ci, &cqe, op_own, place) };
            ci = ci.wrapping_add(1);
            if what == Taken::Completion {
                taken += 1;
            } else {
                to_drop -= 1;
                if to_drop == 0 {
                    break;
                }
            }
        }
        self.readers.end();
        self.ci = ci;
        taken
    }

    /// # Safety
    ///
    /// A visit has begun; the record is not used after its end. `out` is valid for a write.
    #[inline(always)]
    unsafe fn take_entry<const V1: bool>(
        &mut self,
        ci: u32,
        cqe: &Cqe64,
        op_own: u8,
        out: *mut Completion,
    ) -> Taken {
        let completion = match op_own & !3 {
            REQUEST => {
                // SAFETY: passed on.
                match unsafe { parse::complete_request::<V1>(&self.readers, cqe) } {
                    Some(request) => request_completion(&request, cqe, WcStatus::SUCCESS),
                    None => return self.drop_entry(),
                }
            }
            RECEIVE_FIRST..=RECEIVE_LAST if op_own & FORMAT == 0 => {
                // SAFETY: passed on.
                match unsafe { parse::complete_receive::<V1>(&self.readers, cqe, None) } {
                    Some(receive) => receive_completion(
                        receive.wr_id,
                        receive.queue.has_checksums(),
                        cqe,
                        op_own,
                    ),
                    None => return self.drop_entry(),
                }
            }
            // SAFETY: passed on.
            _ => return unsafe { self.take_seldom::<V1>(ci, cqe, out) },
        };
        // SAFETY: the caller's place.
        unsafe { out.write(completion) };
        Taken::Completion
    }

    #[cold]
    fn drop_entry(&mut self) -> Taken {
        self.dropped += 1;
        Taken::Dropped
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
        ci: u32,
        cqe: &Cqe64,
        out: *mut Completion,
    ) -> Taken {
        let completion = match cqe.opcode() {
            CqeOpcode::REQ if cqe.format() != CqeFormat::COMPRESSED => {
                let kind = parse::request_kind(cqe.send_opcode());
                let length = kind.byte_len(cqe.byte_cnt.get());
                let Some(data) = self.inline_data(ci, cqe, length) else {
                    return self.drop_entry();
                };
                // SAFETY: passed on.
                match unsafe { parse::complete_read::<V1>(&self.readers, cqe, data) } {
                    Some((request, status)) => request_completion(&request, cqe, status),
                    None => return self.drop_entry(),
                }
            }
            opcode if opcode.is_responder() && cqe.format() != CqeFormat::COMPRESSED => {
                let Some(data) = self.inline_data(ci, cqe, cqe.byte_cnt.get()) else {
                    return self.drop_entry();
                };
                // SAFETY: passed on.
                match unsafe { parse::complete_receive::<V1>(&self.readers, cqe, Some(data)) } {
                    Some(receive) => {
                        let mut completion = receive_completion(
                            receive.wr_id,
                            receive.queue.has_checksums(),
                            cqe,
                            cqe.op_own.into_bits(),
                        );
                        completion.status = receive.status.0;
                        completion
                    }
                    None => return self.drop_entry(),
                }
            }
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
                // SAFETY: passed on.
                return unsafe { self.take_error::<V1>(cqe, out) };
            }
            CqeOpcode::RESIZE_CQ => return Taken::Handled,
            _ => return self.drop_entry(),
        };
        // SAFETY: the caller's place.
        unsafe { out.write(completion) };
        Taken::Completion
    }

    /// # Safety
    ///
    /// As for [`take_entry`](Self::take_entry).
    unsafe fn take_error<const V1: bool>(&mut self, cqe: &Cqe64, out: *mut Completion) -> Taken {
        // SAFETY: passed on.
        let Some(error) = (unsafe { self.complete_error::<V1>(cqe) }) else {
            return self.drop_entry();
        };
        let Some((wr_id, opcode)) = error else {
            return Taken::Handled;
        };
        let ecqe = cqe.as_error();
        let completion = Completion {
            wr_id,
            status: ecqe.syndrome.wc_status(),
            opcode,
            vendor_err: ecqe.vendor_err_synd.into(),
            qp_num: cqe.qpn(),
            ..Completion::default()
        };
        // SAFETY: the caller's place.
        unsafe { out.write(completion) };
        Taken::Completion
    }

    /// What an error means for its queue: the work request's number and its opcode, or nothing inside if it was a
    /// page fault that was repaired. `None`: no such queue.
    ///
    /// # Safety
    ///
    /// As for [`take_entry`](Self::take_entry).
    #[cold]
    pub(super) unsafe fn complete_error<const V1: bool>(
        &mut self,
        cqe: &Cqe64,
    ) -> Option<Option<(u64, u32)>> {
        self.error_log.error_completion(&cqe.as_error());
        if cqe.opcode() == CqeOpcode::REQ_ERR {
            // SAFETY: passed on.
            let request = unsafe { parse::complete_request::<V1>(&self.readers, cqe) }?;
            let kind = parse::request_kind(cqe.send_opcode());
            return Some(Some((
                request.work.wr_id,
                parse::request_opcode(kind, &request.work),
            )));
        }
        // SAFETY: passed on.
        if let Some(srq) = unsafe { parse::faulted_shared_queue::<V1>(&self.readers, cqe) } {
            srq.repost_after_fault(cqe.wqe_counter.get().into());
            return Some(None);
        }
        // SAFETY: passed on.
        let receive = unsafe { parse::complete_receive::<V1>(&self.readers, cqe, None) }?;
        Some(Some((receive.wr_id, opcode::RECV)))
    }
}

/// `op_own` without solicited and owner bits, of a send completion with its data where they belong.
const REQUEST: u8 = CqeOpcode::REQ.0 << 4;
/// The same of receive completions: the first, and the last with any format.
const RECEIVE_FIRST: u8 = CqeOpcode::RESP_WR_IMM.0 << 4;
const RECEIVE_LAST: u8 = CqeOpcode::RESP_SEND_INV.0 << 4 | FORMAT;
/// The format's bits in `op_own`.
const FORMAT: u8 = 3 << 2;

#[inline(always)]
fn request_completion(request: &Request<'_>, cqe: &Cqe64, status: WcStatus) -> Completion {
    let kind = parse::request_kind(cqe.send_opcode());
    Completion {
        wr_id: request.work.wr_id,
        status: status.0,
        opcode: parse::request_opcode(kind, &request.work),
        vendor_err: 0,
        byte_len: kind.byte_len(cqe.byte_cnt.get()),
        imm_or_rkey: 0,
        qp_num: cqe.qpn(),
        src_qp: 0,
        wc_flags: kind.flags.into(),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
        reserved: [0; 2],
    }
}

#[inline(always)]
fn receive_completion(wr_id: u64, checksums: bool, cqe: &Cqe64, op_own: u8) -> Completion {
    let (opcode, flags, imm_or_rkey) = match CqeOpcode(op_own >> 4) {
        // The bytes of immediate data stay as they are: libibverbs gives them in network order.
        CqeOpcode::RESP_WR_IMM => (
            opcode::RECV_RDMA_WITH_IMM,
            flag::WITH_IMM,
            cqe.imm_inval_pkey.get().to_be(),
        ),
        CqeOpcode::RESP_SEND_IMM => (
            opcode::RECV,
            flag::WITH_IMM,
            cqe.imm_inval_pkey.get().to_be(),
        ),
        CqeOpcode::RESP_SEND_INV => (opcode::RECV, flag::WITH_INV, cqe.imm_inval_pkey.get()),
        _ => (opcode::RECV, 0, 0),
    };
    let checksum = if checksums && cqe.is_ip_checksum_ok() {
        flag::IP_CSUM_OK
    } else {
        0
    };
    let grh = if cqe.has_grh() { flag::GRH } else { 0 };
    Completion {
        wr_id,
        status: WcStatus::SUCCESS.0,
        opcode,
        vendor_err: 0,
        byte_len: cqe.byte_cnt.get(),
        imm_or_rkey,
        qp_num: cqe.qpn(),
        src_qp: cqe.src_qp(),
        wc_flags: flags | checksum | grh,
        pkey_index: cqe.pkey_index(),
        slid: cqe.slid.get(),
        sl: cqe.sl(),
        dlid_path_bits: cqe.dlid_path_bits(),
        reserved: [0; 2],
    }
}

//! Polling one by one, with fields on request: `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`.
//!
//! Taking a completion finds its queue and the work request's number; everything else is read from the entry when it is
//! asked for. The device gets the entries back at the end, so until then they stay as they are.

use std::fmt;

use wqe_format::mlx5::{Cqe64, CqeOpcode, Syndrome};
use wqe_format::rxe::WcStatus;

use super::super::record::RawRecord;
use super::batch::{REQUEST, SOLICITED, is_plain_receive};
use super::completion::{flag, opcode};
use super::handover::is_ours;
use super::parse::{self, TAG_MATCHING};
use super::ring::Entry;
use super::tagged::{is_tagged, tag_flags, tag_opcode};
use super::{ClockBusy, ClockInfo, CompletionQueue, Mode};
use crate::sys::barrier;

/// Why [`CompletionQueue::start_poll`] took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingTaken {
    /// There is no completion.
    Empty,
    /// See [`ClockBusy`]; the completion is still there.
    ClockBusy,
}

impl fmt::Display for NothingTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no completion"),
            Self::ClockBusy => ClockBusy.fmt(f),
        }
    }
}

impl std::error::Error for NothingTaken {}

/// The completion that lazy polling stands on.
#[derive(Clone, Copy)]
pub(super) struct Current {
    entry: Entry,
    wr_id: u64,
    /// Its status, and in the upper half [`CHECKSUMS`](Self::CHECKSUMS) and [`WANTS_SYNC`](Self::WANTS_SYNC).
    state: u64,
    /// What was posted, of a send: [`RawRecord::rest`].
    rest: u64,
    cookie: usize,
}

impl Current {
    /// Stands on any entry; nothing was taken yet.
    pub(super) const fn nothing(entry: Entry) -> Self {
        Self {
            entry,
            wr_id: 0,
            state: 0,
            rest: 0,
            cookie: 0,
        }
    }

    /// A receive whose checksums count.
    const CHECKSUMS: u64 = 1 << 32;
    /// The device is to be told of messages that met no tag.
    const WANTS_SYNC: u64 = 1 << 33;

    const fn state(status: u32, checksums: bool) -> u64 {
        status as u64 | (checksums as u64) << 32
    }

    /// Stands on a completion with success.
    #[inline(always)]
    fn set(&mut self, entry: Entry, work: RawRecord, checksums: bool, cookie: usize) {
        self.entry = entry;
        self.wr_id = work.wr_id;
        self.state = Self::state(WcStatus::SUCCESS.0, checksums);
        self.rest = work.rest;
        self.cookie = cookie;
    }

    const fn work(&self) -> RawRecord {
        RawRecord {
            wr_id: self.wr_id,
            rest: self.rest,
        }
    }
}

impl CompletionQueue {
    /// Takes the first completion. With success, [`end_poll`](Self::end_poll) must follow before the next start.
    ///
    /// # Errors
    ///
    /// See [`NothingTaken`]; there is nothing to end then, and the device is told nothing.
    #[inline]
    pub fn start_poll(&mut self) -> Result<(), NothingTaken> {
        let entry = self.next;
        let op_own = entry.op_own();
        if is_ours(op_own, self.parity) {
            return self.start(entry, op_own);
        }
        // With compression the next entry never looks like ours.
        if self.mode == Mode::Compressed {
            return self.start_otherwise(entry, op_own);
        }
        Err(NothingTaken::Empty)
    }

    /// Begins with an entry that is ours.
    #[inline(never)]
    fn start(&mut self, entry: Entry, op_own: u8) -> Result<(), NothingTaken> {
        if self.mode != Mode::Frequent || self.clock.is_some() {
            return self.start_otherwise(entry, op_own);
        }
        self.readers.begin_one_sided();
        if self.take_frequent(entry, op_own) {
            return Ok(());
        }
        self.start_seldom(entry, op_own)
    }

    /// The visit has begun, with an entry that is not a frequent one.
    #[inline(never)]
    fn start_seldom(&mut self, entry: Entry, op_own: u8) -> Result<(), NothingTaken> {
        if self.take_next(entry, op_own) {
            return Ok(());
        }
        self.nothing_after_all();
        Err(NothingTaken::Empty)
    }

    #[inline(never)]
    fn start_otherwise(&mut self, entry: Entry, op_own: u8) -> Result<(), NothingTaken> {
        if let Some(page) = self.clock {
            // Before anything is taken: a busy clock leaves all as it was.
            self.clock_info = page.read().map_err(|ClockBusy| NothingTaken::ClockBusy)?;
        }
        self.begin_visit();
        if self.take(entry, op_own) {
            return Ok(());
        }
        self.nothing_after_all();
        Err(NothingTaken::Empty)
    }

    /// There were only entries that make no completion; the device has them back.
    #[cold]
    fn nothing_after_all(&mut self) {
        self.end_visit();
        if self.ci & 0xff_ffff != self.doorbell.told() {
            self.doorbell.publish(self.ci);
        }
    }

    /// Takes the next completion, if there is one; if not, the fields are still those of the last. There is none unless
    /// [`start_poll`](Self::start_poll) took one and neither [`end_poll`](Self::end_poll) nor [`poll`](Self::poll) came since.
    #[inline]
    pub fn next_poll(&mut self) -> bool {
        // SAFETY: a visit lasts.
        self.readers.queues.is_visiting() && unsafe { self.next_poll_unchecked() }
    }

    /// As [`next_poll`](Self::next_poll), for callers that keep its order.
    ///
    /// # Safety
    ///
    /// `start_poll` took a completion, and neither `end_poll` nor `poll` came since.
    #[inline]
    pub unsafe fn next_poll_unchecked(&mut self) -> bool {
        let entry = self.next;
        let op_own = entry.op_own();
        if is_ours(op_own, self.parity) {
            return self.take(entry, op_own);
        }
        if self.mode == Mode::Compressed {
            return self.take_otherwise();
        }
        false
    }

    /// Gives what was taken back to the device.
    #[inline]
    pub fn end_poll(&mut self) {
        self.end_visit();
        self.doorbell.publish(self.ci);
    }

    pub(super) fn begin_visit(&mut self) {
        if self.v1 {
            self.readers.begin::<true>();
        } else {
            self.readers.begin::<false>();
        }
    }

    #[inline]
    pub(super) fn end_visit(&mut self) {
        if self.v1 {
            self.readers.end::<true>();
        } else {
            self.readers.end::<false>();
        }
    }

    /// Takes an entry that makes a completion, and drops at most a lap of others. A visit has begun; `entry` is the next one
    /// and, unless entries may be compressed, ours.
    ///
    /// What is frequent is done here, as in `run` and without a call; all else is left to the functions below, as it was.
    #[inline(never)]
    fn take(&mut self, entry: Entry, op_own: u8) -> bool {
        self.mode == Mode::Frequent && self.take_frequent(entry, op_own)
            || self.take_next(entry, op_own)
    }

    /// Takes an entry that is ours, if it is a frequent one.
    #[inline(always)]
    fn take_frequent(&mut self, entry: Entry, op_own: u8) -> bool {
        barrier::completion_is_read_after_its_owner_bit();
        entry.prefetch::<false>(1);
        let finders = self.readers.finders();
        if op_own == REQUEST | self.parity {
            // SAFETY: a visit has begun.
            let queue = unsafe { finders.any(entry) };
            let work = queue.work(entry.last_word());
            if !work.is_plain() {
                return false;
            }
            // SAFETY: the record is plain.
            unsafe { queue.send_unchecked() }.complete(work.head());
            self.current.set(entry, work, false, queue.cookie());
        } else {
            if op_own & !SOLICITED != CqeOpcode::RESP_SEND.0 << 4 | self.parity {
                return false;
            }
            // SAFETY: a visit has begun.
            let queue = unsafe { finders.any(entry) };
            let Some(recv) = queue.plain_receive() else {
                return false;
            };
            let wr_id = recv.wr_id(entry.last_word() >> 16);
            recv.complete_one();
            let work = RawRecord { wr_id, rest: 0 };
            self.current.set(entry, work, false, queue.cookie());
        }
        self.step::<false>(entry);
        true
    }

    /// The same for all entries of 64 bytes without data inside.
    #[inline(never)]
    fn take_next(&mut self, entry: Entry, op_own: u8) -> bool {
        if !matches!(self.mode, Mode::Narrow | Mode::Frequent) {
            return self.take_otherwise();
        }
        barrier::completion_is_read_after_its_owner_bit();
        entry.prefetch::<false>(1);
        let kind = (op_own ^ self.parity) & !SOLICITED;
        let finders = self.readers.finders();
        if kind == REQUEST {
            // SAFETY: a visit has begun.
            if let Some(request) = unsafe { parse::complete_request::<true>(finders, entry) } {
                let cookie = request.queue.cookie();
                self.current.set(entry, request.work, false, cookie);
                self.step::<false>(entry);
                return true;
            }
        } else if is_plain_receive(kind) {
            // SAFETY: a visit has begun.
            if let Some(receive) = unsafe { parse::complete_receive::<true>(finders, entry, None) }
            {
                let cookie = receive.queue.cookie();
                let work = RawRecord {
                    wr_id: receive.wr_id,
                    rest: 0,
                };
                self.current.set(entry, work, receive.checksums, cookie);
                self.step::<false>(entry);
                return true;
            }
        }
        self.take_otherwise()
    }

    #[cold]
    #[inline(never)]
    fn take_otherwise(&mut self) -> bool {
        if self.v1 {
            self.take_any::<true>()
        } else {
            self.take_any::<false>()
        }
    }

    fn take_any<const V1: bool>(&mut self) -> bool {
        for _ in 0..self.ring.count() {
            let Some(entry) = self.entry_at(self.ci) else {
                return false;
            };
            barrier::completion_is_read_after_its_owner_bit();
            self.remember(entry);
            self.go_to(self.ci.wrapping_add(1));
            // SAFETY: a visit has begun.
            match unsafe { self.take_one::<V1>(entry) } {
                Some(current) => {
                    self.current = current;
                    return true;
                }
                None => continue,
            }
        }
        false
    }

    /// What an entry is, or `None` if it makes no completion.
    ///
    /// # Safety
    ///
    /// A visit has begun; the entry is ours.
    unsafe fn take_one<const V1: bool>(&mut self, entry: Entry) -> Option<Current> {
        let finders = self.readers.finders();
        let cqe = entry.get();
        let kind = parse::request_kind(cqe.send_opcode());
        let current = match cqe.opcode() {
            // Data inside are looked for after reads and atomics only.
            CqeOpcode::REQ if !kind.reads || cqe.op_own.raw_format() == 0 => {
                // SAFETY: passed on.
                unsafe { parse::complete_request::<V1>(finders, entry) }
                    .map(|request| (request, WcStatus::SUCCESS))
                    .map(|(request, status)| Current {
                        entry,
                        wr_id: request.work.wr_id,
                        state: Current::state(status.0, false),
                        rest: request.work.rest,
                        cookie: request.queue.cookie(),
                    })
            }
            CqeOpcode::REQ => {
                let data = self.inline_data(entry, kind.byte_len(cqe.byte_cnt.get()));
                data.and_then(|data| {
                    // SAFETY: passed on.
                    let taken = unsafe { parse::complete_read::<V1>(finders, entry, data) };
                    let (request, status) = taken?;
                    Some(Current {
                        entry,
                        wr_id: request.work.wr_id,
                        state: Current::state(status.0, false),
                        rest: request.work.rest,
                        cookie: request.queue.cookie(),
                    })
                })
            }
            _ if is_tagged(&cqe) => {
                let data = self.inline_data(entry, cqe.byte_cnt.get());
                // SAFETY: passed on.
                unsafe { parse::complete_tagged::<V1>(finders, entry, data) }.map(
                    |(queue, done)| Current {
                        entry,
                        wr_id: done.wr_id,
                        state: Current::state(done.status.0, false)
                            | if done.wants_sync {
                                Current::WANTS_SYNC
                            } else {
                                0
                            },
                        rest: 0,
                        cookie: queue.cookie(),
                    },
                )
            }
            opcode if opcode.is_responder() => {
                let data = self.inline_data(entry, cqe.byte_cnt.get());
                if data.is_none() && cqe.op_own.raw_format() != 0 {
                    None
                } else {
                    // SAFETY: passed on.
                    unsafe { parse::complete_receive::<V1>(finders, entry, data) }.map(|receive| {
                        Current {
                            entry,
                            wr_id: receive.wr_id,
                            state: Current::state(receive.status.0, receive.checksums),
                            rest: 0,
                            cookie: receive.queue.cookie(),
                        }
                    })
                }
            }
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
                // SAFETY: passed on.
                match unsafe { self.complete_error::<V1>(entry) } {
                    // A page fault that was repaired.
                    Some(None) => return None,
                    Some(Some(failed)) => Some(Current {
                        entry,
                        wr_id: failed.wr_id,
                        state: Current::state(cqe.as_error().syndrome.wc_status(), false),
                        rest: failed.work.rest,
                        cookie: failed.cookie,
                    }),
                    None => None,
                }
            }
            CqeOpcode::RESIZE_CQ => return None,
            CqeOpcode::SIG_ERR => {
                self.keep_signature_error(entry);
                return None;
            }
            _ => None,
        };
        if current.is_none() {
            self.dropped += 1;
        }
        current
    }

    #[inline]
    fn current(&self) -> Cqe64 {
        self.current.entry.get()
    }

    /// The number that the work request was posted with.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// How it ended: `enum ibv_wc_status`.
    #[inline]
    pub fn status(&self) -> u32 {
        self.current.state as u32
    }

    /// The [`cookie`](super::super::QueueRecord::cookie) of the queue that it is about.
    #[inline]
    pub fn cookie(&self) -> usize {
        self.current.cookie
    }

    /// What completed: `enum ibv_wc_opcode`; of a failed receive, RECV.
    #[inline]
    pub fn read_opcode(&self) -> u32 {
        let cqe = self.current();
        match cqe.opcode() {
            CqeOpcode::REQ | CqeOpcode::REQ_ERR => {
                parse::request_opcode(parse::request_kind(cqe.send_opcode()), self.current.work())
            }
            CqeOpcode::RESP_WR_IMM => opcode::RECV_RDMA_WITH_IMM,
            _ if cqe.app == TAG_MATCHING => tag_opcode(&cqe),
            _ => opcode::RECV,
        }
    }

    /// Bytes, as the entry says.
    #[inline]
    pub fn read_byte_len(&self) -> u32 {
        self.current().byte_cnt.get()
    }

    /// The device's own number of an error.
    #[inline]
    pub fn read_vendor_err(&self) -> u32 {
        self.current().as_error().vendor_err_synd.into()
    }

    /// Immediate data in network order as it stands in memory, or the invalidated key as a number
    /// (`ibv_wc_read_imm_data`, `ibv_wc_read_invalidated_rkey`).
    #[inline]
    pub fn read_imm_or_rkey(&self) -> u32 {
        let cqe = self.current();
        let number = cqe.imm_inval_pkey.get();
        if cqe.opcode() == CqeOpcode::RESP_SEND_INV {
            number
        } else {
            number.to_be()
        }
    }

    /// `enum ibv_wc_flags`.
    #[inline]
    pub fn read_wc_flags(&self) -> u32 {
        let cqe = self.current();
        let mut flags = match cqe.opcode() {
            CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM => flag::WITH_IMM,
            CqeOpcode::RESP_SEND_INV => flag::WITH_INV,
            _ => 0,
        };
        if self.current.state & Current::CHECKSUMS != 0 && cqe.is_ip_checksum_ok() {
            flags |= flag::IP_CSUM_OK;
        }
        if cqe.has_grh() {
            flags |= flag::GRH;
        }
        if self.current.state & Current::WANTS_SYNC != 0 {
            flags |= flag::TM_SYNC_REQ;
        }
        if cqe.app == TAG_MATCHING {
            flags |= tag_flags(&cqe);
        }
        flags
    }

    /// Number of the local queue pair.
    #[inline]
    pub fn read_qp_num(&self) -> u32 {
        self.current().qpn()
    }

    /// Number of the remote queue pair.
    #[inline]
    pub fn read_src_qp(&self) -> u32 {
        self.current().src_qp()
    }

    /// Local identifier of the sender.
    #[inline]
    pub fn read_slid(&self) -> u32 {
        self.current().slid.get().into()
    }

    /// Service level.
    #[inline]
    pub fn read_sl(&self) -> u8 {
        self.current().sl()
    }

    /// Low bits of the destination's local identifier.
    #[inline]
    pub fn read_dlid_path_bits(&self) -> u8 {
        self.current().dlid_path_bits()
    }

    /// When it completed, in the device's time.
    #[inline]
    pub fn read_completion_ts(&self) -> u64 {
        self.current().timestamp.get()
    }

    /// When it completed, in ns of wall-clock time: by the kernel's clock page as it was when polling started, or as the
    /// device says, where the queue was created without a page for a device that knows the time.
    #[inline]
    pub fn read_completion_wallclock_ns(&self) -> u64 {
        let time = self.read_completion_ts();
        if self.clock.is_some() {
            self.clock_info.to_ns(time)
        } else {
            time
        }
    }

    /// The clock page's contents when polling started.
    pub fn clock_info(&self) -> ClockInfo {
        self.clock_info
    }

    /// The VLAN tag that was taken off.
    #[inline]
    pub fn read_cvlan(&self) -> u16 {
        self.current().vlan_info.get()
    }

    /// Tag of the flow rule that the packet met.
    #[inline]
    pub fn read_flow_tag(&self) -> u32 {
        self.current().flow_tag()
    }

    /// Tag and private data of a tagged message (`struct ibv_wc_tm_info`): a header of {opcode, 3 bytes, data, tag} stands
    /// at the entry's start (infiniband/tm_types.h `struct ibv_tmh`).
    #[inline]
    pub fn read_tm_info(&self) -> (u64, u32) {
        let data = self.current().inline_32();
        let private = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
        let tag = [
            data[8], data[9], data[10], data[11], data[12], data[13], data[14], data[15],
        ];
        (u64::from_be_bytes(tag), private)
    }
}

const _: () = assert!(Syndrome::WC_SUCCESS == WcStatus::SUCCESS.0);

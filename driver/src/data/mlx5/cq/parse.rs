//! From an entry to what it means for the queues it is about.
//!
//! Both ways of polling stand on these two functions: they find the queue, take the work request's number from its
//! record, copy inline data, and give the work request's place back. Nothing here formats, allocates or panics.

use wqe_format::mlx5::{CqeFormat, CqeOpcode, Opcode};
use wqe_format::rxe::WcStatus;

use super::super::record::{QueueRecord, RawRecord, ReceiveSide, WorkKind, WorkRecord};
use super::super::srq::SrqShared;
use super::super::table::{Finder, Mark, Reader};
use super::super::tags::{InCompletion, TagCompletion, TagList};
use super::completion::{flag, opcode, pair};
use super::ring::Entry;
use super::scatter::{self, InlineData};

/// What a send opcode says about its completion.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct RequestKind {
    /// Status and `enum ibv_wc_opcode`, as they stand in a completion.
    pub(super) status_opcode: u64,
    /// Source and `enum ibv_wc_flags`, as they stand in a completion.
    pub(super) source_flags: u64,
    /// Which bits of the byte count count, and what is set besides: a length that the entry has, 8, or none.
    length_mask: u32,
    length_fixed: u32,
    pub(super) opcode: u32,
    /// Whether bytes are read from the peer, which the device may put into the completion.
    pub(super) reads: bool,
    /// Whether the opcode is that of the posted work request, as its record has it.
    from_record: bool,
}

impl RequestKind {
    const fn of(opcode: u32, flags: u32) -> Self {
        Self {
            status_opcode: pair(WcStatus::SUCCESS.0, opcode),
            source_flags: pair(0, flags),
            length_mask: 0,
            length_fixed: 0,
            opcode,
            reads: false,
            from_record: false,
        }
    }

    /// Bytes read from the peer, 0 for other operations.
    #[inline(always)]
    pub(super) const fn byte_len(&self, byte_count: u32) -> u32 {
        byte_count & self.length_mask | self.length_fixed
    }
}

/// By send opcode (PRM; the numbers that libibverbs gives them: rdma-core providers/mlx5/cq.c `handle_good_req`).
static REQUESTS: [RequestKind; 256] = {
    let mut table = [RequestKind::of(opcode::SEND, 0); 256];
    table[Opcode::RDMA_WRITE.0 as usize] = RequestKind::of(opcode::RDMA_WRITE, 0);
    table[Opcode::RDMA_WRITE_IMM.0 as usize] = RequestKind::of(opcode::RDMA_WRITE, flag::WITH_IMM);
    table[Opcode::SEND_IMM.0 as usize] = RequestKind::of(opcode::SEND, flag::WITH_IMM);
    table[Opcode::RDMA_READ.0 as usize] = RequestKind::of(opcode::RDMA_READ, 0);
    table[Opcode::RDMA_READ.0 as usize].length_mask = u32::MAX;
    table[Opcode::RDMA_READ.0 as usize].reads = true;
    table[Opcode::ATOMIC_CS.0 as usize] = RequestKind::of(opcode::COMP_SWAP, 0);
    table[Opcode::ATOMIC_CS.0 as usize].length_fixed = 8;
    table[Opcode::ATOMIC_CS.0 as usize].reads = true;
    table[Opcode::ATOMIC_MASKED_CS.0 as usize] = table[Opcode::ATOMIC_CS.0 as usize];
    table[Opcode::ATOMIC_FA.0 as usize] = RequestKind::of(opcode::FETCH_ADD, 0);
    table[Opcode::ATOMIC_FA.0 as usize].length_fixed = 8;
    table[Opcode::ATOMIC_FA.0 as usize].reads = true;
    table[Opcode::ATOMIC_MASKED_FA.0 as usize] = table[Opcode::ATOMIC_FA.0 as usize];
    table[Opcode::TSO.0 as usize] = RequestKind::of(opcode::TSO, 0);
    table[Opcode::UMR.0 as usize].from_record = true;
    table[Opcode::SET_PSV.0 as usize].from_record = true;
    table[Opcode::NOP.0 as usize].from_record = true;
    table[Opcode::MMO.0 as usize].from_record = true;
    table
};

/// What a send opcode says about its completion.
#[inline(always)]
pub(super) fn request_kind(send_opcode: Opcode) -> &'static RequestKind {
    &REQUESTS[send_opcode.0 as usize]
}

/// The mark of a kind whose completions say more than what completed: a length or flags.
const SAYS_MORE: u64 = 1 << 63;

/// By send opcode: `enum ibv_wc_opcode` in the upper half and [`SAYS_MORE`]; the lower half is zero, as a successful
/// status is.
static SENDS: [u64; 256] = {
    const { assert!(WcStatus::SUCCESS.0 == 0) };
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let kind = &REQUESTS[at];
        let more = kind.reads || kind.source_flags != 0;
        table[at] = (kind.opcode as u64) << 32 | if more { SAYS_MORE } else { 0 };
        at += 1;
    }
    table
};

/// A send opcode's `enum ibv_wc_opcode` in the upper half, negative as a signed number if its completions say more.
#[inline(always)]
pub(super) fn send_kind(send_opcode: Opcode) -> u64 {
    SENDS[send_opcode.0 as usize]
}

/// Status and opcode, as they stand in a completion, of a kind that says no more.
#[inline(always)]
pub(super) const fn status_opcode(kind: u64) -> u64 {
    if cfg!(target_endian = "little") {
        kind
    } else {
        pair(WcStatus::SUCCESS.0, (kind >> 32) as u32)
    }
}

/// `enum ibv_wc_opcode` of a work request whose record says more than the completion.
#[cold]
fn opcode_of_record(kind: &RequestKind, work: &WorkRecord) -> u32 {
    match work.kind {
        WorkKind::Raw => opcode::DRIVER2,
        _ if !kind.from_record => kind.opcode,
        WorkKind::BindMw => opcode::BIND_MW,
        WorkKind::LocalInv => opcode::LOCAL_INV,
        WorkKind::Mkey => opcode::DRIVER1,
        WorkKind::Memcpy => opcode::DRIVER3,
        WorkKind::Canceled => request_kind(Opcode(work.opcode)).opcode,
        WorkKind::Plain => kind.opcode,
    }
}

/// `enum ibv_wc_opcode` of a send completion.
#[inline(always)]
pub(super) fn request_opcode(kind: &RequestKind, work: RawRecord) -> u32 {
    if !work.is_plain() {
        return opcode_of_record(kind, &work.decode());
    }
    kind.opcode
}

/// Where the queues of a device are looked up.
#[derive(Debug)]
pub(super) struct Readers {
    /// By user index (entries of version 1), or by queue pair number (version 0).
    pub(super) queues: Reader,
    /// Version 0: shared receive queues by their number.
    pub(super) shared: Option<Reader>,
}

impl Readers {
    #[inline(always)]
    pub(super) fn begin<const V1: bool>(&mut self) {
        self.queues.begin();
        if !V1 && let Some(shared) = &mut self.shared {
            shared.begin();
        }
    }

    /// As [`begin`](Self::begin) of version 1, of a table that [needs no barrier](Reader::is_one_sided).
    #[inline(always)]
    pub(super) fn begin_one_sided(&mut self) -> Mark {
        self.queues.begin_one_sided()
    }

    /// As [`end`](Self::end), of a visit whose mark is at hand.
    ///
    /// # Safety
    ///
    /// The mark is of the visit that ends here.
    #[inline(always)]
    pub(super) unsafe fn end_one_sided(&mut self, mark: Mark) {
        // SAFETY: passed on.
        unsafe { self.queues.end_one_sided(mark) };
    }

    #[inline(always)]
    pub(super) fn end<const V1: bool>(&mut self) {
        self.queues.end();
        if !V1 && let Some(shared) = &mut self.shared {
            shared.end();
        }
    }

    /// What looks up during a visit.
    #[inline(always)]
    pub(super) fn finders(&self) -> Finders {
        Finders {
            queues: self.queues.finder(),
            shared: self.shared.as_ref().map(Reader::finder),
        }
    }
}

/// Looks queues up during a visit of [`Readers`].
#[derive(Clone, Copy)]
pub(super) struct Finders {
    queues: Finder,
    shared: Option<Finder>,
}

impl Finders {
    /// Whatever an entry of version 1 is about, or nobody's record.
    ///
    /// # Safety
    ///
    /// Between [`begin`](Readers::begin) and [`end`](Readers::end), and the record is not used after that.
    #[inline(always)]
    pub(super) unsafe fn any<'a>(self, cqe: Entry) -> &'a QueueRecord {
        // SAFETY: passed on.
        unsafe { self.queues.find_any(cqe.user_index_parts()) }
    }

    /// The queue pair of a send completion.
    ///
    /// # Safety
    ///
    /// Between [`begin`](Readers::begin) and [`end`](Readers::end), and the record is not used after that.
    #[inline(always)]
    unsafe fn requester<'a, const V1: bool>(self, cqe: Entry) -> Option<&'a QueueRecord> {
        if V1 {
            // SAFETY: passed on.
            return unsafe { self.queues.find(cqe.get().user_index()) };
        }
        // SAFETY: passed on.
        unsafe { self.queues.find(cqe.get().qpn()) }
    }

    /// The queue of a receive completion.
    ///
    /// # Safety
    ///
    /// As for [`requester`](Self::requester).
    #[inline(always)]
    unsafe fn responder<'a, const V1: bool>(self, cqe: Entry) -> Option<&'a QueueRecord> {
        if !V1 && cqe.get().user_index() != 0 {
            // SAFETY: passed on.
            return unsafe { self.shared?.find(cqe.get().user_index()) };
        }
        // SAFETY: passed on.
        unsafe { self.requester::<V1>(cqe) }
    }
}

/// A send completion whose queue was found.
pub(super) struct Request<'a> {
    pub(super) queue: &'a QueueRecord,
    pub(super) work: RawRecord,
}

/// Finds the work request of a send completion, and says that it and all before it are complete. `None`: no such queue.
///
/// # Safety
///
/// As for [`Finders::requester`]; the entry is the program's.
#[inline(always)]
pub(super) unsafe fn complete_request<'a, const V1: bool>(
    finders: Finders,
    cqe: Entry,
) -> Option<Request<'a>> {
    // SAFETY: passed on.
    let queue = unsafe { finders.requester::<V1>(cqe) }?;
    let send = queue.send()?;
    let work = send.raw_record(u32::from(cqe.get().wqe_counter.get()));
    send.complete(work.head());
    Some(Request { queue, work })
}

/// As [`complete_request`], of a READ or atomic whose data are in the completion; says how the copy went.
///
/// # Safety
///
/// As for [`complete_request`] and [`scatter::to_send_queue`].
#[cold]
pub(super) unsafe fn complete_read<'a, const V1: bool>(
    finders: Finders,
    cqe: Entry,
    data: InlineData,
) -> Option<(Request<'a>, WcStatus)> {
    // SAFETY: passed on.
    let queue = unsafe { finders.requester::<V1>(cqe) }?;
    let send = queue.send()?;
    let work = send.raw_record(u32::from(cqe.get().wqe_counter.get()));
    // A record that is not ahead of the tail is of an earlier lap: its buffers may be gone.
    let status = if (work.head().wrapping_sub(send.tail()) as i32) <= 0 {
        WcStatus::GENERAL_ERR
    } else {
        // SAFETY: passed on; the work request is posted and not complete.
        unsafe { scatter::to_send_queue(queue, send, u32::from(cqe.get().wqe_counter.get()), data) }
    };
    send.complete(work.head());
    Some((Request { queue, work }, status))
}

/// A receive completion whose queue was found.
pub(super) struct Receive<'a> {
    pub(super) queue: &'a QueueRecord,
    pub(super) wr_id: u64,
    pub(super) status: WcStatus,
    /// Whether its checksums count: of a queue pair with a receive queue of its own, as libmlx5 has it.
    pub(super) checksums: bool,
}

/// Finds the work request of a receive completion, copies what the completion has of its data, and gives its place
/// back. `None`: no such queue, or it receives nothing.
///
/// # Safety
///
/// As for [`Finders::requester`] and, with data, [`scatter::to_receive_queue`].
#[inline(always)]
pub(super) unsafe fn complete_receive<'a, const V1: bool>(
    finders: Finders,
    cqe: Entry,
    data: Option<InlineData>,
) -> Option<Receive<'a>> {
    // SAFETY: passed on.
    let queue = unsafe { finders.responder::<V1>(cqe) }?;
    let index = u32::from(cqe.get().wqe_counter.get());
    let mut status = WcStatus::SUCCESS;
    let mut checksums = false;
    let wr_id = if let ReceiveSide::Own(recv) = queue.receive() {
        let wr_id = recv.wr_id(index);
        if let Some(data) = data {
            // SAFETY: passed on.
            status = unsafe { scatter::to_receive_queue(recv, index, data) };
        }
        recv.complete_one();
        checksums = queue.has_checksums();
        wr_id
    } else {
        let srq = match queue.receive() {
            ReceiveSide::Shared(srq) => srq,
            // What is about tags is for `complete_tagged`.
            ReceiveSide::Tagged(srq) if cqe.get().app != TAG_MATCHING => srq,
            _ => return None,
        };
        let wr_id = srq.wr_id(index);
        if let Some(data) = data {
            // SAFETY: passed on.
            status = unsafe { scatter::to_shared_queue(srq, index, data) };
        }
        srq.release(index);
        wr_id
    };
    Some(Receive {
        queue,
        wr_id,
        status,
        checksums,
    })
}

/// `app` of an entry about tag matching (rdma-core providers/mlx5/cq.c `MLX5_CQE_APP_TAG_MATCHING`).
pub(super) const TAG_MATCHING: u8 = 1;

/// An entry about tags, of a shared receive queue that has some: a message, or a change of its list. `None`: no such queue, or
/// no such operation.
///
/// # Safety
///
/// As for [`complete_receive`].
#[cold]
#[inline(never)]
pub(super) unsafe fn complete_tagged<'a, const V1: bool>(
    finders: Finders,
    entry: Entry,
    data: Option<InlineData>,
) -> Option<(&'a QueueRecord, TagCompletion)> {
    // SAFETY: passed on.
    let queue = unsafe { finders.responder::<V1>(entry) }?;
    let ReceiveSide::Tagged(srq) = queue.receive() else {
        return None;
    };
    let tags = srq.tags()?;
    let cqe = entry.get();
    if !TagList::is_of_receive(&cqe) {
        let data = data.map(|data| InCompletion {
            at: data.at,
            room: data.room,
            length: data.length,
        });
        // SAFETY: the entry is the program's, and so is the buffer of a tag whose message came.
        return unsafe { tags.complete(&cqe, data) }.map(|done| (queue, done));
    }
    let index = u32::from(cqe.wqe_counter.get());
    let wr_id = srq.wr_id(index);
    let status = match data {
        // SAFETY: passed on.
        Some(data) => unsafe { scatter::to_shared_queue(srq, index, data) },
        None => WcStatus::SUCCESS,
    };
    let wants_sync = tags.took_unexpected(&cqe);
    srq.release(index);
    let done = TagCompletion {
        wr_id,
        status,
        wants_sync,
    };
    Some((queue, done))
}

/// What a kind of receive says about its completion.
#[derive(Clone, Copy)]
pub(super) struct ReceiveKind {
    /// `enum ibv_wc_opcode`.
    pub(super) opcode: u32,
    /// `enum ibv_wc_flags`.
    pub(super) flags: u32,
}

impl ReceiveKind {
    const fn of(opcode: u32, flags: u32) -> Self {
        Self { opcode, flags }
    }

    /// Immediate data as its bytes stand in memory (libibverbs gives them so), the invalidated key as a number, or 0.
    #[inline(always)]
    pub(super) const fn imm_or_rkey(&self, number: u32) -> u32 {
        if self.flags == 0 {
            0
        } else if self.flags == flag::WITH_INV {
            number
        } else {
            number.to_be()
        }
    }
}

/// By [`CqeOpcode`].
static RECEIVES: [ReceiveKind; 16] = {
    let mut table = [ReceiveKind::of(opcode::RECV, 0); 16];
    table[CqeOpcode::RESP_WR_IMM.0 as usize] =
        ReceiveKind::of(opcode::RECV_RDMA_WITH_IMM, flag::WITH_IMM);
    table[CqeOpcode::RESP_SEND_IMM.0 as usize] = ReceiveKind::of(opcode::RECV, flag::WITH_IMM);
    table[CqeOpcode::RESP_SEND_INV.0 as usize] = ReceiveKind::of(opcode::RECV, flag::WITH_INV);
    table
};

/// What a kind of receive says about its completion.
#[inline(always)]
pub(super) fn receive_kind(op_own: u8) -> &'static ReceiveKind {
    &RECEIVES[usize::from(op_own >> 4)]
}

/// The shared receive queue whose entry met a page fault, if the error is one: the entry is posted again, and there is no
/// completion.
///
/// # Safety
///
/// As for [`Finders::requester`].
#[cold]
pub(super) unsafe fn faulted_shared_queue<'a, const V1: bool>(
    finders: Finders,
    cqe: Entry,
) -> Option<&'a SrqShared> {
    if cqe.get().opcode() != CqeOpcode::RESP_ERR || !cqe.get().as_error().is_odp_page_fault() {
        return None;
    }
    // SAFETY: passed on.
    let queue = unsafe { finders.responder::<V1>(cqe) }?;
    match queue.receive() {
        ReceiveSide::Shared(srq) | ReceiveSide::Tagged(srq) => Some(srq),
        _ => None,
    }
}

/// Bytes that an entry of a format has room for.
pub(super) const fn inline_room(format: CqeFormat) -> u32 {
    match format {
        CqeFormat::INLINE_32 => 32,
        CqeFormat::INLINE_64 => 64,
        _ => 0,
    }
}

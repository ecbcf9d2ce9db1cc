//! From an entry to what it means for the queues it is about.
//!
//! Both ways of polling stand on these two functions: they find the queue, take the work request's number from its
//! record, copy inline data, and give the work request's place back. Nothing here formats, allocates or panics.

use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, Opcode};
use wqe_format::rxe::WcStatus;

use super::super::record::{QueueRecord, ReceiveSide, WorkKind, WorkRecord};
use super::super::srq::SrqShared;
use super::super::table::Reader;
use super::completion::{flag, opcode};
use super::scatter::{self, InlineData};

/// What a send opcode says about its completion.
#[derive(Clone, Copy)]
pub(super) struct RequestKind {
    /// `enum ibv_wc_opcode`.
    pub(super) opcode: u8,
    /// `enum ibv_wc_flags`.
    pub(super) flags: u8,
    /// Which bits of the byte count count, and what is set in its stead: a length that the entry has, 8, or none.
    length_mask: u32,
    length_fixed: u8,
    /// Whether the opcode is that of the posted work request, as its record has it.
    from_record: bool,
}

impl RequestKind {
    const PLAIN: Self = Self {
        opcode: opcode::SEND as u8,
        flags: 0,
        length_mask: 0,
        length_fixed: 0,
        from_record: false,
    };

    const fn of(opcode: u32) -> Self {
        Self {
            opcode: opcode as u8,
            ..Self::PLAIN
        }
    }

    /// Bytes read from the peer, 0 for other operations.
    #[inline(always)]
    pub(super) const fn byte_len(&self, byte_count: u32) -> u32 {
        byte_count & self.length_mask | self.length_fixed as u32
    }

    /// Whether the device may put what it read into the completion.
    #[inline]
    pub(super) const fn reads(&self) -> bool {
        self.length_mask != 0 || self.length_fixed != 0
    }
}

/// By send opcode (PRM; the numbers that libibverbs gives them: rdma-core providers/mlx5/cq.c `handle_good_req`).
const REQUESTS: [RequestKind; 256] = {
    let mut table = [RequestKind::PLAIN; 256];
    table[Opcode::RDMA_WRITE.0 as usize] = RequestKind::of(opcode::RDMA_WRITE);
    table[Opcode::RDMA_WRITE_IMM.0 as usize] = RequestKind {
        flags: flag::WITH_IMM as u8,
        ..RequestKind::of(opcode::RDMA_WRITE)
    };
    table[Opcode::SEND_IMM.0 as usize].flags = flag::WITH_IMM as u8;
    table[Opcode::RDMA_READ.0 as usize] = RequestKind {
        length_mask: u32::MAX,
        ..RequestKind::of(opcode::RDMA_READ)
    };
    let swap = RequestKind {
        length_fixed: 8,
        ..RequestKind::of(opcode::COMP_SWAP)
    };
    table[Opcode::ATOMIC_CS.0 as usize] = swap;
    table[Opcode::ATOMIC_MASKED_CS.0 as usize] = swap;
    let add = RequestKind {
        length_fixed: 8,
        ..RequestKind::of(opcode::FETCH_ADD)
    };
    table[Opcode::ATOMIC_FA.0 as usize] = add;
    table[Opcode::ATOMIC_MASKED_FA.0 as usize] = add;
    table[Opcode::TSO.0 as usize] = RequestKind::of(opcode::TSO);
    table[Opcode::UMR.0 as usize].from_record = true;
    table[Opcode::SET_PSV.0 as usize].from_record = true;
    table[Opcode::NOP.0 as usize].from_record = true;
    table[Opcode::MMO.0 as usize].from_record = true;
    table
};

/// What a send opcode says about its completion.
#[inline(always)]
pub(super) fn request_kind(send_opcode: Opcode) -> RequestKind {
    REQUESTS[send_opcode.0 as usize]
}

/// `enum ibv_wc_opcode` of a work request whose record says more than the completion.
#[cold]
fn opcode_of_record(kind: RequestKind, work: &WorkRecord) -> u32 {
    match work.kind {
        WorkKind::Raw => opcode::DRIVER2,
        _ if !kind.from_record => kind.opcode.into(),
        WorkKind::BindMw => opcode::BIND_MW,
        WorkKind::LocalInv => opcode::LOCAL_INV,
        WorkKind::Mkey => opcode::DRIVER1,
        WorkKind::Memcpy => opcode::DRIVER3,
        // A cancelled work request completes as a NOP, but as what it was.
        WorkKind::Plain => request_kind(Opcode(work.opcode)).opcode.into(),
    }
}

/// `enum ibv_wc_opcode` of a send completion.
#[inline(always)]
pub(super) fn request_opcode(kind: RequestKind, work: &WorkRecord) -> u32 {
    if work.kind != WorkKind::Plain || kind.from_record {
        return opcode_of_record(kind, work);
    }
    kind.opcode.into()
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
    pub(super) fn begin(&mut self) {
        self.queues.begin();
        if let Some(shared) = &mut self.shared {
            shared.begin();
        }
    }

    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.queues.end();
        if let Some(shared) = &mut self.shared {
            shared.end();
        }
    }

    /// The queue pair of a send completion.
    ///
    /// # Safety
    ///
    /// Between [`begin`](Self::begin) and [`end`](Self::end), and the record is not used after that.
    #[inline(always)]
    unsafe fn requester<'a, const V1: bool>(&self, cqe: &Cqe64) -> Option<&'a QueueRecord> {
        let number = if V1 { cqe.user_index() } else { cqe.qpn() };
        // SAFETY: passed on.
        unsafe { self.queues.find(number) }
    }

    /// The queue of a receive completion.
    ///
    /// # Safety
    ///
    /// As for [`requester`](Self::requester).
    #[inline(always)]
    unsafe fn responder<'a, const V1: bool>(&self, cqe: &Cqe64) -> Option<&'a QueueRecord> {
        if !V1 && cqe.user_index() != 0 {
            let shared = self.shared.as_ref()?;
            // SAFETY: passed on.
            return unsafe { shared.find(cqe.user_index()) };
        }
        // SAFETY: passed on.
        unsafe { self.requester::<V1>(cqe) }
    }
}

/// A send completion whose queue was found.
pub(super) struct Request<'a> {
    pub(super) queue: &'a QueueRecord,
    pub(super) work: WorkRecord,
}

/// Finds the work request of a send completion, and says that it and all before it are complete. `None`: no such queue.
///
/// # Safety
///
/// As for [`Readers::requester`]; the entry is the program's.
#[inline(always)]
pub(super) unsafe fn complete_request<'a, const V1: bool>(
    readers: &Readers,
    cqe: &Cqe64,
) -> Option<Request<'a>> {
    // SAFETY: passed on.
    let queue = unsafe { readers.requester::<V1>(cqe) }?;
    let send = queue.send()?;
    let work = send.record(cqe.wqe_counter.get().into());
    send.complete(work.head);
    Some(Request { queue, work })
}

/// As [`complete_request`], of a READ or atomic whose data are in the completion; says how the copy went.
///
/// # Safety
///
/// As for [`complete_request`] and [`scatter::to_send_queue`].
#[cold]
pub(super) unsafe fn complete_read<'a, const V1: bool>(
    readers: &Readers,
    cqe: &Cqe64,
    data: InlineData,
) -> Option<(Request<'a>, WcStatus)> {
    // SAFETY: passed on.
    let queue = unsafe { readers.requester::<V1>(cqe) }?;
    let send = queue.send()?;
    let counter = u32::from(cqe.wqe_counter.get());
    let work = send.record(counter);
    // A record that is not ahead of the tail is of an earlier lap: its buffers may be gone.
    let status = if (work.head.wrapping_sub(send.tail()) as i32) <= 0 {
        WcStatus::GENERAL_ERR
    } else {
        // SAFETY: passed on; the work request is posted and not complete.
        unsafe { scatter::to_send_queue(queue, send, counter, data) }
    };
    send.complete(work.head);
    Some((Request { queue, work }, status))
}

/// A receive completion whose queue was found.
pub(super) struct Receive<'a> {
    pub(super) queue: &'a QueueRecord,
    pub(super) wr_id: u64,
    pub(super) status: WcStatus,
}

/// Finds the work request of a receive completion, copies what the completion has of its data, and gives its place
/// back. `None`: no such queue, or it receives nothing.
///
/// # Safety
///
/// As for [`Readers::requester`] and, with data, [`scatter::to_receive_queue`].
#[inline(always)]
pub(super) unsafe fn complete_receive<'a, const V1: bool>(
    readers: &Readers,
    cqe: &Cqe64,
    data: Option<InlineData>,
) -> Option<Receive<'a>> {
    // SAFETY: passed on.
    let queue = unsafe { readers.responder::<V1>(cqe) }?;
    let index = u32::from(cqe.wqe_counter.get());
    let mut status = WcStatus::SUCCESS;
    let wr_id = match queue.receive() {
        ReceiveSide::Own(recv) => {
            let wr_id = recv.wr_id(index);
            if let Some(data) = data {
                // SAFETY: passed on.
                status = unsafe { scatter::to_receive_queue(recv, index, data) };
            }
            recv.complete_one();
            wr_id
        }
        ReceiveSide::Shared(srq) => {
            let wr_id = srq.wr_id(index);
            if let Some(data) = data {
                // SAFETY: passed on.
                status = unsafe { scatter::to_shared_queue(srq, index, data) };
            }
            srq.release(index);
            wr_id
        }
        ReceiveSide::None => return None,
    };
    Some(Receive {
        queue,
        wr_id,
        status,
    })
}

/// The shared receive queue whose entry met a page fault, if the error is one: the entry is posted again, and there is no
/// completion.
///
/// # Safety
///
/// As for [`Readers::requester`].
#[cold]
pub(super) unsafe fn faulted_shared_queue<'a, const V1: bool>(
    readers: &Readers,
    cqe: &Cqe64,
) -> Option<&'a SrqShared> {
    if cqe.opcode() != CqeOpcode::RESP_ERR || !cqe.as_error().is_odp_page_fault() {
        return None;
    }
    // SAFETY: passed on.
    let queue = unsafe { readers.responder::<V1>(cqe) }?;
    match queue.receive() {
        ReceiveSide::Shared(srq) => Some(srq),
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

//! Data that the device put into the completion instead of the program's buffers.
//!
//! A device may save a write by placing up to 32 bytes at the start of the entry's fields, or up to 64 in the lower
//! half of a 128-byte entry (PRM 8.19.2 "inline scatter"). The poller then does what the device would have done: it
//! copies along the scatter list of the work request.
//!
//! A completion that claims more bytes than its kind can hold, or than the list has room for, ends with a length error,
//! and never copies more than the kind holds: what the device says about a length is not trusted.

use core::ptr::NonNull;

use wqe_format::mlx5::{CtrlSegment, DataSegment, Opcode, opmod};
use wqe_format::rxe::WcStatus;

use super::super::record::{QueueKind, QueueRecord, RecvShared, SendShared};
use super::super::srq::SrqShared;

/// Bytes of a unit in which work requests are measured.
const UNIT: usize = 16;
/// Bytes of a basic block of a send queue.
const WQEBB: usize = 64;

/// Data inside a completion.
#[derive(Clone, Copy)]
pub(super) struct InlineData {
    /// Where it stands.
    pub(super) at: NonNull<u8>,
    /// What fits there: 32 or 64.
    pub(super) room: u32,
    /// What the completion says.
    pub(super) length: u32,
}

/// Copies along the entries that `segment` yields.
///
/// # Safety
///
/// `data.at` is readable for `data.room` bytes; every segment describes memory of the program that it gave to the device
/// to write to, or has the key `null_lkey`, which names no memory.
unsafe fn copy_along(
    data: InlineData,
    null_lkey: u32,
    segments: impl Iterator<Item = DataSegment>,
) -> WcStatus {
    if data.length == 0 {
        return WcStatus::SUCCESS;
    }
    if data.length > data.room {
        return WcStatus::LOC_LEN_ERR;
    }
    let mut from = data.at;
    let mut left = data.length;
    for segment in segments {
        let part = left.min(segment.byte_count.get());
        // Key 0: the device has none for memory that does not exist.
        let exists = null_lkey == 0 || segment.lkey.get() != null_lkey;
        if exists && part != 0 {
            let to = segment.addr.get() as usize as *mut u8;
            // SAFETY: `part` bytes inside the entry; the destination is the program's by contract, and is no part of
            // the ring, which no key covers.
            unsafe { from.as_ptr().copy_to(to, part as usize) };
        }
        left -= part;
        if left == 0 {
            return WcStatus::SUCCESS;
        }
        // SAFETY: `part` is less than what was left of `data.room`.
        from = unsafe { from.add(part as usize) };
    }
    WcStatus::LOC_LEN_ERR
}

/// The segment at `offset` of a ring.
///
/// # Safety
///
/// 16 bytes at `offset` are inside the ring, which only the program writes.
unsafe fn segment_at(ring: NonNull<u8>, offset: usize) -> DataSegment {
    // SAFETY: inside the ring by contract.
    let at = unsafe { ring.add(offset) };
    // SAFETY: 16 readable bytes; any bytes are a segment, and it needs no alignment here.
    unsafe { at.cast::<DataSegment>().read_unaligned() }
}

/// Copies to the buffers of entry `index` of a receive queue; the index is brought into the ring's range.
///
/// # Safety
///
/// As for [`copy_along`].
#[cold]
pub(super) unsafe fn to_receive_queue(
    queue: &RecvShared,
    index: u32,
    data: InlineData,
) -> WcStatus {
    let shift = queue.stride_shift();
    let base = ((index & (queue.entries() - 1)) as usize) << shift;
    let first = usize::from(queue.has_signature());
    let segments = (first..(1usize << shift) / UNIT).map(|unit| {
        // SAFETY: inside entry `index`, which is inside the ring.
        unsafe { segment_at(queue.ring(), base + unit * UNIT) }
    });
    // SAFETY: passed on.
    unsafe { copy_along(data, queue.null_lkey(), segments) }
}

/// Copies to the buffers of entry `index` of a shared receive queue.
///
/// # Safety
///
/// As for [`copy_along`].
#[cold]
pub(super) unsafe fn to_shared_queue(queue: &SrqShared, index: u32, data: InlineData) -> WcStatus {
    let shift = queue.stride_shift();
    if index >= queue.entries() {
        return WcStatus::GENERAL_ERR;
    }
    let base = (index as usize) << shift;
    // The first unit links the entries.
    let first = 1;
    let segments = (first..(1usize << shift) / UNIT).map(|unit| {
        // SAFETY: inside entry `index`, which is inside the ring.
        unsafe { segment_at(queue.ring(), base + unit * UNIT) }
    });
    // SAFETY: passed on.
    unsafe { copy_along(data, queue.null_lkey(), segments) }
}

/// Copies to the buffers of the READ or atomic that starts at block `counter` of a send queue.
///
/// # Safety
///
/// As for [`copy_along`].
#[cold]
pub(super) unsafe fn to_send_queue(
    queue: &QueueRecord,
    send: &SendShared,
    counter: u32,
    data: InlineData,
) -> WcStatus {
    if queue.kind() != QueueKind::Rc {
        // libmlx5 has the same rule: other kinds have segments in between.
        return WcStatus::GENERAL_ERR;
    }
    let bytes = send.wqebbs() as usize * WQEBB;
    let start = (counter & (send.wqebbs() - 1)) as usize * WQEBB;
    // SAFETY: a block inside the ring.
    let at = unsafe { send.ring().add(start) };
    // SAFETY: 16 readable bytes of the ring; any bytes are a segment.
    let control = unsafe { at.cast::<CtrlSegment>().read_unaligned() };
    // Of four bytes, though every atomic's completion reports eight.
    let masked = [Opcode::ATOMIC_MASKED_CS, Opcode::ATOMIC_MASKED_FA];
    let is_short =
        control.opmod() == opmod::EXTENDED_ATOMIC_4 && masked.contains(&control.opcode());
    let data = match is_short {
        true => InlineData {
            length: data.length.min(4),
            ..data
        },
        false => data,
    };
    // Units before the scatter list: control, remote address, operands.
    let first = match control.opcode() {
        Opcode::RDMA_READ => 2,
        Opcode::ATOMIC_CS | Opcode::ATOMIC_FA | Opcode::ATOMIC_MASKED_FA => 3,
        // Both operands and both masks fit one unit.
        Opcode::ATOMIC_MASKED_CS if is_short => 3,
        Opcode::ATOMIC_MASKED_CS => 4,
        _ => return WcStatus::REM_INV_REQ_ERR,
    };
    let segments = (first..usize::from(control.ds())).map(|unit| {
        let offset = (start + unit * UNIT) & (bytes - 1);
        // SAFETY: the offset is brought into the ring's range, a multiple of 16 in a ring of a multiple of 64 bytes.
        unsafe { segment_at(send.ring(), offset) }
    });
    // SAFETY: passed on.
    unsafe { copy_along(data, send.null_lkey(), segments) }
}

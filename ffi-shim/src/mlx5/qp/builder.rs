//! The posting verbs of `ibv_qp_ex`: a batch is built call by call and given to the device at the end.

use std::ffi::{c_int, c_void};

use oxverbs::ffi_core::mlx5::{
    InlinePiece, Operation, PostError, QueueKind, Remote, Segmentation, SendFlags, Verb,
};
use oxverbs::ffi_core::wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32 as Be32;

use super::post::{address, binding};
use super::{Send, of};
use crate::abi::objects::{ibv_ah, ibv_mw, ibv_qp_ex};
use crate::abi::work::{ibv_data_buf, ibv_mw_bind_info, ibv_sge, wr_ops};
use crate::common::{as_sges, slice};
use crate::lock::{Locked, QueueLock};

/// `enum ibv_qp_create_send_ops_flags` by bit, as far as mlx5 has them.
mod op {
    pub(super) const WRITE: u64 = 1;
    pub(super) const WRITE_IMM: u64 = 1 << 1;
    pub(super) const SEND: u64 = 1 << 2;
    pub(super) const SEND_IMM: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CMP_SWP: u64 = 1 << 5;
    pub(super) const FETCH_ADD: u64 = 1 << 6;
    pub(super) const LOCAL_INV: u64 = 1 << 7;
    pub(super) const BIND_MW: u64 = 1 << 8;
    pub(super) const SEND_INV: u64 = 1 << 9;
    pub(super) const TSO: u64 = 1 << 10;
}

/// What the kinds of queue pairs can build.
fn offered(kind: QueueKind) -> u64 {
    let unreliable = op::SEND
        | op::SEND_IMM
        | op::SEND_INV
        | op::WRITE
        | op::WRITE_IMM
        | op::LOCAL_INV
        | op::BIND_MW;
    match kind {
        QueueKind::Rc | QueueKind::XrcSend | QueueKind::Dci => {
            unreliable | op::READ | op::CMP_SWP | op::FETCH_ADD
        }
        QueueKind::Uc => unreliable,
        QueueKind::Ud => op::SEND | op::SEND_IMM,
        QueueKind::RawPacket => op::SEND | op::TSO,
        _ => 0,
    }
}

/// The slots of a queue pair; `None` if it lacks one of the operations that the program wants. All that it has are filled,
/// asked for or not, as programs know it from libmlx5.
pub(super) fn ops(kind: QueueKind, atomics: bool, wanted: u64) -> Option<wr_ops> {
    let offered = offered(kind);
    let refused = if atomics {
        0
    } else {
        op::CMP_SWP | op::FETCH_ADD
    };
    if offered == 0 || wanted & (!offered | refused) != 0 {
        return None;
    }
    macro_rules! slot {
        ($bit:expr, $function:expr) => {
            if offered & $bit != 0 {
                Some($function as _)
            } else {
                None
            }
        };
    }
    Some(wr_ops {
        wr_atomic_cmp_swp: slot!(op::CMP_SWP, wr_atomic_cmp_swp),
        wr_atomic_fetch_add: slot!(op::FETCH_ADD, wr_atomic_fetch_add),
        wr_bind_mw: slot!(op::BIND_MW, wr_bind_mw),
        wr_local_inv: slot!(op::LOCAL_INV, wr_local_inv),
        wr_rdma_read: slot!(op::READ, wr_rdma_read),
        wr_rdma_write: slot!(op::WRITE, wr_rdma_write),
        wr_rdma_write_imm: slot!(op::WRITE_IMM, wr_rdma_write_imm),
        wr_send: slot!(op::SEND, wr_send),
        wr_send_imm: slot!(op::SEND_IMM, wr_send_imm),
        wr_send_inv: slot!(op::SEND_INV, wr_send_inv),
        wr_send_tso: slot!(op::TSO, wr_send_tso),
        wr_set_ud_addr: (kind == QueueKind::Ud).then_some(wr_set_ud_addr as _),
        wr_set_xrc_srqn: (kind == QueueKind::XrcSend).then_some(wr_set_xrc_srqn as _),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_atomic_write: None,
        wr_flush: None,
    })
}

/// The send side of a queue pair that has a builder.
///
/// # Safety
///
/// A queue pair of ours that [`ops`] were given to (C1).
#[inline(always)]
unsafe fn locked<'a>(qp: *mut ibv_qp_ex) -> &'a Locked<Send, QueueLock> {
    // SAFETY: a queue pair of ours.
    match &unsafe { of(qp) }.send {
        Some(send) => send,
        // SAFETY: only queue pairs with a send queue get the functions of this file.
        None => unsafe { std::hint::unreachable_unchecked() },
    }
}

/// The send side, whose lock `wr_start` took.
///
/// # Safety
///
/// A queue pair of ours, between `wr_start` and its end on this thread (C1).
#[inline(always)]
unsafe fn held<'a>(qp: *mut ibv_qp_ex) -> &'a mut Send {
    // SAFETY: a queue pair with a builder.
    let send = unsafe { locked(qp) };
    // SAFETY: the lock is held, and each function below has one reference at a time.
    unsafe { send.held() }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours (C1).
    if !unsafe { locked(qp) }.try_hold() {
        // SAFETY: as above.
        return unsafe { wr_start_later(qp) };
    }
    // SAFETY: held now.
    let send = unsafe { held(qp) };
    send.queue.begin_in(&mut send.draft);
}

/// A last call, so that nothing has to be kept over it.
#[cold]
#[inline(never)]
unsafe extern "C" fn wr_start_later(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours (C1).
    unsafe { locked(qp) }.hold();
    // SAFETY: held now.
    let send = unsafe { held(qp) };
    send.queue.begin_in(&mut send.draft);
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a queue pair of ours (C1), between start and complete.
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: the lock has been held since the batch was begun.
    if !unsafe { queue.commit_frequent(draft) } {
        // SAFETY: as above.
        return unsafe { wr_complete_any(qp) };
    }
    // SAFETY: as above; the references above are not used any more.
    unsafe { locked(qp) }.release();
    0
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_complete_any(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a queue pair of ours (C1), between start and complete.
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // All or nothing: an error anywhere posts none of the batch.
    let result = match queue.commit(draft) {
        Ok(_) => 0,
        Err(error) => error.errno(Verb::WrComplete).0,
    };
    // SAFETY: as above; the references above are not used any more.
    unsafe { locked(qp) }.release();
    result
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours (C1), between start and abort.
    unsafe { locked(qp) }.release();
}

/// Begins a work request with the program's `wr_id` and `wr_flags`; errors stay in the draft.
///
/// # Safety
///
/// As for [`held`]; the headers of a segmentation are readable, if they are within the queue's limit.
#[inline(always)]
unsafe fn begin(qp: *mut ibv_qp_ex, operation: &Operation) {
    // SAFETY: the caller's promise.
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: fields of a live object, written by this thread.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = SendFlags(unsafe { (*qp).wr_flags });
    // SAFETY: the caller's promise.
    let _ = unsafe { queue.open_any(draft, wr_id, flags, operation) };
}

/// Begins a frequent work request if nothing is unusual; says whether it did.
///
/// # Safety
///
/// As for [`held`].
#[inline(always)]
unsafe fn begin_frequent(qp: *mut ibv_qp_ex, operation: &Operation) -> bool {
    // SAFETY: the caller's promise.
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: fields of a live object, written by this thread.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = SendFlags(unsafe { (*qp).wr_flags });
    // SAFETY: the lock has been held since the batch was begun.
    unsafe { queue.open_frequent(draft, wr_id, flags, operation) }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: between start and complete (C1).
    if !unsafe { begin_frequent(qp, &Operation::Send) } {
        // SAFETY: as above.
        unsafe { wr_send_any(qp) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_send_any(qp: *mut ibv_qp_ex) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::Send) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    let be = Be32::from_bytes(imm.to_ne_bytes());
    // SAFETY: between start and complete (C1).
    if !unsafe { begin_frequent(qp, &Operation::SendWithImm { imm: be }) } {
        // SAFETY: as above.
        unsafe { wr_send_imm_any(qp, imm) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_send_imm_any(qp: *mut ibv_qp_ex, imm: u32) {
    let imm = Be32::from_bytes(imm.to_ne_bytes());
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::SendWithImm { imm }) };
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::SendWithInv { rkey }) };
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, header: *mut c_void, len: u16, mss: u16) {
    let segmentation = Segmentation {
        header: header.cast_const().cast(),
        header_len: len,
        mss,
    };
    // SAFETY: between start and complete (C1); the headers are readable by the verb's contract.
    unsafe { begin(qp, &Operation::Tso(segmentation)) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: between start and complete (C1).
    if !unsafe { begin_frequent(qp, &Operation::RdmaWrite(Remote { addr, rkey })) } {
        // SAFETY: as above.
        unsafe { wr_rdma_write_any(qp, rkey, addr) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_rdma_write_any(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::RdmaWrite(Remote { addr, rkey })) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    let operation = Operation::RdmaWriteWithImm {
        remote: Remote { addr, rkey },
        imm: Be32::from_bytes(imm.to_ne_bytes()),
    };
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: between start and complete (C1).
    if !unsafe { begin_frequent(qp, &Operation::RdmaRead(Remote { addr, rkey })) } {
        // SAFETY: as above.
        unsafe { wr_rdma_read_any(qp, rkey, addr) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_rdma_read_any(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::RdmaRead(Remote { addr, rkey })) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    let operation = Operation::AtomicCmpAndSwp {
        remote: Remote { addr, rkey },
        compare,
        swap,
    };
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    let operation = Operation::AtomicFetchAndAdd {
        remote: Remote { addr, rkey },
        add,
    };
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::LocalInv { rkey }) };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller's arguments.
    let info = unsafe { &*info };
    // SAFETY: alive by the verb's contract.
    match unsafe { binding(mw, rkey, info) } {
        // SAFETY: between start and complete (C1).
        Some(bind) => unsafe { begin(qp, &Operation::BindMw(bind)) },
        // SAFETY: as above.
        None => unsafe { held(qp) }.draft.refuse(PostError::Incomplete),
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: an address handle by the verb's contract.
    match unsafe { address(ah) } {
        Some(ah) => queue.set_datagram(draft, &ah.to(qpn, qkey)),
        None => draft.refuse(PostError::Incomplete),
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    queue.set_srqn(draft, srqn);
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: the queue's own draft.
    if !unsafe { queue.set_sge_frequent(draft, &Sge { addr, length, lkey }) } {
        // SAFETY: as above.
        unsafe { wr_set_sge_any(qp, lkey, addr, length) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_set_sge_any(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: memory of the program's, readable by the verb's contract.
    let _ = unsafe { queue.set_sge(draft, &Sge { addr, length, lkey }) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: `count` elements by the verb's contract.
    let list = unsafe { slice(list, count) };
    // SAFETY: as in `wr_set_sge`.
    let _ = unsafe { queue.set_sges(draft, as_sges(list)) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, len: usize) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    let piece = InlinePiece {
        addr: addr.cast_const().cast(),
        len,
    };
    // SAFETY: readable by the verb's contract.
    if !unsafe { queue.set_inline_frequent(draft, piece) } {
        // SAFETY: as above.
        unsafe { wr_set_inline_data_any(qp, addr, len) };
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wr_set_inline_data_any(qp: *mut ibv_qp_ex, addr: *mut c_void, len: usize) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    let piece = InlinePiece {
        addr: addr.cast_const().cast(),
        len,
    };
    // SAFETY: readable by the verb's contract.
    let _ = unsafe { queue.set_inline(draft, piece) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft, .. } = unsafe { held(qp) };
    // SAFETY: `count` elements by the verb's contract.
    let list = unsafe { slice(list, count) };
    let pieces = list.iter().map(|piece| InlinePiece {
        addr: piece.addr.cast(),
        len: piece.length,
    });
    // SAFETY: readable by the verb's contract.
    let _ = unsafe { queue.set_inline_list(draft, pieces) };
}

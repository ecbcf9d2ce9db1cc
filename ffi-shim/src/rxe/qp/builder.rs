//! The posting verbs of `ibv_qp_ex`: a batch is built call by call and given to the kernel at the end.

use std::ffi::{c_int, c_void};

use oxverbs::ffi_core::PostError;
use oxverbs::ffi_core::rxe::InlinePiece;
use oxverbs::ffi_core::wqe_format::rxe::{Flush, Operation, SendFlags, Sge, Transport, WrOpcode};
use zerocopy::byteorder::big_endian::U32 as Be32;

use super::post::{binding, datagram};
use super::{Send, of};
use crate::abi::objects::{ibv_ah, ibv_mw, ibv_qp_ex};
use crate::abi::work::{ibv_data_buf, ibv_mw_bind_info, ibv_sge, wr_ops};
use crate::common::{as_sges, slice};

/// `enum ibv_qp_create_send_ops_flags`, by bit.
const OPS: [WrOpcode; 13] = [
    WrOpcode::RdmaWrite,
    WrOpcode::RdmaWriteWithImm,
    WrOpcode::Send,
    WrOpcode::SendWithImm,
    WrOpcode::RdmaRead,
    WrOpcode::AtomicCmpAndSwp,
    WrOpcode::AtomicFetchAndAdd,
    WrOpcode::LocalInv,
    WrOpcode::BindMw,
    WrOpcode::SendWithInv,
    // bit 10 is segmentation offload, which rxe does not have; see `ops`
    WrOpcode::Send,
    WrOpcode::Flush,
    WrOpcode::AtomicWrite,
];
const TSO: u32 = 10;

/// The slots for the operations that the program asked for; `None` if the transport lacks one of them.
pub(super) fn ops(transport: Transport, wanted: u64) -> Option<wr_ops> {
    let mut ops = wr_ops {
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        ..wr_ops::default()
    };
    if transport == Transport::Ud {
        ops.wr_set_ud_addr = Some(wr_set_ud_addr);
    }
    for bit in 0..u64::BITS {
        if wanted & (1 << bit) == 0 {
            continue;
        }
        let opcode = OPS.get(bit as usize).filter(|_| bit != TSO)?;
        if !opcode.is_offered_by(transport) {
            return None;
        }
        match opcode {
            WrOpcode::RdmaWrite => ops.wr_rdma_write = Some(wr_rdma_write),
            WrOpcode::RdmaWriteWithImm => ops.wr_rdma_write_imm = Some(wr_rdma_write_imm),
            WrOpcode::Send => ops.wr_send = Some(wr_send),
            WrOpcode::SendWithImm => ops.wr_send_imm = Some(wr_send_imm),
            WrOpcode::RdmaRead => ops.wr_rdma_read = Some(wr_rdma_read),
            WrOpcode::AtomicCmpAndSwp => ops.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp),
            WrOpcode::AtomicFetchAndAdd => ops.wr_atomic_fetch_add = Some(wr_atomic_fetch_add),
            WrOpcode::LocalInv => ops.wr_local_inv = Some(wr_local_inv),
            WrOpcode::BindMw => ops.wr_bind_mw = Some(wr_bind_mw),
            WrOpcode::SendWithInv => ops.wr_send_inv = Some(wr_send_inv),
            WrOpcode::Flush => ops.wr_flush = Some(wr_flush),
            WrOpcode::AtomicWrite => ops.wr_atomic_write = Some(wr_atomic_write),
        }
    }
    Some(ops)
}

/// The send side, whose lock `wr_start` took.
///
/// # Safety
///
/// A queue pair of ours, between `wr_start` and its end on this thread (C1).
#[inline]
unsafe fn held<'a>(qp: *mut ibv_qp_ex) -> &'a mut Send {
    // SAFETY: a queue pair of ours.
    let send = unsafe { &of(qp).send };
    // SAFETY: the lock is held, and each function below has one reference at a time.
    unsafe { send.held() }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours (C1).
    unsafe { &of(qp).send }.hold();
    // SAFETY: held now.
    let send = unsafe { held(qp) };
    send.draft = send.queue.begin();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a queue pair of ours (C1), between start and complete.
    let ours = unsafe { of(qp) };
    // SAFETY: as above.
    let send = unsafe { held(qp) };
    let Send { queue, draft } = send;
    queue.close(draft);
    // All or nothing: an error anywhere posts none of the batch.
    let result = match draft.error() {
        Some(error) => error.errno().0,
        None if queue.commit(draft) => ours.ring(),
        None => 0,
    };
    ours.send.release();
    result
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours (C1), between start and abort.
    unsafe { &of(qp).send }.release();
}

/// Begins a work request with the program's `wr_id` and `wr_flags`; errors stay in the draft.
///
/// # Safety
///
/// As for [`held`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, operation: &Operation) {
    // SAFETY: the caller's promise.
    let Send { queue, draft } = unsafe { held(qp) };
    queue.close(draft);
    // SAFETY: fields of a live object, written by this thread.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = SendFlags(unsafe { (*qp).wr_flags });
    // Whether the payload is inline is said by the setter, not by this flag.
    let flags = SendFlags(flags.0 & !SendFlags::INLINE.0);
    let _ = queue.open(draft, wr_id, flags, operation, None);
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::Send) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    let imm = Be32::from_bytes(imm.to_ne_bytes());
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::SendWithImm { imm }) };
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::SendWithInv { rkey }) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::RdmaWrite { remote_addr, rkey }) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm: u32) {
    let imm = Be32::from_bytes(imm.to_ne_bytes());
    let operation = Operation::RdmaWriteWithImm {
        remote_addr,
        rkey,
        imm,
    };
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::RdmaRead { remote_addr, rkey }) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    let operation = Operation::AtomicCmpAndSwp {
        remote_addr,
        rkey,
        compare,
        swap,
    };
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_atomic_fetch_add(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    add: u64,
) {
    let operation = Operation::AtomicFetchAndAdd {
        remote_addr,
        rkey,
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
    let operation = Operation::BindMw(unsafe { binding(mw, rkey, info) });
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    selectivity: u8,
) {
    let Ok(length) = u32::try_from(length) else {
        // SAFETY: between start and complete (C1).
        unsafe { held(qp) }.draft.refuse(PostError::TooLong);
        return;
    };
    let operation = Operation::Flush(Flush {
        remote_addr,
        length,
        rkey,
        placement,
        selectivity,
    });
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &operation) };
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    value: *const c_void,
) {
    // SAFETY: between start and complete (C1).
    unsafe { begin(qp, &Operation::AtomicWrite { remote_addr, rkey }) };
    // SAFETY: 8 readable bytes by the verb's contract.
    let value = unsafe { value.cast::<[u8; 8]>().read_unaligned() };
    // SAFETY: as above.
    let Send { queue, draft } = unsafe { held(qp) };
    let _ = queue.set_atomic_value(draft, value);
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft } = unsafe { held(qp) };
    // SAFETY: an address handle by the verb's contract.
    match unsafe { datagram(ah, qpn, qkey) } {
        Ok(to) => queue.set_datagram(draft, &to),
        Err(error) => draft.refuse(error),
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft } = unsafe { held(qp) };
    let sge = Sge { addr, length, lkey };
    let _ = queue.set_sges(draft, &[sge]);
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft } = unsafe { held(qp) };
    // SAFETY: `count` elements by the verb's contract.
    let list = unsafe { slice(list, count) };
    let _ = queue.set_sges(draft, as_sges(list));
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, len: usize) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft } = unsafe { held(qp) };
    let piece = InlinePiece {
        addr: addr.cast_const().cast(),
        len,
    };
    // SAFETY: readable by the verb's contract.
    let _ = unsafe { queue.set_inline(draft, std::iter::once(piece)) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: between start and complete (C1).
    let Send { queue, draft } = unsafe { held(qp) };
    // SAFETY: `count` elements by the verb's contract.
    let list = unsafe { slice(list, count) };
    let pieces = list.iter().map(|piece| InlinePiece {
        addr: piece.addr.cast(),
        len: piece.length,
    });
    // SAFETY: readable by the verb's contract.
    let _ = unsafe { queue.set_inline(draft, pieces) };
}

//! The posting verbs that take lists of work requests.

use std::ffi::c_int;

use oxverbs::ffi_core::PostError;
use oxverbs::ffi_core::rxe::{Draft, InlinePiece, SendQueue};
use oxverbs::ffi_core::wqe_format::rxe::{
    Access, BindMw, Datagram, Operation, SendFlags, Transport, WrOpcode,
};
use zerocopy::byteorder::big_endian::U32 as Be32;

use super::{Qp, of};
use crate::abi::objects::{ibv_ah, ibv_mw, ibv_qp};
use crate::abi::work::{ibv_mw_bind, ibv_mw_bind_info, ibv_recv_wr, ibv_send_wr};
use crate::common::memory::{ACCESS_ZERO_BASED, next_window_key};
use crate::common::{as_sges, slice};
use crate::door::set_errno;
use crate::rxe::ah::AddressHandle;
use crate::rxe::srq::post_list;

/// Arguments of a bind, with the key that the window gets.
///
/// # Safety
///
/// `mw`, and `info.mr` if it is not null, are alive (C1).
pub(super) unsafe fn binding(mw: *const ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> BindMw {
    // SAFETY: the caller's promise.
    let mw_rkey = unsafe { (*mw).rkey };
    // SAFETY: the caller's promise.
    let mr_lkey = unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey);
    BindMw {
        addr: info.addr,
        length: info.length,
        mr_lkey,
        mw_rkey,
        rkey,
        access: Access(info.mw_access_flags),
    }
}

/// Destination of a datagram.
///
/// # Safety
///
/// `ah` is null or one of ours (C1).
#[inline]
pub(super) unsafe fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Datagram, PostError> {
    // SAFETY: every address handle of ours is such an object.
    let ah = unsafe { ah.cast::<AddressHandle>().as_ref() }.ok_or(PostError::Incomplete)?;
    Ok(Datagram {
        remote_qpn: qpn,
        remote_qkey: qkey,
        ah_num: ah.ah_num,
        av: Default::default(),
    })
}

/// The operation of a work request, from the union members that its opcode names.
///
/// # Safety
///
/// A valid `ibv_send_wr` for its opcode (C1).
#[inline]
unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, PostError> {
    let imm = Be32::from_bytes(wr.imm_data.to_ne_bytes());
    // SAFETY: all members of the union are plain numbers (and one pointer), so any bytes are valid.
    let rdma = unsafe { wr.wr.rdma };
    // SAFETY: as above.
    let atomic = unsafe { wr.wr.atomic };
    let (remote_addr, rkey) = (rdma.remote_addr, rdma.rkey);
    Ok(match WrOpcode::from_number(wr.opcode) {
        Some(WrOpcode::Send) => Operation::Send,
        Some(WrOpcode::SendWithImm) => Operation::SendWithImm { imm },
        Some(WrOpcode::SendWithInv) => Operation::SendWithInv { rkey: wr.imm_data },
        Some(WrOpcode::RdmaWrite) => Operation::RdmaWrite { remote_addr, rkey },
        Some(WrOpcode::RdmaWriteWithImm) => Operation::RdmaWriteWithImm {
            remote_addr,
            rkey,
            imm,
        },
        Some(WrOpcode::RdmaRead) => Operation::RdmaRead { remote_addr, rkey },
        Some(WrOpcode::AtomicCmpAndSwp) => Operation::AtomicCmpAndSwp {
            remote_addr: atomic.remote_addr,
            rkey: atomic.rkey,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        Some(WrOpcode::AtomicFetchAndAdd) => Operation::AtomicFetchAndAdd {
            remote_addr: atomic.remote_addr,
            rkey: atomic.rkey,
            add: atomic.compare_add,
        },
        Some(WrOpcode::LocalInv) => Operation::LocalInv { rkey: wr.imm_data },
        Some(WrOpcode::BindMw) => {
            let bind = &wr.bind_mw;
            if bind.mw.is_null() {
                return Err(PostError::Incomplete);
            }
            // SAFETY: a window and its region, alive by the verb's contract.
            Operation::BindMw(unsafe { binding(bind.mw, bind.rkey, &bind.bind_info) })
        }
        // FLUSH and ATOMIC_WRITE are for the builder only: `ibv_send_wr` has no room for their arguments.
        _ => return Err(PostError::Opcode),
    })
}

/// Puts one work request into the batch.
///
/// # Safety
///
/// A valid `ibv_send_wr` (C1).
#[inline]
unsafe fn put(
    queue: &SendQueue,
    draft: &mut Draft,
    transport: Transport,
    wr: &ibv_send_wr,
) -> Result<(), PostError> {
    let flags = SendFlags(wr.send_flags);
    // SAFETY: the caller's promise.
    let operation = unsafe { operation(wr) }?;
    let to = if transport == Transport::Ud {
        // SAFETY: the union member of datagrams; any bytes are valid.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: an address handle by the verb's contract.
        Some(unsafe { datagram(ud.ah, ud.remote_qpn, ud.remote_qkey) }?)
    } else {
        None
    };
    queue.open(draft, wr.wr_id, flags, &operation, to.as_ref())?;
    let count = usize::try_from(wr.num_sge).map_err(|_| PostError::TooManySges)?;
    // SAFETY: `num_sge` elements by the verb's contract.
    let sges = unsafe { slice(wr.sg_list.cast_const(), count) };
    match operation {
        Operation::LocalInv { .. } | Operation::BindMw(_) => {}
        _ if flags.contains(SendFlags::INLINE) => {
            if count > queue.limits().max_sge as usize {
                return Err(PostError::TooManySges);
            }
            let pieces = sges.iter().map(|sge| InlinePiece {
                addr: std::ptr::with_exposed_provenance(sge.addr as usize),
                len: sge.length as usize,
            });
            // SAFETY: what inline elements name is readable by the verb's contract.
            unsafe { queue.set_inline(draft, pieces) }?;
        }
        _ => queue.set_sges(draft, as_sges(sges))?,
    }
    queue.close(draft);
    Ok(())
}

/// Posts a list up to the first work request that is refused, and rings for what was posted.
///
/// # Safety
///
/// A C list of valid work requests, and `bad` writable (C1).
#[inline]
unsafe fn post(qp: &Qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let mut send = qp.send.lock();
    let mut draft = send.queue.begin();
    let mut result = 0;
    // SAFETY: null ends the list.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: the caller's list.
        if let Err(error) = unsafe { put(&send.queue, &mut draft, qp.transport, request) } {
            // SAFETY: the caller's memory.
            unsafe { bad.write(wr) };
            result = error.errno().0;
            break;
        }
        wr = request.next;
    }
    if send.queue.commit(&draft) {
        let rung = qp.ring();
        if result == 0 && rung != 0 {
            // Posted, but the kernel was not told: nothing is left to point at.
            result = rung;
        }
    }
    result
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair of ours (C1).
    let qp = unsafe { of(qp) };
    // SAFETY: the caller's list.
    unsafe { post(qp, wr, bad) }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair of ours (C1).
    let Some(recv) = &unsafe { of(qp) }.recv else {
        // It receives from a shared queue.
        // SAFETY: the caller's memory.
        unsafe { bad.write(wr) };
        return libc::EINVAL;
    };
    let mut queue = recv.lock();
    // SAFETY: the caller's list.
    unsafe { post_list(&mut queue, wr, bad) }
}

/// `ibv_bind_mw`: binds a window of type 1 and moves its key on.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: a queue pair of ours (C1).
    let qp = unsafe { of(qp) };
    // SAFETY: the caller's arguments.
    let bind = unsafe { &*bind };
    if bind.bind_info.mw_access_flags & ACCESS_ZERO_BASED != 0 {
        let errno = PostError::ZeroBasedWindow.errno().0;
        set_errno(errno);
        return errno;
    }
    // SAFETY: a window of ours (C1).
    let old = unsafe { (*mw).rkey };
    let rkey = next_window_key(old);
    // SAFETY: alive by the verb's contract.
    let operation = Operation::BindMw(unsafe { binding(mw, rkey, &bind.bind_info) });
    let mut send = qp.send.lock();
    let mut draft = send.queue.begin();
    let flags = SendFlags(bind.send_flags);
    if let Err(error) = send
        .queue
        .open(&mut draft, bind.wr_id, flags, &operation, None)
    {
        return error.errno().0;
    }
    send.queue.close(&mut draft);
    send.queue.commit(&draft);
    let rung = qp.ring();
    if rung == 0 {
        // SAFETY: a field that only this verb writes; programs serialise binds of one window (C2).
        unsafe { (*mw).rkey = rkey };
    }
    rung
}

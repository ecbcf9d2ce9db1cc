//! The posting verbs that take lists of work requests.

use std::ffi::c_int;
use std::marker::PhantomData;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{
    AtomicOperands, Bind, Destination, PostError, RecvRequest, Remote, Segmentation, SendFlags,
    SendRequest, Verb, WrOpcode,
};
use oxverbs::ffi_core::wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32 as Be32;

use super::of;
use crate::abi::driver::{IBV_MR_TYPE_MR, verbs_mr};
use crate::abi::objects::{ibv_ah, ibv_mw, ibv_qp};
use crate::abi::work::{ibv_mw_bind, ibv_mw_bind_info, ibv_recv_wr, ibv_send_wr};
use crate::common::memory::{ACCESS_ZERO_BASED, next_window_key};
use crate::common::{as_sges, slice};
use crate::door::set_errno;
use crate::mlx5::ah::AddressHandle;

/// A list of C's; what it yields lives as long as the call.
#[derive(Clone, Copy)]
struct List<'a, T> {
    next: *mut T,
    _call: PhantomData<&'a T>,
}

impl<T> List<'_, T> {
    /// # Safety
    ///
    /// `first` is null or begins a list, valid for the lifetime.
    #[inline(always)]
    unsafe fn new(first: *mut T) -> Self {
        Self {
            next: first,
            _call: PhantomData,
        }
    }
}

impl<'a> Iterator for List<'a, ibv_send_wr> {
    type Item = Request<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Request<'a>> {
        // SAFETY: null ends the list, whose elements are valid by `new`'s contract.
        let request = unsafe { self.next.as_ref() }?;
        self.next = request.next;
        Some(Request(request))
    }
}

impl<'a> Iterator for List<'a, ibv_recv_wr> {
    type Item = Receive<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Receive<'a>> {
        // SAFETY: null ends the list, whose elements are valid by `new`'s contract.
        let request = unsafe { self.next.as_ref() }?;
        self.next = request.next;
        Some(Receive(request))
    }
}

/// A work request of C's, valid for its opcode (C1).
#[derive(Clone, Copy)]
struct Request<'a>(&'a ibv_send_wr);

// SAFETY: C programs promise the same of the memory that their work requests name.
unsafe impl SendRequest for Request<'_> {
    #[inline(always)]
    fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    #[inline(always)]
    fn opcode(&self) -> WrOpcode {
        WrOpcode(self.0.opcode)
    }

    #[inline(always)]
    fn flags(&self) -> SendFlags {
        SendFlags(self.0.send_flags)
    }

    #[inline(always)]
    fn sges(&self) -> &[Sge] {
        // Negative is none, as for libmlx5.
        let count = self.0.num_sge.max(0) as usize;
        // SAFETY: `num_sge` elements by the verb's contract.
        as_sges(unsafe { slice(self.0.sg_list.cast_const(), count) })
    }

    #[inline(always)]
    fn imm(&self) -> Be32 {
        Be32::from_bytes(self.0.imm_data.to_ne_bytes())
    }

    #[inline(always)]
    fn invalidate_rkey(&self) -> u32 {
        self.0.imm_data
    }

    #[inline(always)]
    fn remote(&self) -> Remote {
        // SAFETY: all members of the union are plain numbers (and one pointer), so any bytes are valid.
        let rdma = unsafe { self.0.wr.rdma };
        Remote {
            addr: rdma.remote_addr,
            rkey: rdma.rkey,
        }
    }

    #[inline(always)]
    fn atomic_remote(&self) -> Remote {
        // SAFETY: as above.
        let atomic = unsafe { self.0.wr.atomic };
        Remote {
            addr: atomic.remote_addr,
            rkey: atomic.rkey,
        }
    }

    #[inline(always)]
    fn atomic(&self) -> AtomicOperands {
        // SAFETY: as above.
        let atomic = unsafe { self.0.wr.atomic };
        AtomicOperands {
            compare_add: atomic.compare_add,
            swap: atomic.swap,
        }
    }

    #[inline(always)]
    fn destination(&self) -> Option<Destination<'_>> {
        // SAFETY: as above.
        let ud = unsafe { self.0.wr.ud };
        // SAFETY: an address handle by the verb's contract.
        let av = unsafe { address(ud.ah) }?;
        Some(av.to(ud.remote_qpn, ud.remote_qkey))
    }

    #[inline(always)]
    fn remote_srqn(&self) -> u32 {
        self.0.remote_srqn
    }

    fn bind(&self) -> Option<Bind> {
        let bind = &self.0.bind_mw;
        // SAFETY: null or a window, and its region, alive by the verb's contract.
        unsafe { binding(bind.mw, bind.rkey, &bind.bind_info) }
    }

    fn segmentation(&self) -> Option<Segmentation> {
        let tso = self.0.tso();
        Some(Segmentation {
            header: tso.hdr.cast_const().cast(),
            header_len: tso.hdr_sz,
            mss: tso.mss,
        })
    }
}

/// A receive work request of C's.
#[derive(Clone, Copy)]
pub(crate) struct Receive<'a>(&'a ibv_recv_wr);

impl RecvRequest for Receive<'_> {
    #[inline(always)]
    fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    #[inline(always)]
    fn sges(&self) -> &[Sge] {
        let count = self.0.num_sge.max(0) as usize;
        // SAFETY: `num_sge` elements by the verb's contract.
        as_sges(unsafe { slice(self.0.sg_list.cast_const(), count) })
    }
}

/// The address behind an address handle.
///
/// # Safety
///
/// `ah` is null or one of ours (C1), alive as long as the result is used.
#[inline(always)]
pub(super) unsafe fn address<'a>(ah: *mut ibv_ah) -> Option<&'a AddressHandle> {
    // SAFETY: every address handle of ours is such an object.
    unsafe { ah.cast::<AddressHandle>().as_ref() }
}

/// Arguments of a bind, with the key that the window gets.
///
/// # Safety
///
/// `mw` is null or, as `info.mr` if it is not null, alive (C1).
pub(super) unsafe fn binding(
    mw: *const ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Option<Bind> {
    // SAFETY: the caller's promise.
    let mw = unsafe { mw.as_ref() }?;
    // SAFETY: the caller's promise.
    let lkey = unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey);
    Some(Bind {
        type_1: mw.r#type == 1,
        old_rkey: mw.rkey,
        new_rkey: rkey,
        addr: info.addr,
        length: info.length,
        lkey,
        access: info.mw_access_flags,
    })
}

/// Posts receive work requests to whatever takes them.
///
/// # Safety
///
/// A C list of receive work requests, and `bad` writable (C1).
#[inline(always)]
pub(crate) unsafe fn receive_list<'a>(
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl FnOnce(ReceiveList<'a>) -> Result<u32, Refused<'a>>,
) -> c_int {
    // SAFETY: the caller's list.
    match post(ReceiveList(unsafe { List::new(wr) })) {
        Ok(_) => 0,
        Err(refused) => {
            let at: *const ibv_recv_wr = refused.request.0;
            // SAFETY: the caller's memory.
            unsafe { bad.write(at.cast_mut()) };
            refused.error.errno(Verb::PostRecv).0
        }
    }
}

/// A receive work request that was not taken.
pub(crate) type Refused<'a> = oxverbs::ffi_core::mlx5::Refused<Receive<'a>>;

/// A C list of receive work requests.
pub(crate) struct ReceiveList<'a>(List<'a, ibv_recv_wr>);

impl<'a> Iterator for ReceiveList<'a> {
    type Item = Receive<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Receive<'a>> {
        self.0.next()
    }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair of ours (C1).
    let Some(send) = &unsafe { of(qp) }.send else {
        // It has no send queue, which takes no work requests.
        // SAFETY: the caller's memory.
        unsafe { bad.write(wr) };
        return PostError::WrongState.errno(Verb::PostSend).0;
    };
    let mut send = send.lock();
    // SAFETY: the caller's list.
    let posted = match unsafe { wr.as_ref() } {
        // Most are alone, and have a shorter way.
        Some(one) if one.next.is_null() => send.queue.post_one(Request(one)),
        _ => {
            // SAFETY: as above.
            let list = unsafe { List::<ibv_send_wr>::new(wr) };
            send.queue.post(list).map(|_| ())
        }
    };
    match posted {
        Ok(()) => 0,
        Err(refused) => {
            let at: *const ibv_send_wr = refused.request.0;
            // SAFETY: the caller's memory.
            unsafe { bad.write(at.cast_mut()) };
            refused.error.errno(Verb::PostSend).0
        }
    }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair of ours (C1).
    let Some(recv) = &unsafe { of(qp) }.recv else {
        // It receives from a shared queue, or not at all.
        // SAFETY: the caller's memory.
        unsafe { bad.write(wr) };
        return libc::EINVAL;
    };
    let mut queue = recv.lock();
    // SAFETY: the caller's list.
    let one = unsafe { wr.as_ref() }.filter(|wr| wr.next.is_null());
    let post = |list| match one {
        // Most are alone, and have a shorter way.
        Some(one) => queue.post_one(Receive(one)).map(|()| 1),
        None => queue.post(list),
    };
    // SAFETY: the caller's list.
    unsafe { receive_list(wr, bad, post) }
}

/// `ibv_bind_mw`: binds a window of type 1 and moves its key on.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller's arguments.
    let bind = unsafe { &*bind };
    // SAFETY: null or a region of ours (C1), which all are `verbs_mr`.
    let region = unsafe { bind.bind_info.mr.cast::<verbs_mr>().as_ref() };
    let zero_based = bind.bind_info.mw_access_flags & ACCESS_ZERO_BASED != 0;
    let refused = match region {
        _ if zero_based => Some(Errno(libc::EINVAL)),
        Some(region) if region.mr_type != IBV_MR_TYPE_MR => Some(Errno(libc::ENOTSUP)),
        Some(region) if region.access as u32 & ACCESS_ZERO_BASED != 0 => Some(Errno(libc::EINVAL)),
        _ => None,
    };
    if let Some(Errno(number)) = refused {
        set_errno(number);
        return number;
    }
    // SAFETY: a window of ours (C1).
    let old = unsafe { (*mw).rkey };
    let rkey = next_window_key(old);
    // SAFETY: all-zero is a valid work request.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.opcode = WrOpcode::BIND_MW.0;
    wr.wr_id = bind.wr_id;
    wr.send_flags = bind.send_flags;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = bind.bind_info;
    let mut bad = std::ptr::null_mut();
    // SAFETY: a list of one.
    let result = unsafe { post_send(qp, &raw mut wr, &raw mut bad) };
    if result == 0 {
        // SAFETY: a field that only this verb writes; programs serialise binds of one window (C2).
        unsafe { (*mw).rkey = rkey };
    }
    result
}

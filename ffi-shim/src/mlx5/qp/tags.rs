//! The queue pair that a list of tags is changed by (`ibv_post_srq_ops`).

use std::ffi::{c_int, c_uint};
use std::marker::PhantomData;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{PostError, TagChange, TagList, TagRequest, Verb};
use oxverbs::ffi_core::mlx5_control::tags::Tags;
use oxverbs::ffi_core::wqe_format::rxe::Sge;

use super::{Object, Special, attr, create, of, qp_type};
use crate::abi::attr::ibv_qp_init_attr_ex;
use crate::abi::objects::{ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use crate::abi::work::{ibv_ops_wr, ibv_sge};

/// `IBV_OPS_SIGNALED`.
const SIGNALED: c_int = 1;
/// `IBV_OPS_TM_SYNC`.
const TM_SYNC: c_int = 2;

/// `enum ibv_ops_wr_opcode`.
mod opcode {
    use std::ffi::c_uint;

    pub(super) const ADD: c_uint = 0;
    pub(super) const DEL: c_uint = 1;
    pub(super) const SYNC: c_uint = 2;
}

/// Makes the queue pair of a new shared receive queue with tags, connected with itself. It is the queue's to destroy, by
/// [`destroy_qp`](super::destroy_qp).
///
/// # Safety
///
/// An open context, and objects of ours that stay as long as it (C1).
pub(crate) unsafe fn create_for_tags(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    max_ops: u32,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: numbers and pointers; all-zero bytes are valid.
    let mut init: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    init.qp_type = qp_type::RC;
    init.srq = srq;
    init.cap.max_send_wr = max_ops;
    init.cap.max_send_sge = Tags::MAX_SGE;
    init.comp_mask = attr::PD;
    init.pd = pd;
    init.send_cq = cq;
    init.recv_cq = cq;
    let qp = create(context, &mut init, &Special::default())?;
    let connected = {
        // SAFETY: the new object.
        let ours = unsafe { of(qp) };
        match (&mut *ours.object(), &ours.send) {
            (Object::Queues(object), Some(send)) => object.connect_for_tags(&mut send.lock().queue),
            // A queue without room for changes.
            _ => Err(Errno(libc::EINVAL)),
        }
    };
    if let Err(errno) = connected {
        // SAFETY: the new object, which nobody knows of.
        unsafe { super::destroy_qp(qp.cast()) };
        return Err(errno);
    }
    Ok(qp.cast())
}

/// A change as C gives it.
struct Change<'a>(&'a mut ibv_ops_wr);

/// A C list of changes.
struct Changes<'a> {
    next: *mut ibv_ops_wr,
    _call: PhantomData<&'a mut ibv_ops_wr>,
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        // SAFETY: null ends the list, whose elements are valid as long as the call lasts, and each is yielded once.
        let request = unsafe { self.next.as_mut() }?;
        self.next = request.next;
        Some(Change(request))
    }
}

impl TagRequest for Change<'_> {
    fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    fn is_signaled(&self) -> bool {
        self.0.flags & SIGNALED != 0
    }

    fn unexpected(&self) -> Option<u32> {
        (self.0.flags & TM_SYNC != 0).then_some(self.0.tm.unexpected_cnt)
    }

    fn change(&self) -> Result<TagChange, PostError> {
        let tm = &self.0.tm;
        match self.0.opcode as c_uint {
            opcode::ADD => {
                let sge = match tm.num_sge {
                    ..=0 => None,
                    // SAFETY: as many elements by the verb's contract.
                    1 => Some(unsafe { tm.sg_list.cast::<ibv_sge>().read() }),
                    // One buffer for each tag (`max_sge` of the device's capabilities).
                    _ => return Err(PostError::TooManySges),
                };
                Ok(TagChange::Add {
                    recv_wr_id: tm.recv_wr_id,
                    sge: sge.map(|sge| Sge {
                        addr: sge.addr,
                        length: sge.length,
                        lkey: sge.lkey,
                    }),
                    tag: tm.tag,
                    mask: tm.mask,
                })
            }
            opcode::DEL => Ok(TagChange::Remove { handle: tm.handle }),
            opcode::SYNC => Ok(TagChange::Sync),
            _ => Err(PostError::Opcode),
        }
    }

    fn added(&mut self, handle: u32) {
        self.0.tm.handle = handle;
    }
}

/// Posts a C list of changes.
///
/// # Safety
///
/// The queue pair is of [`create_for_tags`], the list its shared receive queue's. `wr` begins a list that nobody else uses
/// during the call, `bad` is writable.
pub(crate) unsafe fn post_changes(
    qp: *mut ibv_qp,
    tags: &TagList,
    wr: *mut ibv_ops_wr,
    bad: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(send) = &unsafe { of(qp) }.send else {
        // SAFETY: the caller's memory.
        unsafe { bad.write(wr) };
        return PostError::WrongState.errno(Verb::PostSrqOps).0;
    };
    let mut send = send.lock();
    let list = Changes {
        next: wr,
        _call: PhantomData,
    };
    match tags.post(&mut send.queue, list) {
        Ok(_) => 0,
        Err(refused) => {
            let at: *mut ibv_ops_wr = refused.request.0;
            // SAFETY: the caller's memory.
            unsafe { bad.write(at) };
            refused.error.errno(Verb::PostSrqOps).0
        }
    }
}

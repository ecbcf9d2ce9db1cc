//! What a queue pair is like and what state it is in.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::QueueKind;
use oxverbs::ffi_core::uverbs_abi::handle::Qp as QpHandle;
use oxverbs::ffi_core::uverbs_abi::types::{QpAttrMask, QpState};

use super::{Qp, clean, of};
use crate::abi::attr::{ibv_qp_attr, ibv_qp_init_attr};
use crate::abi::objects::ibv_qp;
use crate::common::qp::{PLAIN_ATTRIBUTES, attributes, modification};
use crate::context::uctx;
use crate::door::control;

/// `IBV_QP_STATE`.
const STATE: u32 = 1;

impl Qp {
    /// Gates the queues by the state that the queue pair was brought to.
    fn entered(&self, state: QpState) {
        if let Some(send) = &self.send {
            match state {
                QpState::RESET => send.lock().queue.reset(),
                QpState::RTS => send.lock().queue.set_accepting(true),
                _ => {}
            }
        }
        let Some(recv) = &self.recv else { return };
        let mut recv = recv.lock();
        let raw = recv.record().kind() == QueueKind::RawPacket;
        match state {
            QpState::RESET => {
                recv.reset();
                recv.hold_back(raw);
            }
            QpState::INIT => recv.set_accepting(true),
            QpState::RTR => recv.hold_back(false),
            _ => {}
        }
    }
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    control("modify_qp", || {
        let mask = mask as u32;
        if mask & !PLAIN_ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let base = unsafe { &*qp };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(base.context) }?;
        let command = modification(QpHandle(base.handle), attr, mask);
        uctx.modify_qp(&command)?;
        if mask & STATE == 0 {
            return Ok(());
        }
        // SAFETY: a queue pair of ours.
        let ours = unsafe { of(qp) };
        if command.qp_state == QpState::RESET
            && let Some(key) = ours.object.key()
        {
            // SAFETY: as above.
            unsafe { clean(qp, key) };
        }
        ours.entered(command.qp_state);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    control("query_qp", || {
        let mask = mask as u32;
        if mask & !PLAIN_ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let base = unsafe { &*qp };
        // SAFETY: as above.
        let ours = unsafe { of(qp) };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(base.context) }?;
        let from = uctx.query_qp(QpHandle(base.handle), QpAttrMask(mask))?;
        let mut to = attributes(&from);
        // The kernel knows the queue as memory only.
        let granted = ours.object.cap();
        to.cap.max_send_wr = granted.max_send_wr;
        to.cap.max_send_sge = granted.max_send_sge;
        to.cap.max_inline_data = granted.max_inline_data;
        let cap = to.cap;
        // SAFETY: the caller's memory.
        unsafe { attr.write(to) };
        let to = ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap,
            qp_type: base.qp_type,
            sq_sig_all: c_int::from(ours.sq_sig_all),
        };
        // SAFETY: the caller's memory.
        unsafe { init.write(to) };
        Ok(())
    })
}

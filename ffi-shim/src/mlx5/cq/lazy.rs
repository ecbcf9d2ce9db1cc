//! Polling one by one, with fields on request.

use std::ffi::{c_int, c_uint, c_void};

use oxverbs::ffi_core::mlx5::CompletionQueue;
use oxverbs::ffi_core::mlx5::cq::NothingTaken;

use super::of;
use crate::abi::objects::ibv_cq_ex;
use crate::abi::work::{cq_ex_ops, ibv_poll_cq_attr, ibv_wc_tm_info};

/// The slots that a program gets that asked for these `wc_flags`.
pub(super) fn ops(wc_flags: u64) -> cq_ex_ops {
    macro_rules! with {
        ($bit:literal, $function:expr) => {
            if wc_flags & (1 << $bit) != 0 {
                Some($function as _)
            } else {
                None
            }
        };
    }
    cq_ex_ops {
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_wc_flags: Some(read_wc_flags),
        read_byte_len: with!(0, read_byte_len),
        read_imm_data: with!(1, read_imm_data),
        read_qp_num: with!(2, read_qp_num),
        read_src_qp: with!(3, read_src_qp),
        read_slid: with!(4, read_slid),
        read_sl: with!(5, read_sl),
        read_dlid_path_bits: with!(6, read_dlid_path_bits),
        read_completion_ts: with!(7, read_completion_ts),
        read_cvlan: with!(8, read_cvlan),
        read_flow_tag: with!(9, read_flow_tag),
        read_tm_info: with!(10, read_tm_info),
        read_completion_wallclock_ns: with!(11, read_completion_wallclock_ns),
    }
}

/// The queue, whose lock `start_poll` took.
///
/// # Safety
///
/// A queue of ours, between a `start_poll` that took a completion and `end_poll` on this thread (C1).
#[inline(always)]
unsafe fn held<'a>(cq: *mut ibv_cq_ex) -> &'a mut CompletionQueue {
    // SAFETY: a queue of ours.
    let queue = unsafe { &of(cq).queue };
    // SAFETY: the lock is held, and each function below has one reference at a time.
    unsafe { queue.held() }
}

/// Copies what the program reads without a call.
///
/// # Safety
///
/// A queue of ours, polled by the caller.
#[inline(always)]
unsafe fn show(cq: *mut ibv_cq_ex, queue: &CompletionQueue) {
    // SAFETY: fields that belong to whoever polls.
    unsafe { (*cq).wr_id = queue.wr_id() };
    // SAFETY: as above.
    unsafe { (*cq).status = queue.status() };
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's attributes.
    if unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: a queue of ours (C1).
    let locked = unsafe { &of(cq).queue };
    locked.hold();
    // SAFETY: held since the line before, until `end_poll` or the release below.
    let queue = unsafe { locked.held() };
    match queue.start_poll() {
        Ok(()) => {
            // SAFETY: this thread polls.
            unsafe { show(cq, queue) };
            0
        }
        Err(nothing) => {
            locked.release();
            match nothing {
                NothingTaken::Empty => libc::ENOENT,
                NothingTaken::ClockBusy => libc::EBUSY,
            }
        }
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: held since `start_poll`.
    let queue = unsafe { held(cq) };
    // SAFETY: the program is between a `start_poll` that took a completion and `end_poll` (C1).
    if !unsafe { queue.next_poll_unchecked() } {
        return libc::ENOENT;
    }
    // SAFETY: this thread polls.
    unsafe { show(cq, queue) };
    0
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a queue of ours (C1).
    let locked = unsafe { &of(cq).queue };
    // SAFETY: held since `start_poll`.
    unsafe { locked.held() }.end_poll();
    locked.release();
}

macro_rules! read {
    ($($name:ident -> $type:ty: $method:ident;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: held since `start_poll`.
            unsafe { held(cq) }.$method()
        })*
    };
}

read! {
    read_opcode -> c_uint: read_opcode;
    read_vendor_err -> u32: read_vendor_err;
    read_wc_flags -> c_uint: read_wc_flags;
    read_byte_len -> u32: read_byte_len;
    read_imm_data -> u32: read_imm_or_rkey;
    read_qp_num -> u32: read_qp_num;
    read_src_qp -> u32: read_src_qp;
    read_slid -> u32: read_slid;
    read_sl -> u8: read_sl;
    read_dlid_path_bits -> u8: read_dlid_path_bits;
    read_completion_ts -> u64: read_completion_ts;
    read_cvlan -> u16: read_cvlan;
    read_flow_tag -> u32: read_flow_tag;
    read_completion_wallclock_ns -> u64: read_completion_wallclock_ns;
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut c_void) {
    // SAFETY: held since `start_poll`.
    let (tag, data) = unsafe { held(cq) }.read_tm_info();
    let answer = ibv_wc_tm_info { tag, r#priv: data };
    // SAFETY: the caller's memory.
    unsafe { info.cast::<ibv_wc_tm_info>().write(answer) };
}

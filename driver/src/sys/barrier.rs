//! Barriers, named for what they are for.
//!
//! Between threads Rust's atomics order memory. A device is no thread: it reads and writes memory over a bus, and registers
//! may be mapped write-combining, whose stores no `fence` orders on x86. Each barrier here says what it must give and
//! why its instructions do.
//!
//! The instructions for devices are known for x86-64 and AArch64, the architectures that are supported.

use std::arch::asm;
use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("barriers against devices are known for x86-64 and AArch64 only");

/// Work requests before the doorbell record: when the device sees the stores after it (to ordinary memory), it sees those
/// before it (to ordinary memory).
///
/// - x86-64: stores to write-back memory become visible in program order (Intel SDM 3A, 9.2.2), to bus masters as to
///   processors, which snoop caches. The compiler must keep the order too, and that is all.
/// - AArch64: stores are not ordered by themselves. `dmb oshst` orders stores for all observers of the outer shareable
///   domain, in which coherent devices are; Rust's `fence` gives the inner shareable domain only.
#[inline(always)]
pub fn device_sees_wqe_before_doorbell_record() {
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect than order.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// The doorbell record before the register: when the device sees the store to the register, which may be
/// write-combining, it sees all stores before.
///
/// - x86-64: a store to write-combining memory may leave its buffer before older stores to write-back memory are
///   visible (SDM 3A, 12.3.1); `sfence` orders stores of every memory type.
/// - AArch64: `dsb st` completes the stores before it, of every memory type, before anything after it.
///
/// It also keeps the stores of the previous ring of the same register apart from those of the next.
#[inline(always)]
pub fn device_sees_doorbell_record_before_register() {
    stores_complete();
}

/// After the register: what its write-combining buffers hold goes out now, and is not combined with later stores to the
/// same place. Inside of the lock, if there is one: the barrier concerns this processor only, so another one that took the
/// lock after it could be overtaken by stores that are still in a buffer here.
///
/// Instructions as for [`device_sees_doorbell_record_before_register`].
#[inline(always)]
pub fn register_stores_leave_the_processor() {
    stores_complete();
}

#[inline(always)]
fn stores_complete() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier has no other effect than order; every x86-64 has it (SSE).
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect than order.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// The owner bit before the rest of a completion: what is read after it was written before the store that the owner bit
/// was read from.
///
/// - x86-64: loads from write-back memory are done in program order (SDM 3A, 9.2.2). The compiler must keep it.
/// - AArch64: `dmb oshld` orders earlier loads against everything after, for the outer shareable domain.
#[inline(always)]
pub fn completion_is_read_after_its_owner_bit() {
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect than order.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

/// The one-sided half of a barrier between a thread that runs often and one that runs seldom: the seldom one calls
/// [`order_all_threads`], which orders every other thread of the process as if it had had a full barrier where it was;
/// the often one then needs the compiler's order only.
#[inline(always)]
pub fn ordered_by_other_threads() {
    compiler_fence(Ordering::SeqCst);
}

/// Whether [`order_all_threads`] works here: Linux 4.14 and later, if the system does not forbid the call.
pub fn can_order_all_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// A full barrier in every running thread of the process (`membarrier(2)`, private expedited). Says whether it happened;
/// it does if [`can_order_all_threads`] said so.
pub fn order_all_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

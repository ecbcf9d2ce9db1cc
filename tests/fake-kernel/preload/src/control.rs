//! What a test program can call, having found it by `dlsym(RTLD_DEFAULT, …)`.

use fake_kernel::Fault;
use fake_kernel::hca::Cqe;

use crate::process;

/// The `k`-th call from now on fails with `errno`, or answers nothing if `errno` is 0.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_inject(k: u64, errno: i32) {
    let fault = match errno {
        0 => Fault::Short,
        errno => Fault::Errno(errno),
    };
    process::with(|kernel| {
        kernel.inject(k, fault);
        Some(())
    });
}

/// Takes the injected fault back; 1 if it has happened.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_clear_fault() -> i32 {
    process::with(|kernel| Some(kernel.clear_fault().into())).unwrap_or(-1)
}

/// Calls so far.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_calls() -> u64 {
    process::with(|kernel| Some(kernel.calls())).unwrap_or(0)
}

/// Objects with handles that are alive.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_objects() -> u64 {
    process::with(|kernel| Some(kernel.census().objects() as u64)).unwrap_or(u64::MAX)
}

/// Writes a successful completion for every signaled send work request of the queue pair that was posted and
/// not yet taken; the number of work requests, or -1 if there is no such queue pair. For mlx5.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_complete_sends(qpn: u32) -> i32 {
    process::with(|kernel| {
        let hca = kernel.hca(0);
        let qp = hca.qp(qpn)?;
        let wqes = qp.take_sends();
        for wqe in wqes.iter().filter(|wqe| wqe.is_signaled()) {
            hca.complete(qp.send_cq.as_ref()?, &Cqe::requester(&qp, wqe))
                .ok()?;
        }
        Some(wqes.len() as i32)
    })
    .unwrap_or(-1)
}

/// Copies the first 64 bytes of the send ring of a queue pair; -1 if there is no such queue pair. For mlx5.
///
/// # Safety
///
/// `bytes` has room for 64.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fake_kernel_first_block(qpn: u32, bytes: *mut u8) -> i32 {
    let block = process::with(|kernel| {
        let qp = kernel.hca(0).qp(qpn)?;
        qp.send.map(|_| qp.send_blocks(0, 1))
    });
    let Some(block) = block else {
        return -1;
    };
    // SAFETY: the caller vouches for 64 bytes, and the block has as many.
    unsafe { bytes.copy_from_nonoverlapping(block.as_ptr(), 64) };
    0
}

/// Contexts, event files and mappings that are alive.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_resources() -> u64 {
    process::with(|kernel| {
        let census = kernel.census();
        Some((census.contexts + census.event_files + census.mappings) as u64)
    })
    .unwrap_or(u64::MAX)
}

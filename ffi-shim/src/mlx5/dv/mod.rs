//! libmlx5's own interface, `mlx5dv.h`, in a shared object that takes the place of `libmlx5.so.1`.
//!
//! `drop-in/names.tsv` has the names and their version nodes, `docs/mlx5dv.md` says how each is answered. A device, or an object
//! of one, that another provider made is answered as libmlx5 answers it: not supported.

use oxverbs::ffi_core::Errno;

use crate::abi::driver::verbs_device;
use crate::abi::objects::{ibv_context, ibv_device};
use crate::context::family;
use crate::mlx5::{DEVICE_OPS, Mlx5};

mod address;
mod allocator;
mod caps;
pub(crate) mod change;
pub(crate) mod device;
mod devx;
mod export;
pub(crate) mod flow;
mod lag;
mod memory;
pub(crate) mod mkey;
pub(crate) mod numbers;
mod object;
mod objects;
mod qp;
mod sched;
pub(crate) mod signature;
mod state;
mod unsupported;

pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// Whether we claimed a device as mlx5's.
///
/// # Safety
///
/// `device` is null or one that libibverbs listed.
pub(crate) unsafe fn is_ours(device: *mut ibv_device) -> bool {
    // SAFETY: null, or a device of whatever provider, which begins as libibverbs' does in all releases.
    unsafe { device.cast::<verbs_device>().as_ref() }
        .is_some_and(|device| device.ops == &raw const DEVICE_OPS.0)
}

/// Our part of an open device, `EOPNOTSUPP` if it is another provider's.
///
/// # Safety
///
/// `context` is an open one, and stays it for `'a`.
pub(crate) unsafe fn ours<'a>(context: *mut ibv_context) -> Result<&'a Mlx5, Errno> {
    // SAFETY: the caller's promise.
    let device = unsafe { (*context).device };
    // SAFETY: a context's device is one that was listed.
    if !unsafe { is_ours(device) } {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: opened by us for this family.
    unsafe { family::<Mlx5>(context) }
}

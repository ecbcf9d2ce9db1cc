//! What every family does the same way: the table of operations, memory, ports, multicast, waiting for events.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::wqe_format::rxe::Sge;

use crate::abi::release::{Layout, Op};
use crate::abi::work::ibv_sge;
use crate::library::library;

pub(crate) mod address;
pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod qp;
pub(crate) mod srq;

/// A slot of `verbs_context_ops`; unset ones are answered by libibverbs with `EOPNOTSUPP`.
pub(crate) type Slot = Option<NonNull<c_void>>;

/// An operation and the function that does it.
pub(crate) type Entry = (Op, *const ());

/// `verbs_context_ops` as a release reads it, from the operations that a family has.
pub(crate) fn table(layout: &Layout, ours: &[Entry]) -> Vec<Slot> {
    let mut table = vec![None; layout.ops];
    for &(op, function) in ours {
        if let Some(slot) = layout.slot(op) {
            table[slot] = NonNull::new(function.cast_mut().cast());
        }
    }
    table
}

/// What the kernel's answer to a destroy means to the program. `None`: the device is gone, its objects with it, and
/// libibverbs was told to bear that; there are no events to wait for.
pub(crate) fn destroyed<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno(libc::EIO)) if library().is_some_and(|l| l.allows_disassociate()) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A C array, which may be null if it is empty.
///
/// # Safety
///
/// `count` readable elements that stay as they are for `'a`, unless `count` is 0.
#[inline]
pub(crate) unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// libibverbs' elements are laid out as ours.
#[inline(always)]
pub(crate) fn as_sges(list: &[ibv_sge]) -> &[Sge] {
    const {
        assert!(size_of::<Sge>() == size_of::<ibv_sge>());
        assert!(align_of::<Sge>() == align_of::<ibv_sge>());
        assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
        assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
    }
    // SAFETY: same size, alignment and fields, as asserted; both are plain numbers.
    unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), list.len()) }
}

//! Settings of a whole device: the program's functions for the memory of queues and doorbell records.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5_control::buffer::{Allocated, Allocator, ResourceType};

use super::{EOPNOTSUPP, ours};
use crate::abi::dv::{mlx5dv_ctx_allocators, plain_alloc, plain_free};
use crate::abi::objects::ibv_context;
use crate::door::control;

/// `MLX5DV_CTX_ATTR_BUF_ALLOCATORS`, the only kind.
const ALLOCATORS: c_uint = 1;

/// The program's functions.
#[derive(Debug)]
struct Functions {
    alloc: plain_alloc,
    free: plain_free,
    data: *mut c_void,
}

// SAFETY: a pointer that is only handed to the program's functions, which it says may be called by any thread that makes
// or destroys objects.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

// SAFETY: what the program's function answers is such memory by the verb's contract; the alignment is looked at.
unsafe impl Allocator for Functions {
    fn alloc(&self, size: usize, alignment: usize, what: ResourceType) -> Allocated {
        // SAFETY: the program's function, with the arguments that it expects.
        let place = unsafe { (self.alloc)(size, self.data) };
        let Some(memory) = NonNull::new(place.cast::<u8>()) else {
            return Allocated::Failed;
        };
        if memory.addr().get().is_multiple_of(alignment) {
            return Allocated::At(memory);
        }
        // SAFETY: just given.
        unsafe { self.free(memory, what) };
        Allocated::Failed
    }

    unsafe fn free(&self, memory: NonNull<u8>, _: ResourceType) {
        // SAFETY: the program's function, with memory that its other one gave.
        unsafe { (self.free)(memory.as_ptr().cast(), self.data) };
    }
}

/// Sets what the memory of queues comes from that are made from now on, but for those of domains with allocators of their own.
/// Without both functions it comes from us again.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_set_context_attr(
    context: *mut ibv_context,
    kind: c_uint,
    attr: *const c_void,
) -> c_int {
    control("mlx5dv_set_context_attr", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        if kind != ALLOCATORS {
            return Err(EOPNOTSUPP);
        }
        if attr.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: of this kind, the caller's struct.
        let set = unsafe { attr.cast::<mlx5dv_ctx_allocators>().read() };
        let functions = set.alloc.zip(set.free).map(|(alloc, free)| {
            let data = set.data;
            Arc::new(Functions { alloc, free, data }) as Arc<dyn Allocator>
        });
        device.context().set_allocator(functions);
        Ok(())
    })
}

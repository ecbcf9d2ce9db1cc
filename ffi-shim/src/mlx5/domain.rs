//! Protection domains, thread domains, and parent domains that join them and bring a program's allocators.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "drop-in")]
use std::sync::{Mutex, PoisonError};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5_control::buffer::{Allocated, Allocator, ResourceType};
use oxverbs::ffi_core::mlx5_control::uar::ThreadRegister;
use oxverbs::ffi_core::uverbs_abi::handle::Pd;
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::uverbs_abi::types::AccessFlags;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::AllocPdResp;
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::{MrKeys, Uctx, UserMr};

use crate::abi::domain::{
    ibv_parent_domain_init_attr, ibv_td, ibv_td_init_attr, pd_alloc, pd_free,
};
use crate::abi::objects::{ibv_context, ibv_pd};
use crate::common::destroyed;
use crate::context::{family, uctx};
use crate::door::{control, guarded};
use crate::mlx5::Mlx5;

/// A protection domain: the kernel's, or one that joins another and a thread domain.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Domain {
    ibv: ibv_pd,
    /// Objects that stand on it; more than none makes it busy.
    users: AtomicU32,
    parent: Option<Parent>,
    /// The device's number.
    #[cfg(feature = "drop-in")]
    number: u32,
    /// Where the device keeps the state of copies.
    #[cfg(feature = "drop-in")]
    copy_state: Mutex<Option<CopyState>>,
}

/// Memory of ours that only the device uses, registered in a protection domain.
#[cfg(feature = "drop-in")]
#[derive(Debug)]
struct CopyState {
    memory: NonNull<Scratch>,
    keys: MrKeys,
}

/// Its bytes and alignment (rdma-core `MLX5_OPAQUE_BUF_LEN`).
#[cfg(feature = "drop-in")]
#[repr(C, align(64))]
#[derive(Debug)]
struct Scratch([u8; 64]);

// SAFETY: the memory belongs to the domain, not to a thread, and is freed once.
#[cfg(feature = "drop-in")]
unsafe impl std::marker::Send for CopyState {}

#[cfg(feature = "drop-in")]
impl CopyState {
    fn new(uctx: &Uctx, pd: Pd) -> Result<Self, Errno> {
        let memory = NonNull::from(Box::leak(Box::new(Scratch([0; 64]))));
        let start = memory.as_ptr().expose_provenance() as u64;
        let region = UserMr {
            pd,
            start,
            length: size_of::<Scratch>() as u64,
            hca_va: start,
            access: AccessFlags::LOCAL_WRITE,
        };
        // SAFETY: memory of ours, to which there is no reference any more.
        match unsafe { uctx.reg_mr(&region) } {
            Ok(keys) => Ok(Self { memory, keys }),
            Err(errno) => {
                // SAFETY: just leaked, and unknown to the device.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
                Err(errno)
            }
        }
    }

    /// Takes it from the device; it stays if that fails.
    fn free(kept: &mut Option<Self>, uctx: &Uctx) -> Result<(), Errno> {
        let Some(state) = kept else {
            return Ok(());
        };
        destroyed(uctx.dereg_mr(state.keys.handle))?;
        // SAFETY: leaked by `new`, and gone for the device.
        drop(unsafe { Box::from_raw(state.memory.as_ptr()) });
        *kept = None;
        Ok(())
    }
}

/// Key and address of where the device may keep the state of copies, as long as the domain lives.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn copy_state(pd: *mut ibv_pd) -> Result<(u32, u64), Errno> {
    // SAFETY: the caller's promise.
    let mut of = unsafe { domain(pd) };
    while let Some(parent) = &of.parent {
        // SAFETY: alive: `of` is one of its users.
        of = unsafe { &*parent.of };
    }
    // SAFETY: its context is open.
    let uctx = unsafe { uctx(of.ibv.context) }?;
    let mut kept = of.copy_state.lock().unwrap_or_else(PoisonError::into_inner);
    let state = match &mut *kept {
        Some(state) => state,
        none => none.insert(CopyState::new(uctx, Pd(of.ibv.handle))?),
    };
    Ok((state.keys.lkey, state.memory.as_ptr().addr() as u64))
}

#[derive(Debug)]
struct Parent {
    of: *mut Domain,
    td: *mut ThreadDomain,
    allocator: Option<Arc<dyn Allocator>>,
}

/// A thread domain: a register of its own, and a promise.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadDomain {
    ibv: ibv_td,
    users: AtomicU32,
    register: ThreadRegister,
}

/// An object's share of a domain; ends with it.
#[derive(Debug)]
pub(crate) struct Share(*mut Domain);

// SAFETY: a domain is not freed while a share of it exists, and its counter is atomic.
unsafe impl std::marker::Send for Share {}
// SAFETY: as above.
unsafe impl Sync for Share {}

impl Drop for Share {
    fn drop(&mut self) {
        // SAFETY: alive as long as its users are not none.
        let users = unsafe { &(*self.0).users };
        users.fetch_sub(1, Ordering::Release);
    }
}

/// # Safety
///
/// A protection domain of an mlx5 device (C1).
unsafe fn domain<'a>(pd: *mut ibv_pd) -> &'a Domain {
    // SAFETY: made here, which is where the program's pointer comes from.
    unsafe { &*pd.cast::<Domain>() }
}

/// Takes a share of a parent domain; `None` for an ordinary one, which the kernel keeps busy.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
pub(crate) unsafe fn share(pd: *mut ibv_pd) -> Option<Share> {
    // SAFETY: the caller's promise.
    let domain = unsafe { domain(pd) };
    domain.parent.as_ref()?;
    domain.users.fetch_add(1, Ordering::Relaxed);
    Some(Share(pd.cast()))
}

/// Takes a share of a domain of whatever kind: what the device keeps in memory of the domain's stays with it.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn hold(pd: *mut ibv_pd) -> Share {
    // SAFETY: the caller's promise.
    unsafe { domain(pd) }.users.fetch_add(1, Ordering::Relaxed);
    Share(pd.cast())
}

/// Whether it is a parent domain.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
pub(crate) unsafe fn is_parent(pd: *mut ibv_pd) -> bool {
    // SAFETY: the caller's promise.
    unsafe { domain(pd) }.parent.is_some()
}

/// The allocator that a parent domain brings.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
pub(crate) unsafe fn allocator(pd: *mut ibv_pd) -> Option<Arc<dyn Allocator>> {
    // SAFETY: the caller's promise.
    unsafe { domain(pd) }.parent.as_ref()?.allocator.clone()
}

/// The register of the thread domain that a parent domain joins.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1), alive as long as the result is used.
pub(crate) unsafe fn thread_register<'a>(pd: *mut ibv_pd) -> Option<&'a ThreadRegister> {
    // SAFETY: the caller's promise.
    let td = unsafe { domain(pd) }.parent.as_ref()?.td;
    // SAFETY: null, or alive as long as the parent domain, which is one of its users.
    unsafe { td.as_ref() }.map(|td| &td.register)
}

/// The device's number of a protection domain.
///
/// # Safety
///
/// A protection domain of an mlx5 device (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn number(pd: *mut ibv_pd) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { domain(pd) }.number
}

#[cfg_attr(
    not(feature = "drop-in"),
    allow(unused_variables, reason = "only mlx5dv tells the number")
)]
fn new_pd(
    context: *mut ibv_context,
    handle: Pd,
    number: u32,
    parent: Option<Parent>,
) -> *mut Domain {
    Box::into_raw(Box::new(Domain {
        ibv: ibv_pd {
            context,
            handle: handle.0,
        },
        users: AtomicU32::new(0),
        parent,
        #[cfg(feature = "drop-in")]
        number,
        #[cfg(feature = "drop-in")]
        copy_state: Mutex::default(),
    }))
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut Domain {
    control("alloc_pd", || {
        // SAFETY: an open context (C1).
        let (handle, answer) = unsafe { uctx(context) }?.alloc_pd::<AllocPdResp>()?;
        Ok(new_pd(context, handle, answer.pdn, None))
    })
}

pub(crate) unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut Domain {
    control("import_pd", || {
        // The question is also whether there is such a domain.
        // SAFETY: an open context (C1).
        let number = unsafe { uctx(context) }?.query_pd(Pd(handle))?;
        Ok(new_pd(context, Pd(handle), number, None))
    })
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    control("dealloc_pd", || {
        // SAFETY: a protection domain of ours (C1).
        let domain = unsafe { domain(pd) };
        if domain.users.load(Ordering::Acquire) != 0 {
            return Err(Errno(libc::EBUSY));
        }
        match &domain.parent {
            Some(parent) => {
                // SAFETY: alive: this is one of its users.
                let users = unsafe { &(*parent.of).users };
                users.fetch_sub(1, Ordering::Release);
                // SAFETY: null, or alive as above.
                if let Some(td) = unsafe { parent.td.as_ref() } {
                    td.users.fetch_sub(1, Ordering::Release);
                }
            }
            None => {
                // SAFETY: its context is open.
                let uctx = unsafe { uctx(domain.ibv.context) }?;
                #[cfg(feature = "drop-in")]
                {
                    let mut kept = domain
                        .copy_state
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    CopyState::free(&mut kept, uctx)?;
                }
                destroyed(uctx.dealloc_pd(Pd(domain.ibv.handle)))?;
            }
        }
        // SAFETY: made by `new_pd`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(pd.cast::<Domain>()) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    guarded("unimport_pd", || {
        // SAFETY: made by `import_pd`, and gone for the program; the kernel's object is another process'.
        drop(unsafe { Box::from_raw(pd.cast::<Domain>()) });
    });
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init: *mut ibv_td_init_attr,
) -> *mut ThreadDomain {
    control("alloc_td", || {
        // SAFETY: the caller's attributes.
        if unsafe { (*init).comp_mask } != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open mlx5 device.
        let device = unsafe { family::<Mlx5>(context) }?;
        Ok(Box::into_raw(Box::new(ThreadDomain {
            ibv: ibv_td { context },
            users: AtomicU32::new(0),
            register: device.context().uars().thread_domain(),
        })))
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ThreadDomain) -> c_int {
    control("dealloc_td", || {
        // SAFETY: a thread domain of ours (C1).
        if unsafe { &(*td).users }.load(Ordering::Acquire) != 0 {
            return Err(Errno(libc::EBUSY));
        }
        // SAFETY: made by `alloc_td`, and gone for the program.
        drop(unsafe { Box::from_raw(td) });
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`.
const ALLOCATORS: u32 = 1;
/// `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`.
const PD_CONTEXT: u32 = 2;

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    init: *mut ibv_parent_domain_init_attr,
) -> *mut Domain {
    control("alloc_parent_domain", || {
        // SAFETY: the caller's attributes.
        let init = unsafe { &*init };
        let allocators = match (init.comp_mask & ALLOCATORS != 0, init.alloc, init.free) {
            (false, ..) => None,
            (true, Some(alloc), Some(free)) => Some((alloc, free)),
            (true, ..) => return Err(Errno(libc::EINVAL)),
        };
        if init.pd.is_null() || init.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a protection domain of ours (C1).
        let of = unsafe { domain(init.pd) };
        let td = init.td.cast::<ThreadDomain>();
        of.users.fetch_add(1, Ordering::Relaxed);
        // SAFETY: null or a thread domain of ours (C1).
        if let Some(td) = unsafe { td.as_ref() } {
            td.users.fetch_add(1, Ordering::Relaxed);
        }
        let parent = Parent {
            of: init.pd.cast(),
            td,
            allocator: None,
        };
        #[cfg(feature = "drop-in")]
        let number = of.number;
        #[cfg(not(feature = "drop-in"))]
        let number = 0;
        let made = new_pd(context, Pd(of.ibv.handle), number, Some(parent));
        let Some((alloc, free)) = allocators else {
            return Ok(made);
        };
        let given = if init.comp_mask & PD_CONTEXT != 0 {
            init.pd_context
        } else {
            std::ptr::null_mut()
        };
        let allocator = ProgramAllocator {
            pd: made.cast(),
            given,
            alloc,
            free,
        };
        // SAFETY: the new object, which nobody else knows yet.
        if let Some(parent) = unsafe { &mut (*made).parent } {
            parent.allocator = Some(Arc::new(allocator));
        }
        Ok(made)
    })
}

/// A program's functions.
#[derive(Debug)]
struct ProgramAllocator {
    pd: *mut ibv_pd,
    given: *mut c_void,
    alloc: pd_alloc,
    free: pd_free,
}

// SAFETY: pointers that are only handed to the program's functions, which it says may be called by any thread that makes
// or destroys objects.
unsafe impl std::marker::Send for ProgramAllocator {}
// SAFETY: as above.
unsafe impl Sync for ProgramAllocator {}

/// `IBV_ALLOCATOR_USE_DEFAULT`.
const USE_DEFAULT: usize = usize::MAX;

// SAFETY: what the program's function answers is such memory by the verb's contract.
unsafe impl Allocator for ProgramAllocator {
    fn alloc(&self, size: usize, alignment: usize, what: ResourceType) -> Allocated {
        // SAFETY: the program's function, with the arguments that it expects.
        let place = unsafe { (self.alloc)(self.pd, self.given, size, alignment, what.0) };
        if place.addr() == USE_DEFAULT {
            return Allocated::UseDefault;
        }
        NonNull::new(place.cast()).map_or(Allocated::Failed, Allocated::At)
    }

    unsafe fn free(&self, memory: NonNull<u8>, what: ResourceType) {
        // SAFETY: the program's function, with memory that its other one gave.
        unsafe { (self.free)(self.pd, self.given, memory.as_ptr().cast(), what.0) };
    }
}

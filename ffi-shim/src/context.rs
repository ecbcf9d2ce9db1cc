//! An open device: our part of it, and how it comes and goes.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::ptr;

use oxverbs::ffi_core::uverbs_abi::types::{CoreSupport, DriverId};
use oxverbs::ffi_core::{Errno, KernelRef, Uctx};

use crate::abi::driver::verbs_device;
use crate::abi::objects::{ibv_context, ibv_device};
use crate::abi::release::{Layout, MIRRORED};
use crate::common::{Entry, table};
use crate::library::{Library, library};
use crate::provider::Claim;
use crate::{door, log};

/// Room before `ibv_context` for what the newest release has in `verbs_context` before it.
const FRONT: usize = 368;

/// Devices of one driver: what is done differently for them. It is chosen once, when the context is made.
pub(crate) trait Family: Sized + 'static {
    /// The kernel's number of the driver.
    const DRIVER: DriverId;
    /// Which devices are ours.
    const CLAIM: Claim;
    /// Takes part in the context that another process made on this descriptor, where the driver has that.
    const IMPORT: Option<Make<Self>> = None;
    /// Makes the kernel's context.
    fn open(uctx: Uctx) -> Result<Opened<Self>, Errno>;
    /// The core, which stays where it is as long as `self` does.
    fn uctx(&self) -> &Uctx;
    /// The functions for libibverbs.
    fn operations() -> &'static [Entry];
}

/// Makes a family's part of a context from its descriptor.
pub(crate) type Make<F> = fn(Uctx) -> Result<Opened<F>, Errno>;

/// What [`Family::open`] learnt.
#[derive(Debug)]
pub(crate) struct Opened<F> {
    pub(crate) num_comp_vectors: u32,
    pub(crate) core_support: CoreSupport,
    /// The asynchronous event file, if the kernel made it already.
    pub(crate) async_event: Option<OwnedFd>,
    pub(crate) family: F,
}

/// The allocation of a context. libibverbs' `verbs_context` ends with its `ibv_context` and differs in length in front of
/// it, so it is placed such that `ibv_context` stands at [`FRONT`] for every release.
#[repr(C)]
#[derive(Debug)]
struct Allocation<F> {
    front: [u64; FRONT / 8],
    ibv: ibv_context,
    private: Private<F>,
    /// For a patched library whose `verbs_context` is longer than its release's: it writes here before it is found out.
    _slack: [u64; 64],
}

const _: () = assert!(offset_of!(Allocation<()>, ibv) == FRONT);

/// Our part; laid out alike for every family.
#[repr(C)]
#[derive(Debug)]
struct Private<F> {
    /// Null until the context is open; points into `family`, which is not replaced before the context is freed.
    uctx: *const Uctx,
    family: Option<Box<F>>,
}

/// The core behind a context.
///
/// # Safety
///
/// `context` is one that [`alloc_context`] or [`import_context`] returned and that was not freed (C1); the reference ends before it is.
pub(crate) unsafe fn uctx<'a>(context: *mut ibv_context) -> Result<&'a Uctx, Errno> {
    let allocation = context.wrapping_byte_sub(FRONT).cast::<Allocation<()>>();
    // SAFETY: the context is part of such an allocation, made below, whose `uctx` stands at the same place for every
    // family and is not written any more.
    let uctx = unsafe { (*allocation).private.uctx };
    // SAFETY: null, or the core of an open context.
    unsafe { uctx.as_ref() }.ok_or(Errno(libc::ENODEV))
}

/// What a family keeps for a context of its own.
///
/// # Safety
///
/// As for [`uctx`], and the context was made for this family.
#[allow(
    dead_code,
    reason = "for mlx5 devices, whose room is not furnished yet"
)]
pub(crate) unsafe fn family<'a, F: Family>(context: *mut ibv_context) -> Result<&'a F, Errno> {
    let allocation = context.wrapping_byte_sub(FRONT).cast::<Allocation<F>>();
    // SAFETY: the context is part of such an allocation; `private` is not written any more.
    let private = unsafe { &(*allocation).private };
    private.family.as_deref().ok_or(Errno(libc::ENODEV))
}

/// Start of `verbs_context` for an `ibv_context`.
fn verbs_context(layout: &Layout, context: *mut ibv_context) -> *mut c_void {
    context.wrapping_byte_sub(layout.context_offset).cast()
}

pub(crate) unsafe extern "C" fn alloc_context<F: Family>(
    device: *mut ibv_device,
    cmd_fd: c_int,
    _: *mut c_void,
) -> *mut c_void {
    door::control("open_device", || {
        // SAFETY: libibverbs passes a device of this family's and its open descriptor.
        unsafe { make(device, cmd_fd, F::open) }
    })
}

pub(crate) unsafe extern "C" fn import_context<F: Family>(
    device: *mut ibv_device,
    cmd_fd: c_int,
) -> *mut c_void {
    door::control("import_device", || {
        let import = F::IMPORT.ok_or(Errno(libc::EOPNOTSUPP))?;
        // SAFETY: libibverbs passes a device of this family's and a descriptor on which a context was made.
        unsafe { make(device, cmd_fd, import) }
    })
}

/// Makes a context around what `open` makes of the descriptor, which belongs to it also where that fails.
///
/// # Safety
///
/// `device` is one that libibverbs passed for this family, `cmd_fd` its open descriptor.
unsafe fn make<F: Family>(
    device: *mut ibv_device,
    cmd_fd: c_int,
    open: Make<F>,
) -> Result<*mut c_void, Errno> {
    let library = library().ok_or(Errno(libc::ENOSYS))?;
    let offset = FRONT - library.layout.context_offset;
    // SAFETY: a device that libibverbs passed, its open descriptor, and the size and offset of a `verbs_context`
    // within an allocation that is zeroed, for which all-zero bytes are valid (`family: None` is written below).
    let base = unsafe {
        (library.init_context)(
            device,
            cmd_fd,
            size_of::<Allocation<F>>(),
            ptr::without_provenance_mut(offset),
            F::DRIVER.0,
        )
    };
    if base.is_null() {
        return Err(Errno::last());
    }
    let allocation = base.cast::<Allocation<F>>();
    // SAFETY: our part of the new allocation, which libibverbs does not touch.
    let private = unsafe { &raw mut (*allocation).private };
    // SAFETY: as above.
    unsafe {
        private.write(Private {
            uctx: ptr::null(),
            family: None,
        })
    };
    // SAFETY: within the allocation.
    let context = unsafe { &raw mut (*allocation).ibv };
    // SAFETY: the new context, which nobody else knows yet.
    match unsafe { set_up(library, allocation, cmd_fd, open) } {
        Ok(()) => Ok(verbs_context(&library.layout, context)),
        Err(errno) => {
            // libibverbs closes the descriptor here, as it would on success later.
            // SAFETY: the context is dropped once.
            unsafe { tear_down::<F>(library, context) };
            Err(errno)
        }
    }
}

/// # Safety
///
/// `allocation` is a new context as `_verbs_init_and_alloc_context` left it.
unsafe fn set_up<F: Family>(
    library: &Library,
    allocation: *mut Allocation<F>,
    cmd_fd: c_int,
    open: Make<F>,
) -> Result<(), Errno> {
    // SAFETY: the caller has the allocation to itself.
    let allocation = unsafe { &mut *allocation };
    let context = &raw mut allocation.ibv;
    let layout = &library.layout;
    // The library says itself how long its verbs_context is.
    let sz = verbs_context(layout, context)
        .wrapping_byte_add(layout.sz_offset())
        .cast::<usize>();
    // SAFETY: `sz` lies in front of `ibv_context`, within the allocation.
    let sz = unsafe { sz.read() };
    if sz != layout.verbs_context_size() {
        log::always(format_args!(
            "this libibverbs calls itself rdma-core {}, whose verbs_context has {} bytes, but has {sz}; refusing to guess",
            layout.release,
            layout.verbs_context_size()
        ));
        return Err(Errno(libc::ENOSYS));
    }
    let info = open(Uctx::borrow(KernelRef::Linux, cmd_fd, F::DRIVER)?)?;
    allocation.ibv.num_comp_vectors = info.num_comp_vectors as c_int;
    if let Some(fd) = info.async_event {
        allocation.ibv.async_fd = fd.into_raw_fd();
    }
    let device = allocation.ibv.device.cast::<verbs_device>();
    // SAFETY: the device is one that `alloc_device` made; the field's place is the same in all releases.
    unsafe { (*device).core_support = info.core_support.0 };
    let family = allocation.private.family.insert(Box::new(info.family));
    allocation.private.uctx = family.uctx();

    let table = table(layout, F::operations());
    // SAFETY: the context, and a table with as many slots as this release reads, each of the type its name has.
    unsafe { (library.set_ops)(verbs_context(layout, context), table.as_ptr().cast()) };
    for &(place, op) in MIRRORED {
        let ours = layout.slot(op).and_then(|slot| table[slot]);
        let Some(ours) = ours else { continue };
        if allocation.ibv.ops.slots[place] != ours.as_ptr().cast_const() {
            log::always(format_args!(
                "this libibverbs calls itself rdma-core {}, but took our {} for another operation; refusing to go on",
                layout.release,
                op.name()
            ));
            return Err(Errno(libc::ENOSYS));
        }
    }
    Ok(())
}

/// Drops our part and gives the rest back.
///
/// # Safety
///
/// `context` is one that [`make`] made, and nobody uses it any more.
unsafe fn tear_down<F: Family>(library: &Library, context: *mut ibv_context) {
    let allocation = context.wrapping_byte_sub(FRONT).cast::<Allocation<F>>();
    // SAFETY: nobody uses the context any more.
    let private = unsafe { &mut (*allocation).private };
    private.uctx = ptr::null();
    private.family = None;
    // SAFETY: the library closes both descriptors and frees its own part.
    unsafe { (library.uninit_context)(verbs_context(&library.layout, context)) };
    // SAFETY: the library allocated it with calloc and leaves freeing it to the provider.
    unsafe { libc::free(allocation.cast()) };
}

pub(crate) unsafe extern "C" fn free_context<F: Family>(context: *mut ibv_context) {
    door::guarded("close_device", || {
        log::trace(format_args!("close_device"));
        if let Some(library) = library() {
            // SAFETY: libibverbs frees a context once, after all its objects (C2).
            unsafe { tear_down::<F>(library, context) };
        }
    });
}

//! Completion queues: creation, arming, polling into an array. Polling one by one is in [`lazy`].

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::cq::EventCount;
use oxverbs::ffi_core::mlx5::{Completion, CompletionQueue, SrqShared};
use oxverbs::ffi_core::mlx5_control::cq::{CqObject, CqRequest};
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::mlx5_control::placement::RingPlacement;
use oxverbs::ffi_core::uverbs_abi::handle::Cq as CqHandle;
use oxverbs::ffi_core::uverbs_abi::types::CreateCqFlags;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::CqeCompFormat;

use crate::abi::attr::{ibv_cq_init_attr_ex, ibv_modify_cq_attr};
use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_pd};
use crate::abi::work::ibv_wc;
use crate::common::destroyed;
use crate::common::events::Events;
use crate::context::family;
use crate::door::control;
use crate::lock::{Locked, QueueLock, Threads};
use crate::mlx5::Mlx5;
use crate::mlx5::domain::{self, Share};

mod lazy;

/// A completion queue: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Cq {
    ibv: ibv_cq_ex,
    queue: Locked<CompletionQueue, QueueLock>,
    /// Counted by whatever thread takes events.
    events: EventCount,
    /// Before the share: its memory may be from the domain's allocator.
    object: Mutex<CqObject>,
    /// Whether the program reads the entries itself; what it has consumed is not known then.
    #[cfg(feature = "drop-in")]
    handed_over: std::sync::atomic::AtomicBool,
    _domain: Option<Share>,
}

const _: () = assert!(offset_of!(Cq, queue) >= size_of::<ibv_cq_ex>());

/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const ATTR_FLAGS: u32 = 1;
/// `IBV_CQ_INIT_ATTR_MASK_PD`.
const ATTR_PD: u32 = 2;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const SINGLE_THREADED: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const IGNORE_OVERRUN: u32 = 2;
/// All of `enum ibv_create_cq_wc_flags`.
const WC_FLAGS: u64 = 0xfff;
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`.
const WITH_TIMESTAMP: u64 = 1 << 7;
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
const WITH_WALLCLOCK: u64 = 1 << 11;

/// What both verbs of creation ask for.
struct Wanted {
    request: CqRequest,
    channel: *mut ibv_comp_channel,
    threads: Option<Threads>,
    parent: *mut ibv_pd,
    /// Fields for polling one by one, if that is wanted.
    wc_flags: Option<u64>,
}

fn create(context: *mut ibv_context, wanted: Wanted) -> Result<*mut Cq, Errno> {
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    let parent = wanted.parent;
    // The kernel wants the address that events will carry before the queue exists.
    let place = Box::<Cq>::new_uninit();
    let request = CqRequest {
        user_handle: place.as_ptr().expose_provenance() as u64,
        // SAFETY: null, or a channel of this context.
        comp_channel: unsafe { wanted.channel.as_ref() }.map(|channel| channel.fd),
        async_event: (async_fd >= 0).then_some(async_fd),
        allocator: if parent.is_null() {
            None
        } else {
            // SAFETY: a protection domain of ours (C1).
            unsafe { domain::allocator(parent) }
        },
        ..wanted.request
    };
    let (object, queue) = device.context().create_cq(&request)?;
    // SAFETY: all-zero is a valid `ibv_cq_ex`; libibverbs initialises the lock in it after we return.
    let mut ibv: ibv_cq_ex = unsafe { std::mem::zeroed() };
    ibv.base.context = context;
    ibv.base.handle = object.handle().0;
    ibv.base.cqe = (queue.entries() - 1) as c_int;
    if let Some(wc_flags) = wanted.wc_flags {
        ibv.ops = lazy::ops(wc_flags);
    }
    let threads = wanted.threads.unwrap_or(device.threads());
    let cq = Cq {
        ibv,
        events: queue.event_count(),
        queue: Locked::with(queue, QueueLock::new(threads)),
        object: Mutex::new(object),
        #[cfg(feature = "drop-in")]
        handed_over: false.into(),
        _domain: if parent.is_null() {
            None
        } else {
            // SAFETY: a protection domain of ours (C1).
            unsafe { domain::share(parent) }
        },
    };
    Ok(Box::into_raw(Box::write(place, cq)))
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    control("create_cq", || {
        if cqe <= 0 {
            return Err(Errno(libc::EINVAL));
        }
        let wanted = Wanted {
            request: CqRequest {
                cqe: cqe as u32,
                comp_vector: comp_vector as u32,
                ..CqRequest::default()
            },
            channel,
            threads: None,
            parent: std::ptr::null_mut(),
            wc_flags: None,
        };
        create(context, wanted).map(<*mut Cq>::cast)
    })
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    control("create_cq_ex", || {
        // SAFETY: the caller's arguments.
        unsafe { create_ex(context, attr, Special::default()) }.map(<*mut Cq>::cast)
    })
}

/// What a program can ask for beyond verbs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Special {
    /// Bytes of an entry.
    pub(crate) entry_size: Option<u32>,
    pub(crate) compression: Option<CqeCompFormat>,
    /// Whether entries of 128 bytes are padded.
    pub(crate) padded: bool,
}

/// # Safety
///
/// An open mlx5 device and attributes with objects of ours (C1).
pub(crate) unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
    special: Special,
) -> Result<*mut Cq, Errno> {
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    let mask = attr.comp_mask;
    // Flags count only if the mask says so.
    let flags = if mask & ATTR_FLAGS != 0 {
        attr.flags
    } else {
        0
    };
    if mask & !(ATTR_FLAGS | ATTR_PD) != 0 || flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if attr.wc_flags & !WC_FLAGS != 0 {
        return Err(Errno(libc::ENOTSUP));
    }
    let parent = if mask & ATTR_PD != 0 {
        // SAFETY: a protection domain of ours (C1).
        if attr.parent_domain.is_null() || !unsafe { domain::is_parent(attr.parent_domain) } {
            return Err(Errno(libc::EINVAL));
        }
        attr.parent_domain
    } else {
        std::ptr::null_mut()
    };
    let wall_clock = attr.wc_flags & WITH_WALLCLOCK != 0;
    let wanted = Wanted {
        request: CqRequest {
            cqe: attr.cqe,
            comp_vector: attr.comp_vector,
            flags: kernel_flags(attr.wc_flags, flags),
            // Of both kinds of time, timestamps stay the device's.
            real_time: wall_clock && attr.wc_flags & WITH_TIMESTAMP == 0,
            wall_clock,
            entry_size: special.entry_size,
            compression: special.compression,
            padded: special.padded,
            ..CqRequest::default()
        },
        channel: attr.channel,
        threads: (flags & SINGLE_THREADED != 0).then_some(Threads::OnePoller),
        parent,
        wc_flags: Some(attr.wc_flags),
    };
    create(context, wanted)
}

/// The kernel's flags for what was asked, as libibverbs has them.
fn kernel_flags(wc_flags: u64, flags: u32) -> CreateCqFlags {
    let mut kernel = CreateCqFlags::NONE;
    if wc_flags & (WITH_TIMESTAMP | WITH_WALLCLOCK) != 0 {
        kernel |= CreateCqFlags::TIMESTAMP_COMPLETION;
    }
    if flags & IGNORE_OVERRUN != 0 {
        kernel |= CreateCqFlags::IGNORE_OVERRUN;
    }
    kernel
}

impl Cq {
    fn object(&self) -> MutexGuard<'_, CqObject> {
        // A panic was reported when it happened; the kernel's object is as it was.
        self.object.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
///
/// A completion queue of ours (C1).
#[inline(always)]
unsafe fn of<'a, T>(cq: *mut T) -> &'a Cq {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*cq.cast::<Cq>() }
}

/// Whether a program polls it one by one.
///
/// # Safety
///
/// A completion queue of ours (C1).
pub(crate) unsafe fn is_extended(cq: *mut ibv_cq) -> bool {
    // SAFETY: the caller's promise.
    unsafe { of(cq) }.ibv.ops.start_poll.is_some()
}

/// Kernel handle of a completion queue.
///
/// # Safety
///
/// A completion queue of ours (C1).
pub(crate) unsafe fn handle(cq: *mut ibv_cq) -> CqHandle {
    // SAFETY: the caller's promise.
    unsafe { of(cq) }.object().handle()
}

/// Number and memory of a queue whose entries the program reads from now on.
///
/// # Safety
///
/// A completion queue of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn hand_over(cq: *mut ibv_cq) -> (u32, RingPlacement) {
    // SAFETY: the caller's promise.
    let ours = unsafe { of(cq) };
    ours.handed_over
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let object = ours.object();
    (object.number(), object.placement())
}

pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    control("resize_cq", || {
        let cqe = u32::try_from(cqe).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: a queue of ours (C1).
        let ours = unsafe { of(cq) };
        let mut object = ours.object();
        // Nobody polls while completions move.
        let granted = object.resize(&mut ours.queue.lock(), cqe)?;
        drop(object);
        // SAFETY: a field that only this verb writes; programs read it, and serialise that (C2).
        unsafe { (*cq).cqe = granted as c_int };
        Ok(())
    })
}

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    control("modify_cq", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.attr_mask & !MODERATE != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let moderate = attr.moderate;
        // SAFETY: a queue of ours (C1).
        unsafe { of(cq) }
            .object()
            .moderate(moderate.cq_count, moderate.cq_period)
    })
}

/// libibverbs took an event of this queue from its channel.
pub(crate) unsafe extern "C" fn cq_event(cq: *mut ibv_cq) {
    // SAFETY: a queue of ours (C1).
    unsafe { of(cq) }.events.event_taken();
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: a queue of ours (C1).
    let queue = unsafe { of(cq) }.queue.lock();
    queue.arm(solicited_only != 0);
    0
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    control("destroy_cq", || {
        // SAFETY: a queue of ours (C1), and nobody else uses it.
        let reported = destroyed(unsafe { of(cq) }.object().destroy())?;
        // SAFETY: as above.
        let base = unsafe { &raw mut (*cq.cast::<Cq>()).ibv.base };
        let [completion, asynchronous] = Events::of_cq(base);
        // SAFETY: a live object, whose lock libibverbs initialised when it was made.
        unsafe { completion.wait(reported.as_ref().map(|of| of.completion)) };
        // SAFETY: as above.
        unsafe { asynchronous.wait(reported.as_ref().map(|of| of.asynchronous)) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, wc: *mut ibv_wc) -> c_int {
    const {
        assert!(size_of::<Completion>() == size_of::<ibv_wc>());
        assert!(align_of::<Completion>() == align_of::<ibv_wc>());
    }
    // SAFETY: a queue of ours (C1).
    let mut queue = unsafe { of(cq) }.queue.lock();
    // SAFETY: the caller has room for `room` completions, whose layout is the program's.
    unsafe { queue.poll_into(wc.cast(), room.max(0) as usize) as c_int }
}

/// Removes completions of a queue that is gone or starts anew; those of receives from a shared queue give their places
/// back to it.
///
/// # Safety
///
/// `cq` is null or one of ours (C1).
pub(crate) unsafe fn clean(cq: *mut ibv_cq, key: u32, shared: Option<&SrqShared>) {
    // SAFETY: the caller's promise.
    if let Some(ours) = unsafe { cq.cast::<Cq>().as_ref() } {
        #[cfg(feature = "drop-in")]
        if ours.handed_over.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        ours.queue.lock().clean(key, shared);
    }
}

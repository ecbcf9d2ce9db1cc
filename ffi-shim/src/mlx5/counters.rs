//! Sets of counters, which flow rules count packets and bytes into.
//!
//! What a set counts is told before the first rule counts into it, and stands as long as one does: the kernel hears of it with
//! that rule.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::handle::Counters as Handle;
use oxverbs::ffi_core::uverbs_abi::types::ReadCountersFlags;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::FlowCountersDesc;

use crate::abi::objects::ibv_context;
use crate::abi::wq::{ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_flow};
use crate::common::destroyed;
use crate::context::uctx;
use crate::door::control;

/// A set of counters: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counters {
    ibv: ibv_counters,
    handle: Handle,
    counted: Mutex<Counted>,
}

/// What a set counts, and for how many rules.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    descriptions: Vec<FlowCountersDesc>,
    rules: u32,
}

impl Counted {
    /// What the kernel is to hear with a new rule; `None` if it has heard it. `EINVAL` if the set counts nothing.
    pub(crate) fn news(&self) -> Result<Option<&[FlowCountersDesc]>, Errno> {
        match self.rules {
            0 if self.descriptions.is_empty() => Err(Errno(libc::EINVAL)),
            0 => Ok(Some(&self.descriptions)),
            _ => Ok(None),
        }
    }

    /// A rule counts into it.
    pub(crate) fn hold(&mut self) {
        self.rules += 1;
    }

    /// A rule is gone.
    pub(crate) fn release(&mut self) {
        self.rules = self.rules.saturating_sub(1);
    }
}

impl Counters {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn counted(&self) -> MutexGuard<'_, Counted> {
        // A panic was reported when it happened; the numbers are as they were.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
///
/// A set of ours (C1).
pub(crate) unsafe fn of<'a>(counters: *mut ibv_counters) -> &'a Counters {
    // SAFETY: made by `create_counters`, which is where the program's pointer comes from.
    unsafe { &*counters.cast::<Counters>() }
}

pub(crate) unsafe extern "C" fn create_counters(
    context: *mut ibv_context,
    init: *mut ibv_counters_init_attr,
) -> *mut Counters {
    control("create_counters", || {
        // SAFETY: the caller's attributes.
        if unsafe { (*init).comp_mask } != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: an open context (C1).
        let handle = unsafe { uctx(context) }?.create_counters()?;
        Ok(Box::into_raw(Box::new(Counters {
            ibv: ibv_counters { context },
            handle,
            counted: Mutex::default(),
        })))
    })
}

pub(crate) unsafe extern "C" fn destroy_counters(counters: *mut ibv_counters) -> c_int {
    control("destroy_counters", || {
        // SAFETY: a set of ours (C1).
        let ours = unsafe { of(counters) };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(ours.ibv.context) }?.destroy_counters(ours.handle))?;
        // SAFETY: made by `create_counters`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(counters.cast::<Counters>()) });
        Ok(())
    })
}

/// The kinds of counters: packets and bytes (`enum ibv_counter_description`).
const KINDS: u32 = 2;

pub(crate) unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    control("attach_counters_point_flow", || {
        // A rule that is there cannot be told to count.
        if !flow.is_null() {
            return Err(Errno(libc::ENOTSUP));
        }
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.comp_mask != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if attr.counter_desc >= KINDS {
            return Err(Errno(libc::ENOTSUP));
        }
        // SAFETY: a set of ours (C1).
        let mut counted = unsafe { of(counters) }.counted();
        if counted.rules != 0 {
            return Err(Errno(libc::EBUSY));
        }
        counted.descriptions.push(FlowCountersDesc {
            description: attr.counter_desc,
            index: attr.index,
        });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn read_counters(
    counters: *mut ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    control("read_counters", || {
        // SAFETY: a set of ours (C1).
        let ours = unsafe { of(counters) };
        let mut read = vec![0; count as usize];
        // SAFETY: its context is open.
        unsafe { uctx(ours.ibv.context) }?.read_counters(
            ours.handle,
            ReadCountersFlags(flags),
            &mut read,
        )?;
        // SAFETY: room for as many by the verb's contract.
        unsafe { values.copy_from_nonoverlapping(read.as_ptr(), read.len()) };
        Ok(())
    })
}

//! libibverbs, found at run time: the executable must exist where it is not installed, and say so.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use anyhow::{Context as _, Result, anyhow, bail};
use oxverbs_ffi::abi::attr::{
    ibv_ah_attr, ibv_cq_init_attr_ex, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use oxverbs_ffi::abi::objects::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_device, ibv_mr, ibv_mw, ibv_pd,
    ibv_qp, ibv_qp_ex, ibv_srq,
};
use oxverbs_ffi::abi::wq::{ibv_wq, ibv_wq_attr, ibv_wq_init_attr};

/// The text of the last failure of the loader.
fn loader_error() -> String {
    // SAFETY: no argument.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: not null, so a C string that stays until the next call of the loader by this thread.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Loads a shared object for the whole process and leaves it there.
///
/// # Errors
///
/// The loader's own words.
pub fn load(file: &str) -> Result<*mut c_void> {
    let name = CString::new(file)?;
    // SAFETY: a C string; constructors of the libraries in question register themselves and do nothing else.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        bail!("{}", loader_error());
    }
    Ok(handle)
}

pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void> {
    // SAFETY: a handle of `dlopen` that is never closed, and a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        bail!("{}", loader_error());
    }
    Ok(found)
}

macro_rules! table {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The exported functions that are used here.
        #[allow(missing_docs, reason = "C's names")]
        #[derive(Clone, Copy, Debug)]
        pub struct Exports {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Exports {
            fn find(handle: *mut c_void) -> Result<Self> {
                $(
                    let name = CString::new(stringify!($name))?;
                    let address = symbol(handle, &name)?;
                    // SAFETY: the symbol has this type in `infiniband/verbs.h`; both sides are one pointer.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(address)
                    };
                )*
                Ok(Self { $($name,)* })
            }
        }
    };
}

table! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq: fn(*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    ibv_qp_to_qp_ex: fn(*mut ibv_qp) -> *mut ibv_qp_ex;
    ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq: fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut ibv_cq, c_uint) -> ();
}

/// Distances of function slots before `ibv_context` in `verbs_context`, which grows at the front, so that they are
/// the same in every release (`infiniband/verbs.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Slot {
    /// `sz`, which is no function but tells how far back the struct reaches.
    Size = 8,
    /// `open_xrcd`.
    OpenXrcd = 32,
    /// `create_srq_ex`.
    CreateSrqEx = 40,
    /// `get_srq_num`.
    GetSrqNum = 48,
    /// `create_qp_ex`.
    CreateQpEx = 56,
    /// `create_cq_ex`.
    CreateCqEx = 120,
    /// `create_wq`.
    CreateWq = 136,
    /// `modify_wq`.
    ModifyWq = 144,
    /// `post_srq_ops`.
    PostSrqOps = 176,
    /// `alloc_td`.
    AllocTd = 192,
    /// `alloc_parent_domain`.
    AllocParentDomain = 208,
}

/// `abi_compat` of a context that is the end of a `verbs_context` (`__VERBS_ABI_IS_EXTENDED`).
const EXTENDED: usize = usize::MAX;

/// Types of the slots.
pub mod slot_types {
    use super::*;

    /// `create_qp_ex`.
    pub type CreateQpEx =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
    /// `create_cq_ex`.
    pub type CreateCqEx =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
    /// `create_srq_ex`.
    pub type CreateSrqEx =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
    /// `create_wq`.
    pub type CreateWq =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_wq_init_attr) -> *mut ibv_wq;
    /// `modify_wq`.
    pub type ModifyWq = unsafe extern "C" fn(*mut ibv_wq, *mut ibv_wq_attr) -> c_int;
    /// `get_srq_num`.
    pub type GetSrqNum = unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int;
    /// `open_xrcd`, `alloc_td` and `alloc_parent_domain`: a context and a struct of attributes.
    pub type Open = unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut c_void;
    /// `alloc_mw` of `ibv_context.ops`.
    pub type AllocMw = unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw;
}

/// The function of a slot.
///
/// # Safety
///
/// `context` is an open device.
///
/// # Errors
///
/// The context is too old a one to have it.
pub unsafe fn slot(context: *mut ibv_context, slot: Slot) -> Result<*const c_void> {
    // SAFETY: an open device.
    let compat = unsafe { (*context).abi_compat };
    if compat.addr() != EXTENDED {
        bail!("the context has no extended functions");
    }
    // SAFETY: `ibv_context` is the last member of `verbs_context`; `sz` is the word before it.
    let size = unsafe { context.byte_sub(Slot::Size as usize) };
    // SAFETY: as above.
    let size = unsafe { size.cast::<usize>().read() };
    if size < size_of::<ibv_context>() + slot as usize {
        bail!("the context lacks {slot:?}");
    }
    // SAFETY: `sz` says that the struct reaches back so far.
    let place = unsafe { context.byte_sub(slot as usize) };
    // SAFETY: as above.
    let function = unsafe { place.cast::<*const c_void>().read() };
    if function.is_null() {
        bail!("the provider has no {slot:?}");
    }
    Ok(function)
}

/// Which release of which library is in the process, from the file names that `/proc/self/maps` shows: the only
/// witness that a library path or a compiled-in provider directory did not bring another one.
///
/// # Errors
///
/// None or several of that name are mapped.
pub fn mapped_release(library: &str) -> Result<String> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut found: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.rsplit_once('/'))
        .filter_map(|(_, file)| file.strip_prefix(library)?.strip_prefix(".so."))
        .collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [one] => Ok(one.to_owned()),
        [] => Err(anyhow!("{library} is not mapped")),
        _ => Err(anyhow!(
            "several releases of {library} are mapped: {found:?}"
        )),
    }
}

/// libibverbs with its providers.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Its functions.
    pub exports: Exports,
}

impl Library {
    /// Loads libibverbs and registers the providers given, in the order in which they are asked about a device.
    ///
    /// # Errors
    ///
    /// One of them cannot be loaded.
    pub fn load(providers: &[&str]) -> Result<Self> {
        let verbs = load("libibverbs.so.1").context("libibverbs")?;
        for provider in providers {
            load(provider).with_context(|| (*provider).to_owned())?;
        }
        Ok(Self {
            exports: Exports::find(verbs)?,
        })
    }
}

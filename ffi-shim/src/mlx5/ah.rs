//! Address handles.

use std::ffi::c_int;
#[cfg(feature = "drop-in")]
use std::sync::{Mutex, PoisonError};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::Destination;
use oxverbs::ffi_core::mlx5_control::av::{Wire, address_vector};
use oxverbs::ffi_core::uverbs_abi::handle::Ah;
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::DevxObj;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::{CmdsSuppUhw, CreateAhResp};
use oxverbs::ffi_core::wqe_format::mlx5::DatagramSegment;

use crate::abi::attr::ibv_ah_attr;
use crate::abi::objects::{ibv_ah, ibv_pd};
use crate::common::address::path;
use crate::common::destroyed;
use crate::common::memory::of_pd;
use crate::context::{family, uctx};
use crate::door::control;
use crate::mlx5::Mlx5;

/// An address handle and the address vector that datagrams get of it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AddressHandle {
    ibv: ibv_ah,
    av: DatagramSegment,
    /// The kernel's, which is asked for the MAC address on Ethernet only.
    kernel: bool,
    #[cfg(feature = "drop-in")]
    is_global: bool,
    /// What tells the device which queue pair it leads to.
    #[cfg(feature = "drop-in")]
    mapping: Mutex<Option<DevxObj>>,
}

impl AddressHandle {
    /// What datagrams and dynamic connections get of it.
    #[cfg(feature = "drop-in")]
    pub(crate) fn vector(&self) -> &DatagramSegment {
        &self.av
    }

    /// Whether it has a global route.
    #[cfg(feature = "drop-in")]
    pub(crate) fn is_global(&self) -> bool {
        self.is_global
    }

    /// Maps it by an object of the firmware's, if it is not mapped yet; the object goes with it.
    #[cfg(feature = "drop-in")]
    pub(crate) fn map(&self, make: impl FnOnce() -> Result<DevxObj, Errno>) -> Result<(), Errno> {
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if mapping.is_none() {
            *mapping = Some(make()?);
        }
        Ok(())
    }

    /// The destination of a datagram.
    #[inline(always)]
    pub(crate) fn to(&self, qpn: u32, qkey: u32) -> Destination<'_> {
        Destination {
            av: &self.av,
            qpn,
            qkey,
        }
    }
}

/// Our part of an address handle.
///
/// # Safety
///
/// One of ours (C1), which lives for `'a`.
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn of<'a>(ah: *mut ibv_ah) -> &'a AddressHandle {
    // SAFETY: the caller's promise.
    unsafe { &*ah.cast::<AddressHandle>() }
}

/// The address vector of an address handle.
///
/// # Safety
///
/// One of ours (C1).
#[cfg(feature = "drop-in")]
pub(crate) unsafe fn vector(ah: *mut ibv_ah) -> *const DatagramSegment {
    // SAFETY: the caller's promise; a field of a live object.
    unsafe { &raw const (*ah.cast::<AddressHandle>()).av }
}

pub(crate) unsafe extern "C" fn create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut AddressHandle {
    control("create_ah", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd_handle) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes.
        let path = path(unsafe { &*attr });
        // SAFETY: an open mlx5 device.
        let device = unsafe { family::<Mlx5>(context) }?.context();
        let wire = device.wire(path.port_num, path.is_global != 0, path.grh.sgid_index)?;
        let mut ah = Box::new(AddressHandle {
            ibv: ibv_ah {
                context,
                pd,
                handle: 0,
            },
            av: DatagramSegment::default(),
            kernel: false,
            #[cfg(feature = "drop-in")]
            is_global: path.is_global != 0,
            #[cfg(feature = "drop-in")]
            mapping: Mutex::default(),
        });
        let mut rmac = [0; 6];
        if wire != Wire::InfiniBand {
            if !device.limits().commands.contains(CmdsSuppUhw::CREATE_AH) {
                // Older than Linux 4.9: addresses would have to be resolved here.
                return Err(Errno(libc::EOPNOTSUPP));
            }
            let user_handle = (&raw const *ah).expose_provenance() as u64;
            let (handle, answer) =
                device
                    .uctx()
                    .create_ah::<CreateAhResp>(pd_handle, user_handle, &path)?;
            ah.ibv.handle = handle.0;
            ah.kernel = true;
            rmac = answer.dmac;
        }
        ah.av = address_vector(&path, wire, rmac);
        Ok(Box::into_raw(ah))
    })
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut AddressHandle) -> c_int {
    control("destroy_ah", || {
        // SAFETY: an address handle of ours (C1).
        let ours = unsafe { &*ah };
        if ours.kernel {
            // SAFETY: its context is open.
            let uctx = unsafe { uctx(ours.ibv.context) }?;
            destroyed(uctx.destroy_ah(Ah(ours.ibv.handle)))?;
        }
        #[cfg(feature = "drop-in")]
        if let Some(mapping) = ours.mapping.lock().ok().and_then(|mut kept| kept.take()) {
            // SAFETY: its context is open.
            let uctx = unsafe { uctx(ours.ibv.context) }?;
            // The address handle is gone for the kernel; what is left goes with the context.
            let _ = uctx.devx_obj_destroy(mapping);
        }
        // SAFETY: made by `create_ah`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(ah) });
        Ok(())
    })
}

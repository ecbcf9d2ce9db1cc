//! Memory that is not the process': on the device, and none at all.

use std::ops::Range;
use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::types::AccessFlags;
use wqe_format::rxe::Sge;

use super::context::{Context, ContextInner, Family};
use super::mr::RemoteMemory;
use super::pd::{PdInner, ProtectionDomain};
use crate::control::kernel::{DmMr, MrKeys};
use crate::control::mlx5::dm::DmMapping;
use crate::error::{Error, Result};

/// Memory on an mlx5 device (MEMIC), mapped into the process: peers read and write it without the host's memory.
///
/// The device takes accesses of four bytes, so bytes are copied in and out in multiples of four.
///
/// ```no_run
/// use oxverbs::{AccessFlags, Context};
///
/// # fn main() -> oxverbs::Result<()> {
/// let context = Context::open("mlx5_0")?;
/// let pd = context.protection_domain()?;
/// let memory = context.device_memory(256, 6)?;
/// memory.copy_in(0, b"a word..")?;
/// let region = pd.register_device_memory(&memory, 0..256, AccessFlags::REMOTE_READ)?;
/// println!("peers read it with {:?}", region.remote(0));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    inner: Arc<DmInner>,
}

#[derive(Debug)]
struct DmInner {
    context: Arc<ContextInner>,
    handle: handle::Dm,
    mapping: DmMapping,
}

impl Drop for DmInner {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Its regions hold it; nobody is left to tell.
            let _ = self.context.uctx().free_dm(self.handle);
        }
    }
}

impl Context {
    /// Allocates memory on the device, aligned to `1 << log_align` there.
    ///
    /// # Errors
    ///
    /// The device is no mlx5 one, or has not so much of it.
    pub fn device_memory(&self, len: usize, log_align: u32) -> Result<DeviceMemory> {
        let action = || format!("allocate {len} bytes on the device");
        let Family::Mlx5(mlx5) = &self.inner.family else {
            return Err(Error::refused(
                action(),
                "the device has no memory of its own",
            ));
        };
        let (handle, mapping) = mlx5
            .alloc_dm(len, log_align)
            .map_err(|errno| Error::kernel(action(), errno))?;
        Ok(DeviceMemory {
            inner: Arc::new(DmInner {
                context: Arc::clone(&self.inner),
                handle,
                mapping,
            }),
        })
    }
}

impl DeviceMemory {
    /// Its bytes.
    pub fn len(&self) -> usize {
        self.inner.mapping.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn copy(&self, what: &str, offset: usize, len: usize) -> Result<()> {
        let action = || format!("copy {len} bytes {what} device memory at {offset}");
        if !self.inner.context.is_ours() {
            return Err(Error::refused(action(), "it belongs to the parent process"));
        }
        let words = self.inner.mapping.words(offset as u64, len);
        words
            .map(drop)
            .map_err(|errno| Error::kernel(action(), errno))
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    ///
    /// Beyond its end (`EFAULT`), or not whole words of four bytes (`EINVAL`).
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.copy("to", offset, bytes.len())?;
        // SAFETY: as many bytes as the slice has.
        unsafe {
            self.inner
                .mapping
                .write(offset as u64, bytes.as_ptr(), bytes.len())
        }
        .map_err(|errno| Error::kernel("copy to device memory", errno))
    }

    /// Copies bytes from the device.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.copy("from", offset, bytes.len())?;
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: as many bytes as the slice has.
        unsafe { self.inner.mapping.read(offset as u64, to, len) }
            .map_err(|errno| Error::kernel("copy from device memory", errno))
    }
}

/// A registered part of [`DeviceMemory`]; its addresses begin at 0.
#[derive(Debug)]
pub struct DeviceMemoryRegion {
    pd: Arc<PdInner>,
    keys: MrKeys,
    len: usize,
    /// Freed after the region is deregistered.
    _memory: Arc<DmInner>,
}

impl Drop for DeviceMemoryRegion {
    fn drop(&mut self) {
        if self.pd.context.is_ours() {
            // A destructor has nobody to tell.
            let _ = self.pd.context.uctx().dereg_mr(self.keys.handle);
        }
    }
}

impl DeviceMemoryRegion {
    /// An element of a work request.
    ///
    /// # Panics
    ///
    /// The range is not in the region, or longer than an element may be.
    pub fn sge(&self, range: Range<usize>) -> Sge {
        assert!(range.start <= range.end && range.end <= self.len);
        Sge {
            addr: range.start as u64,
            length: u32::try_from(range.len()).expect("longer than an element may be"),
            lkey: self.keys.lkey,
        }
    }

    /// How peers name it from an offset on.
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        RemoteMemory {
            addr: offset as u64,
            rkey: self.keys.rkey,
        }
    }
}

/// Memory that is not there: what is written to it is gone, and it reads as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullRegion {
    lkey: u32,
}

impl NullRegion {
    /// An element of so many bytes.
    pub fn sge(&self, length: u32) -> Sge {
        Sge {
            addr: 0,
            length,
            lkey: self.lkey,
        }
    }
}

impl ProtectionDomain {
    /// Registers a part of device memory.
    ///
    /// # Errors
    ///
    /// The kernel's; `EINVAL` for a part that it has not.
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: AccessFlags,
    ) -> Result<DeviceMemoryRegion> {
        let len = range.end.saturating_sub(range.start);
        let mr = DmMr {
            pd: self.inner.handle,
            dm: memory.inner.handle,
            offset: range.start as u64,
            length: len as u64,
            access: access | AccessFlags::ZERO_BASED,
        };
        let uctx = self.inner.context.uctx();
        let keys = uctx
            .reg_dm_mr(&mr)
            .map_err(|errno| Error::kernel(format!("register device memory {range:?}"), errno))?;
        Ok(DeviceMemoryRegion {
            pd: Arc::clone(&self.inner),
            keys,
            len,
            _memory: Arc::clone(&memory.inner),
        })
    }

    /// The region without memory, for elements whose bytes nobody wants.
    ///
    /// ```no_run
    /// # fn main() -> oxverbs::Result<()> {
    /// # let context = oxverbs::Context::open("mlx5_0")?;
    /// # let pd = context.protection_domain()?;
    /// let skipped = pd.null_region()?.sge(64);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The device has none.
    pub fn null_region(&self) -> Result<NullRegion> {
        let lkey = match &self.inner.context.family {
            Family::Mlx5(mlx5) => mlx5.limits().dump_fill_mkey,
            Family::Rxe(_) => None,
        };
        let none = || {
            Error::refused(
                "name memory that is not there",
                "the device has no key for it",
            )
        };
        Ok(NullRegion {
            lkey: lkey.ok_or_else(none)?,
        })
    }
}

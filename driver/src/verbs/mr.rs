//! Memory regions.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use mmap_rs::{MmapMut, MmapOptions};
use uverbs_abi::types::{self, AccessFlags, AdviseMrAdvice, AdviseMrFlags, ReregMrFlags};
use wqe_format::rxe::Sge;

use super::advice;
use super::pd::{PdInner, ProtectionDomain};
use super::post::PostError;
use crate::control::kernel::{DmabufMr, MrKeys, UserMr};
use crate::error::{Error, Result};
use crate::sys::Errno;

/// Registered memory, which work requests and, with a remote right, peers may use.
///
/// The device reads and writes it at its own time, so it is never lent as a slice: bytes are copied in and
/// out, or the caller uses [`as_ptr`](Self::as_ptr) and answers for it.
#[derive(Debug)]
pub struct MemoryRegion {
    inner: Arc<MrInner>,
}

#[derive(Debug)]
struct MrInner {
    pd: Arc<PdInner>,
    keys: MrKeys,
    /// `None` for a dma-buf, which this process may not have mapped.
    start: Option<NonNull<u8>>,
    /// First address as work requests name it.
    iova: u64,
    len: usize,
    access: AccessFlags,
    /// Freed after the region is deregistered.
    memory: Option<MmapMut>,
}

// SAFETY: the memory belongs to the process; the region accesses it only by volatile copies, which may
// race with the device's accesses as all of them may.
unsafe impl Send for MrInner {}
// SAFETY: as above; concurrent `copy_in`s mix bytes, as the device's writes do.
unsafe impl Sync for MrInner {}

impl Drop for MrInner {
    fn drop(&mut self) {
        if !self.pd.context.is_ours() {
            // A forked child has no such memory (`MADV_DONTFORK`), so there is nothing to unmap either.
            std::mem::forget(self.memory.take());
            return;
        }
        let failed = self.pd.context.uctx().dereg_mr(self.keys.handle).is_err();
        if failed {
            // The device may still write there, so the pages stay.
            std::mem::forget(self.memory.take());
        }
    }
}

impl MemoryRegion {
    pub(super) fn allocate(pd: &ProtectionDomain, len: usize, access: AccessFlags) -> Result<Self> {
        let action = || format!("register {len} bytes");
        let page = MmapOptions::page_size();
        let size = len.max(1).checked_next_multiple_of(page);
        let memory = size.and_then(|size| MmapOptions::new(size).ok()?.map_mut().ok());
        let mut memory = memory.ok_or_else(|| Error::kernel(action(), Errno(libc::ENOMEM)))?;
        let start = memory.as_mut_ptr();
        // SAFETY: the range is the mapping just made; the advice only concerns later forks.
        if unsafe { libc::madvise(start.cast(), memory.size(), libc::MADV_DONTFORK) } != 0 {
            return Err(Error::kernel(action(), Errno::last()));
        }
        // SAFETY: whole pages that the region owns until after it is deregistered, and lends to nobody.
        let mut region = unsafe { Self::register(pd, start, len, access)? };
        if let Some(inner) = Arc::get_mut(&mut region.inner) {
            inner.memory = Some(memory);
        }
        Ok(region)
    }

    /// # Safety
    ///
    /// As for [`ProtectionDomain::register`].
    pub(super) unsafe fn register(
        pd: &ProtectionDomain,
        start: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<Self> {
        let pd = Arc::clone(&pd.inner);
        let address = start.expose_provenance() as u64;
        let mr = UserMr {
            pd: pd.handle,
            start: address,
            length: len as u64,
            hca_va: address,
            access,
        };
        // SAFETY: the caller vouches for the memory.
        let keys = unsafe { pd.context.uctx().reg_mr(&mr) }
            .map_err(|errno| advice::register(format!("register {len} bytes"), errno))?;
        let start = NonNull::new(start);
        let inner = MrInner {
            pd,
            keys,
            start,
            iova: address,
            len,
            access,
            memory: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub(super) fn register_dmabuf(
        pd: &ProtectionDomain,
        dmabuf: Dmabuf<'_>,
        access: AccessFlags,
    ) -> Result<Self> {
        let pd = Arc::clone(&pd.inner);
        let len = dmabuf.len;
        let mr = DmabufMr {
            pd: pd.handle,
            offset: dmabuf.offset,
            length: len as u64,
            iova: dmabuf.iova,
            fd: dmabuf.fd.as_raw_fd(),
            access,
        };
        let keys = pd.context.uctx().reg_dmabuf_mr(&mr).map_err(|errno| {
            advice::register(format!("register {len} bytes of a dma-buf"), errno)
        })?;
        let iova = dmabuf.iova;
        let inner = MrInner {
            pd,
            keys,
            start: None,
            iova,
            len,
            access,
            memory: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.inner.keys.lkey
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.inner.keys.rkey
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Rights.
    pub fn access(&self) -> AccessFlags {
        self.inner.access
    }

    /// First byte; null for a dma-buf.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner
            .start
            .map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// The whole region, to post.
    pub fn all(&self) -> RegionSlice {
        self.slice(0..self.len())
    }

    /// A part of the region, to post.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the region, or is longer than a scatter/gather element may be (4 GiB).
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> RegionSlice {
        self.inner.check(&range);
        assert!(
            u32::try_from(range.len()).is_ok(),
            "{range:?} is longer than an element may be"
        );
        RegionSlice {
            region: Arc::clone(&self.inner),
            offset: range.start,
            len: range.len(),
        }
    }

    /// The element of a scatter/gather list that names a part of the region, for unsafe posting.
    ///
    /// # Panics
    ///
    /// As for [`slice`](Self::slice).
    #[inline]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        self.inner.check(&range);
        let length = u32::try_from(range.len()).expect("longer than an element may be");
        Sge {
            addr: self.inner.iova + range.start as u64,
            length,
            lkey: self.inner.keys.lkey,
        }
    }

    /// What a peer needs to reach the region from `offset` on.
    ///
    /// # Panics
    ///
    /// If that is beyond the region.
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        self.inner.check(&(offset..offset));
        RemoteMemory {
            addr: self.inner.iova + offset as u64,
            rkey: self.inner.keys.rkey,
        }
    }

    /// Copies bytes into the region.
    ///
    /// # Panics
    ///
    /// If they reach beyond the region, it is a dma-buf, or the parent process allocated it.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.inner.copy_in(offset, bytes);
    }

    /// Copies bytes out of the region.
    ///
    /// # Panics
    ///
    /// If they reach beyond the region, it is a dma-buf, or the parent process allocated it.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        self.inner.copy_out(offset, bytes);
    }

    /// A part of the region as a vector.
    ///
    /// # Panics
    ///
    /// As for [`copy_out`](Self::copy_out).
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u8> {
        self.inner.check(&range);
        let mut bytes = vec![0; range.len()];
        self.copy_out(range.start, &mut bytes);
        bytes
    }

    /// Changes the rights, and with them the keys.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the region is posted. `EOPNOTSUPP` where kernel or device do not have it.
    pub fn set_access(&mut self, access: AccessFlags) -> Result<()> {
        let action = || "change the access to a memory region".to_owned();
        let inner = Arc::get_mut(&mut self.inner)
            .ok_or_else(|| Error::kernel(action(), Errno(libc::EBUSY)))?;
        let mr = UserMr {
            access,
            pd: inner.pd.handle,
            ..UserMr::default()
        };
        let flags = ReregMrFlags::CHANGE_ACCESS;
        // SAFETY: the range stays the one that was vouched for.
        let (lkey, rkey) = unsafe {
            inner
                .pd
                .context
                .uctx()
                .rereg_mr(inner.keys.handle, flags, &mr)
        }
        .map_err(|errno| advice::register(action(), errno))?;
        inner.keys = MrKeys {
            lkey,
            rkey,
            ..inner.keys
        };
        inner.access = access;
        Ok(())
    }

    /// Tells the device which pages of an on-demand region will be used soon.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where kernel or device do not have it.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the region.
    pub fn advise(&self, advice: AdviseMrAdvice, range: Range<usize>) -> Result<()> {
        let Sge { addr, length, lkey } = self.sge(range);
        let pd = &self.inner.pd;
        pd.context
            .uctx()
            .advise_mr(
                pd.handle,
                advice,
                AdviseMrFlags::FLUSH,
                &[types::Sge { addr, length, lkey }],
            )
            .map_err(|errno| advice::register("advise about a memory region".into(), errno))
    }
}

impl MrInner {
    #[inline]
    fn check(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} reaches beyond a region of {} bytes",
            self.len
        );
    }

    /// Where `len` bytes at `offset` are.
    fn place(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len).expect("a length beyond memory");
        self.check(&(offset..end));
        // A forked child does not have the pages; better a message than a fault.
        assert!(
            self.memory.is_none() || self.pd.context.is_ours(),
            "the memory region belongs to the parent process"
        );
        let start = self
            .start
            .expect("a dma-buf has no address in this process");
        // SAFETY: within the region, as just checked, which is one piece of memory.
        unsafe { start.add(offset) }
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let mut place = self.place(offset, bytes.len());
        for &byte in bytes {
            // SAFETY: in bounds; volatile, since the device may read or write it at any time.
            unsafe { place.write_volatile(byte) };
            // SAFETY: at most one past the range.
            place = unsafe { place.add(1) };
        }
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let mut place = self.place(offset, bytes.len());
        for byte in bytes {
            // SAFETY: in bounds; volatile, since the device may write it at any time.
            *byte = unsafe { place.read_volatile() };
            // SAFETY: at most one past the range.
            place = unsafe { place.add(1) };
        }
    }
}

/// A part of a region that can be posted safely: it keeps the region registered while the device may use it.
#[derive(Clone, Debug)]
pub struct RegionSlice {
    region: Arc<MrInner>,
    offset: usize,
    len: usize,
}

impl RegionSlice {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies its bytes out, as many as both have.
    pub fn copy_out(&self, bytes: &mut [u8]) {
        let len = self.len.min(bytes.len());
        self.region.copy_out(self.offset, &mut bytes[..len]);
    }

    /// Refuses a dma-buf: small messages come inside completions, and polling writes them to where the element says, which
    /// for a dma-buf is no address of this process.
    #[inline]
    pub(super) fn check_polling_can_write(&self) -> std::result::Result<(), PostError> {
        match self.region.start {
            Some(_) => Ok(()),
            None => Err(PostError::DataInCompletions),
        }
    }

    #[inline]
    pub(super) fn sge(&self) -> Sge {
        Sge {
            addr: self.region.iova + self.offset as u64,
            // `slice` checked that it fits.
            length: self.len as u32,
            lkey: self.region.keys.lkey,
        }
    }
}

/// Memory of a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address.
    pub addr: u64,
    /// Its key there.
    pub rkey: u32,
}

/// A part of a dma-buf to register.
#[derive(Clone, Copy, Debug)]
pub struct Dmabuf<'fd> {
    /// The dma-buf.
    pub fd: BorrowedFd<'fd>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    /// First address as work requests and peers name it.
    pub iova: u64,
}

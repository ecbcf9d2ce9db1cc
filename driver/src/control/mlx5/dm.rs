//! Memory on the device that programs map (MEMIC).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::handle::Dm;
use uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};

use super::context::Mlx5Context;
use crate::control::kernel::{DmPage, Uctx};
use crate::sys::errno::Errno;
use crate::sys::mapping::SharedMapping;
use crate::sys::pages::page_size;

/// Device memory, mapped. The device takes accesses of four bytes only.
#[derive(Debug)]
pub struct DmMapping {
    mapping: SharedMapping,
    /// Bytes of the mapping in front of it.
    before: usize,
    len: usize,
}

impl DmMapping {
    /// Maps `len` bytes that begin within a page.
    ///
    /// `EPROTO` for a page that cannot be.
    pub fn new(uctx: &Uctx, page: &DmPage, len: usize) -> Result<Self, Errno> {
        let pages = page_size();
        let offset = mmap::offset(
            MmapCommand::DEVICE_MEM,
            page.page_index.into(),
            pages as u64,
        )
        .ok_or(Errno(libc::EPROTO))?;
        let before = page.start_offset as usize & (pages - 1);
        let end = before.checked_add(len).ok_or(Errno(libc::EINVAL))?;
        let mapping = SharedMapping::map(uctx.fd(), end.next_multiple_of(pages), offset)?;
        Ok(Self {
            mapping,
            before,
            len,
        })
    }

    /// Where it is mapped.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: within the mapping, which begins that many bytes before.
        unsafe { self.mapping.start().add(self.before) }
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words from an offset on. `EFAULT` outside of it, `EINVAL` for less than whole words.
    pub fn words(&self, offset: u64, length: usize) -> Result<&[AtomicU32], Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno(libc::EFAULT))?;
        let end = offset.checked_add(length).ok_or(Errno(libc::EFAULT))?;
        if end > self.len {
            return Err(Errno(libc::EFAULT));
        }
        if [offset, length, self.before]
            .iter()
            .any(|n| !n.is_multiple_of(4))
        {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: within the mapping, which was made for `before` and `len` bytes.
        let start: NonNull<u8> = unsafe { self.mapping.start().add(self.before + offset) };
        // SAFETY: as many words of the mapping, aligned; device memory, accessed by whole words, atomically.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), length / 4) })
    }

    /// Copies from memory to the device. Errors are those of [`words`](Self::words).
    ///
    /// # Safety
    ///
    /// `length` bytes are readable at `from`.
    pub unsafe fn write(&self, offset: u64, from: *const u8, length: usize) -> Result<(), Errno> {
        for (index, word) in self.words(offset, length)?.iter().enumerate() {
            // SAFETY: the caller's promise.
            let at = unsafe { from.cast::<u32>().add(index) };
            // SAFETY: as above.
            word.store(unsafe { at.read_unaligned() }, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies from the device to memory. Errors are those of [`words`](Self::words).
    ///
    /// # Safety
    ///
    /// `length` bytes are writable at `to`.
    pub unsafe fn read(&self, offset: u64, to: *mut u8, length: usize) -> Result<(), Errno> {
        for (index, word) in self.words(offset, length)?.iter().enumerate() {
            // SAFETY: the caller's promise.
            let at = unsafe { to.cast::<u32>().add(index) };
            // SAFETY: as above.
            unsafe { at.write_unaligned(word.load(Ordering::Relaxed)) };
        }
        Ok(())
    }
}

impl Mlx5Context {
    /// Allocates and maps device memory, aligned to `1 << log_align`.
    ///
    /// `EINVAL` for more than the device has.
    pub fn alloc_dm(&self, length: usize, log_align: u32) -> Result<(Dm, DmMapping), Errno> {
        if length as u64 > self.attributes().max_dm_size {
            return Err(Errno(libc::EINVAL));
        }
        let (handle, page) = self.uctx().alloc_dm_mlx5(length as u64, log_align)?;
        let mapping = DmMapping::new(self.uctx(), &page, length).inspect_err(|_| {
            // Nobody is left to tell.
            let _ = self.uctx().free_dm(handle);
        })?;
        Ok((handle, mapping))
    }
}

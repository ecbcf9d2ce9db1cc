//! Memory that the device reaches.
//!
//! Every mapping costs one of a limited number (65,535 per container with VFIO's type 1, `dma_entry_limit`), so a range that
//! lies within one which is mapped already shares it: doorbell records of thousands of queues are one mapping.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::iova::Addresses;
use super::pci::Pci;
use crate::sys::barrier::completion_is_read_after_its_owner_bit;
use crate::sys::errno::Errno;
use crate::sys::pages::{Pages, huge_page_size, page_size};
use crate::sys::process::ProcessId;

/// Addresses are chosen so that pages of the I/O memory management unit up to this size fit.
const LARGEST_PAGE: usize = 1 << 30;

/// The device's view of the process' memory.
#[derive(Debug)]
pub struct Iommu {
    pci: Arc<dyn Pci>,
    /// Bytes of the smallest page.
    page: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    addresses: Addresses,
    /// By first byte in the process.
    mapped: BTreeMap<usize, Vec<Mapped>>,
    count: usize,
}

/// What can be told of a mapping without holding it: dropping one takes the lock.
#[derive(Debug)]
struct Mapped {
    len: usize,
    writable: bool,
    mapping: Weak<Mapping>,
}

/// A range of the process' memory that the device reaches, until this is dropped.
pub struct Mapping {
    iommu: Arc<Iommu>,
    start: usize,
    len: usize,
    iova: u64,
    owner: ProcessId,
    /// The memory, if it is our own. The device keeps it if the range cannot be taken back.
    pages: ManuallyDrop<Option<Pages>>,
}

impl Iommu {
    /// Nothing is mapped yet.
    pub fn new(pci: Arc<dyn Pci>) -> Result<Arc<Self>, Errno> {
        let sizes = pci.iova_page_sizes()?;
        if sizes == 0 {
            return Err(Errno(libc::EPROTO));
        }
        let page = page_size().max(1 << sizes.trailing_zeros());
        let addresses = Addresses::new(&pci.iova_ranges()?, page as u64);
        let state = State {
            addresses,
            mapped: BTreeMap::new(),
            count: 0,
        };
        Ok(Arc::new(Self {
            pci,
            page,
            state: Mutex::new(state),
        }))
    }

    /// Ranges that are mapped.
    pub fn mappings(&self) -> usize {
        self.lock().count
    }

    /// Bytes of addresses that are free.
    pub fn addresses_left(&self) -> u64 {
        self.lock().addresses.left()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the device reach `len` bytes at `start`, and what else is in their pages.
    ///
    /// `ENOSPC` if there are too many mappings, or no addresses; `ENOMEM` beyond the limit of locked memory.
    ///
    /// # Safety
    ///
    /// The range stays mapped in the process until the answer is dropped, and no reference says meanwhile that nobody
    /// else reads or writes it.
    pub unsafe fn map(
        self: &Arc<Self>,
        start: u64,
        len: u64,
        writable: bool,
    ) -> Result<Arc<Mapping>, Errno> {
        let bad = Errno(libc::EINVAL);
        let first = usize::try_from(start).map_err(|_| bad)?;
        let len = usize::try_from(len).map_err(|_| bad)?;
        let end = first.checked_add(len.max(1)).ok_or(bad)?;
        let end = end.checked_next_multiple_of(self.page).ok_or(bad)?;
        let first = first / self.page * self.page;
        if first == 0 {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller vouches for the range; the pages around it are mapped with it.
        unsafe { self.map_pages(first, end - first, writable, None) }
    }

    /// New zeroed memory of at least `len` bytes, of huge pages if they are asked for and there are any.
    pub fn allocate(self: &Arc<Self>, len: usize, huge: bool) -> Result<DmaMemory, Errno> {
        let len = len.max(1).next_multiple_of(self.page);
        let pages = match huge && len >= huge_page_size() {
            true => Pages::huge(len).or_else(|_| Pages::new(len))?,
            false => Pages::new(len)?,
        };
        let (start, len) = (pages.start(), pages.len());
        // SAFETY: the pages live in the mapping, and only pointers to them are given out.
        let mapping = unsafe { self.map_pages(start.addr().get(), len, true, Some(pages)) }?;
        Ok(DmaMemory { start, mapping })
    }

    /// # Safety
    ///
    /// As for [`map`](Self::map).
    unsafe fn map_pages(
        self: &Arc<Self>,
        start: usize,
        len: usize,
        writable: bool,
        pages: Option<Pages>,
    ) -> Result<Arc<Mapping>, Errno> {
        let mut state = self.lock();
        if pages.is_none()
            && let Some(mapping) = state.covering(start, len, writable)
        {
            return Ok(mapping);
        }
        // As far as the length goes, large pages fit if the addresses are alike in their low bits.
        let align = (len + 1).next_power_of_two() / 2;
        let align = align.clamp(self.page, LARGEST_PAGE) as u64;
        let iova = state
            .addresses
            .take(len as u64, align, start as u64 % align)
            .ok_or(Errno(libc::ENOSPC))?;
        let address = NonNull::new(std::ptr::with_exposed_provenance_mut(start))
            .ok_or(Errno(libc::EFAULT))?;
        // SAFETY: the caller vouches for the range; it is taken back when the mapping is dropped.
        let mapped = unsafe { self.pci.dma_map(address, len, iova, writable) };
        if let Err(error) = mapped {
            state.addresses.give(iova, len as u64);
            return Err(error.into());
        }
        let mapping = Arc::new(Mapping {
            iommu: self.clone(),
            start,
            len,
            iova,
            owner: ProcessId::current(),
            pages: ManuallyDrop::new(pages),
        });
        state.count += 1;
        let same = state.mapped.entry(start).or_default();
        same.push(Mapped {
            len,
            writable,
            mapping: Arc::downgrade(&mapping),
        });
        Ok(mapping)
    }
}

impl State {
    /// A mapping that has all of the range already.
    fn covering(&self, start: usize, len: usize, writable: bool) -> Option<Arc<Mapping>> {
        // Mappings may lie within others, so more than the nearest one is looked at; a bound keeps that short.
        let before = self.mapped.range(..=start).rev().take(8);
        before
            .flat_map(|(first, same)| same.iter().map(move |mapped| (*first, mapped)))
            .filter(|(first, mapped)| {
                start + len <= first + mapped.len && (mapped.writable || !writable)
            })
            .find_map(|(_, mapped)| mapped.mapping.upgrade())
    }
}

impl Mapping {
    /// Where the device finds the first byte.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the device finds the byte at `address` of the process.
    pub fn iova_of(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.start as u64)?;
        (offset < self.len as u64).then(|| self.iova + offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        let mut state = self.iommu.lock();
        if let Some(same) = state.mapped.get_mut(&self.start) {
            same.retain(|mapped| mapped.mapping.strong_count() > 0);
            if same.is_empty() {
                state.mapped.remove(&self.start);
            }
        }
        if self.iommu.pci.dma_unmap(self.iova, self.len).is_ok() {
            state.count -= 1;
            state.addresses.give(self.iova, self.len as u64);
            // SAFETY: nobody uses the field after this.
            unsafe { ManuallyDrop::drop(&mut self.pages) };
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("start", &self.start)
            .field("len", &self.len)
            .field("iova", &self.iova)
            .finish_non_exhaustive()
    }
}

/// Memory of our own that the device reads and writes.
#[derive(Clone, Debug)]
pub struct DmaMemory {
    start: NonNull<u8>,
    mapping: Arc<Mapping>,
}

// SAFETY: the memory belongs to the process and is accessed as atomics only.
unsafe impl Send for DmaMemory {}
// SAFETY: as above.
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// Where the device finds the byte at `offset`.
    pub fn iova(&self, offset: usize) -> u64 {
        self.mapping.iova + offset as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(offset < self.len(), "{offset} is beyond the memory");
        // SAFETY: within the memory.
        let byte = unsafe { self.start.add(offset) };
        // SAFETY: the memory lives as long as the value, and is accessed as atomics only.
        unsafe { byte.cast().as_ref() }
    }

    /// The byte at `offset`, with everything that the device wrote before it.
    pub fn load(&self, offset: usize) -> u8 {
        let value = self.byte(offset).load(Ordering::Acquire);
        completion_is_read_after_its_owner_bit();
        value
    }

    /// Stores a byte behind everything that was stored before.
    pub fn store(&self, offset: usize, value: u8) {
        self.byte(offset).store(value, Ordering::Release);
    }

    /// Copies bytes in.
    pub fn write(&self, offset: usize, from: &[u8]) {
        for (at, byte) in (offset..).zip(from) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        for (at, byte) in (offset..).zip(to) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
    }
}

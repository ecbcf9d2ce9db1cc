//! Doorbell pages: those that come with a context, and UAR objects.
//!
//! A page is a page of the command descriptor's memory file. This side keeps a mapping of its own, so that
//! what was rung can be read.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxverbs::sys::Errno;
use uverbs_abi::udata::mlx5::mmap::{MmapCommand, parse};

use crate::raw::{self, PAGE};

const EINVAL: Errno = Errno(libc::EINVAL);

/// First page number of objects' offsets (`MLX5_IB_MMAP_OFFSET_START << 16`), above all commands.
const OBJECT_PAGES: u64 = 9 << 16;
/// Where in the file the pages that come with a context are; several offsets name one of them.
const STATIC_PAGES: u64 = 0x100 << 16;
/// Where those are that mmap(2) adds.
const ADDED_PAGES: u64 = 0x103 << 16;
/// Where device memory is.
const DM_PAGES: u64 = 0x102 << 16;
/// Where the page with the clock is.
const CLOCK_PAGE: u64 = 0x101 << 16;

/// Offset in the file of a page of device memory.
pub(crate) fn dm_file_offset(page: u32) -> u64 {
    (DM_PAGES + u64::from(page)) * PAGE as u64
}

/// Offset in the file of the clock's two pages.
pub(crate) fn clock_file_offset() -> u64 {
    CLOCK_PAGE * PAGE as u64
}

/// A doorbell page, mapped by this side.
#[derive(Debug)]
pub struct UarPage {
    /// The page's number in its device (`page_id`).
    pub page_id: u32,
    start: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process; it is reached by atomics only.
unsafe impl Send for UarPage {}
// SAFETY: as above.
unsafe impl Sync for UarPage {}

impl UarPage {
    pub(crate) fn new(fd: RawFd, page: u64, page_id: u32) -> Result<Self, Errno> {
        let start = raw::map(fd, PAGE, page * PAGE as u64)?;
        Ok(Self { page_id, start })
    }

    /// Where this side's mapping is; the program's own is another one of the same page of the same file.
    pub fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    /// The eight bytes at `offset` of the page, as they lie in memory.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of 8 inside the page.
    pub fn read(&self, offset: usize) -> [u8; 8] {
        self.word(offset).load(Ordering::Acquire).to_ne_bytes()
    }

    /// Takes away what was stored there before, so that what comes is seen whatever it is.
    ///
    /// # Panics
    ///
    /// As [`read`](Self::read).
    pub fn clear(&self, offset: usize) {
        self.word(offset).store(0, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < PAGE);
        // SAFETY: inside the mapping, as asserted.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: aligned, alive as long as `self`, and the program's stores to it are whole words.
        unsafe { word.cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for UarPage {
    fn drop(&mut self) {
        // SAFETY: this side's own mapping, which no one can reach after drop.
        let _ = unsafe { raw::unmap(self.start.as_ptr().expose_provenance(), PAGE) };
    }
}

/// A context's pages.
#[derive(Debug, Default)]
pub(crate) struct Uars {
    /// Those that came with the context, in their order.
    pub(crate) fixed: Vec<Arc<UarPage>>,
    /// Queues per register of the fixed pages, two registers a page.
    pub(crate) users: Vec<u32>,
    /// How many of them are for one queue each.
    pub(crate) low_latency: u32,
    /// Pages that mmap(2) added, by index (`MLX5_IB_MMAP_ALLOC_WC`).
    pub(crate) added: BTreeMap<u32, Arc<UarPage>>,
    /// How many it may add.
    pub(crate) most_added: u32,
    /// Objects, by page number of the device.
    pub(crate) objects: BTreeMap<u32, Arc<UarPage>>,
}

impl Uars {
    /// Where in the file a page is that a program maps at `offset`; whether it may only be read.
    pub(crate) fn place(
        &mut self,
        fd: RawFd,
        offset: u64,
        new_page_id: u32,
    ) -> Result<(u64, bool), Errno> {
        let page = offset / PAGE as u64;
        if (OBJECT_PAGES..STATIC_PAGES).contains(&page) {
            let page_id = (page - OBJECT_PAGES) as u32;
            return match self.objects.contains_key(&page_id) {
                true => Ok((offset, false)),
                false => Err(EINVAL),
            };
        }
        let (command, index) = parse(page);
        match command {
            MmapCommand::REGULAR_PAGE | MmapCommand::WC_PAGE | MmapCommand::NC_PAGE => {
                if index >= self.fixed.len() as u64 {
                    return Err(EINVAL);
                }
                Ok(((STATIC_PAGES + index) * PAGE as u64, false))
            }
            MmapCommand::ALLOC_WC => {
                let index = u32::try_from(index).map_err(|_| EINVAL)?;
                if index >= self.most_added || self.added.contains_key(&index) {
                    return Err(EINVAL);
                }
                let page = ADDED_PAGES + u64::from(index);
                self.added
                    .insert(index, Arc::new(UarPage::new(fd, page, new_page_id)?));
                Ok((page * PAGE as u64, false))
            }
            MmapCommand::CLOCK_INFO | MmapCommand::CORE_CLOCK => {
                let offset = u64::from(command == MmapCommand::CORE_CLOCK);
                Ok(((CLOCK_PAGE + offset) * PAGE as u64, true))
            }
            _ => Err(EINVAL),
        }
    }

    /// Adds a page that comes with the context.
    pub(crate) fn add_fixed(&mut self, fd: RawFd, page_id: u32) -> Result<(), Errno> {
        let page = STATIC_PAGES + self.fixed.len() as u64;
        self.fixed.push(Arc::new(UarPage::new(fd, page, page_id)?));
        self.users.extend([0, 0]);
        Ok(())
    }

    /// Adds an object; answers its offset for mmap(2).
    pub(crate) fn add_object(&mut self, fd: RawFd, page_id: u32) -> Result<u64, Errno> {
        let page = OBJECT_PAGES + u64::from(page_id);
        self.objects
            .insert(page_id, Arc::new(UarPage::new(fd, page, page_id)?));
        Ok(page * PAGE as u64)
    }

    /// The page with that number of the device.
    pub(crate) fn page(&self, page_id: u32) -> Option<Arc<UarPage>> {
        let fixed = self.fixed.iter().find(|page| page.page_id == page_id);
        let mut added = self.added.values();
        fixed
            .or_else(|| self.objects.get(&page_id))
            .or_else(|| added.find(|page| page.page_id == page_id))
            .cloned()
    }

    /// Chooses a register for a queue that has not chosen one (`alloc_bfreg` in `mlx5/qp.c`): one of its
    /// own while there are any, else the shared one with the fewest users, else the first, which has no
    /// BlueFlame.
    pub(crate) fn choose(&mut self) -> u32 {
        let total = self.users.len();
        let shared = total.saturating_sub(self.low_latency as usize + 1);
        let own = (1 + shared..total).find(|at| self.users[*at] == 0);
        let least = (1..1 + shared).min_by_key(|at| self.users[*at]);
        let at = own.or(least).unwrap_or(0);
        if let Some(users) = self.users.get_mut(at) {
            *users += 1;
        }
        at as u32
    }

    /// A queue leaves its register.
    pub(crate) fn release(&mut self, register: u32) {
        if let Some(users) = self.users.get_mut(register as usize) {
            *users = users.saturating_sub(1);
        }
    }
}

/// The number by which programs know a fixed register: they count four a page, of which two are used
/// (`adjust_bfregn` in `mlx5/qp.c`).
pub(crate) fn told_register(register: u32) -> u32 {
    register / 2 * 4 + register % 2
}

//! Doorbell records: eight bytes that the device reads to learn how far a queue is (PRM, "Doorbell
//! Record").
//!
//! Each has a cache line of its own, so that queues of different threads do not slow each other down,
//! and pages of them come and go as queues do. A program's allocator is asked first.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffer::{
    Allocated, Allocator, ContextAllocator, HugePool, QueueBuffer, ResourceType, Source,
};
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;
use crate::sys::process::ProcessId;

/// Bytes of a record.
const RECORD: usize = 8;

/// Pages of doorbell records of a context.
#[derive(Debug)]
pub struct RecordPool {
    /// Bytes from one record to the next.
    stride: usize,
    pages: Mutex<Vec<Page>>,
    /// Where pages come from, if the program set one.
    allocator: Arc<ContextAllocator>,
}

#[derive(Debug)]
struct Page {
    memory: QueueBuffer,
    /// A bit for each free record.
    free: Box<[u64]>,
    used: usize,
}

/// A doorbell record.
#[derive(Debug)]
pub struct DoorbellRecord {
    words: NonNull<u32>,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    Pool(Arc<RecordPool>),
    Custom(Arc<dyn Allocator>, ProcessId),
}

// SAFETY: the memory belongs to the process, not to a thread; the value gives out a raw pointer only,
// whose users prove their own accesses.
unsafe impl Send for DoorbellRecord {}
// SAFETY: as above; only `clear` writes, and it takes the value for itself.
unsafe impl Sync for DoorbellRecord {}

impl RecordPool {
    /// A pool whose records are `cache_line` bytes apart, as far as that makes sense in a page. New pages come from the
    /// context's allocator if there is one.
    pub fn new(cache_line: usize, allocator: Arc<ContextAllocator>) -> Self {
        let stride = cache_line
            .clamp(RECORD, page_size())
            .checked_next_power_of_two()
            .unwrap_or(page_size());
        Self {
            stride,
            pages: Mutex::default(),
            allocator,
        }
    }

    /// A record with both words 0; one of a program's allocator is as it is.
    pub fn take(
        self: &Arc<Self>,
        custom: Option<&Arc<dyn Allocator>>,
    ) -> Result<DoorbellRecord, Errno> {
        if let Some(allocator) = custom {
            match allocator.alloc(RECORD, RECORD, ResourceType::DBR) {
                Allocated::At(memory) => {
                    return Ok(DoorbellRecord {
                        words: memory.cast(),
                        owner: Owner::Custom(allocator.clone(), ProcessId::current()),
                    });
                }
                Allocated::UseDefault => {}
                Allocated::Failed => return Err(Errno(libc::ENOMEM)),
            }
        }
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let per_page = page_size() / self.stride;
        let page = match pages.iter().position(|page| page.used < per_page) {
            Some(index) => &mut pages[index],
            None => {
                pages.push(Page::new(per_page, self.allocator.get())?);
                pages.last_mut().expect("just pushed")
            }
        };
        let index = page.take();
        // SAFETY: there are `per_page` records of this stride in the page.
        let start = unsafe { page.memory.start().add(index * self.stride) };
        let mut record = DoorbellRecord {
            words: start.cast(),
            owner: Owner::Pool(self.clone()),
        };
        record.clear();
        Ok(record)
    }

    fn give_back(&self, record: NonNull<u32>) {
        let address = record.addr().get();
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        // A program's memory need not start at a page.
        let within = |page: &Page| {
            let offset = address.checked_sub(page.memory.start().addr().get())?;
            (offset < page_size()).then_some(offset)
        };
        let mut found = pages.iter().enumerate();
        let Some((at, offset)) = found.find_map(|(at, page)| Some((at, within(page)?))) else {
            return;
        };
        pages[at].give_back(offset / self.stride);
        if pages[at].used == 0 {
            pages.swap_remove(at);
        }
    }
}

impl Page {
    fn new(records: usize, allocator: Option<Arc<dyn Allocator>>) -> Result<Self, Errno> {
        let mut free = vec![u64::MAX; records.div_ceil(64)].into_boxed_slice();
        if let Some(last) = free.last_mut()
            && !records.is_multiple_of(64)
        {
            *last = (1 << (records % 64)) - 1;
        }
        let source = Source {
            context: allocator,
            ..Source::default()
        };
        Ok(Self {
            memory: QueueBuffer::new(
                page_size(),
                ResourceType::DBR,
                page_size(),
                &source,
                &Arc::<HugePool>::default(),
            )?,
            free,
            used: 0,
        })
    }

    /// The first free record; there is one.
    fn take(&mut self) -> usize {
        let word = self.free.iter().position(|word| *word != 0);
        let word = word.expect("the page is not full");
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= !(1 << bit);
        self.used += 1;
        word * 64 + bit
    }

    fn give_back(&mut self, index: usize) {
        self.free[index / 64] |= 1 << (index % 64);
        self.used -= 1;
    }
}

impl DoorbellRecord {
    /// The first of the two big-endian words.
    #[inline]
    pub fn words(&self) -> NonNull<u32> {
        self.words
    }

    /// The address as the kernel takes it.
    pub fn address(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// Sets both words to 0. Not while a device reads them.
    pub fn clear(&mut self) {
        // SAFETY: a record is eight bytes that are ours to write, aligned to them.
        unsafe { self.words.cast::<u64>().write_volatile(0) };
    }
}

impl Drop for DoorbellRecord {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Pool(pool) => pool.give_back(self.words),
            // a forked child leaves its parent's memory alone
            Owner::Custom(allocator, process) if process.is_current() => {
                // SAFETY: `alloc` gave it as a record, and who owns the value has ended all use.
                unsafe { allocator.free(self.words.cast(), ResourceType::DBR) };
            }
            Owner::Custom(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_record_has_its_own_line_and_pages_come_and_go() {
        let pool = Arc::new(RecordPool::new(64, Arc::default()));
        let per_page = page_size() / 64;
        let mut records: Vec<_> = (0..per_page * 2 + 1)
            .map(|_| pool.take(None).unwrap())
            .collect();
        let lines: HashSet<_> = records.iter().map(|record| record.address() / 64).collect();
        assert_eq!(lines.len(), records.len());
        assert!(records.iter().all(|record| record.address() % 64 == 0));
        assert_eq!(pool.pages.lock().unwrap().len(), 3);
        // a place in the middle is found again, and is zero again
        let gone = records.swap_remove(5);
        let address = gone.address();
        // SAFETY: the record is ours and no device knows it.
        unsafe { gone.words().write_volatile(7) };
        drop(gone);
        let again = pool.take(None).unwrap();
        assert_eq!(again.address(), address);
        // SAFETY: as above.
        assert_eq!(unsafe { again.words().read_volatile() }, 0);
        drop((again, records));
        assert!(pool.pages.lock().unwrap().is_empty());
    }

    #[test]
    fn strange_cache_lines_still_give_records() {
        for line in [0, 1, 48, 128, 4096, 1 << 30, usize::MAX] {
            let pool = Arc::new(RecordPool::new(line, Arc::default()));
            let two = [pool.take(None).unwrap(), pool.take(None).unwrap()];
            let apart = two[0].address().abs_diff(two[1].address());
            assert!(apart >= RECORD as u64, "{line}");
        }
    }
}

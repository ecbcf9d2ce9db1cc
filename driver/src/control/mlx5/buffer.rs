//! Memory of queues.
//!
//! Ordinary pages, huge pages where the environment asks for them, or what a program's own allocator
//! gives: a domain's (`ibv_alloc_parent_domain`, for queues in the memory of a GPU for instance), or the context's.
//! Memory is zeroed, but for a domain's, not all of which can be written from here.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::environment::Allocation;
use crate::sys::errno::Errno;
use crate::sys::pages::{Pages, page_size};
use crate::sys::process::ProcessId;

/// What memory is for, with the numbers of `MLX5DV_RES_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceType(pub u64);

impl ResourceType {
    /// Number of the mlx5 driver among the kernel's (`RDMA_DRIVER_MLX5`).
    const MLX5: u64 = 1 << 32;
    /// Buffer of a queue pair.
    pub const QP: Self = Self(Self::MLX5 | 1);
    /// Buffer of a work queue.
    pub const RWQ: Self = Self(Self::MLX5 | 2);
    /// A doorbell record.
    pub const DBR: Self = Self(Self::MLX5 | 3);
    /// Buffer of a shared receive queue.
    pub const SRQ: Self = Self(Self::MLX5 | 4);
    /// Buffer of a completion queue.
    pub const CQ: Self = Self(Self::MLX5 | 5);
}

/// What a program's allocator answers.
#[derive(Clone, Copy, Debug)]
pub enum Allocated {
    /// Memory.
    At(NonNull<u8>),
    /// None: the usual memory shall be used (`IBV_ALLOCATOR_USE_DEFAULT`).
    UseDefault,
    /// None, and the queue is not made.
    Failed,
}

/// A program's own allocator.
///
/// # Safety
///
/// Memory that is given out has the size and the alignment that were asked for, may be read and
/// written by this process and the device, and stays so until it is freed.
pub unsafe trait Allocator: Send + Sync + fmt::Debug {
    /// Gives `size` bytes at a multiple of `alignment`.
    fn alloc(&self, size: usize, alignment: usize, what: ResourceType) -> Allocated;

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// The memory is from `alloc` for the same type, and nothing uses it any more.
    unsafe fn free(&self, memory: NonNull<u8>, what: ResourceType);
}

/// The allocator that a program set for all queues and doorbell records of a context, if any
/// (`mlx5dv_set_context_attr`).
#[derive(Debug, Default)]
pub struct ContextAllocator(Mutex<Option<Arc<dyn Allocator>>>);

impl ContextAllocator {
    /// What is set now.
    pub fn get(&self) -> Option<Arc<dyn Allocator>> {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        set.clone()
    }

    /// From now on it is this one. Memory of the one before goes back there.
    pub fn set(&self, allocator: Option<Arc<dyn Allocator>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = allocator;
    }
}

/// Alignment of memory from a context's allocator, which is not asked for more: that of the longest store into a ring.
const CONTEXT_ALIGNMENT: usize = 64;

/// Where the memory of one queue is to come from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The program's allocator for this queue.
    pub custom: Option<Arc<dyn Allocator>>,
    /// The context's, for queues without their own. Its memory can be written from here.
    pub context: Option<Arc<dyn Allocator>>,
    /// Which pages, if the allocator does not give any.
    pub allocation: Allocation,
}

/// Memory of a queue.
#[derive(Debug)]
pub struct QueueBuffer {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// No bytes.
    Nothing,
    Pages(#[expect(dead_code, reason = "owns the memory")] Pages),
    Huge {
        pool: Arc<HugePool>,
        at: Place,
    },
    Custom {
        allocator: Arc<dyn Allocator>,
        what: ResourceType,
        process: ProcessId,
    },
}

// SAFETY: the memory belongs to the process, not to a thread; the value gives out a raw pointer only,
// whose users prove their own accesses.
unsafe impl Send for QueueBuffer {}
// SAFETY: as above; no method reads or writes the memory.
unsafe impl Sync for QueueBuffer {}

impl QueueBuffer {
    /// At least `size` bytes, for the device to see. `custom_alignment` concerns a program's allocator;
    /// other memory starts at a page.
    pub fn new(
        size: usize,
        what: ResourceType,
        custom_alignment: usize,
        source: &Source,
        pool: &Arc<HugePool>,
    ) -> Result<Self, Errno> {
        if size == 0 {
            return Ok(Self::nothing());
        }
        if let Some(allocator) = &source.custom {
            let len = size
                .checked_next_multiple_of(custom_alignment)
                .ok_or(Errno(libc::ENOMEM))?;
            match allocator.alloc(len, custom_alignment, what) {
                Allocated::At(start) => return Ok(Self::of_allocator(start, len, allocator, what)),
                Allocated::UseDefault => {}
                Allocated::Failed => return Err(Errno(libc::ENOMEM)),
            }
        } else if let Some(allocator) = &source.context {
            let len = size
                .checked_next_multiple_of(page_size())
                .ok_or(Errno(libc::ENOMEM))?;
            let Allocated::At(start) = allocator.alloc(len, CONTEXT_ALIGNMENT, what) else {
                return Err(Errno(libc::ENOMEM));
            };
            // SAFETY: as many bytes by the trait's contract, new and nobody else's.
            unsafe { start.write_bytes(0, len) };
            return Ok(Self::of_allocator(start, len, allocator, what));
        }
        if source.allocation != Allocation::Anonymous {
            match pool.take(size) {
                Ok((start, at)) => {
                    let pool = pool.clone();
                    return Ok(Self {
                        start,
                        len: at.count * CHUNK,
                        owner: Owner::Huge { pool, at },
                    });
                }
                Err(errno) if source.allocation == Allocation::Huge => return Err(errno),
                Err(_) => {}
            }
        }
        let pages = Pages::new(size)?;
        Ok(Self {
            start: pages.start(),
            len: pages.len(),
            owner: Owner::Pages(pages),
        })
    }

    fn of_allocator(
        start: NonNull<u8>,
        len: usize,
        allocator: &Arc<dyn Allocator>,
        what: ResourceType,
    ) -> Self {
        Self {
            start,
            len,
            owner: Owner::Custom {
                allocator: allocator.clone(),
                what,
                process: ProcessId::current(),
            },
        }
    }

    /// No memory, of a queue that has no entries.
    pub fn nothing() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            owner: Owner::Nothing,
        }
    }

    /// First byte. Without bytes, nothing may be done with it.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes, at least as many as were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address as the kernel takes it; 0 without bytes.
    pub fn address(&self) -> u64 {
        if self.is_empty() {
            0
        } else {
            self.start.as_ptr().expose_provenance() as u64
        }
    }

    /// Whether a program's allocator gave the memory.
    pub fn is_custom(&self) -> bool {
        matches!(self.owner, Owner::Custom { .. })
    }
}

impl Drop for QueueBuffer {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Nothing | Owner::Pages(_) => {}
            Owner::Huge { pool, at } => pool.give_back(at),
            Owner::Custom {
                allocator,
                what,
                process,
            } => {
                // a forked child leaves its parent's memory alone
                if process.is_current() {
                    // SAFETY: `alloc` gave it for this type, and who owns the value has ended all use.
                    unsafe { allocator.free(self.start, *what) };
                }
            }
        }
    }
}

/// Alignment that a queue pair's buffer needs, if it is not one of pages: the device counts the offset
/// in a page in 64ths (`MLX5_QPC_PAGE_OFFSET_QUANTA`), the page being as large as the buffer, and a
/// request does not cross its end.
pub fn qp_alignment(size: usize, send_stride: usize, receive_stride: usize) -> usize {
    let page = size.next_multiple_of(page_size()).next_power_of_two();
    (page / 64).max(send_stride).max(receive_stride)
}

/// Unit of memory from huge pages: several queues share a page.
const CHUNK: usize = 32 * 1024;

/// Huge pages of a context, shared by its queues.
#[derive(Debug, Default)]
pub struct HugePool {
    blocks: Mutex<Vec<Block>>,
}

#[derive(Debug)]
struct Block {
    pages: Pages,
    used: Vec<bool>,
}

/// Chunks within a pool.
#[derive(Debug)]
struct Place {
    /// Address of the block.
    block: NonNull<u8>,
    first: usize,
    count: usize,
}

impl HugePool {
    fn take(&self, size: usize) -> Result<(NonNull<u8>, Place), Errno> {
        let count = size.div_ceil(CHUNK);
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let found = blocks
            .iter_mut()
            .find_map(|block| Some((block.find(count)?, block)));
        let (first, block) = match found {
            Some(found) => found,
            None => {
                let pages = Pages::huge(count.checked_mul(CHUNK).ok_or(Errno(libc::ENOMEM))?)?;
                let used = vec![false; pages.len() / CHUNK];
                blocks.push(Block { pages, used });
                (0, blocks.last_mut().expect("just pushed"))
            }
        };
        block.used[first..first + count].fill(true);
        let base = block.pages.start();
        // SAFETY: `first` chunks are within the block, whose pages are one mapping.
        let start = unsafe { base.add(first * CHUNK) };
        // SAFETY: the chunks are within the mapping, and nobody else has them. Zeroed, since another
        // queue may have had them before.
        unsafe { start.write_bytes(0, count * CHUNK) };
        let place = Place {
            block: base,
            first,
            count,
        };
        Ok((start, place))
    }

    fn give_back(&self, place: &Place) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = blocks
            .iter()
            .position(|block| block.pages.start() == place.block)
        else {
            return;
        };
        blocks[index].used[place.first..place.first + place.count].fill(false);
        if blocks[index].used.iter().all(|used| !used) {
            blocks.swap_remove(index);
        }
    }
}

impl Block {
    /// First of `count` free chunks in a row.
    fn find(&self, count: usize) -> Option<usize> {
        self.used
            .windows(count)
            .position(|window| window.iter().all(|used| !used))
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::Layout;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::dbrec::RecordPool;
    use super::*;

    #[test]
    fn ordinary_pages_start_at_a_page() {
        let pool = Arc::default();
        let buffer =
            QueueBuffer::new(100, ResourceType::CQ, 4096, &Source::default(), &pool).unwrap();
        assert_eq!(buffer.address() % 4096, 0);
        assert!(buffer.len() >= 100 && !buffer.is_custom());
        let nothing =
            QueueBuffer::new(0, ResourceType::CQ, 4096, &Source::default(), &pool).unwrap();
        assert!(nothing.is_empty());
        assert_eq!(nothing.address(), 0);
    }

    #[test]
    fn without_huge_pages_there_are_ordinary_ones_where_that_is_allowed() {
        let pool = Arc::<HugePool>::default();
        let source = |allocation| Source {
            custom: None,
            context: None,
            allocation,
        };
        let make =
            |allocation| QueueBuffer::new(40_000, ResourceType::QP, 64, &source(allocation), &pool);
        let preferred = make(Allocation::PreferHuge).unwrap();
        match make(Allocation::Huge) {
            Ok(huge) => {
                // chunks of the same page
                assert_eq!(huge.len(), 2 * CHUNK);
                assert_eq!(
                    preferred
                        .start()
                        .addr()
                        .get()
                        .abs_diff(huge.start().addr().get()),
                    2 * CHUNK
                );
                assert_eq!(pool.blocks.lock().unwrap().len(), 1);
                drop(huge);
                drop(preferred);
                assert!(pool.blocks.lock().unwrap().is_empty());
            }
            Err(errno) => assert_eq!(errno, Errno(libc::ENOMEM)),
        }
    }

    #[test]
    fn chunks_are_found_in_a_row() {
        let block = Block {
            pages: Pages::new(1).unwrap(),
            used: vec![true, false, false, true, false],
        };
        assert_eq!(block.find(1), Some(1));
        assert_eq!(block.find(2), Some(1));
        assert_eq!(block.find(3), None);
        assert_eq!(block.find(6), None);
    }

    /// Gives memory of the heap for queue pairs, nothing for completion queues.
    #[derive(Debug, Default)]
    struct Heap(AtomicUsize);

    const LAYOUT: Layout = match Layout::from_size_align(8192, 128) {
        Ok(layout) => layout,
        Err(_) => panic!(),
    };

    // SAFETY: memory is only given out for the layout that is asked for, and is the heap's.
    unsafe impl Allocator for Heap {
        fn alloc(&self, size: usize, alignment: usize, what: ResourceType) -> Allocated {
            match what {
                ResourceType::QP => {
                    assert_eq!((size, alignment), (8192, 128));
                    self.0.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: the layout has bytes.
                    let memory = unsafe { std::alloc::alloc(LAYOUT) };
                    Allocated::At(NonNull::new(memory).unwrap())
                }
                ResourceType::CQ => Allocated::UseDefault,
                _ => Allocated::Failed,
            }
        }

        unsafe fn free(&self, memory: NonNull<u8>, what: ResourceType) {
            assert_eq!(what, ResourceType::QP);
            self.0.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: from `alloc` with this layout, as the caller vouches for.
            unsafe { std::alloc::dealloc(memory.as_ptr(), LAYOUT) };
        }
    }

    #[test]
    fn a_programs_allocator_is_asked_first() {
        let heap = Arc::new(Heap::default());
        let source = Source {
            custom: Some(heap.clone()),
            context: Some(Arc::new(Pieces::default())),
            allocation: Allocation::Anonymous,
        };
        let pool = Arc::default();
        let align = qp_alignment(8100, 64, 32);
        assert_eq!(align, 128);
        let make = |what| QueueBuffer::new(8100, what, align, &source, &pool);
        let qp = make(ResourceType::QP).unwrap();
        assert!(qp.is_custom());
        assert_eq!(heap.0.load(Ordering::Relaxed), 1);
        drop(qp);
        assert_eq!(heap.0.load(Ordering::Relaxed), 0);
        assert!(!make(ResourceType::CQ).unwrap().is_custom());
        assert_eq!(make(ResourceType::SRQ).unwrap_err(), Errno(libc::ENOMEM));
    }

    /// Gives pieces of pages, dirty, up to 64 KiB each.
    #[derive(Debug, Default)]
    struct Pieces(Mutex<Vec<(usize, Pages)>>);

    /// Where in a page they begin.
    const PIECE: usize = 64;

    // SAFETY: memory of a mapping that stays until it is freed.
    unsafe impl Allocator for Pieces {
        fn alloc(&self, size: usize, alignment: usize, _: ResourceType) -> Allocated {
            assert_eq!(alignment, PIECE);
            if size > 1 << 16 {
                return Allocated::Failed;
            }
            let pages = Pages::new(size + PIECE).unwrap();
            // SAFETY: within the mapping, which is longer.
            let start = unsafe { pages.start().add(PIECE) };
            // SAFETY: as many bytes of the mapping, which nobody else knows.
            unsafe { start.write_bytes(0xee, size) };
            self.0.lock().unwrap().push((size, pages));
            Allocated::At(start)
        }

        unsafe fn free(&self, memory: NonNull<u8>, _: ResourceType) {
            let start = memory.addr().get() - PIECE;
            let mut given = self.0.lock().unwrap();
            given.retain(|(_, pages)| pages.start().addr().get() != start);
        }
    }

    #[test]
    fn a_contexts_allocator_gives_whole_pages_that_become_zero() {
        let pieces = Arc::new(Pieces::default());
        let context = ContextAllocator::default();
        assert!(context.get().is_none());
        context.set(Some(pieces.clone()));
        let source = Source {
            context: context.get(),
            ..Source::default()
        };
        let pool = Arc::default();
        let make = |size| QueueBuffer::new(size, ResourceType::CQ, page_size(), &source, &pool);
        let buffer = make(page_size() + 1).unwrap();
        assert_eq!(buffer.len(), 2 * page_size());
        assert_eq!(buffer.address() as usize % page_size(), PIECE);
        assert_eq!(pieces.0.lock().unwrap()[0].0, 2 * page_size());
        for at in 0..buffer.len() {
            // SAFETY: within the buffer.
            let byte = unsafe { buffer.start().add(at) };
            // SAFETY: it is ours, and no device knows it.
            assert_eq!(unsafe { byte.read() }, 0);
        }
        assert_eq!(make(1 << 17).unwrap_err(), Errno(libc::ENOMEM));
        // What it gave goes back to it, whatever is set by then.
        context.set(None);
        drop(buffer);
        assert!(pieces.0.lock().unwrap().is_empty());
    }

    #[test]
    fn records_of_a_contexts_allocator_are_found_again() {
        let pieces = Arc::new(Pieces::default());
        let context = Arc::new(ContextAllocator::default());
        context.set(Some(pieces.clone()));
        let pool = Arc::new(RecordPool::new(64, context));
        let records: Vec<_> = (0..page_size() / 64 + 1)
            .map(|_| pool.take(None).unwrap())
            .collect();
        // The first page's last record is on the page after the one that it begins in.
        let pages: std::collections::HashSet<_> = records
            .iter()
            .map(|record| record.address() as usize / page_size())
            .collect();
        assert_eq!(pages.len(), 3);
        assert_eq!(pieces.0.lock().unwrap().len(), 2);
        drop(records);
        assert!(pieces.0.lock().unwrap().is_empty());
    }
}

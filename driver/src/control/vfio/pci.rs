//! The PCI seam: what the driver needs of a function of PCI Express, and nothing else.
//!
//! Two things stand behind [`Pci`]: Linux' VFIO, and a ConnectX in software in the same process.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A function of PCI Express that belongs to this process: BAR 0, configuration space, DMA, MSI-X vectors, reset.
///
/// Threads share it.
///
/// # Implementation safety
///
/// What [`map_bar`](Self::map_bar) hands out stays readable and writable until it is dropped. The function reads and
/// writes no memory of the process but what [`dma_map`](Self::dma_map) gave it, and nothing of a range any more once
/// [`dma_unmap`](Self::dma_unmap) returned successfully.
pub trait Pci: Send + Sync + fmt::Debug {
    /// How users know the function, such as `vfio:0000:3b:00.0`.
    fn name(&self) -> String;

    /// Reads the configuration space.
    fn config_read(&self, offset: u16, to: &mut [u8]) -> io::Result<()>;

    /// Writes the configuration space.
    fn config_write(&self, offset: u16, from: &[u8]) -> io::Result<()>;

    /// Bytes of BAR 0.
    fn bar_len(&self) -> u64;

    /// Reads the big-endian word at `offset` of BAR 0. All ones may mean that the function is gone.
    fn read_be32(&self, offset: u64) -> io::Result<u32>;

    /// Writes the big-endian word at `offset` of BAR 0. What the process stored into memory before is seen by a device
    /// that acts on this word.
    fn write_be32(&self, offset: u64, value: u32) -> io::Result<()>;

    /// Writes the big-endian quadword at `offset` of BAR 0; in two halves, the first one first, where the way to the device
    /// has no wider stores.
    fn write_be64(&self, offset: u64, value: u64) -> io::Result<()> {
        self.write_be32(offset, (value >> 32) as u32)?;
        self.write_be32(offset + 4, value as u32)
    }

    /// Maps `len` bytes of BAR 0 into the process: pages of doorbell registers. Uncached, unless
    /// [`write_combining`](Self::write_combining).
    fn map_bar(&self, offset: u64, len: usize) -> io::Result<BarMapping>;

    /// Whether stores to what [`map_bar`](Self::map_bar) maps are combined, as BlueFlame wants it. Nobody guesses.
    fn write_combining(&self) -> bool {
        false
    }

    /// The I/O virtual addresses that may be mapped, in ascending order: all but what the platform keeps for itself,
    /// such as the window of interrupt messages.
    fn iova_ranges(&self) -> io::Result<Vec<RangeInclusive<u64>>>;

    /// How many further mappings there may be, if that is limited (`VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL`).
    fn mappings_left(&self) -> io::Result<Option<u32>>;

    /// Page sizes of the I/O memory management unit, a bit each; the smallest is that of every address and length given
    /// to [`dma_map`](Self::dma_map).
    fn iova_page_sizes(&self) -> io::Result<u64>;

    /// Lets the function read `len` bytes of the process at `iova`, and write them if `writable`.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped in the process until [`dma_unmap`](Self::dma_unmap), or the whole value, is gone, and no
    /// reference says meanwhile that nobody else reads or writes them.
    unsafe fn dma_map(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        writable: bool,
    ) -> io::Result<()>;

    /// Takes a range back, exactly as it was mapped.
    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()>;

    /// MSI-X vectors of the function.
    fn vectors(&self) -> u16;

    /// Has vectors 0, 1, ... signal these eventfds, instead of what was said before. None at all turns interrupts off.
    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> io::Result<()>;

    /// A function level reset: the device forgets everything, and reads and writes no memory once this returns. Mappings
    /// and eventfds stay.
    fn reset(&self) -> io::Result<()>;
}

/// A part of BAR 0 in this process' memory.
pub struct BarMapping {
    start: NonNull<u8>,
    len: usize,
    keep: Box<dyn Any + Send + Sync>,
}

// SAFETY: the value gives out a raw pointer only, whose users prove their own accesses; what keeps the memory may go
// from thread to thread.
unsafe impl Send for BarMapping {}
// SAFETY: as above; no method reads or writes the memory.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// A mapping that ends when `keep` is dropped.
    ///
    /// # Safety
    ///
    /// The `len` bytes at `start` can be read and written by volatile accesses of up to 8 bytes as long as `keep`
    /// lives.
    pub unsafe fn new(start: NonNull<u8>, len: usize, keep: Box<dyn Any + Send + Sync>) -> Self {
        Self { start, len, keep }
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What keeps the memory; it stays where it is.
    pub fn into_keep(self) -> Box<dyn Any + Send + Sync> {
        self.keep
    }
}

impl fmt::Debug for BarMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarMapping")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

//! A function that Linux' vfio-pci gives to this process.
//!
//! | file | what |
//! |---|---|
//! | `function` | what sysfs tells of a function, and what keeps it from being opened |
//! | `open` | opening it, with errors that say what to do |
//! | `iommu` | which addresses may be mapped, and how often |
//! | `bar` | pages of its registers in this process |

mod bar;
mod function;
mod iommu;
mod open;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vfio_bindings::bindings::vfio::VFIO_PCI_MSIX_IRQ_INDEX;
use vfio_ioctls::{VfioContainer, VfioDevice};

pub use function::{Address, Function, MLX5_DEVICE_IDS};

use super::pci::{BarMapping, Pci};
use crate::sys::Errno;
use crate::sys::process::ProcessId;
use crate::sys::vfio;

/// Beginning of the names of devices that this process drives: `vfio:0000:3b:00.0`.
pub const VFIO: &str = "vfio:";

/// How often, and after which pause, a reset is tried again while somebody else has the function's lock.
const RESET: (u32, Duration) = (50, Duration::from_millis(20));

/// A part of the device's file: BAR 0, or the configuration space.
#[derive(Debug, Clone, Copy)]
struct Region {
    offset: u64,
    len: u64,
}

impl Region {
    /// Where in the file `len` bytes at `offset` of the region are.
    fn at(self, offset: u64, len: usize) -> io::Result<u64> {
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= self.len);
        if !inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.offset + offset)
    }
}

/// A function of PCI Express through VFIO. It returns to the kernel when this is dropped, or when the process ends however
/// it ends: the kernel then resets it, and takes its interrupts and all mappings back.
pub struct VfioPci {
    // A forked child has the descriptors too, but the function is its parent's.
    device: ManuallyDrop<VfioDevice>,
    container: ManuallyDrop<Arc<VfioContainer>>,
    address: Address,
    bar: Region,
    config: Region,
    vectors: u16,
    /// Interrupts that are on.
    enabled: Mutex<usize>,
    owner: ProcessId,
}

impl std::fmt::Debug for VfioPci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VfioPci")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl VfioPci {
    /// Where it sits.
    pub fn address(&self) -> Address {
        self.address
    }

    fn device(&self) -> BorrowedFd<'_> {
        // SAFETY: the device's descriptor is open as long as the device, which the borrow keeps.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }

    fn container(&self) -> BorrowedFd<'_> {
        // SAFETY: the container's descriptor is open as long as the container, which the borrow keeps.
        unsafe { BorrowedFd::borrow_raw(self.container.as_raw_fd()) }
    }

    fn iommu(&self) -> io::Result<iommu::Iommu> {
        iommu::Iommu::parse(&vfio::iommu_info(self.container())?)
    }
}

impl Pci for VfioPci {
    fn name(&self) -> String {
        format!("{VFIO}{}", self.address)
    }

    fn config_read(&self, offset: u16, to: &mut [u8]) -> io::Result<()> {
        let at = self.config.at(offset.into(), to.len())?;
        Ok(vfio::read_at(self.device(), at, to)?)
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> io::Result<()> {
        let at = self.config.at(offset.into(), from.len())?;
        Ok(vfio::write_at(self.device(), at, from)?)
    }

    fn bar_len(&self) -> u64 {
        self.bar.len
    }

    // The kernel reads and writes an aligned word of a BAR in one access, and hands its bytes over in the order in which
    // they are on the device (`vfio_pci_rdwr.c`).
    fn read_be32(&self, offset: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        vfio::read_at(self.device(), self.bar.at(offset, 4)?, &mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn write_be32(&self, offset: u64, value: u32) -> io::Result<()> {
        let at = self.bar.at(offset, 4)?;
        Ok(vfio::write_at(self.device(), at, &value.to_be_bytes())?)
    }

    fn map_bar(&self, offset: u64, len: usize) -> io::Result<BarMapping> {
        let at = self.bar.at(offset, len)?;
        Ok(bar::map(self.device(), at, len)?)
    }

    fn iova_ranges(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        Ok(self.iommu()?.ranges)
    }

    fn mappings_left(&self) -> io::Result<Option<u32>> {
        Ok(self.iommu()?.mappings_left)
    }

    fn iova_page_sizes(&self) -> io::Result<u64> {
        Ok(self.iommu()?.page_sizes)
    }

    unsafe fn dma_map(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        writable: bool,
    ) -> io::Result<()> {
        // SAFETY: the caller vouches for the memory, with the words of `map_dma`.
        let mapped = unsafe { vfio::map_dma(self.container(), start, len, iova, writable) };
        Ok(mapped?)
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        if !self.owner.is_current() {
            // A forked child's copy: the mapping is the parent's.
            return Ok(());
        }
        self.container
            .vfio_dma_unmap(iova, len)
            .map_err(io::Error::other)
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        // Vectors are added to those that are on by newer kernels only; and to turn off what is off is an error.
        if *enabled > 0 {
            vfio::set_interrupts(self.device(), VFIO_PCI_MSIX_IRQ_INDEX, &[])?;
            *enabled = 0;
        }
        if !eventfds.is_empty() {
            vfio::set_interrupts(self.device(), VFIO_PCI_MSIX_IRQ_INDEX, eventfds)?;
            *enabled = eventfds.len();
        }
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        for _ in 0..RESET.0 {
            match vfio::reset(self.device()) {
                Err(Errno(libc::EAGAIN)) => std::thread::sleep(RESET.1),
                other => return Ok(other?),
            }
        }
        Err(Errno(libc::EAGAIN).into())
    }
}

impl Drop for VfioPci {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        // SAFETY: nobody uses the device after drop.
        unsafe { ManuallyDrop::drop(&mut self.device) };
        // SAFETY: nobody uses the container after drop.
        unsafe { ManuallyDrop::drop(&mut self.container) };
    }
}

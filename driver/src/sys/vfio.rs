//! VFIO's system calls beside those of `vfio-ioctls`: that crate maps memory for writing only, tells nothing of the IOMMU,
//! and drops the errors of a reset and of interrupts (`uapi linux/vfio.h`).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use vfio_bindings::bindings::vfio::{
    VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, vfio_iommu_type1_dma_map,
};

use super::errno::Errno;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`.
const fn request(number: u32) -> u32 {
    (b';' as u32) << 8 | (100 + number)
}

const DEVICE_SET_IRQS: u32 = request(10);
const DEVICE_RESET: u32 = request(11);
const IOMMU_GET_INFO: u32 = request(12);
const IOMMU_MAP_DMA: u32 = request(13);

/// Bytes before the file descriptors of `struct vfio_irq_set`.
const IRQ_SET: usize = 20;
/// More than any kernel says of an IOMMU would be a mistake.
const LARGEST_INFO: u32 = 1 << 20;

/// # Safety
///
/// `argument` is what the request reads and writes, with its length in the first word.
unsafe fn call(fd: BorrowedFd<'_>, request: u32, argument: *mut u32) -> Result<(), Errno> {
    // SAFETY: the caller gives an argument that fits the request; the descriptor is open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request.into(), argument) };
    if result < 0 {
        return Err(Errno::last());
    }
    Ok(())
}

/// `VFIO_IOMMU_GET_INFO` of a container: `struct vfio_iommu_type1_info` with its capabilities, in the machine's byte
/// order.
pub fn iommu_info(container: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    // argsz, flags, page sizes, offset of the capabilities, padding.
    let mut words = vec![0u32; 6];
    loop {
        let len = (words.len() * 4) as u32;
        words[0] = len;
        // SAFETY: the kernel writes at most `argsz` bytes, all of them the vector's.
        unsafe { call(container, IOMMU_GET_INFO, words.as_mut_ptr()) }?;
        // It says the length that all of it takes.
        let wanted = words[0];
        if wanted <= len {
            return Ok(words);
        }
        if wanted > LARGEST_INFO {
            return Err(Errno(libc::E2BIG));
        }
        words = vec![0; wanted.div_ceil(4) as usize];
    }
}

/// `VFIO_IOMMU_MAP_DMA`: the devices of a container may read `len` bytes at `iova`, and write them if `writable`.
///
/// # Safety
///
/// The bytes stay mapped in the process until they are unmapped from the container or it is closed, and no reference
/// says meanwhile that nobody else reads or writes them.
pub unsafe fn map_dma(
    container: BorrowedFd<'_>,
    start: NonNull<u8>,
    len: usize,
    iova: u64,
    writable: bool,
) -> Result<(), Errno> {
    let write = if writable { VFIO_DMA_MAP_FLAG_WRITE } else { 0 };
    let mut map = vfio_iommu_type1_dma_map {
        argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
        flags: VFIO_DMA_MAP_FLAG_READ | write,
        vaddr: start.as_ptr().expose_provenance() as u64,
        iova,
        size: len as u64,
    };
    // SAFETY: the structure is the request's; the caller vouches for the memory.
    unsafe { call(container, IOMMU_MAP_DMA, (&raw mut map).cast()) }
}

/// `VFIO_DEVICE_RESET`.
pub fn reset(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request has no argument.
    unsafe { call(device, DEVICE_RESET, ptr::null_mut()) }
}

/// `VFIO_DEVICE_SET_IRQS`: vectors from 0 on of an interrupt index signal these eventfds; none at all disables it.
pub fn set_interrupts(
    device: BorrowedFd<'_>,
    index: u32,
    eventfds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let data = if eventfds.is_empty() {
        VFIO_IRQ_SET_DATA_NONE
    } else {
        VFIO_IRQ_SET_DATA_EVENTFD
    };
    let len = IRQ_SET + eventfds.len() * 4;
    let header = [
        len as u32,
        data | VFIO_IRQ_SET_ACTION_TRIGGER,
        index,
        0,
        eventfds.len() as u32,
    ];
    let fds = eventfds.iter().map(|fd| fd.as_raw_fd() as u32);
    let mut words: Vec<u32> = header.into_iter().chain(fds).collect();
    // SAFETY: the kernel reads `argsz` bytes, all of them the vector's.
    unsafe { call(device, DEVICE_SET_IRQS, words.as_mut_ptr()) }
}

/// Reads all of `to` at `offset` of a device's file, in one access if it is an aligned word.
pub fn read_at(device: BorrowedFd<'_>, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
    let (fd, offset) = (device.as_raw_fd(), file_offset(offset)?);
    // SAFETY: the kernel writes at most the slice's length to it.
    let read = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), offset) };
    complete(read, to.len())
}

/// Writes all of `from`, likewise.
pub fn write_at(device: BorrowedFd<'_>, offset: u64, from: &[u8]) -> Result<(), Errno> {
    let (fd, offset) = (device.as_raw_fd(), file_offset(offset)?);
    // SAFETY: the kernel reads at most the slice's length from it.
    let written = unsafe { libc::pwrite(fd, from.as_ptr().cast(), from.len(), offset) };
    complete(written, from.len())
}

fn file_offset(offset: u64) -> Result<libc::off_t, Errno> {
    offset.try_into().map_err(|_| Errno(libc::EOVERFLOW))
}

/// A device's file does all or nothing, unless the function is gone.
fn complete(done: isize, wanted: usize) -> Result<(), Errno> {
    match usize::try_from(done) {
        Ok(done) if done == wanted => Ok(()),
        Ok(_) => Err(Errno(libc::EIO)),
        Err(_) => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::os::fd::AsFd;

    use vfio_bindings::bindings::vfio::{vfio_iommu_type1_info, vfio_irq_set};

    use super::*;

    #[test]
    fn layouts_are_the_headers() {
        assert_eq!(IRQ_SET, size_of::<vfio_irq_set>());
        assert_eq!(offset_of!(vfio_irq_set, count), 16);
        assert_eq!(offset_of!(vfio_iommu_type1_info, iova_pgsizes), 8);
        assert_eq!(offset_of!(vfio_iommu_type1_info, cap_offset), 16);
        // VFIO_IOMMU_MAP_DMA as strace prints it: _IO(';', 0x71).
        assert_eq!(IOMMU_MAP_DMA, 0x3b71);
    }

    #[test]
    fn another_file_answers_that_it_knows_no_such_request() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(iommu_info(null.as_fd()), Err(Errno(libc::ENOTTY)));
        assert_eq!(reset(null.as_fd()), Err(Errno(libc::ENOTTY)));
        assert_eq!(
            set_interrupts(null.as_fd(), 2, &[null.as_fd()]),
            Err(Errno(libc::ENOTTY))
        );
    }
}

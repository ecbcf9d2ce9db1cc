//! What can be mapped from the device file, and at which offset.
//!
//! An offset is a number of pages: the command from bit 8 on, the index below it. Newer objects (UAR,
//! VAR, operation addresses of device memory) answer a ready offset when they are made.

open_enums! {
    /// What to map.
    "mlx5_ib_mmap_cmd" MmapCommand(u32) {
        /// A UAR page of the context's own, write-combining where the kernel allows it.
        "MLX5_IB_MMAP_REGULAR_PAGE" REGULAR_PAGE = 0,
        /// Physically contiguous memory; only vendors' kernels give it out, others answer `ENOSYS`.
        "MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES" GET_CONTIGUOUS_PAGES = 1,
        /// A UAR page, write-combining or nothing.
        "MLX5_IB_MMAP_WC_PAGE" WC_PAGE = 2,
        /// A UAR page, not cached and not combining.
        "MLX5_IB_MMAP_NC_PAGE" NC_PAGE = 3,
        /// The page with the device's free-running clock, read-only.
        "MLX5_IB_MMAP_CORE_CLOCK" CORE_CLOCK = 5,
        /// Allocates a write-combining UAR page.
        "MLX5_IB_MMAP_ALLOC_WC" ALLOC_WC = 6,
        /// The page with a [`ClockInfo`](super::ClockInfo), read-only.
        "MLX5_IB_MMAP_CLOCK_INFO" CLOCK_INFO = 7,
        /// Device memory that was allocated by `DM_ALLOC`.
        "MLX5_IB_MMAP_DEVICE_MEM" DEVICE_MEM = 8,
    }
}

const COMMAND_SHIFT: u32 = 8;
const INDEX_MASK: u64 = 0xff;
/// Where the index goes on: bits 8 to 15 are the command.
const HIGH_INDEX_SHIFT: u32 = 16;

/// The offset for mmap(2) in bytes. `page_size` is the kernel's.
///
/// The kernel reads more than the low 8 bits of the index for
/// [`ALLOC_WC`](MmapCommand::ALLOC_WC) and [`DEVICE_MEM`](MmapCommand::DEVICE_MEM) only; `None` for a
/// larger index of another command.
///
/// ```
/// use uverbs_abi::udata::mlx5::mmap::{MmapCommand, offset};
///
/// assert_eq!(offset(MmapCommand::NC_PAGE, 2, 4096), Some(0x302 * 4096));
/// assert_eq!(offset(MmapCommand::ALLOC_WC, 0x1ff, 4096), Some(0x1_06ff * 4096));
/// assert_eq!(offset(MmapCommand::NC_PAGE, 256, 4096), None);
/// ```
pub const fn offset(command: MmapCommand, index: u32, page_size: u64) -> Option<u64> {
    let low = index as u64 & INDEX_MASK;
    let high = index as u64 >> COMMAND_SHIFT;
    let extended = command.0 == MmapCommand::ALLOC_WC.0 || command.0 == MmapCommand::DEVICE_MEM.0;
    if high != 0 && !extended {
        return None;
    }
    let pages = high << HIGH_INDEX_SHIFT | (command.0 as u64) << COMMAND_SHIFT | low;
    pages.checked_mul(page_size)
}

/// The command and the index of an offset in pages, as the kernel reads them.
///
/// ```
/// use uverbs_abi::udata::mlx5::mmap::{MmapCommand, parse};
///
/// assert_eq!(parse(0x1_06ff), (MmapCommand::ALLOC_WC, 0x1ff));
/// ```
pub const fn parse(pages: u64) -> (MmapCommand, u64) {
    let command = (pages >> COMMAND_SHIFT & 0xff) as u32;
    let index = pages >> HIGH_INDEX_SHIFT << COMMAND_SHIFT | pages & INDEX_MASK;
    (MmapCommand(command), index)
}

//! Memory as commands name it: a page size, where in the first page it begins, and a list of pages.
//!
//! I/O virtual addresses are ours to choose and a range is contiguous there, so a list is never longer than
//! the page size makes it, and that is chosen as large as the place of the range allows.

use std::sync::Arc;

use super::platform::{Mapped, Platform};
use crate::sys::errno::Errno;

/// Smallest page of the device (`MLX5_ADAPTER_PAGE_SIZE`), and the granule of [`Platform::map`].
const LOG_PAGE: u32 = 12;
/// What is mapped for a doorbell record: the page that it is in.
pub(super) const RECORD_PAGE: u64 = 1 << LOG_PAGE;
/// Units of a page that contexts count the start of a queue in.
const OFFSET_UNITS: u64 = 64;
/// How many of them `page_offset` can say: it has 6 bits in `qpc`, `cqc` and `xrc_srqc`, and 5 in `wq` (`mlx5_ifc.h`).
const ALL_UNITS: u64 = 1 << 6;
const UNITS_OF_WORK_QUEUE: u64 = 1 << 5;
/// Largest page of a queue's list: `log_page_size` of the contexts has 5 bits, above 12.
const MAX_LOG_PAGE: u32 = LOG_PAGE + 31;

/// A queue's memory.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    mapped: Arc<Mapped>,
    bytes: u64,
    log_page: u32,
}

impl Ring {
    /// Memory of this process. `EINVAL` if it does not begin at a multiple of 64.
    pub(super) fn new(platform: &dyn Platform, address: u64, bytes: u64) -> Result<Self, Errno> {
        Self::within(platform, address, bytes, ALL_UNITS)
    }

    /// As [`new`](Self::new), for a context of kind `wq`. `EINVAL` also in the upper half of a smallest page.
    pub(super) fn of_work_queue(
        platform: &dyn Platform,
        address: u64,
        bytes: u64,
    ) -> Result<Self, Errno> {
        Self::within(platform, address, bytes, UNITS_OF_WORK_QUEUE)
    }

    fn within(
        platform: &dyn Platform,
        address: u64,
        bytes: u64,
        units: u64,
    ) -> Result<Self, Errno> {
        if bytes == 0 || !address.is_multiple_of(RECORD_PAGE / OFFSET_UNITS) {
            return Err(Errno(libc::EINVAL));
        }
        let mapped = platform.map(address, bytes)?;
        let log_page = page_of_queue(mapped.iova, bytes, units).ok_or(Errno(libc::EINVAL))?;
        Ok(Self {
            mapped: Arc::new(mapped),
            bytes,
            log_page,
        })
    }

    /// `log_page_size` of a context.
    pub(super) fn log_page_size(&self) -> u8 {
        (self.log_page - LOG_PAGE) as u8
    }

    /// `page_offset` of a context: 64ths of a page.
    pub(super) fn page_offset(&self) -> u8 {
        (self.inside() / (self.page() / OFFSET_UNITS)) as u8
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        pages(self.mapped.iova, self.bytes, self.log_page)
    }

    fn page(&self) -> u64 {
        1 << self.log_page
    }

    fn inside(&self) -> u64 {
        self.mapped.iova & (self.page() - 1)
    }
}

/// The largest page size whose 64ths the start of a queue is a multiple of, fewer than `units`, and that is not much
/// larger than the queue.
fn page_of_queue(iova: u64, bytes: u64, units: u64) -> Option<u32> {
    let wanted = bytes.next_power_of_two().trailing_zeros();
    let fits = iova.trailing_zeros() + OFFSET_UNITS.trailing_zeros();
    let largest = wanted.min(fits).clamp(LOG_PAGE, MAX_LOG_PAGE);
    let sizes = (LOG_PAGE..=largest).rev();
    let can_be_said = |log: &u32| (iova & ((1 << log) - 1)) / ((1 << log) / OFFSET_UNITS) < units;
    { sizes }.find(can_be_said)
}

/// Addresses of pages of `1 << log_page` bytes that the range touches.
pub(super) fn pages(iova: u64, bytes: u64, log_page: u32) -> impl ExactSizeIterator<Item = u64> {
    let page = 1u64 << log_page;
    let first = iova & !(page - 1);
    let count = (iova - first + bytes).div_ceil(page) as usize;
    (0..count).map(move |index| first + index as u64 * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_queue_at_a_large_boundary_has_one_page() {
        assert_eq!(page_of_queue(0x4000_0000, 1 << 21, ALL_UNITS), Some(21));
        assert_eq!(
            pages(0x4000_0000, 1 << 21, 21).collect::<Vec<_>>(),
            [0x4000_0000]
        );
    }

    #[test]
    fn a_queue_inside_of_a_page_begins_at_a_64th() {
        // 0x1040 is the second 64th of the page at 0x1000
        assert_eq!(page_of_queue(0x1040, 0x80, ALL_UNITS), Some(12));
        assert_eq!(pages(0x1040, 0x80, 12).collect::<Vec<_>>(), [0x1000]);
        assert_eq!(
            pages(0x1fc0, 0x80, 12).collect::<Vec<_>>(),
            [0x1000, 0x2000]
        );
    }

    /// `wq.page_offset` cannot say the upper half of a page.
    #[test]
    fn a_work_queue_begins_in_the_lower_half_of_a_page() {
        let page_of = |iova, bytes| page_of_queue(iova, bytes, UNITS_OF_WORK_QUEUE);
        assert_eq!(page_of_queue(0x4_1000, 1 << 13, ALL_UNITS), Some(13));
        assert_eq!(page_of(0x4_1000, 1 << 13), Some(12));
        assert_eq!(page_of(0x4_0000, 1 << 13), Some(13));
        assert_eq!(page_of(0x4_7000, 1 << 16), Some(16));
        assert_eq!(page_of(0x4_9000, 1 << 16), Some(15));
        assert_eq!(page_of(0x17c0, 0x80), Some(12));
        assert_eq!(page_of(0x1800, 0x80), None);
    }

    #[test]
    fn a_page_is_no_larger_than_the_start_allows() {
        // 64ths of 256 KiB are 4 KiB
        assert_eq!(page_of_queue(0x1000, 1 << 30, ALL_UNITS), Some(18));
        assert_eq!(pages(0x1000, 1 << 18, 18).collect::<Vec<_>>(), [0, 1 << 18]);
    }
}

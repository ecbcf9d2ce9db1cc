//! What a container says of its IOMMU: `struct vfio_iommu_type1_info` and its capabilities (`uapi linux/vfio.h`).

use std::io;
use std::ops::RangeInclusive;

use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL,
};

/// Page sizes where the kernel does not tell them.
const PAGES: u64 = 4096;
/// Before Linux 5.5 nothing tells of reserved windows; on x86 interrupt messages have the one at 0xfee00000 (Intel SDM
/// 3A 11.11.1), on AArch64 Linux keeps 0x8000000 to 0x8100000 for them (`drivers/iommu/arm/arm-smmu`).
const WITHOUT_RANGES: [RangeInclusive<u64>; 1] = [0x1_0000_0000..=0x7f_ffff_ffff];

/// The IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Iommu {
    pub(super) page_sizes: u64,
    pub(super) ranges: Vec<RangeInclusive<u64>>,
    pub(super) mappings_left: Option<u32>,
}

impl Iommu {
    /// Reads the words of the structure, capabilities included.
    pub(super) fn parse(words: &[u32]) -> io::Result<Self> {
        let broken = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "VFIO's words on the IOMMU are broken",
            )
        };
        let word = |at: usize| words.get(at).copied().ok_or_else(broken);
        // Words in memory are the machine's, so a 64-bit number is its two halves in the machine's order.
        let quad = |at: usize| {
            let halves = [word(at)?.to_ne_bytes(), word(at + 1)?.to_ne_bytes()];
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&halves[0]);
            bytes[4..].copy_from_slice(&halves[1]);
            Ok::<u64, io::Error>(u64::from_ne_bytes(bytes))
        };
        let flags = word(1)?;
        let sizes = if flags & VFIO_IOMMU_INFO_PGSIZES != 0 {
            quad(2)?
        } else {
            PAGES
        };
        let mut found = Self {
            page_sizes: if sizes == 0 { PAGES } else { sizes },
            ranges: Vec::new(),
            mappings_left: None,
        };
        let mut next = if flags & VFIO_IOMMU_INFO_CAPS != 0 {
            word(4)?
        } else {
            0
        };
        // Each capability begins behind the one before, or this would not end.
        let mut before = 0;
        while next != 0 {
            if next <= before || !next.is_multiple_of(4) {
                return Err(broken());
            }
            before = next;
            let at = next as usize / 4;
            // struct vfio_info_cap_header: id and version, 16 bits each, then the place of the next one.
            let header = word(at)?.to_ne_bytes();
            let id = u32::from(u16::from_ne_bytes([header[0], header[1]]));
            next = word(at + 1)?;
            match id {
                VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                    for index in 0..word(at + 2)? as usize {
                        let range = at + 4 + index * 4;
                        let (first, last) = (quad(range)?, quad(range + 2)?);
                        if first > last {
                            return Err(broken());
                        }
                        found.ranges.push(first..=last);
                    }
                }
                VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => found.mappings_left = Some(word(at + 2)?),
                _ => {}
            }
        }
        if found.ranges.is_empty() {
            found.ranges.extend(WITHOUT_RANGES);
        }
        found.ranges.sort_by_key(|range| *range.start());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.12 says with an emulated VT-d: 39 bits of address, without the window of interrupt messages.
    fn words() -> Vec<u32> {
        let mut words = vec![0, 3, 0x1000, 0, 24, 0];
        // IOVA ranges: header at 24, two ranges; then the mappings left at 72.
        words.extend([0x0001_0001, 72, 2, 0]);
        words.extend([0, 0, 0xfedf_ffff, 0]);
        words.extend([0xfef0_0000, 0, 0xffff_ffff, 0x7f]);
        words.extend([0x0001_0003, 0, 65535]);
        words[0] = words.len() as u32 * 4;
        words
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn ranges_and_the_limit_are_read() {
        let found = Iommu::parse(&words()).unwrap();
        let expected = Iommu {
            page_sizes: 0x1000,
            ranges: vec![0..=0xfedf_ffff, 0xfef0_0000..=0x7f_ffff_ffff],
            mappings_left: Some(65535),
        };
        assert_eq!(found, expected);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_older_kernel_says_less() {
        let found = Iommu::parse(&[24, 1, 0x4020_1000, 0, 0, 0]).unwrap();
        assert_eq!(found.page_sizes, 0x4020_1000);
        assert_eq!(found.ranges, WITHOUT_RANGES);
        assert_eq!(found.mappings_left, None);
        assert_eq!(
            Iommu::parse(&[24, 0, 0, 0, 0, 0]).unwrap().page_sizes,
            PAGES
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn broken_words_are_an_error() {
        let good = words();
        for len in 0..good.len() {
            assert!(Iommu::parse(&good[..len]).is_err(), "{len}");
        }
        let with = |at: usize, value: u32| {
            let mut words = words();
            words[at] = value;
            Iommu::parse(&words)
        };
        assert!(with(7, 24).is_err(), "a capability that is its own next");
        assert!(with(4, 25).is_err(), "not on a word");
        assert!(with(8, u32::MAX).is_err(), "more ranges than bytes");
        assert!(
            with(10, 0xffff_ffff).is_err(),
            "a range that ends before it begins"
        );
    }
}

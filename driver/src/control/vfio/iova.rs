//! I/O virtual addresses: which ones are free.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Addresses that may be mapped and are not.
#[derive(Debug)]
pub(super) struct Addresses {
    /// First and last address of each free range.
    free: BTreeMap<u64, u64>,
}

impl Addresses {
    /// Everything in `ranges`, in whole pages. Address 0 is never given: the device takes it for "none".
    pub(super) fn new(ranges: &[RangeInclusive<u64>], page: u64) -> Self {
        let mut free = BTreeMap::new();
        for range in ranges {
            let start = (*range.start()).max(page).checked_next_multiple_of(page);
            // the address behind the last whole page; one behind all addresses cannot be said, and is given up
            let end = (*range.end()).saturating_add(1) / page * page;
            if let Some(start) = start
                && start < end
            {
                free.insert(start, end - 1);
            }
        }
        Self { free }
    }

    /// Takes `len` bytes whose address is `residue` beyond a multiple of `align`.
    pub(super) fn take(&mut self, len: u64, align: u64, residue: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        let (start, last, at) = self.free.iter().find_map(|(&start, &last)| {
            let base = start
                .checked_sub(residue % align)
                .map_or(Some(0), |base| base.checked_next_multiple_of(align))?;
            let at = base.checked_add(residue % align)?;
            let end = at.checked_add(len - 1)?;
            (at >= start && end <= last).then_some((start, last, at))
        })?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at - 1);
        }
        if at + (len - 1) < last {
            self.free.insert(at + len, last);
        }
        Some(at)
    }

    /// Gives back what [`take`](Self::take) gave.
    pub(super) fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut last) = (start, start + (len - 1));
        if let Some((&before, &end)) = self.free.range(..start).next_back()
            && end.checked_add(1) == Some(start)
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(end) = self.free.remove(&next)
        {
            last = end;
        }
        self.free.insert(start, last);
    }

    /// Bytes that are free.
    pub(super) fn left(&self) -> u64 {
        let lens = self.free.iter().map(|(start, last)| last - start + 1);
        lens.fold(0, u64::saturating_add)
    }

    /// Pieces that the free addresses lie in.
    #[cfg(test)]
    fn pieces(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What VFIO says on x86: the window of interrupt messages lies between.
    fn x86() -> Addresses {
        Addresses::new(&[0..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff], 4096)
    }

    #[test]
    fn never_zero_and_never_the_window_of_interrupts() {
        let mut addresses = x86();
        assert_eq!(addresses.take(4096, 4096, 0), Some(4096));
        let far = addresses.take(0xff00_0000, 4096, 0);
        assert_eq!(far, Some(0xfef0_0000));
        assert_eq!(addresses.take(1 << 48, 4096, 0), None);
        assert_eq!(addresses.take(0, 4096, 0), None);
    }

    #[test]
    fn residues_are_kept() {
        let mut addresses = x86();
        assert_eq!(addresses.take(4096, 1 << 21, 0x3000), Some(0x3000));
        assert_eq!(addresses.take(4096, 1 << 21, 0x3000), Some(0x20_3000));
        assert_eq!(addresses.take(1 << 30, 1 << 30, 0), Some(1 << 30));
    }

    #[test]
    fn the_last_address_may_be_free() {
        let mut addresses = Addresses::new(&[0..=u64::MAX], 4096);
        assert_eq!(
            addresses.take(1 << 63, 1 << 63, 0),
            None,
            "the last page is given up"
        );
        assert_eq!(addresses.take(1 << 62, 1 << 62, 0), Some(1 << 62));
    }

    proptest! {
        /// Nothing is given twice, and when all is back it is one piece again.
        #[test]
        fn ranges_never_overlap(sizes in proptest::collection::vec((1u64..40, 0u32..4), 1..60)) {
            let mut addresses = Addresses::new(&[0..=0x3ff_ffff], 4096);
            let all = addresses.left();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (index, (pages, align)) in sizes.iter().enumerate() {
                let len = pages * 4096;
                if let Some(at) = addresses.take(len, 4096 << align, 0) {
                    prop_assert_eq!(at % (4096 << align), 0);
                    for &(other, size) in &taken {
                        prop_assert!(at + len <= other || other + size <= at);
                    }
                    taken.push((at, len));
                }
                if index % 3 == 2 && !taken.is_empty() {
                    let (at, len) = taken.swap_remove(index % taken.len());
                    addresses.give(at, len);
                }
            }
            for (at, len) in taken {
                addresses.give(at, len);
            }
            prop_assert_eq!(addresses.left(), all);
            prop_assert_eq!(addresses.pieces(), 1);
        }
    }
}

//! Pages given to the device and taken back.
//!
//! The device keeps nothing in them; it counts like one that does.

use std::collections::BTreeSet;

/// Pages asked for at boot, before the capabilities are set.
pub(crate) const BOOT: u32 = 16;
/// Pages asked for before `INIT_HCA`.
pub(crate) const INIT: u32 = 512;
/// Bytes of a page, whatever the driver's own are.
pub(crate) const PAGE_LEN: u64 = 4096;

/// The pages the device has.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    given: BTreeSet<u64>,
}

impl Pages {
    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.given.len() as u32
    }

    /// Takes all of them, or none where one can't be a page or is the device's already.
    pub(crate) fn give(&mut self, pages: &[u64]) -> bool {
        let new: BTreeSet<u64> = pages.iter().copied().collect();
        let good = new.len() == pages.len()
            && new
                .iter()
                .all(|page| page % PAGE_LEN == 0 && !self.given.contains(page));
        if good {
            self.given.extend(new);
        }
        good
    }

    /// Gives back at most `most` of those beyond `kept`.
    pub(crate) fn take(&mut self, most: u32, kept: u32) -> Vec<u64> {
        let most = most.min(self.count().saturating_sub(kept));
        (0..most).map_while(|_| self.given.pop_last()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_given_once_and_comes_back_once() {
        let mut pages = Pages::default();
        assert!(pages.give(&[0x1000, 0x2000, 0x3000]));
        assert!(!pages.give(&[0x4000, 0x1000]), "one is there already");
        assert!(!pages.give(&[0x4000, 0x4000]), "one is named twice");
        assert!(!pages.give(&[0x4800]));
        assert_eq!(pages.count(), 3);
        let mut back = pages.take(10, 1);
        assert_eq!(back.len(), 2);
        back.extend(pages.take(1, 0));
        back.sort_unstable();
        assert_eq!(back, [0x1000, 0x2000, 0x3000]);
        assert!(pages.take(1, 0).is_empty());
    }
}

//! Doorbell pages as memory of the process.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use oxverbs::control::vfio::pci::BarMapping;

use crate::uar::{ARM_CQ, PAGE_SIZE};

/// Registers in which something may be found: that of completion queues, and the halves of both BlueFlame registers.
const REGISTERS: [u64; 5] = [ARM_CQ, 0x800, 0x900, 0xa00, 0xb00];

/// A page of registers.
#[repr(align(4096))]
struct Page([AtomicU64; PAGE_SIZE as usize / 8]);

/// All pages that are mapped.
#[derive(Default)]
pub(super) struct Pages(Mutex<BTreeMap<u32, Weak<Page>>>);

impl Pages {
    /// Maps a page; the same one for everybody.
    pub(super) fn map(&self, number: u32) -> BarMapping {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, page| page.strong_count() > 0);
        let page = pages.get(&number).and_then(Weak::upgrade);
        let page = page.unwrap_or_else(|| {
            let page = Arc::new(Page([const { AtomicU64::new(0) }; _]));
            pages.insert(number, Arc::downgrade(&page));
            page
        });
        let start = NonNull::from(&page.0).cast();
        // SAFETY: a page of atomics, which the mapping keeps.
        unsafe { BarMapping::new(start, PAGE_SIZE as usize, Box::new(page)) }
    }

    /// Takes what stands in the registers of all pages.
    pub(super) fn take(&self, mut found: impl FnMut(u32, u32, [u8; 8])) -> bool {
        let pages: Vec<_> = {
            let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let alive = pages.iter();
            alive
                .filter_map(|(number, page)| Some((*number, page.upgrade()?)))
                .collect()
        };
        let mut some = false;
        for (number, page) in pages {
            for register in REGISTERS {
                let word = &page.0[register as usize / 8];
                if word.load(Ordering::Relaxed) != 0 {
                    let value = word.swap(0, Ordering::AcqRel);
                    found(number, register as u32, value.to_ne_bytes());
                    some = true;
                }
            }
        }
        some
    }

    /// How many are mapped.
    pub(super) fn count(&self) -> usize {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages
            .values()
            .filter(|page| page.strong_count() > 0)
            .count()
    }
}

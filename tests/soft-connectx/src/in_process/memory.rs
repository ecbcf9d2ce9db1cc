//! The process' memory as the device sees it.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{PoisonError, RwLock};

use crate::{DmaFault, GuestMemory};

/// What is mapped, by the first I/O address.
#[derive(Debug, Default)]
pub(super) struct Mappings(RwLock<BTreeMap<u64, Mapping>>);

#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the memory is the process', not a thread's; it is accessed under the lock only, by the contract of `map`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mappings {
    /// Maps memory. Answers whether the addresses were free.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped in the process until [`unmap`](Self::unmap) or the end of the value.
    pub(super) unsafe fn map(
        &self,
        iova: u64,
        start: NonNull<u8>,
        len: usize,
        writable: bool,
    ) -> bool {
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = iova.checked_add(len as u64 - 1) else {
            return false;
        };
        let before = maps.range(..=last).next_back();
        if before.is_some_and(|(first, mapping)| first + mapping.len as u64 > iova) {
            return false;
        }
        let mapping = Mapping {
            start,
            len,
            writable,
        };
        maps.insert(iova, mapping);
        true
    }

    /// Ends a mapping: nobody accesses its memory any more when this returns.
    pub(super) fn unmap(&self, iova: u64, len: usize) -> bool {
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let exact = maps.get(&iova).is_some_and(|mapping| mapping.len == len);
        exact && maps.remove(&iova).is_some()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let maps = self.0.read().unwrap_or_else(PoisonError::into_inner);
        maps.len()
    }

    /// Calls `act` with each piece of a range, all of which has to be mapped.
    fn pieces(
        &self,
        iova: u64,
        len: usize,
        write: bool,
        mut act: impl FnMut(NonNull<u8>, std::ops::Range<usize>),
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { iova, len };
        let maps = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let mut done = 0;
        while done < len {
            let at = iova.checked_add(done as u64).ok_or(fault)?;
            let (first, mapping) = maps.range(..=at).next_back().ok_or(fault)?;
            let offset = usize::try_from(at - first).map_err(|_| fault)?;
            if offset >= mapping.len || write && !mapping.writable {
                return Err(fault);
            }
            let part = (mapping.len - offset).min(len - done);
            // SAFETY: within the mapping, as just checked.
            let start = unsafe { mapping.start.add(offset) };
            found.push((start, done..done + part));
            done += part;
        }
        for (start, range) in found {
            act(start, range);
        }
        Ok(())
    }
}

/// Words are copied whole where both sides have whole ones: counters and addresses are never torn.
const WORD: usize = 8;

impl GuestMemory for Mappings {
    fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.pieces(iova, to.len(), false, |from, range| {
            let to = &mut to[range];
            let mut at = 0;
            while at < to.len() {
                // SAFETY: within the piece, which is mapped as long as the lock is held.
                let place = unsafe { from.add(at) };
                if place.addr().get().is_multiple_of(WORD) && to.len() - at >= WORD {
                    // SAFETY: as above, aligned; volatile, since the program may write it at any time.
                    let word = unsafe { place.cast::<u64>().read_volatile() };
                    to[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
                    at += WORD;
                } else if place.addr().get().is_multiple_of(4) && to.len() - at >= 4 {
                    // SAFETY: as above.
                    let word = unsafe { place.cast::<u32>().read_volatile() };
                    to[at..at + 4].copy_from_slice(&word.to_ne_bytes());
                    at += 4;
                } else {
                    // SAFETY: as above.
                    to[at] = unsafe { place.read_volatile() };
                    at += 1;
                }
            }
        })?;
        // What is read next is not older than this.
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        // What was written before is seen before this.
        fence(Ordering::Release);
        self.pieces(iova, from.len(), true, |to, range| {
            let from = &from[range];
            let mut at = 0;
            while at < from.len() {
                // SAFETY: within the piece, which is mapped as long as the lock is held.
                let place = unsafe { to.add(at) };
                let rest = &from[at..];
                if let Some(word) = rest.first_chunk::<WORD>()
                    && place.addr().get().is_multiple_of(WORD)
                {
                    let word = u64::from_ne_bytes(*word);
                    // SAFETY: as above, aligned; volatile, since the program may read it at any time.
                    unsafe { place.cast::<u64>().write_volatile(word) };
                    at += WORD;
                } else if let Some(word) = rest.first_chunk::<4>()
                    && place.addr().get().is_multiple_of(4)
                {
                    let word = u32::from_ne_bytes(*word);
                    // SAFETY: as above.
                    unsafe { place.cast::<u32>().write_volatile(word) };
                    at += 4;
                } else {
                    // SAFETY: as above.
                    unsafe { place.write_volatile(from[at]) };
                    at += 1;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_cross_mappings_and_never_leave_them() {
        let maps = Mappings::default();
        let mut memory = [0u64; 32];
        let start = NonNull::from(&mut memory).cast::<u8>();
        // SAFETY: the halves of an array that outlives the mappings, and is not looked at by its name meanwhile.
        let half = unsafe { start.add(128) };
        // SAFETY: as above.
        assert!(unsafe { maps.map(0x1000, half, 128, true) });
        // SAFETY: as above.
        assert!(unsafe { maps.map(0x1080, start, 128, false) });
        // SAFETY: as above.
        assert!(!unsafe { maps.map(0x10ff, start, 8, true) });
        // SAFETY: as above.
        assert!(!unsafe { maps.map(u64::MAX, start, 8, true) });
        let bytes: Vec<u8> = (0..=255).collect();
        maps.write(0x1003, &bytes[..125]).unwrap();
        let mut back = [0; 253];
        maps.read(0x1003, &mut back).unwrap();
        assert_eq!(back[..125], bytes[..125]);
        assert_eq!(back[125..], [0; 128]);
        for (at, len) in [(0x1003, 126), (0x1080, 1), (0xfff, 1), (0x1100, 1)] {
            assert!(maps.write(at, &bytes[..len]).is_err(), "{at:#x}");
        }
        assert!(maps.read(0x1003, &mut [0; 254]).is_err());
        assert!(maps.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(!maps.unmap(0x1000, 127));
        assert!(maps.unmap(0x1000, 128));
        assert!(maps.read(0x1000, &mut [0; 1]).is_err());
        assert_eq!(maps.count(), 1);
    }
}

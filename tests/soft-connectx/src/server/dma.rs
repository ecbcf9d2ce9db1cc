//! The guest's memory, mapped as QEMU says.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _, VolatileSlice};

use crate::host::{DmaFault, GuestMemory};

/// A range of bus addresses that a file of the guest's memory backs.
struct Map {
    size: u64,
    region: Arc<MmapRegion>,
    /// Where in the region the range begins.
    offset: usize,
    writable: bool,
}

/// Everything that is mapped.
#[derive(Default)]
struct Maps {
    /// By first address. They do not overlap.
    ranges: BTreeMap<u64, Map>,
    /// Mapped files by device and inode. QEMU sends one map for each range of one big file, and with an IOMMU thousands
    /// of them: each file is mapped once, and its descriptor kept once.
    files: HashMap<(u64, u64), Weak<MmapRegion>>,
}

/// The guest's memory.
#[derive(Default)]
pub(super) struct Dma(RwLock<Maps>);

impl fmt::Debug for Dma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dma").finish_non_exhaustive()
    }
}

impl Dma {
    /// Maps `size` bytes at `address` to those at `offset` of a file.
    pub(super) fn map(
        &self,
        address: u64,
        size: u64,
        file: File,
        offset: u64,
        writable: bool,
    ) -> io::Result<()> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let end = offset
            .checked_add(size)
            .ok_or_else(|| invalid("a map wraps around"))?;
        let last = address
            .checked_add(size)
            .filter(|_| size > 0)
            .ok_or_else(|| invalid("a map is empty or wraps around"))?;
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = maps.ranges.range(..last).next_back();
        if before.is_some_and(|(&start, map)| start + map.size > address) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "maps overlap"));
        }
        let region = maps.file(file, end)?;
        let offset = usize::try_from(offset).map_err(|_| invalid("a map lies too far"))?;
        let map = Map {
            size,
            region,
            offset,
            writable,
        };
        maps.ranges.insert(address, map);
        Ok(())
    }

    /// Forgets the maps inside a range. Behind an IOMMU a large range is a map for each page, and they go one by one, so only
    /// those of the range are looked at.
    pub(super) fn unmap(&self, address: u64, size: u64) {
        let last = address.saturating_add(size);
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let inside = |start: u64, map: &Map| start.saturating_add(map.size) <= last;
        let gone = maps.ranges.range(address..last);
        let gone = gone.filter(|(start, map)| inside(**start, map));
        let gone: Vec<u64> = gone.map(|(start, _)| *start).collect();
        for start in gone {
            maps.ranges.remove(&start);
        }
        maps.files.retain(|_, region| region.strong_count() > 0);
    }

    /// Forgets all maps.
    pub(super) fn unmap_all(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Maps::default();
    }

    /// Calls `act` with each part of a range in order: its place in the range and its bytes.
    fn parts(
        &self,
        iova: u64,
        len: usize,
        write: bool,
        mut act: impl FnMut(std::ops::Range<usize>, VolatileSlice<'_>),
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { iova, len };
        let maps = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // All of it is looked up before any of it is touched: a fault changes nothing.
        for touch in [false, true] {
            let mut done = 0;
            while done < len {
                let at = iova.checked_add(done as u64).ok_or(fault)?;
                let (&start, map) = maps.ranges.range(..=at).next_back().ok_or(fault)?;
                let inside = at - start;
                if inside >= map.size || (write && !map.writable) {
                    return Err(fault);
                }
                let left = usize::try_from(map.size - inside).unwrap_or(usize::MAX);
                let part = left.min(len - done);
                if touch {
                    let from = map.offset + inside as usize;
                    let slice = map.region.get_slice(from, part).map_err(|_| fault)?;
                    act(done..done + part, slice);
                }
                done += part;
            }
        }
        Ok(())
    }
}

impl Maps {
    /// The mapping of a file that reaches to `end`.
    fn file(&mut self, file: File, end: u64) -> io::Result<Arc<MmapRegion>> {
        let data = file.metadata()?;
        let key = (data.dev(), data.ino());
        if let Some(region) = self.files.get(&key).and_then(Weak::upgrade)
            && region.size() as u64 >= end
        {
            return Ok(region);
        }
        // Touching a mapping behind the file's end kills the process.
        if data.len() < end {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a map reaches beyond its file",
            ));
        }
        let size = usize::try_from(data.len()).map_err(io::Error::other)?;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), size);
        let region = Arc::new(region.map_err(io::Error::other)?);
        self.files.insert(key, Arc::downgrade(&region));
        Ok(region)
    }
}

impl GuestMemory for Dma {
    fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let mut complete = true;
        self.parts(iova, to.len(), false, |range, slice| {
            complete &= slice.read_slice(&mut to[range], 0).is_ok();
        })?;
        let len = to.len();
        complete.then_some(()).ok_or(DmaFault { iova, len })
    }

    fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        let mut complete = true;
        self.parts(iova, from.len(), true, |range, slice| {
            complete &= slice.write_slice(&from[range], 0).is_ok();
        })?;
        let len = from.len();
        complete.then_some(()).ok_or(DmaFault { iova, len })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const PAGE: u64 = 4096;

    /// A file of four pages, each filled with its number.
    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        for page in 0..4u8 {
            file.write_all_at(&[page; PAGE as usize], u64::from(page) * PAGE)
                .unwrap();
        }
        file
    }

    /// Bus pages 16, 17 and 18 are the file's pages 3, 1 and (read-only) 2.
    fn dma(file: &File) -> Dma {
        let dma = Dma::default();
        for (bus, page, writable) in [(16, 3, true), (17, 1, true), (18, 2, false)] {
            dma.map(
                bus * PAGE,
                PAGE,
                file.try_clone().unwrap(),
                page * PAGE,
                writable,
            )
            .unwrap();
        }
        dma
    }

    #[test]
    fn an_access_is_split_over_maps() {
        let file = file();
        let dma = dma(&file);
        let mut bytes = [9; 6];
        dma.read(17 * PAGE - 3, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 3, 3, 1, 1, 1]);
        dma.write(17 * PAGE - 1, &[7, 8]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 4 * PAGE - 1).unwrap();
        assert_eq!(byte, [7]);
        file.read_exact_at(&mut byte, PAGE).unwrap();
        assert_eq!(byte, [8]);
        // Three maps at once, and one mapping behind them.
        let mut all = vec![0; 3 * PAGE as usize];
        dma.read(16 * PAGE, &mut all).unwrap();
        assert_eq!((all[0], all[4097], all[8192]), (3, 1, 2));
        let maps = dma.0.read().unwrap();
        assert_eq!((maps.ranges.len(), maps.files.len()), (3, 1));
    }

    #[test]
    fn what_is_not_mapped_is_a_fault_and_changes_nothing() {
        let file = file();
        let dma = dma(&file);
        let mut bytes = [5; 8];
        for iova in [
            0,
            16 * PAGE - 1,
            19 * PAGE - 7,
            19 * PAGE,
            u64::MAX - 3,
            u64::MAX,
        ] {
            assert_eq!(dma.read(iova, &mut bytes), Err(DmaFault { iova, len: 8 }));
        }
        assert_eq!(bytes, [5; 8]);
        assert!(dma.write(18 * PAGE, &[1]).is_err(), "it is read-only");
        assert!(dma.write(18 * PAGE - 1, &[1, 1]).is_err());
        dma.read(18 * PAGE - 1, &mut bytes[..1]).unwrap();
        assert_eq!(bytes[0], 1, "page 1 of the file, untouched");
        assert_eq!(dma.read(u64::MAX, &mut []), Ok(()));
    }

    #[test]
    fn maps_come_and_go() {
        let file = file();
        let dma = dma(&file);
        let again = |bus, size| dma.map(bus, size, file.try_clone().unwrap(), 0, true);
        assert!(again(17 * PAGE, PAGE).is_err(), "it would overlap");
        assert!(again(15 * PAGE, 2 * PAGE).is_err());
        assert!(again(0, 0).is_err());
        assert!(again(u64::MAX, PAGE).is_err());
        dma.unmap(17 * PAGE, PAGE);
        assert!(dma.read(17 * PAGE, &mut [0]).is_err());
        again(17 * PAGE, PAGE).unwrap();
        let mut byte = [9];
        dma.read(17 * PAGE, &mut byte).unwrap();
        assert_eq!(byte, [0]);
        dma.unmap_all();
        assert!(dma.read(16 * PAGE, &mut byte).is_err());
    }

    #[test]
    fn a_map_beyond_its_file_is_refused() {
        let dma = Dma::default();
        assert!(dma.map(0, 5 * PAGE, file(), 0, true).is_err());
        assert!(dma.map(0, PAGE, file(), u64::MAX - 1, true).is_err());
    }
}

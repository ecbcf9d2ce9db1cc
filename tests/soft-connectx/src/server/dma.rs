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

    /// Forgets the maps inside a range.
    pub(super) fn unmap(&self, address: u64, size: u64) {
        let last = address.saturating_add(size);
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        maps.ranges
            .retain(|&start, map| start < address || start.saturating_add(map.size) > last);
        maps.files.retain(|_, region| region.strong_count() > 0);
    }

    /// Forgets all maps.
    pub(super) fn unmap_all(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Maps::default();
    }

    /// How many maps there are.
    pub(super) fn count(&self) -> usize {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .ranges
            .len()
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
        let size = usize::try_from(data.len().max(end)).map_err(io::Error::other)?;
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

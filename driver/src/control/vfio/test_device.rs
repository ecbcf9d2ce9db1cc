//! A function of PCI Express for tests of the command interface: registers and mapped memory, and a test's own firmware.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use super::pci::{BarMapping, Pci};

/// What a test's firmware does with slots that were rung.
type Firmware = dyn Fn(&TestPci, u32) + Send + Sync;

/// The function.
pub(super) struct TestPci {
    me: Weak<TestPci>,
    words: Mutex<BTreeMap<u64, u32>>,
    maps: Mutex<BTreeMap<u64, (usize, usize)>>,
    firmware: Mutex<Arc<Firmware>>,
    /// How many mappings there may be.
    limit: Mutex<usize>,
}

impl fmt::Debug for TestPci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestPci")
    }
}

impl TestPci {
    /// A device whose firmware is up, with 32 entries of 64 bytes for commands.
    pub(super) fn new(firmware: impl Fn(&TestPci, u32) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            words: Mutex::new(BTreeMap::from([(0x4, 5 << 16), (0x14, 0x56)])),
            maps: Mutex::default(),
            firmware: Mutex::new(Arc::new(firmware)),
            limit: Mutex::new(usize::MAX),
        })
    }

    pub(super) fn set(&self, offset: u64, value: u32) {
        self.words.lock().unwrap().insert(offset, value);
    }

    pub(super) fn limit(&self, limit: usize) {
        *self.limit.lock().unwrap() = limit;
    }

    pub(super) fn mapped(&self) -> usize {
        self.maps.lock().unwrap().len()
    }

    /// Another handle, for a thread of the firmware.
    pub(super) fn handle(&self) -> Arc<Self> {
        self.me.upgrade().unwrap()
    }

    fn byte(&self, iova: u64) -> *mut u8 {
        let maps = self.maps.lock().unwrap();
        let (start, (address, len)) = maps.range(..=iova).next_back().expect("nothing is mapped");
        let offset = (iova - start) as usize;
        assert!(offset < *len, "nothing is mapped at {iova:#x}");
        std::ptr::with_exposed_provenance_mut(address + offset)
    }

    /// Reads memory as the device sees it.
    pub(super) fn read<const N: usize>(&self, iova: u64) -> [u8; N] {
        std::array::from_fn(|at| {
            // SAFETY: a mapped byte, by the contract of `dma_map`.
            unsafe { self.byte(iova + at as u64).read_volatile() }
        })
    }

    /// Writes memory as the device sees it.
    pub(super) fn write(&self, iova: u64, bytes: &[u8]) {
        for (at, byte) in (iova..).zip(bytes) {
            // SAFETY: a mapped byte, by the contract of `dma_map`.
            unsafe { self.byte(at).write_volatile(*byte) };
        }
    }

    /// The address of a slot of the command queue.
    pub(super) fn slot(&self, slot: u32) -> u64 {
        let words = self.words.lock().unwrap();
        let queue = u64::from(words[&0x10]) << 32 | u64::from(words[&0x14] & 0xffff_f000);
        queue + 64 * u64::from(slot)
    }
}

impl Pci for TestPci {
    fn name(&self) -> String {
        "test".into()
    }

    fn config_read(&self, _offset: u16, to: &mut [u8]) -> io::Result<()> {
        to.fill(0);
        Ok(())
    }

    fn config_write(&self, _offset: u16, _from: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn bar_len(&self) -> u64 {
        1 << 20
    }

    fn read_be32(&self, offset: u64) -> io::Result<u32> {
        let words = self.words.lock().unwrap();
        Ok(words.get(&offset).copied().unwrap_or(0))
    }

    fn write_be32(&self, offset: u64, value: u32) -> io::Result<()> {
        if offset == 0x18 {
            let firmware = self.firmware.lock().unwrap().clone();
            firmware(self, value);
        } else {
            let shape = if offset == 0x14 { 0x56 } else { 0 };
            self.set(offset, value | shape);
        }
        Ok(())
    }

    fn map_bar(&self, _offset: u64, _len: usize) -> io::Result<BarMapping> {
        Err(io::Error::from_raw_os_error(libc::ENOTSUP))
    }

    fn iova_ranges(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        Ok(vec![0..=0xfedf_ffff])
    }

    fn mappings_left(&self) -> io::Result<Option<u32>> {
        Ok(None)
    }

    fn iova_page_sizes(&self) -> io::Result<u64> {
        Ok(4096)
    }

    unsafe fn dma_map(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        _writable: bool,
    ) -> io::Result<()> {
        let mut maps = self.maps.lock().unwrap();
        if maps.len() >= *self.limit.lock().unwrap() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        maps.insert(iova, (start.as_ptr().expose_provenance(), len));
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        let gone = self.maps.lock().unwrap().remove(&iova);
        assert_eq!(gone.map(|(_, mapped)| mapped), Some(len));
        Ok(())
    }

    fn vectors(&self) -> u16 {
        1
    }

    fn set_interrupts(&self, _eventfds: &[BorrowedFd<'_>]) -> io::Result<()> {
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        Ok(())
    }
}

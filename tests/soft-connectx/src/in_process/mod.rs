//! The device in the process of its driver: no virtual machine, no privilege, no hardware.
//!
//! [`InProcess`] is a function of PCI Express for the userspace driver of `oxverbs`:
//!
//! ```
//! use oxverbs::Context;
//! use soft_connectx::Config;
//! use soft_connectx::in_process::InProcess;
//!
//! let context = Context::over_pci(InProcess::new(Config::default()))?;
//! assert_eq!(context.query_port(1)?.link_layer, 1);
//! # Ok::<(), oxverbs::Error>(())
//! ```
//!
//! The device runs on a thread of its own. Its doorbell pages are memory, whose stores wake nobody: the thread looks at
//! them, often while there is work and up to a millisecond apart when there is none.

mod bar;
mod link;
mod memory;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use oxverbs::control::vfio::pci::{BarMapping, Pci};
use oxverbs::sys::pages::are_mapped;

use self::bar::Pages;
use self::link::Arrivals;
use self::memory::Mappings;
use crate::memic::Memic;
use crate::uar::{FIRST_PAGE, PAGE_SIZE};
use crate::{BAR0_SIZE, Config, Device, Interrupts, MSIX_VECTORS};

pub use link::Cable;

/// The longest time between two looks.
const REST: Duration = Duration::from_millis(1);
/// After work the thread looks without a pause for so many turns, ..
const SPINS: u32 = 64;
/// .. then lets others run for so many, and only then rests.
const YIELDS: u32 = 512;

/// Interrupts as eventfds.
#[derive(Debug, Default)]
struct Vectors {
    files: Mutex<Vec<File>>,
    /// Interrupts that are lost from now on.
    lost: AtomicBool,
    raised: AtomicU64,
}

/// A device in this process.
pub struct InProcess {
    parts: Arc<Parts>,
    thread: Option<JoinHandle<()>>,
}

/// What the device's thread shares with its driver.
struct Parts {
    name: String,
    device: Mutex<Device>,
    memory: Arc<Mappings>,
    pages: Pages,
    vectors: Arc<Vectors>,
    arrivals: Arc<Arrivals>,
    start: Instant,
    stop: AtomicBool,
}

struct Raiser(Arc<Vectors>);

impl Interrupts for Raiser {
    fn raise(&self, vector: u16) {
        if self.0.lost.load(Ordering::Relaxed) {
            return;
        }
        self.0.raised.fetch_add(1, Ordering::Relaxed);
        let files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut file) = files.get(usize::from(vector)) {
            // A counter that is full wakes whoever waits too.
            let _ = file.write(&1u64.to_ne_bytes());
        }
    }
}

impl InProcess {
    /// A device as it is after power on, with nothing plugged in.
    pub fn new(config: Config) -> Arc<InProcess> {
        let memory = Arc::new(Mappings::default());
        let vectors = Arc::new(Vectors::default());
        let name = format!("soft-connectx-{}", config.serial);
        let raiser = Box::new(Raiser(vectors.clone()));
        let mut device = Device::new(config, memory.clone(), raiser);
        device.watch();
        let parts = Arc::new(Parts {
            name,
            device: Mutex::new(device),
            memory,
            pages: Pages::default(),
            vectors,
            arrivals: Arc::default(),
            start: Instant::now(),
            stop: AtomicBool::new(false),
        });
        let works = parts.clone();
        let thread = thread::Builder::new()
            .name("soft-connectx".into())
            .spawn(move || works.run());
        Arc::new(InProcess {
            parts,
            // Without a thread nothing posted is ever done, which the driver notices as it would a dead device.
            thread: thread.ok(),
        })
    }

    /// Does something to the device, such as to fail it or to cut its link.
    pub fn with<T>(&self, act: impl FnOnce(&mut Device) -> T) -> T {
        act(&mut self.parts.lock())
    }

    /// Loses all interrupts from now on, or none.
    pub fn lose_interrupts(&self, lost: bool) {
        self.parts.vectors.lost.store(lost, Ordering::Relaxed);
    }

    /// Interrupts that were raised and not lost.
    pub fn interrupts(&self) -> u64 {
        self.parts.vectors.raised.load(Ordering::Relaxed)
    }

    /// Ranges of the process' memory that are mapped for the device.
    pub fn mappings(&self) -> usize {
        self.parts.memory.count()
    }

    /// Doorbell pages that are mapped into the process.
    pub fn mapped_pages(&self) -> usize {
        self.parts.pages.count()
    }

    fn arrivals(&self) -> &Arc<Arrivals> {
        &self.parts.arrivals
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.parts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A device that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InProcess").field(&self.parts.name).finish()
    }
}

impl Parts {
    fn lock(&self) -> std::sync::MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device, unless its model has panicked: then it is gone.
    fn device(&self) -> io::Result<std::sync::MutexGuard<'_, Device>> {
        let gone = |_| io::Error::other("the device model has panicked");
        self.device.lock().map_err(gone)
    }

    /// One turn: whether there was something to do, and when there will be.
    fn work(
        &self,
        device: &mut Device,
        records: &mut Records,
        now: Duration,
    ) -> (bool, Option<Duration>) {
        let frames = self.arrivals.take();
        // A device that failed touches no memory: its driver frees what it cannot take back, and nothing is pinned here.
        if device.segment.failed() {
            return (false, None);
        }
        for frame in &frames {
            device.receive(frame);
        }
        let rung = self
            .pages
            .take(|page, register, bytes| device.rung(page, register, bytes));
        let some = records.look(rung, device) || rung || !frames.is_empty();
        (some, device.tick(now))
    }

    fn run(&self) {
        let mut records = Records::default();
        let mut idle = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.start.elapsed();
            let (some, next) = {
                let Ok(mut device) = self.device.lock() else {
                    return;
                };
                self.work(&mut device, &mut records, now)
            };
            idle = if some { 0 } else { idle.saturating_add(1) };
            if idle < SPINS {
                std::hint::spin_loop();
            } else if idle < SPINS + YIELDS {
                thread::yield_now();
            } else {
                let due = next.map_or(REST, |next| next.saturating_sub(now));
                if due.is_zero() {
                    thread::yield_now();
                } else {
                    thread::park_timeout(due.min(REST));
                }
            }
        }
    }
}

/// When doorbell records are looked at: after every ring, which may hide another one, and from time to time; but not so often
/// that thousands of queues leave no time for work.
#[derive(Debug, Default)]
struct Records {
    wanted: bool,
    next: Option<Instant>,
}

impl Records {
    fn look(&mut self, rung: bool, device: &mut Device) -> bool {
        self.wanted |= rung;
        let now = Instant::now();
        let idle = self.next.is_none_or(|next| now >= next + REST);
        if !(idle || self.wanted && self.next.is_none_or(|next| now >= next)) {
            return false;
        }
        self.wanted = false;
        let some = device.look_at_records();
        let done = Instant::now();
        self.next = Some(done + 3 * (done - now));
        some
    }
}

impl Pci for InProcess {
    fn name(&self) -> String {
        self.parts.name.clone()
    }

    fn config_read(&self, offset: u16, to: &mut [u8]) -> io::Result<()> {
        self.parts.device()?.config_read(offset.into(), to);
        Ok(())
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> io::Result<()> {
        self.parts.device()?.config_write(offset.into(), from);
        Ok(())
    }

    fn bar_len(&self) -> u64 {
        BAR0_SIZE
    }

    fn read_be32(&self, offset: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        let mut device = self.parts.device()?;
        // The timer is one of the registers, and the device's thread may not have had a turn for a while.
        device.now = device.now.max(self.parts.start.elapsed());
        device.bar_read(offset, &mut bytes);
        Ok(u32::from_be_bytes(bytes))
    }

    fn write_be32(&self, offset: u64, value: u32) -> io::Result<()> {
        self.parts.device()?.bar_write(offset, &value.to_be_bytes());
        Ok(())
    }

    fn write_be64(&self, offset: u64, value: u64) -> io::Result<()> {
        self.parts.device()?.bar_write(offset, &value.to_be_bytes());
        Ok(())
    }

    fn map_bar(&self, offset: u64, len: usize) -> io::Result<BarMapping> {
        let doorbells = offset.is_multiple_of(PAGE_SIZE)
            && len as u64 == PAGE_SIZE
            && (FIRST_PAGE * PAGE_SIZE..=BAR0_SIZE - PAGE_SIZE).contains(&offset)
            && !Memic::has(offset);
        if !doorbells {
            let what = "only single doorbell pages are memory in process";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Ok(self.parts.pages.map((offset / PAGE_SIZE) as u32))
    }

    fn iova_ranges(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        // As on x86, where interrupt messages have a window.
        Ok(vec![0..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff])
    }

    fn mappings_left(&self) -> io::Result<Option<u32>> {
        Ok(None)
    }

    fn iova_page_sizes(&self) -> io::Result<u64> {
        Ok(1 << 12 | 1 << 21 | 1 << 30)
    }

    unsafe fn dma_map(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        writable: bool,
    ) -> io::Result<()> {
        if len == 0 || !iova.is_multiple_of(PAGE_SIZE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // As the kernel does, which pins the pages: a program that names others learns it now.
        are_mapped(start, len)?;
        // SAFETY: the caller vouches for the memory.
        match unsafe { self.parts.memory.map(iova, start, len, writable) } {
            true => Ok(()),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        match self.parts.memory.unmap(iova, len) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn vectors(&self) -> u16 {
        MSIX_VECTORS
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let files = eventfds.iter().map(|fd| fd.try_clone_to_owned());
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let mut place = (self.parts.vectors.files.lock()).unwrap_or_else(PoisonError::into_inner);
        *place = files.into_iter().map(File::from).collect();
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        self.parts.device()?.reset();
        Ok(())
    }
}

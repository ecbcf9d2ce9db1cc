//! Doorbell registers: who gets which, and what happens when they run out.
//!
//! The device has pages of registers (UARs, "user access regions"). Of the four registers in 4 KiB, two
//! are for everyone, at 0x800 and one register's size behind. Kernels since 5.7 make a page when asked
//! (an object of the uverbs file); older ones give a fixed number of registers with the context and say
//! for each queue pair which one it uses.
//!
//! The first queue pairs get a register of their own; the others share what is left, with a lock. A page
//! of plain uncached memory, in which eight bytes at a time are stored and nothing has to be locked,
//! serves completion queues, and queue pairs when there is nothing else: no queue pair fails for want of
//! a register, and none shares one silently.

use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::environment::{BFREGS_PER_UAR, UAR_SIZE};
use crate::control::vfio::pci::BarMapping;
use crate::data::mlx5::{BlueFlame, KeepAlive, Register, Sharing};
use crate::sys::errno::Errno;
use crate::sys::mapping::SharedMapping;

/// Where the registers of a UAR begin (PRM, "UAR Page Format").
const FIRST_BFREG: usize = 0x800;
/// Registers of a UAR, with those that are not for everyone.
const ALL_BFREGS_PER_UAR: u32 = 4;

/// A mapped page of UARs.
#[derive(Debug)]
pub struct UarPage {
    /// Its memory, a page of the system.
    pub mapping: PageMemory,
    /// Number of its first UAR, or of the page among those that came with the context.
    pub number: u32,
    /// Where it is mapped from the device's file.
    pub mmap_offset: u64,
    /// What has to live as long (the kernel's object).
    pub object: Option<KeepAlive>,
}

/// What a page was mapped from.
#[derive(Debug)]
pub enum PageMemory {
    /// The kernel's file.
    Kernel(SharedMapping),
    /// A function that this process drives.
    Bar(BarMapping),
}

impl PageMemory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Kernel(mapping) => mapping.start(),
            Self::Bar(mapping) => mapping.start(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Kernel(mapping) => mapping.len(),
            Self::Bar(mapping) => mapping.len(),
        }
    }
}

impl From<SharedMapping> for PageMemory {
    fn from(mapping: SharedMapping) -> Self {
        Self::Kernel(mapping)
    }
}

impl UarPage {
    /// Start of a register. `register_size` counts within a UAR.
    fn register(&self, uar: u32, index: u32, register_size: u32) -> Option<NonNull<u8>> {
        let offset =
            uar as usize * UAR_SIZE + FIRST_BFREG + index as usize * register_size as usize;
        let end = offset + (register_size as usize).max(8);
        (end <= self.mapping.len()).then(|| {
            // SAFETY: the register lies within the mapping, as just checked.
            unsafe { self.mapping.start().add(offset) }
        })
    }
}

/// What a new page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Write-combining, for BlueFlame.
    BlueFlame,
    /// Uncached, for doorbells only.
    NonCached,
    /// The kernel's second kind for thread domains, from before there were objects: further registers
    /// beyond those of the context.
    LegacyExtra(u32),
}

/// Makes pages: the kernel, or a test.
pub trait PageSource: Send + Sync + fmt::Debug {
    /// A new page.
    fn page(&self, kind: PageKind) -> Result<UarPage, Errno>;
}

/// What the registers of a context are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a register, both halves (`bf_reg_size`); 0 without BlueFlame.
    pub register_size: u32,
    /// UARs in a page of the system.
    pub uars_per_page: u32,
    /// When work requests are copied into registers.
    pub blue_flame: BlueFlame,
    /// Whether the program vouches for one thread at a time.
    pub single_threaded: bool,
}

impl Layout {
    fn sharing(&self) -> Sharing {
        if self.single_threaded {
            Sharing::OneThread
        } else {
            Sharing::Locked
        }
    }

    fn blue_flame_is_on(&self) -> bool {
        self.blue_flame != BlueFlame::Off && self.register_size != 0
    }
}

/// How the kernel is told about a register, in the request for a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BfregIndex {
    /// The kernel chooses; its response says what.
    Kernel,
    /// A page of UAR objects (`MLX5_QP_FLAG_UAR_PAGE_INDEX`).
    Page(u32),
    /// One of the further registers (`MLX5_QP_FLAG_BFREG_INDEX`).
    Extra(u32),
}

/// A register for one queue pair.
///
/// A dedicated one goes back to the pool with the register, wherever that is by then, so that nobody
/// gets it while a queue still rings there. The uses of a shared one are counted by leases.
#[derive(Debug)]
pub struct Lease {
    index: BfregIndex,
    register: Option<Register>,
    counted: Option<Counted>,
}

/// One use of a shared register.
#[derive(Debug)]
pub(super) struct Counted {
    uars: Arc<Uars>,
    /// Place in the list of shared ones.
    place: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.uars.state().shared[self.place].uses -= 1;
    }
}

/// Gives a register back when the last queue that rings there is gone.
#[derive(Debug)]
struct Return {
    uars: Arc<Uars>,
    slot: Slot,
    to: List,
}

#[derive(Clone, Copy, Debug)]
enum List {
    Dedicated,
    ThreadDomains,
}

impl Drop for Return {
    fn drop(&mut self) {
        let mut state = self.uars.state();
        let list = match self.to {
            List::Dedicated => &mut state.dedicated,
            List::ThreadDomains => &mut state.free,
        };
        list.push_back(self.slot.clone());
    }
}

impl Lease {
    /// How to name it to the kernel.
    pub fn index(&self) -> BfregIndex {
        self.index
    }

    /// The register, once. The kernel's answer says which one it is where it chose.
    pub fn register(&mut self, uars: &Uars, answered: u32) -> Result<Register, Errno> {
        match self.index {
            BfregIndex::Kernel => uars.static_register(answered),
            _ => self.register.take().ok_or(Errno(libc::EBUSY)),
        }
    }

    /// What counts the use of a shared register, when the rest is used up.
    pub(super) fn into_counted(self) -> Option<Counted> {
        self.counted
    }
}

/// One register of a page.
#[derive(Clone, Debug)]
struct Slot {
    base: NonNull<u8>,
    /// Bytes of a half; 0 if eight bytes are all that may be stored.
    half: u32,
    index: BfregIndex,
    page: Arc<UarPage>,
}

// SAFETY: the register is the process's, not a thread's; the value gives out a raw pointer only.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    fn register(&self, blue_flame: BlueFlame, sharing: Sharing) -> Register {
        self.register_with(blue_flame, sharing, Box::new(self.page.clone()))
    }

    /// A register that goes back to a list when it is gone.
    fn returning(
        &self,
        uars: &Arc<Uars>,
        blue_flame: BlueFlame,
        sharing: Sharing,
        to: List,
    ) -> Register {
        let guard = Return {
            uars: uars.clone(),
            slot: self.clone(),
            to,
        };
        self.register_with(blue_flame, sharing, Box::new(guard))
    }

    /// `memory` keeps the page.
    fn register_with(
        &self,
        blue_flame: BlueFlame,
        sharing: Sharing,
        memory: KeepAlive,
    ) -> Register {
        // A slot is used by one register at a time, its shares included: `Uars` gives a dedicated one out once
        // and has it back when the register is gone, and makes one register for a shared one. One without
        // halves takes single stores of eight bytes only, which do not disturb each other.
        // SAFETY: both halves are within the page, checked where the slot was made, and the page lives as long
        // as `memory`. Nobody else stores there, as above; for `OneThread` the program gave its word.
        unsafe { Register::new(self.base, self.half, blue_flame, sharing, Some(memory)) }
    }
}

#[derive(Debug)]
struct SharedSlot {
    register: Register,
    index: BfregIndex,
    uses: u32,
}

/// The registers of a context.
#[derive(Debug)]
pub struct Uars {
    layout: Layout,
    mode: Mode,
    source: Box<dyn PageSource>,
    /// The page of completion queues' doorbells, and of queue pairs without BlueFlame.
    common: Slot,
    state: Mutex<State>,
}

#[derive(Debug)]
enum Mode {
    /// Pages are made on demand.
    Dynamic {
        most_dedicated: u32,
        most_shared: u32,
    },
    /// Registers came with the context.
    Static {
        pages: Vec<Arc<UarPage>>,
        /// Registers from this number on are for one queue pair each. Counted without those that are
        /// not for everyone.
        first_low_latency: u32,
        most_extra_pages: u32,
    },
}

#[derive(Debug, Default)]
struct State {
    dedicated: VecDeque<Slot>,
    dedicated_made: u32,
    shared: Vec<SharedSlot>,
    /// For thread domains.
    free: VecDeque<Slot>,
    /// Whether the kernel or the machine has no write-combining memory.
    no_write_combining: bool,
    extra_pages: u32,
    /// Registers that the kernel gives to several queue pairs, by number.
    known: Vec<(u32, Register)>,
    /// Pages that were made on demand: start, bytes, and where they are mapped from.
    made: Vec<(usize, usize, u64)>,
}

impl Uars {
    /// For a kernel that makes UAR objects. Of `total` registers, `low_latency` ones get one queue pair
    /// each.
    pub fn dynamic(
        layout: Layout,
        total: u32,
        low_latency: u32,
        source: Box<dyn PageSource>,
    ) -> Result<Arc<Self>, Errno> {
        // either kind does where eight bytes are stored at a time
        let page = source
            .page(PageKind::NonCached)
            .or_else(|errno| source.page(PageKind::BlueFlame).map_err(|_| errno))?;
        Ok(Arc::new(Self {
            common: Self::common(page)?,
            layout,
            mode: Mode::Dynamic {
                most_dedicated: low_latency,
                most_shared: total - low_latency,
            },
            source,
            state: Mutex::default(),
        }))
    }

    /// For a kernel that gave `total` registers with the context, on these pages. The first page is not
    /// missing.
    pub fn with_context(
        layout: Layout,
        total: u32,
        low_latency: u32,
        pages: Vec<UarPage>,
        extra_registers: u32,
        source: Box<dyn PageSource>,
    ) -> Result<Arc<Self>, Errno> {
        let pages: Vec<_> = pages.into_iter().map(Arc::new).collect();
        let first = pages.first().ok_or(Errno(libc::EIO))?;
        let per_page = layout.uars_per_page * BFREGS_PER_UAR;
        Ok(Arc::new(Self {
            common: Slot {
                base: first.register(0, 0, 0).ok_or(Errno(libc::EIO))?,
                half: 0,
                index: BfregIndex::Kernel,
                page: first.clone(),
            },
            mode: Mode::Static {
                first_low_latency: total.saturating_sub(low_latency),
                most_extra_pages: extra_registers.checked_div(per_page).unwrap_or(0),
                pages,
            },
            layout,
            source,
            state: Mutex::default(),
        }))
    }

    fn common(page: UarPage) -> Result<Slot, Errno> {
        Ok(Slot {
            base: page.register(0, 0, 0).ok_or(Errno(libc::EIO))?,
            half: 0,
            index: BfregIndex::Page(page.number),
            page: Arc::new(page),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start of the page where completion queues are armed, with its number for the kernel (none where
    /// it came with the context), and what keeps it.
    pub fn cq_page(&self) -> (NonNull<u8>, Option<u32>, KeepAlive) {
        let number = match self.common.index {
            BfregIndex::Page(number) => Some(number),
            _ => None,
        };
        let start = self.common.page.mapping.start();
        (start, number, Box::new(self.common.page.clone()))
    }

    /// Where the page of a register is mapped from the device's file.
    pub fn mmap_offset(&self, register: &Register) -> Option<u64> {
        let address = register.base().as_ptr().addr();
        let came: &[_] = match &self.mode {
            Mode::Dynamic { .. } => &[],
            Mode::Static { pages, .. } => pages,
        };
        let came = came.iter().chain([&self.common.page]).map(|page| {
            let start = page.mapping.start().as_ptr().addr();
            (start, page.mapping.len(), page.mmap_offset)
        });
        let made = self.state().made.clone();
        came.chain(made)
            .find(|(start, len, _)| (*start..start + len).contains(&address))
            .map(|(_, _, offset)| offset)
    }

    /// A register for a queue pair.
    pub fn lease(self: &Arc<Self>) -> Lease {
        let Mode::Dynamic {
            most_dedicated,
            most_shared,
        } = self.mode
        else {
            return Lease {
                index: BfregIndex::Kernel,
                register: None,
                counted: None,
            };
        };
        if !self.layout.blue_flame_is_on() {
            return self.without_blue_flame();
        }
        let mut state = self.state();
        if state.dedicated.is_empty()
            && state.dedicated_made < most_dedicated
            && let Some(slots) = self.make(&mut state, PageKind::BlueFlame)
        {
            state.dedicated_made += slots.len() as u32;
            state.dedicated.extend(slots);
        }
        if let Some(slot) = state.dedicated.pop_front() {
            let register = slot.returning(
                self,
                self.layout.blue_flame,
                Sharing::Exclusive,
                List::Dedicated,
            );
            return Lease {
                index: slot.index,
                register: Some(register),
                counted: None,
            };
        }
        if (state.shared.len() as u32) < most_shared
            && let Some(slots) = self.make(&mut state, PageKind::BlueFlame)
        {
            let shared = slots.iter().map(|slot| SharedSlot {
                register: slot.register(self.layout.blue_flame, self.layout.sharing()),
                index: slot.index,
                uses: 0,
            });
            state.shared.extend(shared);
        }
        self.shared(&mut state)
            .unwrap_or_else(|| self.without_blue_flame())
    }

    /// The shared register that the fewest queue pairs use.
    fn shared(self: &Arc<Self>, state: &mut State) -> Option<Lease> {
        let (place, slot) = state
            .shared
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, slot)| slot.uses)?;
        let register = slot.register.share()?;
        slot.uses += 1;
        Some(Lease {
            index: slot.index,
            register: Some(register),
            counted: Some(Counted {
                uars: self.clone(),
                place,
            }),
        })
    }

    /// The register of all those that have no other.
    fn without_blue_flame(&self) -> Lease {
        Lease {
            index: self.common.index,
            register: Some(self.common.register(BlueFlame::Off, Sharing::Exclusive)),
            counted: None,
        }
    }

    /// The registers of a new page; none if there is no such page any more.
    fn make(&self, state: &mut State, kind: PageKind) -> Option<Vec<Slot>> {
        if state.no_write_combining {
            return None;
        }
        let page = match self.source.page(kind) {
            Ok(page) => Arc::new(page),
            Err(errno) => {
                // a machine without write-combining mappings; other errors may pass
                state.no_write_combining = matches!(errno.0, libc::EOPNOTSUPP | libc::EPERM);
                return None;
            }
        };
        let start = page.mapping.start().as_ptr().addr();
        let made = (start, page.mapping.len(), page.mmap_offset);
        state.made.push(made);
        let size = self.layout.register_size;
        let slots: Vec<_> = (0..self.layout.uars_per_page)
            .flat_map(|uar| (0..BFREGS_PER_UAR).map(move |index| (uar, index)))
            .filter_map(|(uar, index)| {
                Some(Slot {
                    base: page.register(uar, index, size)?,
                    half: size / 2,
                    index: match kind {
                        PageKind::LegacyExtra(pages) => BfregIndex::Extra(
                            (pages * self.layout.uars_per_page + uar) * BFREGS_PER_UAR + index,
                        ),
                        _ => BfregIndex::Page(page.number.checked_add(uar)?),
                    },
                    page: page.clone(),
                })
            })
            .collect();
        (!slots.is_empty()).then_some(slots)
    }

    /// The register that the kernel chose, by its number among all of those that came with the context.
    fn static_register(&self, number: u32) -> Result<Register, Errno> {
        let Mode::Static {
            pages,
            first_low_latency,
            ..
        } = &self.mode
        else {
            return Err(Errno(libc::EIO));
        };
        let uar = number / ALL_BFREGS_PER_UAR;
        let index = number % ALL_BFREGS_PER_UAR;
        let page = pages
            .get(uar.checked_div(self.layout.uars_per_page).unwrap_or(0) as usize)
            .ok_or(Errno(libc::EIO))?;
        let size = self.layout.register_size;
        let base = page
            .register(uar % self.layout.uars_per_page.max(1), index, size)
            .ok_or(Errno(libc::EIO))?;
        let slot = Slot {
            base,
            // the first one is for everyone and without a lock: doorbells only
            half: if number == 0 { 0 } else { size / 2 },
            index: BfregIndex::Kernel,
            page: page.clone(),
        };
        if number == 0 || size == 0 {
            return Ok(slot.register(BlueFlame::Off, Sharing::Exclusive));
        }
        if number / 2 + number % 2 >= *first_low_latency {
            return Ok(slot.register(self.layout.blue_flame, Sharing::Exclusive));
        }
        let mut state = self.state();
        let register = match state.known.iter().find(|(known, _)| *known == number) {
            Some((_, register)) => register.share(),
            None => {
                let register = slot.register(self.layout.blue_flame, self.layout.sharing());
                let share = register.share();
                state.known.push((number, register));
                share
            }
        };
        register.ok_or(Errno(libc::EIO))
    }

    /// A register for the queue pairs of a thread domain, which are all used by one thread at a time.
    pub fn thread_domain(self: &Arc<Self>) -> ThreadRegister {
        let mut state = self.state();
        if state.free.is_empty() && self.layout.blue_flame_is_on() {
            let kind = match self.mode {
                Mode::Dynamic { .. } => Some(PageKind::BlueFlame),
                Mode::Static {
                    most_extra_pages, ..
                } => (state.extra_pages < most_extra_pages)
                    .then_some(PageKind::LegacyExtra(state.extra_pages)),
            };
            if let Some(kind) = kind
                && let Some(slots) = self.make(&mut state, kind)
            {
                if let PageKind::LegacyExtra(_) = kind {
                    state.extra_pages += 1;
                }
                state.free.extend(slots);
            }
        }
        let own = state.free.pop_front().map(|slot| {
            let register = slot.returning(
                self,
                self.layout.blue_flame,
                Sharing::OneThread,
                List::ThreadDomains,
            );
            (slot.index, Mutex::new(register))
        });
        ThreadRegister {
            own,
            uars: self.clone(),
        }
    }
}

/// The register of a thread domain.
#[derive(Debug)]
pub struct ThreadRegister {
    /// Without one, the queue pairs take what others take.
    own: Option<(BfregIndex, Mutex<Register>)>,
    uars: Arc<Uars>,
}

impl ThreadRegister {
    /// The domain's register for one more queue pair.
    pub fn lease(&self) -> Lease {
        let Some((index, register)) = &self.own else {
            return self.uars.lease();
        };
        let register = register.lock().unwrap_or_else(PoisonError::into_inner);
        Lease {
            index: *index,
            register: register.share(),
            counted: None,
        }
    }

    /// Whether the domain has a register of its own.
    pub fn is_dedicated(&self) -> bool {
        self.own.is_some()
    }
}

#[cfg(test)]
#[path = "uar_tests.rs"]
mod tests;

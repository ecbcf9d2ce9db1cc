//! Registers against pages that a test gives out.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sys::fd::UverbsFd;
use crate::sys::kernel::KernelRef;
use crate::sys::pages::page_size;

/// Gives out pages until there are no more.
#[derive(Debug)]
struct Pages {
    fd: UverbsFd,
    /// Number of the next page.
    next: AtomicU32,
    /// Write-combining pages left.
    left: AtomicU32,
    /// What a missing one is answered with.
    errno: i32,
    asked: AtomicU32,
}

impl Pages {
    fn new(first: u32, left: u32, errno: i32) -> Arc<Self> {
        // SAFETY: a NUL-terminated name and no flags.
        let raw = unsafe { libc::memfd_create(c"uar".as_ptr(), 0) };
        // SAFETY: an ordinary system call on our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(raw, 1 << 24) }, 0);
        Arc::new(Self {
            fd: UverbsFd::owned(KernelRef::Linux, raw),
            next: AtomicU32::new(first),
            left: AtomicU32::new(left),
            errno,
            asked: AtomicU32::new(0),
        })
    }

    fn map(&self, number: u32) -> UarPage {
        let len = page_size();
        let offset = u64::from(number % 256) * len as u64;
        UarPage {
            mmap_offset: 0,
            mapping: SharedMapping::map(&self.fd, len, offset).unwrap().into(),
            number,
            object: None,
        }
    }
}

#[derive(Debug)]
struct Source(Arc<Pages>);

impl PageSource for Source {
    fn page(&self, kind: PageKind) -> Result<UarPage, Errno> {
        let pages = &self.0;
        pages.asked.fetch_add(1, Ordering::Relaxed);
        if kind != PageKind::NonCached {
            let left = pages.left.load(Ordering::Relaxed);
            pages.left.store(
                left.checked_sub(1).ok_or(Errno(pages.errno))?,
                Ordering::Relaxed,
            );
        }
        Ok(pages.map(pages.next.fetch_add(1, Ordering::Relaxed)))
    }
}

fn layout() -> Layout {
    Layout {
        register_size: 512,
        uars_per_page: 1,
        blue_flame: BlueFlame::Always,
        single_threaded: false,
    }
}

fn dynamic(pages: &Arc<Pages>, layout: Layout) -> Arc<Uars> {
    Uars::dynamic(layout, 16, 4, Box::new(Source(pages.clone()))).unwrap()
}

/// Offset of a register in its page, and the page.
fn place(register: &Register) -> (usize, usize) {
    let address = register.base().addr().get();
    (address % page_size(), address / page_size())
}

/// B53: queue pairs get registers of their own, then shared ones with a lock, and no two of them ever
/// the same one without.
#[test]
fn registers_are_dedicated_then_shared() {
    let uars = dynamic(&Pages::new(0, 100, 0), layout());
    let mut leases: Vec<_> = (0..40).map(|_| uars.lease()).collect();
    let mut registers: Vec<_> = leases
        .iter_mut()
        .map(|lease| lease.register(&uars, 0).unwrap())
        .collect();
    // page 0 is the common one, a register's halves are 256 bytes each
    assert_eq!(leases[0].index(), BfregIndex::Page(1));
    assert_eq!(place(&registers[0]).0, 0x800);
    assert_eq!(place(&registers[1]).0, 0xa00);
    assert!(registers.iter().all(|register| register.half() == 256));
    let (own, shared) = registers.split_at_mut(4);
    assert!(own.iter().all(|register| register.share().is_none()));
    assert!(shared.iter().all(|register| register.share().is_some()));
    let own: HashSet<_> = own.iter().map(place).collect();
    let places: HashSet<_> = shared.iter().map(place).collect();
    assert_eq!((own.len(), places.len()), (4, 12));
    assert!(own.is_disjoint(&places));
    // 36 queue pairs share 12 registers evenly
    assert!(uars.state().shared.iter().all(|slot| slot.uses == 3));
    drop(registers);
    drop(leases);
    assert!(uars.state().shared.iter().all(|slot| slot.uses == 0));
    assert_eq!(uars.state().dedicated.len(), 4);
}

#[test]
fn a_dedicated_register_comes_back() {
    let uars = dynamic(&Pages::new(0, 100, 0), layout());
    let mut all: Vec<_> = (0..4).map(|_| uars.lease()).collect();
    let mut gone = all.remove(2);
    let index = gone.index();
    // the register is what counts: as long as a queue has it, nobody else gets it
    let register = gone.register(&uars, 0).unwrap();
    drop(gone);
    assert_ne!(uars.lease().index(), index);
    drop(register);
    let mut again = uars.lease();
    assert_eq!(again.index(), index);
    assert!(again.register(&uars, 0).unwrap().share().is_none());
    // there is one register in a lease
    assert!(again.register(&uars, 0).is_err());
}

/// B53: where pages run out, queue pairs share what there is, or ring without BlueFlame; none fails.
#[test]
fn running_out_degrades() {
    for left in 0..6 {
        let uars = dynamic(&Pages::new(0, left, libc::ENOSPC), layout());
        let mut exclusive = HashSet::new();
        let mut leases: Vec<_> = (0..20).map(|_| uars.lease()).collect();
        for lease in &mut leases {
            let register = lease.register(&uars, 0).unwrap();
            if register.half() == 0 {
                assert_eq!(lease.index(), BfregIndex::Page(0));
            } else if register.share().is_none() {
                assert!(exclusive.insert(place(&register)));
            }
        }
        assert_eq!(exclusive.len() as u32, (left * 2).min(4));
    }
}

/// B55: where write-combining memory cannot be mapped, the uncached page serves, and is not tried to be
/// replaced every time.
#[test]
fn without_write_combining_doorbells_still_ring() {
    let pages = Pages::new(7, 0, libc::EOPNOTSUPP);
    let uars = dynamic(&pages, layout());
    for _ in 0..5 {
        let mut lease = uars.lease();
        assert_eq!(lease.index(), BfregIndex::Page(7));
        let register = lease.register(&uars, 0).unwrap();
        assert_eq!((register.half(), place(&register).0), (0, 0x800));
    }
    assert!(!uars.thread_domain().is_dedicated());
    assert_eq!(pages.asked.load(Ordering::Relaxed), 2);
    // a device without BlueFlame, and a program that does not want it, never ask
    for layout in [
        Layout {
            register_size: 0,
            ..layout()
        },
        Layout {
            blue_flame: BlueFlame::Off,
            ..layout()
        },
    ] {
        let pages = Pages::new(0, 10, 0);
        let uars = dynamic(&pages, layout);
        assert_eq!(uars.lease().index(), BfregIndex::Page(0));
        assert_eq!(pages.asked.load(Ordering::Relaxed), 1);
    }
}

/// B55: page numbers of more than 16 bits stay whole.
#[test]
fn large_page_numbers_are_not_cut() {
    for first in [0xffff, 0x1_0000, 0xff_ffff] {
        let uars = dynamic(&Pages::new(first, 10, 0), layout());
        assert_eq!(uars.cq_page().1, Some(first));
        assert_eq!(uars.lease().index(), BfregIndex::Page(first + 1));
    }
}

/// B53: the queue pairs of a thread domain share one register without a lock, which nobody else gets.
#[test]
fn thread_domains_have_their_own() {
    let uars = dynamic(&Pages::new(0, 100, 0), layout());
    let domains = [uars.thread_domain(), uars.thread_domain()];
    let mut seen = HashSet::new();
    for domain in &domains {
        let mut leases = [domain.lease(), domain.lease()];
        let places = leases
            .each_mut()
            .map(|lease| place(&lease.register(&uars, 0).unwrap()));
        assert_eq!(places[0], places[1]);
        assert!(seen.insert(places[0]));
    }
    let mut other = uars.lease();
    assert!(!seen.contains(&place(&other.register(&uars, 0).unwrap())));
    drop(domains);
    assert_eq!(uars.state().free.len(), 2);
    assert!(uars.thread_domain().is_dedicated());
}

fn with_context(low_latency: u32, layout: Layout) -> (Arc<Uars>, Arc<Pages>) {
    let pages = Pages::new(0, 100, 0);
    let given = (0..8).map(|number| pages.map(number)).collect();
    let source = Box::new(Source(pages.clone()));
    let uars = Uars::with_context(layout, 16, low_latency, given, 4, source).unwrap();
    (uars, pages)
}

/// B55: registers that came with the context have the lock that their number says.
#[test]
fn registers_of_older_kernels() {
    let (uars, pages) = with_context(4, layout());
    assert_eq!(uars.cq_page().1, None);
    let get = |number| {
        let mut lease = uars.lease();
        assert_eq!(lease.index(), BfregIndex::Kernel);
        lease.register(&uars, number)
    };
    // the first one takes doorbells of everyone
    assert_eq!(get(0).unwrap().half(), 0);
    // the kernel counts four registers in a UAR
    for (number, offset) in [(1, 0xa00), (4, 0x800), (5, 0xa00), (29, 0xa00)] {
        let register = get(number).unwrap();
        assert_eq!((place(&register).0, register.half()), (offset, 256));
    }
    // of 16 registers the last four, from number 12 on, are for one queue pair
    assert!(get(21).unwrap().share().is_some());
    assert!(get(24).unwrap().share().is_none());
    let one = get(5).unwrap();
    assert!(one.shares(&get(5).unwrap()));
    // no such register
    for number in [2, 3]
        .map(|index| 32 + index)
        .into_iter()
        .chain([32, u32::MAX])
    {
        assert_eq!(get(number).unwrap_err(), Errno(libc::EIO));
    }
    assert_eq!(pages.asked.load(Ordering::Relaxed), 0);
    // thread domains get further pages, as many as the kernel said
    let domains: Vec<_> = (0..5).map(|_| uars.thread_domain()).collect();
    let indices: Vec<_> = domains
        .iter()
        .map(|domain| domain.lease().index())
        .collect();
    assert_eq!(indices[..4], [0, 1, 2, 3].map(BfregIndex::Extra));
    assert_eq!(indices[4], BfregIndex::Kernel);
}

/// B55: with all registers but the first low-latency ones, register 1 needs no lock.
#[test]
fn all_registers_of_low_latency() {
    let (uars, _) = with_context(15, layout());
    assert!(uars.lease().register(&uars, 1).unwrap().share().is_none());
}

/// B55: pages of 64 KiB have sixteen UARs. (The test's pages are the system's, so only what lies in
/// them is found.)
#[test]
fn registers_outside_of_the_page_are_not_given_out() {
    let large = Layout {
        uars_per_page: 16,
        ..layout()
    };
    let uars = dynamic(&Pages::new(0, 100, 0), large);
    let mut leases: Vec<_> = (0..40).map(|_| uars.lease()).collect();
    for lease in &mut leases {
        let register = lease.register(&uars, 0).unwrap();
        assert!(place(&register).0 + 2 * register.half() as usize <= page_size());
    }
}

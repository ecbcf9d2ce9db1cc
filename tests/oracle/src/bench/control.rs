//! What objects cost: calls to the kernel and instructions of the program to make, connect and destroy them, and their
//! memory. The fake kernel's own instructions and memory are left out.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use anyhow::Result;
use fake_kernel::FakeKernel;

use super::figure::Figures;
use super::fleet::Fleet;
use crate::trace;

/// Objects of a kind whose memory is divided by their number: pages that several share count for each in part.
const MANY: usize = 256;

/// Whether the heap is watched, which makes calls slow.
static WATCHES_HEAP: AtomicBool = AtomicBool::new(false);
/// Bytes of the heap when the fake kernel was entered.
static BEFORE: AtomicIsize = AtomicIsize::new(0);
/// Bytes that the fake kernel has allocated itself.
static KERNELS: AtomicIsize = AtomicIsize::new(0);

/// Bytes that libc's allocator has given, whoever asked.
fn heap() -> isize {
    // SAFETY: no argument.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd).cast_signed()
}

/// At the door of the fake kernel.
fn watcher(enters: bool) {
    if enters {
        trace::pause(true);
    }
    if WATCHES_HEAP.load(Ordering::Relaxed) {
        match enters {
            true => BEFORE.store(heap(), Ordering::Relaxed),
            false => {
                KERNELS.fetch_add(heap() - BEFORE.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
    if !enters {
        trace::pause(false);
    }
}

/// Bytes of the process without those of the fake kernel: of the heap, and mapped.
fn memory() -> (isize, isize) {
    (
        heap() - KERNELS.load(Ordering::Relaxed),
        fake_kernel_preload::mapped(),
    )
}

type Call = fn(&mut dyn Fleet) -> Result<()>;

/// Calls, in the order in which they are made.
const CALLS: [(&str, Call); 5] = [
    ("create a CQ", |fleet| fleet.make_cq()),
    ("create a QP", |fleet| fleet.make()),
    ("connect a QP, RESET to RTS", |fleet| fleet.connect()),
    ("destroy a QP", |fleet| fleet.unmake()),
    ("destroy a CQ", |fleet| fleet.unmake_cq()),
];

/// Measures all; the fleets are left as they were.
///
/// # Errors
///
/// An object cannot be had.
pub fn run(
    kernel: &FakeKernel,
    fleets: &mut [&mut dyn Fleet],
    figures: &mut Figures,
) -> Result<()> {
    fake_kernel_preload::watch(watcher);
    figures.section("making and destroying objects");
    for fleet in fleets.iter_mut() {
        // The first round warms up: what is made once is no object's.
        let mut counts = [(0, 0); CALLS.len()];
        for _ in 0..2 {
            for ((_, call), counted) in CALLS.iter().zip(&mut counts) {
                let calls = kernel.calls();
                let mut result = Ok(());
                let trace = trace::run(&[], false, &mut || result = call(&mut **fleet));
                result?;
                *counted = (
                    trace.instructions,
                    kernel.calls() - calls + trace.system_calls,
                );
            }
        }
        for ((case, _), (instructions, calls)) in CALLS.iter().zip(counts) {
            figures.add(case, "kernel calls", fleet.name(), calls as f64);
            figures.add(case, "instructions", fleet.name(), instructions as f64);
        }
    }
    figures.section("memory of an object, bytes");
    for fleet in fleets.iter_mut() {
        WATCHES_HEAP.store(true, Ordering::Relaxed);
        let kinds: [(&str, Call, Call); 2] = [
            (
                "CQ of 1024 entries of 64 bytes",
                |fleet| fleet.make_cq(),
                |fleet| fleet.unmake_cq(),
            ),
            (
                "RC QP, 64 sends and 16 receives of one element",
                |fleet| {
                    fleet.make()?;
                    fleet.connect()
                },
                |fleet| fleet.unmake(),
            ),
        ];
        for (case, make, unmake) in kinds {
            let before = memory();
            for _ in 0..MANY {
                make(&mut **fleet)?;
            }
            let after = memory();
            for _ in 0..MANY {
                unmake(&mut **fleet)?;
            }
            let per = |bytes: isize| bytes as f64 / MANY as f64;
            figures.add(case, "heap", fleet.name(), per(after.0 - before.0));
            figures.add(case, "mapped", fleet.name(), per(after.1 - before.1));
        }
        WATCHES_HEAP.store(false, Ordering::Relaxed);
    }
    Ok(())
}

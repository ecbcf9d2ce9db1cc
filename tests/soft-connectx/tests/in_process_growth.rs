//! Opening, closing, making and destroying, over and over: nothing grows.
//!
//! `OXVERBS_LONG=1` does it a thousand and a hundred thousand times. One test, since descriptors are the whole process'.

#![cfg(feature = "in-process")]

use std::sync::Arc;

use oxverbs::control::vfio::hca::{Hca, Options};
use oxverbs::control::vfio::objects::Objects;
use oxverbs::{Context, Rc, SharedReceiveQueueAttributes, Ud};
use soft_connectx::Config;
use soft_connectx::in_process::InProcess;

#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

/// Everything that could grow: open files, memory for the device, its mappings, its pages in the process.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    files: usize,
    kib: usize,
    mappings: usize,
    pages: usize,
}

fn sizes(device: &InProcess) -> Sizes {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // those that a child does not get are ours, the others are the allocator's; neighbours count as one or as two
    let (mut kib, mut ours) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Size:") {
            kib = size.trim().trim_end_matches(" kB").parse().unwrap();
        } else if line.starts_with("VmFlags:") && line.contains(" dc") {
            ours += kib;
        }
    }
    Sizes {
        files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        kib: ours,
        mappings: device.mappings(),
        pages: device.mapped_pages(),
    }
}

fn times(usual: usize, long: usize) -> usize {
    match std::env::var_os("OXVERBS_LONG") {
        Some(_) => long,
        None => usual,
    }
}

/// Does something a few times, and then often: the size of everything stays.
fn steady(device: &InProcess, what: &str, count: usize, mut act: impl FnMut()) {
    for _ in 0..10 {
        act();
    }
    let before = sizes(device);
    for _ in 0..count {
        act();
    }
    let after = sizes(device);
    eprintln!("{count} x {what}: {after:?}");
    assert_eq!(after, before, "{what}");
}

#[test]
fn nothing_grows() {
    let device: Arc<InProcess> = InProcess::new(Config::default());
    steady(&device, "open and close", times(100, 1000), || {
        drop(Context::over_pci(device.clone()).unwrap());
    });
    assert_eq!(device.mappings(), 0);

    // free I/O addresses and the firmware's pages, below the nouns
    let hca = Arc::new(Hca::open(device.clone(), Options::default()).unwrap());
    let (addresses, pages) = (hca.iommu().addresses_left(), hca.device_pages());
    for _ in 0..times(100, 1000) {
        let objects = Objects::new(hca.clone()).unwrap();
        let (pd, _) = objects.alloc_pd().unwrap();
        objects.dealloc_pd(pd).unwrap();
        drop(hca.iommu().allocate(3 << 20, true).unwrap());
    }
    assert_eq!(hca.iommu().addresses_left(), addresses);
    assert_eq!(hca.device_pages(), pages);
    drop(hca);

    let context = Context::over_pci(device.clone()).unwrap();
    let count = times(500, 100_000);
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    steady(&device, "protection domain", count, || {
        drop(context.protection_domain().unwrap());
    });
    steady(&device, "completion queue", count, || {
        drop(context.completion_queue(100).unwrap());
    });
    steady(&device, "completion channel", count, || {
        let channel = context.completion_channel().unwrap();
        drop(channel.completion_queue(4).unwrap());
    });
    steady(&device, "memory region", count, || {
        drop(pd.allocate(8192, traffic::ALL).unwrap());
    });
    steady(&device, "shared receive queue", count, || {
        let attributes = SharedReceiveQueueAttributes {
            max_wr: 16,
            max_sge: 1,
            limit: 0,
        };
        drop(pd.shared_receive_queue(attributes).unwrap());
    });
    steady(&device, "RC queue pair", count, || {
        drop(pd.queue_pair::<Rc>(&cq).create().unwrap());
        // its completions may lie there until somebody looks
        assert!(cq.poll().next().is_none());
    });
    steady(&device, "UD queue pair", count, || {
        drop(pd.queue_pair::<Ud>(&cq).create().unwrap());
        // its completions may lie there until somebody looks
        assert!(cq.poll().next().is_none());
    });
}

//! Opening, closing, making and destroying, over and over: nothing grows.
//!
//! `OXVERBS_LONG=1` does it a thousand and a hundred thousand times. One test, since descriptors are the whole process'.

#![cfg(feature = "in-process")]

use std::sync::Arc;

use oxverbs::control::vfio;
use oxverbs::control::vfio::hca::{Hca, Options};
use oxverbs::control::vfio::objects::Objects;
use oxverbs::{Context, DriverUsage};
use soft_connectx::in_process::InProcess;
use soft_connectx::{Config, LinkLayer};

#[path = "../../../driver/tests/growth/mod.rs"]
mod growth;

use growth::Watch;

/// Everything that could grow: open files, memory for the device, its mappings, its pages in the process, and what the
/// driver says itself.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    files: usize,
    kib: usize,
    mappings: usize,
    pages: usize,
    usage: DriverUsage,
}

fn times(usual: usize, long: usize) -> usize {
    match std::env::var_os("OXVERBS_LONG") {
        Some(_) => long,
        None => usual,
    }
}

/// Does things so many times with a device.
struct Times {
    device: Arc<InProcess>,
    count: usize,
}

impl Times {
    fn sizes(&self, usage: &dyn Fn() -> DriverUsage) -> Sizes {
        Sizes {
            files: growth::files(),
            kib: growth::kib_for_devices(),
            mappings: self.device.mappings(),
            pages: self.device.mapped_pages(),
            usage: usage(),
        }
    }
}

impl Watch for Times {
    fn steady(
        &mut self,
        what: &str,
        most: usize,
        usage: &dyn Fn() -> DriverUsage,
        act: &mut dyn FnMut(),
    ) {
        let count = self.count.min(most);
        let (before, after, _) = growth::repeated(10, count, || self.sizes(usage), act);
        eprintln!("{count} x {what}: {after:?}");
        assert_eq!(after, before, "{what}");
    }
}

/// Who opens and closes has nothing open meanwhile.
fn closed() -> DriverUsage {
    DriverUsage::default()
}

#[test]
fn nothing_grows() {
    let device: Arc<InProcess> = InProcess::new(Config::default());
    let watch = |device: &Arc<InProcess>, count| Times {
        device: device.clone(),
        count,
    };
    let count = times(100, 1000);
    watch(&device, count).steady("open and close", count, &closed, &mut || {
        drop(Context::over_pci(device.clone()).unwrap());
    });
    assert_eq!(device.mappings(), 0);

    // objects over a device that stays up
    let hca = Arc::new(Hca::open(device.clone(), Options::default()).unwrap());
    let (addresses, pages) = (hca.iommu().addresses_left(), hca.device_pages());
    for _ in 0..count {
        let objects = Objects::new(hca.clone()).unwrap();
        let (pd, _) = objects.alloc_pd().unwrap();
        objects.dealloc_pd(pd).unwrap();
        drop(hca.iommu().allocate(3 << 20, true).unwrap());
    }
    assert_eq!(hca.iommu().addresses_left(), addresses);
    assert_eq!(hca.device_pages(), pages);
    drop(hca);

    let count = times(500, 100_000);
    let context = Context::over_pci(device.clone()).unwrap();
    growth::nouns(&context, &mut watch(&device, count));
    drop(context);
    let objects = vfio::open(device.clone(), Options::default()).unwrap();
    growth::below_the_nouns(objects, &mut watch(&device, count));

    let device = InProcess::new(Config {
        link: LinkLayer::Ethernet,
        ..Config::default()
    });
    let opened = times(50, 1000);
    let what = "open and close with neighbours";
    watch(&device, opened).steady(what, opened, &closed, &mut || {
        let context = Context::over_pci(device.clone()).unwrap();
        context.add_address([10, 0, 0, 1].into()).unwrap();
    });
    let context = Context::over_pci(device.clone()).unwrap();
    growth::ethernet(&context, &mut watch(&device, count));
}

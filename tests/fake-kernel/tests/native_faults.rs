//! Each kernel call of open, create and destroy of each object of the native API fails once.
//!
//! For k = 1, 2, … until a run has no k-th call: the call fails with ENOMEM, EINTR or EIO, or is answered
//! short. The injected errno comes out, and no descriptor, mapping, kernel object or heap block is left.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use fake_kernel::{Census, Config, FakeKernel, Fault, sysfs};
use oxverbs::{
    AccessFlags, Address, CompletionQueue, Context, Device, Gid, MwType, ProtectionDomain, Rc,
    SharedReceiveQueue, SharedReceiveQueueAttributes, Ud,
};

#[path = "common/leaks.rs"]
mod leaks;

use leaks::{LIVE, descriptors};

fn queue_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    maps.matches("fake-uverbs").count()
}

/// What objects are made from.
struct Parents {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

fn open(device: &Device, kernel: &FakeKernel) -> oxverbs::Result<Context> {
    Context::with_kernel(device, kernel.kernel_ref())
}

fn shared_queue(pd: &ProtectionDomain) -> oxverbs::Result<SharedReceiveQueue> {
    pd.shared_receive_queue(SharedReceiveQueueAttributes {
        max_wr: 10,
        max_sge: 2,
        limit: 0,
    })
}

type Make = fn(&Parents) -> oxverbs::Result<Box<dyn std::any::Any>>;

fn boxed<T: 'static>(object: oxverbs::Result<T>) -> oxverbs::Result<Box<dyn std::any::Any>> {
    object.map(|object| Box::new(object) as Box<dyn std::any::Any>)
}

const OBJECTS: &[(&str, Make)] = &[
    ("pd", |p| boxed(p.context.protection_domain())),
    ("mr", |p| {
        boxed(p.pd.allocate(4096, AccessFlags::LOCAL_WRITE))
    }),
    ("mw", |p| boxed(p.pd.memory_window(MwType::TYPE_2))),
    ("channel", |p| boxed(p.context.completion_channel())),
    ("cq", |p| boxed(p.context.completion_queue(10))),
    ("qp rc", |p| boxed(p.pd.queue_pair::<Rc>(&p.cq).create())),
    ("qp ud", |p| boxed(p.pd.queue_pair::<Ud>(&p.cq).create())),
    ("srq", |p| boxed(shared_queue(&p.pd))),
    ("ah", |p| {
        let gid = Gid::from(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        boxed(p.pd.address_handle(&Address::global(1, 1, gid)))
    }),
];

const FAULTS: [Fault; 4] = [
    Fault::Errno(libc::ENOMEM),
    Fault::Errno(libc::EINTR),
    Fault::Errno(libc::EIO),
    Fault::Short,
];

fn check_errno(name: &str, k: u64, fault: Fault, error: &oxverbs::Error) {
    if let Fault::Errno(errno) = fault {
        assert_eq!(error.errno(), Some(errno), "{name}, call {k}: {error}");
    }
}

/// One run: makes and drops the object with the k-th call failing; says whether there was such a call.
fn object_once(device: &Device, name: &str, make: Make, k: u64, fault: Fault) -> bool {
    let kernel = FakeKernel::new(Config::default());
    let context = open(device, &kernel).expect("open");
    let pd = context.protection_domain().expect("protection domain");
    let cq = context.completion_queue(10).expect("completion queue");
    let parents = Parents { context, pd, cq };
    let before = kernel.census();
    kernel.inject(k, fault);
    let hit = match make(&parents) {
        Ok(object) => {
            drop(object);
            kernel.clear_fault()
        }
        Err(error) => {
            check_errno(name, k, fault, &error);
            assert!(kernel.clear_fault(), "{name} failed by itself: {error}");
            assert_eq!(kernel.census(), before, "{name}, call {k}, {fault:?}");
            true
        }
    };
    drop(parents);
    assert_eq!(
        kernel.census(),
        Census::default(),
        "{name}, call {k}, {fault:?}"
    );
    hit
}

fn context_once(device: &Device, k: u64, fault: Fault) -> bool {
    let kernel = FakeKernel::new(Config::default());
    kernel.inject(k, fault);
    if let Err(error) = open(device, &kernel) {
        check_errno("context", k, fault, &error);
    }
    assert_eq!(
        kernel.census(),
        Census::default(),
        "context, call {k}, {fault:?}"
    );
    kernel.clear_fault()
}

/// Runs `once` with k = 1, 2, … until there is no k-th call.
fn every_call(name: &str, once: impl Fn(u64, Fault) -> bool) {
    let mut calls = 0;
    for fault in FAULTS {
        // Without a hit, so that what is kept after its first use is there.
        once(1 << 40, fault);
        let before = (
            LIVE.load(Ordering::Relaxed),
            descriptors(),
            queue_mappings(),
        );
        let mut k = 1;
        loop {
            let hit = once(k, fault);
            let after = (
                LIVE.load(Ordering::Relaxed),
                descriptors(),
                queue_mappings(),
            );
            assert_eq!(
                before, after,
                "{name}, call {k}, {fault:?}: heap bytes, descriptors, mappings"
            );
            if !hit {
                break;
            }
            k += 1;
            assert!(k < 100, "{name} makes calls without end");
        }
        calls = k - 1;
    }
    println!(
        "native {name}: {calls} kernel calls, each failed in {} ways",
        FAULTS.len()
    );
}

/// One test, since the counted heap and descriptors are the whole process's.
#[test]
fn each_kernel_call_fails_once() {
    let tree = tempfile::tempdir().expect("a temporary directory");
    sysfs::write_tree(tree.path(), &Config::default()).expect("a tree like sysfs");
    // SAFETY: the only test of this process; no other thread reads the environment.
    unsafe { std::env::set_var("SYSFS_PATH", tree.path()) };
    let device = Device::named("rxe0").expect("the fake device");
    every_call("context", |k, fault| context_once(&device, k, fault));
    for (name, make) in OBJECTS {
        every_call(name, |k, fault| object_once(&device, name, *make, k, fault));
    }
}

//! A kernel that lies about its queues: errors that say so, no panic, nothing outside of a mapping, nothing left.

use std::any::Any;

use fake_kernel::{Census, Config, FakeKernel, Lie, sysfs};
use oxverbs::{Context, Device, Rc, SharedReceiveQueueAttributes};

type Make = fn(&Context) -> oxverbs::Result<Box<dyn Any>>;

fn cq(context: &Context) -> oxverbs::Result<Box<dyn Any>> {
    Ok(Box::new(context.completion_queue(10)?))
}

fn srq(context: &Context) -> oxverbs::Result<Box<dyn Any>> {
    let pd = context.protection_domain()?;
    Ok(Box::new(pd.shared_receive_queue(
        SharedReceiveQueueAttributes {
            max_wr: 10,
            max_sge: 2,
            limit: 0,
        },
    )?))
}

const QUEUES: &[(&str, Make)] = &[("completion queue", cq), ("shared receive queue", srq)];

fn device() -> (tempfile::TempDir, Device) {
    let tree = tempfile::tempdir().expect("a temporary directory");
    sysfs::write_tree(tree.path(), &Config::default()).expect("a tree like sysfs");
    // SAFETY: the only test of this process that reads or writes the environment, before it has threads.
    unsafe { std::env::set_var("SYSFS_PATH", tree.path()) };
    let device = Device::named("rxe0").expect("the fake device");
    (tree, device)
}

/// Lies that make a queue unusable.
const REFUSED: &[Lie] = &[
    Lie::Log2ElemSize(0),
    Lie::Log2ElemSize(5),
    Lie::Log2ElemSize(31),
    Lie::Log2ElemSize(32),
    Lie::Log2ElemSize(u32::MAX),
    Lie::IndexMask(14),
    Lie::IndexMask(0x7fff_ffff),
    Lie::IndexMask(u32::MAX),
    Lie::QueueSize(0),
    Lie::QueueSize(1),
    Lie::QueueSize(383),
    Lie::QueueSize(u32::MAX),
    Lie::QueueOffset(0),
    Lie::QueueOffset(1),
    Lie::QueueOffset(u64::MAX),
];

/// Lies that only show when the queue is used.
const USED: &[Lie] = &[
    // A queue of no places, which rxe makes when none are asked for: taken, and always empty and full.
    Lie::IndexMask(0),
    Lie::Producer(5),
    Lie::Producer(u32::MAX),
    Lie::Producer(0x8000_0000),
    Lie::Consumer(u32::MAX),
    Lie::Consumer(0x1234_5678),
    Lie::Handle(u32::MAX),
    Lie::Handle(77),
];

/// B29: what the header of a mapped queue says is checked against the mapping.
#[test]
fn a_lying_kernel_gets_an_error() {
    let (_tree, device) = device();
    for lie in REFUSED {
        for (name, make) in QUEUES {
            let kernel = FakeKernel::new(Config::default());
            let context = Context::with_kernel(&device, kernel.kernel_ref()).expect("open");
            kernel.set_lie(Some(*lie));
            let refused = make(&context).err();
            assert!(refused.is_some(), "{name} with {lie:?} was taken");
            assert_eq!(kernel.census().objects(), 0, "{name}, {lie:?}");
            drop(context);
            assert_eq!(kernel.census(), Census::default(), "{name}, {lie:?}");
        }
        queue_pair(&device, *lie, true);
    }
    for lie in USED {
        queue_pair(&device, *lie, false);
        polled(&device, *lie);
    }
}

/// A queue pair whose queues are lied about, its completion queue not.
fn queue_pair(device: &Device, lie: Lie, is_refused: bool) {
    let kernel = FakeKernel::new(Config::default());
    let context = Context::with_kernel(device, kernel.kernel_ref()).expect("open");
    let pd = context.protection_domain().expect("protection domain");
    let cq = context.completion_queue(10).expect("completion queue");
    let before = kernel.census();
    kernel.set_lie(Some(lie));
    let made = pd.queue_pair::<Rc>(&cq).create();
    if is_refused {
        assert!(made.is_err(), "queue pair with {lie:?} was taken");
        assert_eq!(kernel.census(), before, "{lie:?}");
    }
    drop(made);
    drop((cq, pd, context));
    assert_eq!(kernel.census(), Census::default(), "{lie:?}");
}

/// A completion queue with impossible indices, or another's handle, is polled to its end and dropped.
fn polled(device: &Device, lie: Lie) {
    let kernel = FakeKernel::new(Config::default());
    let context = Context::with_kernel(device, kernel.kernel_ref()).expect("open");
    kernel.set_lie(Some(lie));
    if let Ok(mut cq) = context.completion_queue(10) {
        // At most a ring of garbage, then nothing or the same again; never beyond the ring.
        let n = cq.poll().take(64).count();
        assert!(n <= 64, "{lie:?}");
        let _ = cq.request_notify(false);
    }
    drop(context);
    assert_eq!(kernel.census(), Census::default(), "{lie:?}");
}

//! mlx5 and fork: a child leaves its parent's objects alone, and queues leave no mappings behind.

use std::fs;

use fake_kernel::{Census, Config, FakeKernel, Family, sysfs};
use oxverbs::{
    AccessFlags, CompletionQueue, Context, Device, PostError, ProtectionDomain, QueuePair, Rc,
    SharedReceiveQueueAttributes,
};

const ALL: AccessFlags = AccessFlags(
    AccessFlags::LOCAL_WRITE.0 | AccessFlags::REMOTE_WRITE.0 | AccessFlags::REMOTE_READ.0,
);

/// The device has no thread of its own, which could hold the fake kernel's lock at the fork.
fn config() -> Config {
    Config {
        family: Family::Mlx5,
        ..Config::default()
    }
}

fn make(context: &Context, pd: &ProtectionDomain) -> (CompletionQueue, QueuePair<Rc>) {
    let cq = context.completion_queue(16).expect("a completion queue");
    let mut qp = pd.queue_pair::<Rc>(&cq).create().expect("a queue pair");
    let me = qp.endpoint(1, 0).expect("an endpoint");
    qp.connect(&me, &me, ALL).expect("connects");
    (cq, qp)
}

/// Mappings, and those that children do not get.
fn mappings() -> (usize, usize) {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("proc");
    let kept = |line: &&str| line.starts_with("VmFlags:") && line.contains(" dc");
    (
        smaps.matches("VmFlags:").count(),
        smaps.lines().filter(kept).count(),
    )
}

/// B60: one test, since mappings are the whole process's and the environment is too.
#[test]
fn children_leave_objects_alone_and_objects_leave_nothing() {
    let tree = tempfile::tempdir().expect("a temporary directory");
    sysfs::write_tree(tree.path(), &config()).expect("a tree like sysfs");
    // SAFETY: the only test of this process; no other thread reads the environment.
    unsafe { std::env::set_var("SYSFS_PATH", tree.path()) };
    let device = Device::named("mlx5_0").expect("the fake device");
    let kernel = FakeKernel::new(config());
    let context = Context::with_kernel(&device, kernel.kernel_ref()).expect("opens");
    let pd = context.protection_domain().expect("a protection domain");

    // what is made and destroyed again and again leaves no mapping
    let cycle = || {
        drop(make(&context, &pd));
        let attributes = SharedReceiveQueueAttributes {
            max_wr: 100,
            max_sge: 2,
            limit: 0,
        };
        drop(
            pd.shared_receive_queue(attributes)
                .expect("a shared receive queue"),
        );
    };
    cycle();
    let before = mappings();
    for _ in 0..300 {
        cycle();
    }
    let after = mappings();
    assert_eq!(before.1, after.1, "mappings that children do not get");
    assert!(after.0 <= before.0 + 8, "{before:?} became {after:?}");

    let (mut cq, mut qp) = make(&context, &pd);
    let region = pd.allocate(4096, ALL).expect("memory");
    // SAFETY: only this thread goes on in the child, which ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // the fake kernel's tables are a copy here
        let refused = qp.send_half().write(region.slice(0..8), region.remote(8));
        let polled = cq.poll().count();
        let calls = kernel.calls();
        let arm = cq.request_notify(false);
        drop((qp, cq));
        let silent = kernel.calls() == calls && arm.is_err();
        let left_alone = refused == Err(PostError::ForkedChild) && polled == 0 && silent;
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!left_alone)) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, `child` is our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0);

    // the parent goes on
    for _ in 0..100 {
        qp.send_half()
            .write(region.slice(0..8), region.remote(8))
            .expect("room");
        kernel.hca(0).run();
        let completion = cq.spin();
        assert!(completion.is_success());
        assert!(qp.reclaim(&completion).is_some());
    }
    drop((qp, cq, region, pd, context));
    assert_eq!(kernel.census(), Census::default());
}

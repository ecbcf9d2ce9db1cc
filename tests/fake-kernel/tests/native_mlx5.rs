//! The native API on an mlx5 device that executes what is posted.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use fake_kernel::{Census, Config, FakeKernel, Family, Mlx5, sysfs};
use oxverbs::{
    Address, CompletionQueue, Context, Device, Dmabuf, FlowMatch, Gid, PostError, QpState,
    QueuePair, RawPacket, Rc, SharedReceiveQueueAttributes, Ud, WcOpcode, XrcInitiator,
};

#[path = "../../../driver/tests/traffic/mod.rs"]
mod traffic;
#[path = "../../../driver/tests/traffic/xrc.rs"]
mod xrc;

use traffic::{ALL, good};

fn config() -> Config {
    Config {
        family: Family::Mlx5,
        mlx5: Mlx5 {
            runs: true,
            ..Mlx5::default()
        },
        ..Config::default()
    }
}

/// The device, in a tree like sysfs that lives as long as the process.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let tree = tempfile::tempdir().expect("a temporary directory").keep();
        sysfs::write_tree(&tree, &config()).expect("a tree like sysfs");
        // SAFETY: tests ask for the device first, and only here is the environment touched, once.
        unsafe { std::env::set_var("SYSFS_PATH", &tree) };
        let device = Device::named("mlx5_0").expect("the fake device");
        std::fs::remove_dir_all(&tree).expect("the tree goes");
        device
    })
}

fn open() -> (FakeKernel, Context) {
    open_with(config())
}

/// A device whose completions name queues by the kernel's numbers, as those before ConnectX-4.
fn open_old() -> (FakeKernel, Context) {
    let mut config = config();
    config.mlx5.cqe_version = 0;
    open_with(config)
}

fn open_with(config: Config) -> (FakeKernel, Context) {
    let device = device();
    let kernel = FakeKernel::new(config);
    let context = Context::with_kernel(device, kernel.kernel_ref()).expect("opens");
    (kernel, context)
}

fn connect(qp: &mut QueuePair<Rc>) {
    traffic::connect(qp, 0);
}

/// The same program as on rxe.
#[test]
fn send_write_read_and_atomics() {
    let (_kernel, context) = open();
    traffic::send_write_read_and_atomics(&context, 0);
}

/// And on a device before ConnectX-4.
#[test]
fn the_same_by_the_kernels_numbers() {
    let (_kernel, context) = open_old();
    traffic::send_write_read_and_atomics(&context, 0);
}

/// Extended reliable connections: the same data goes over them, and nothing is left when all of it ends.
#[test]
fn one_connection_reaches_many_shared_queues() {
    let (kernel, context) = open();
    xrc::two_queues_behind_one_target(&context, &context);
    drop(context);
    assert_eq!(kernel.census(), Census::default());
    let (_kernel, old) = open_old();
    let refused = old.xrc_domain().unwrap_err().to_string();
    assert!(refused.contains("ConnectX-4"), "{refused}");
}

/// A target is open for whoever shares its domain, and its shared queue takes the completions along that nobody took.
#[test]
fn targets_are_shared_and_queues_take_their_completions_along() {
    let (kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let domain = context.shared_xrc_domain(&file).unwrap();
    let mut target = domain.target().unwrap();
    let mut sent = context.completion_queue(16).unwrap();
    let mut received = context.completion_queue(16).unwrap();
    let mut initiator = pd.queue_pair::<XrcInitiator>(&sent).create().unwrap();
    xrc::connected((&context, &mut initiator), (&context, &mut target));
    let again = context.shared_xrc_domain(&file).unwrap();
    let opened = again.open_target(target.qp_num()).unwrap();
    assert_eq!(
        (opened.qp_num(), opened.state()),
        (target.qp_num(), QpState::RTR)
    );
    assert!(again.open_target(target.qp_num() + 1).is_err());
    drop(target);

    let region = pd.allocate(1 << 14, ALL).unwrap();
    let gone = xrc::queue(&region, &pd, &domain, &received, 0);
    let stays = xrc::queue(&region, &pd, &domain, &received, 1 << 13);
    for srq in [&gone, &stays] {
        let number = srq.number().unwrap();
        let send = initiator.send_half();
        send.send(region.slice(0..8), number).unwrap();
        good(&mut sent);
    }
    drop(gone);
    let left: Vec<_> = received.poll().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    // Such a queue belongs to targets, and to no queue pair.
    let refused = pd
        .queue_pair::<Rc>(&sent)
        .shared_receive_queue(&stays)
        .create();
    assert!(refused.is_err());
    drop((opened, domain, again, stays, received, initiator, sent));
    drop((region, pd, context));
    assert_eq!(kernel.census(), Census::default());
}

#[test]
fn what_the_device_does_not_have_is_refused() {
    let (_kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(32).unwrap();
    assert_eq!(cq.entries(), 63);
    let mut qp = pd.queue_pair::<Rc>(&cq).max_inline(64).create().unwrap();
    connect(&mut qp);
    let region = pd.allocate(4096, ALL).unwrap();
    let mut batch = qp.send_batch();
    batch.atomic_write(1, region.remote(0)).atomic_value([0; 8]);
    // SAFETY: there is no payload.
    let refused = unsafe { batch.post() };
    assert!(matches!(refused, Err(PostError::RefusedByMlx5(_))));
}

/// 17 times as many requests as the queue holds, and more completions than are taken at once.
#[test]
fn queues_wrap() {
    let (_kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(64).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).max_send_wr(32).create().unwrap();
    connect(&mut qp);
    let region = pd.allocate(4096, ALL).unwrap();
    let depth = qp.cap().max_send_wr;
    for round in 0..17 {
        for _ in 0..depth {
            qp.send_half()
                .write(region.slice(0..8), region.remote(8))
                .unwrap();
        }
        let full = qp.send_half().write(region.slice(0..8), region.remote(8));
        assert!(full.unwrap_err().is_queue_full(), "round {round}");
        for _ in 0..depth {
            let completion = good(&mut cq);
            assert!(qp.reclaim(&completion).is_some());
        }
    }
}

/// B32, B37: a queue pair that starts over, or goes, takes its completions along, and its receives give
/// their places in a shared queue back.
#[test]
fn completions_go_with_their_queue_pair() {
    for open in [open, open_old] {
        completions_go_with_it(open());
    }
}

fn completions_go_with_it((kernel, context): (FakeKernel, Context)) {
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(64).unwrap();
    let mut srq = pd
        .shared_receive_queue(SharedReceiveQueueAttributes {
            max_wr: 3,
            max_sge: 1,
            limit: 0,
        })
        .unwrap();
    let region = pd.allocate(4096, ALL).unwrap();
    let make = |cq: &CompletionQueue, srq: &oxverbs::SharedReceiveQueue| {
        let mut qp = pd
            .queue_pair::<Rc>(cq)
            .shared_receive_queue(srq)
            .create()
            .unwrap();
        connect(&mut qp);
        qp
    };
    let sge = [region.sge(0..8)];
    let send = |qp: &mut QueuePair<Rc>, wr_id| {
        let mut batch = qp.send_batch();
        batch.send(wr_id).signaled().sges(&sge);
        // SAFETY: the region outlives the queue pair and is never lent as a slice.
        unsafe { batch.post() }
    };
    for round in 0..5 {
        let mut one = make(&cq, &srq);
        let mut other = make(&cq, &srq);
        for wr_id in 0..3 {
            // SAFETY: as above.
            unsafe { srq.post_sges(100 + wr_id, &sge) }
                .unwrap_or_else(|error| panic!("round {round}, receive {wr_id}: {error}"));
        }
        // the device has written all six before the queue pair goes
        send(&mut one, 1).unwrap();
        send(&mut one, 2).unwrap();
        send(&mut other, 3).unwrap();
        let device = kernel.hca(0);
        let waits = || device.qp(one.qp_num()).and_then(|qp| qp.send_cq.clone());
        let written = waits().expect("a completion queue");
        let before = written.consumer();
        while written.producer().wrapping_sub(before) & 0xff_ffff < 6 {
            std::thread::yield_now();
        }
        drop(one);
        let left: Vec<_> = cq.poll().collect();
        assert!(
            left.iter().all(|c| c.qp_num() == other.qp_num()),
            "{left:?}"
        );
        assert_eq!(left.len(), 2);

        // over again: nothing is posted until the queue was polled
        send(&mut other, 4).unwrap();
        other.reset().unwrap();
        connect(&mut other);
        assert!(send(&mut other, 5).is_err());
        assert_eq!(cq.poll().count(), 0);
        // SAFETY: as above.
        unsafe { srq.post_sges(7, &sge) }.unwrap();
        send(&mut other, 6).unwrap();
        let mut ids = [good(&mut cq).wr_id(), good(&mut cq).wr_id()];
        ids.sort_unstable();
        assert_eq!(ids, [6, 7]);
    }
}

#[test]
fn datagrams() {
    let (_kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(8).unwrap();
    let mut qp = pd.queue_pair::<Ud>(&cq).create().unwrap();
    qp.to_init(1, 0x11).unwrap();
    qp.to_rtr().unwrap();
    qp.to_rts(1).unwrap();
    let region = pd.allocate(4096, ALL).unwrap();
    let gid = context.query_gid(1, 0).unwrap().expect("a GID").gid;
    let ah = pd.address_handle(&Address::global(1, 0, gid)).unwrap();
    qp.recv_half().post(region.slice(0..100)).unwrap();
    let to = ah.queue_pair(qp.qp_num(), 0x11);
    qp.send_half().send(region.slice(200..210), &to).unwrap();
    let two = [good(&mut cq), good(&mut cq)];
    let received = two.iter().find(|c| c.opcode() == WcOpcode::RECV).unwrap();
    assert_eq!(received.byte_len(), 50);
    assert_eq!(received.src_qp(), qp.qp_num());
    let nowhere = Address::global(1, 200, Gid::from(Ipv4Addr::LOCALHOST.to_ipv6_mapped()));
    assert!(pd.address_handle(&nowhere).is_err());
}

#[test]
fn events_and_resize() {
    let (_kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let channel = context.completion_channel().unwrap();
    let mut cq = channel.completion_queue(4).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    connect(&mut qp);
    let region = pd.allocate(4096, ALL).unwrap();
    for round in 0..10 {
        cq.request_notify(false).unwrap();
        assert!(cq.poll().next().is_none());
        qp.send_half()
            .write(region.slice(0..8), region.remote(8))
            .unwrap();
        assert_eq!(channel.wait().unwrap(), cq.id(), "round {round}");
        assert!(qp.reclaim(&good(&mut cq)).is_some());
        cq.resize(4 << (round % 5)).unwrap();
    }
    assert_eq!(cq.entries(), 127);
}

/// The queues themselves, without the choice of a device family.
#[test]
fn the_strict_way() {
    use oxverbs::data::mlx5;

    let (_kernel, context) = open();
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    connect(&mut qp);
    let region = pd.allocate(4096, ALL).unwrap();
    region.copy_in(0, b"strictly");
    let queue = qp.as_mlx5().and_then(|queues| queues.send).expect("sends");
    let to = region.remote(64);
    let write = mlx5::Operation::RdmaWrite(mlx5::Remote {
        addr: to.addr,
        rkey: to.rkey,
    });
    let mut draft = queue.begin();
    // SAFETY: a write has no headers in memory.
    unsafe { queue.open(&mut draft, 5, mlx5::SendFlags::SIGNALED, &write) }.unwrap();
    // SAFETY: the region outlives the queue pair.
    unsafe { queue.set_sge(&mut draft, &region.sge(0..8)) }.unwrap();
    queue.commit(&mut draft).unwrap();
    let polled = cq.as_mlx5().expect("completions");
    let mut one = [mlx5::Completion::default()];
    while polled.poll(&mut one) == 0 {
        std::thread::yield_now();
    }
    assert_eq!((one[0].wr_id, one[0].status), (5, 0));
    assert_eq!(region.to_vec(64..72), b"strictly");
}

/// Halves on two threads, and nothing left when they end.
#[test]
fn halves_on_threads() {
    let (kernel, context) = open();
    {
        let pd = context.protection_domain().unwrap();
        let mut send_cq = context.completion_queue(64).unwrap();
        let mut recv_cq = context.completion_queue(64).unwrap();
        let mut qp = pd
            .queue_pair::<Rc>(&send_cq)
            .recv_completion_queue(&recv_cq)
            .create()
            .unwrap();
        connect(&mut qp);
        assert_eq!(qp.state(), QpState::RTS);
        let region = pd.allocate(4096, ALL).unwrap();
        let (mut send, mut recv) = qp.split();
        for _ in 0..16 {
            recv.post(region.slice(0..64)).unwrap();
        }
        let (to_send, to_receive) = (&region, &region);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..300 {
                    while let Err(error) = send.send(to_send.slice(64..128)) {
                        assert!(error.is_queue_full());
                        std::thread::yield_now();
                        for completion in send_cq.poll() {
                            assert!(completion.is_success());
                            assert!(send.reclaim(&completion).is_some());
                        }
                    }
                }
            });
            scope.spawn(move || {
                for _ in 0..300 {
                    let completion = recv_cq.spin();
                    assert!(completion.is_success());
                    assert!(recv.reclaim(&completion).is_some());
                    recv.post(to_receive.slice(0..64)).unwrap();
                }
            });
        });
    }
    drop(context);
    assert_eq!(kernel.census(), Census::default());
}

/// Whatever goes first, nothing is left, though a queue pair stays until its completions were cleaned.
#[test]
fn queue_pairs_by_the_kernels_numbers_leave_nothing() {
    for first in 0..3 {
        let (kernel, context) = open_old();
        {
            let pd = context.protection_domain().unwrap();
            let mut cqs = [16, 16].map(|entries| context.completion_queue(entries).ok());
            let cq = |at: usize| cqs[at].as_ref().unwrap();
            let qp = pd.queue_pair::<Rc>(cq(0)).recv_completion_queue(cq(1));
            let mut qp = Some(qp.create().unwrap());
            match first {
                2 => {
                    qp = None;
                    assert_eq!(cqs[0].as_mut().unwrap().poll().count(), 0);
                }
                at => cqs[at] = None,
            }
            drop(qp);
            drop(pd);
        }
        drop(context);
        assert_eq!(kernel.census(), Census::default(), "{first}");
    }
}

/// Memory on the device and memory that is not there.
#[test]
fn memory_that_is_not_the_process() {
    let (kernel, context) = open();
    {
        let pd = context.protection_domain().unwrap();
        let memory = context.device_memory(256, 6).unwrap();
        assert_eq!(memory.len(), 256);
        memory.copy_in(16, b"eight by").unwrap();
        let mut bytes = [0; 12];
        memory.copy_out(12, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0\0eight by");
        let errno = |result: oxverbs::Result<()>| result.unwrap_err().errno();
        assert_eq!(errno(memory.copy_in(252, &[0; 8])), Some(libc::EFAULT));
        assert_eq!(
            errno(memory.copy_in(usize::MAX, &[0; 8])),
            Some(libc::EFAULT)
        );
        assert_eq!(errno(memory.copy_in(1, &[0; 4])), Some(libc::EINVAL));
        assert_eq!(errno(memory.copy_in(0, &[0; 3])), Some(libc::EINVAL));

        let region = pd.register_device_memory(&memory, 64..192, ALL).unwrap();
        let sge = region.sge(8..24);
        assert_eq!((sge.addr, sge.length), (8, 16));
        assert_eq!(region.remote(100).addr, 100);
        assert!(pd.register_device_memory(&memory, 128..512, ALL).is_err());
        // The region holds its memory.
        drop(memory);
        drop(region);

        let nothing = pd.null_region().unwrap().sge(1 << 20);
        assert_ne!(nothing.lkey, 0);
        assert!(context.device_memory(1 << 40, 0).is_err());
    }
    drop(context);
    assert_eq!(kernel.census(), Census::default());
}

/// What comes inside a completion is copied by polling, which cannot write to a dma-buf.
#[test]
fn dma_bufs_take_no_data_from_completions() {
    let (kernel, context) = open();
    {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(16).unwrap();
        let file = tempfile::tempfile().unwrap();
        let dmabuf = Dmabuf {
            fd: file.as_fd(),
            offset: 0,
            len: 4096,
            iova: 0x1000,
        };
        let region = pd.register_dmabuf(dmabuf, ALL).unwrap();
        let refused = PostError::DataInCompletions;
        let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
        connect(&mut qp);
        assert_eq!(qp.recv_half().post(region.slice(0..8)), Err(refused));
        let there = region.remote(0);
        let read = qp.send_half().read(region.slice(0..8), there);
        assert_eq!(read, Err(refused));
        let attributes = SharedReceiveQueueAttributes {
            max_wr: 4,
            max_sge: 1,
            limit: 0,
        };
        let mut srq = pd.shared_receive_queue(attributes).unwrap();
        assert_eq!(srq.post(region.slice(0..8)), Err(refused));
        // Without data in completions the device writes it all.
        let mut qp = pd
            .queue_pair::<Rc>(&cq)
            .data_in_completions(false)
            .create()
            .unwrap();
        connect(&mut qp);
        assert!(qp.recv_half().post(region.slice(0..8)).is_ok());
    }
    drop(context);
    assert_eq!(kernel.census(), Census::default());
}

/// Whole packets, and the rules that let them in.
#[test]
fn raw_packets() {
    let (kernel, context) = open();
    {
        let pd = context.protection_domain().unwrap();
        let mut cq = context.completion_queue(16).unwrap();
        let region = pd.allocate(4096, ALL).unwrap();
        let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
        assert!(qp.to_ready(9).is_err());
        qp.to_ready(1).unwrap();
        let packets = FlowMatch::new().mac([2, 0, 0, 0, 0, 1]);
        let all = qp.steer(1, &packets).unwrap();
        let from = packets.source(Ipv4Addr::LOCALHOST).ether_type(0x0800);
        let some = qp.steer(1, &from.udp_port(4791)).unwrap();
        drop(all);
        let mut batch = qp.send_batch();
        // SAFETY: the region is memory of this process.
        unsafe { batch.send(7) }
            .signaled()
            .sges(&[region.sge(0..64)]);
        // SAFETY: the region outlives the queue pair and is never lent as a slice.
        unsafe { batch.post() }.unwrap();
        assert_eq!(good(&mut cq).wr_id(), 7);
        // A rule holds its queue pair.
        drop(qp);
        drop(some);
    }
    drop(context);
    assert_eq!(kernel.census(), Census::default());
}

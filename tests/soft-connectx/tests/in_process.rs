//! The userspace driver and the native API over devices in this process.

#![cfg(feature = "in-process")]

use oxverbs::{Context, Ece, Rc, WcOpcode};
use soft_connectx::in_process::{Cable, InProcess};
use soft_connectx::{Config, LinkLayer};

mod ends;
#[path = "../../../driver/tests/traffic/tags.rs"]
mod tags;
#[path = "../../../driver/tests/traffic/mod.rs"]
mod traffic;
#[path = "../../../driver/tests/traffic/xrc.rs"]
mod xrc;

use ends::{End, connected, device, open, writes_on_a_channel};
use traffic::ALL;

/// SEND, WRITE and READ of more than a packet, both ways, with every byte checked.
fn exchange(ends: &mut [End; 2], seed: u8) {
    const LEN: usize = 10_000;
    let pattern = |turn: usize| -> Vec<u8> {
        (0..LEN)
            .map(|at| (at * 31 + turn * 7) as u8 ^ seed)
            .collect()
    };
    for turn in 0..8 {
        let [from, to] = ends;
        let sent = pattern(turn);
        from.region.copy_in(0, &sent);
        to.qp.recv_half().post(to.region.slice(0..LEN)).unwrap();
        from.qp.send_half().send(from.region.slice(0..LEN)).unwrap();
        assert_eq!(to.done().opcode(), WcOpcode::RECV);
        assert_eq!(from.done().opcode(), WcOpcode::SEND);
        assert_eq!(to.region.to_vec(0..LEN), sent);

        let there = to.region.remote(20_000);
        let part = from.region.slice(0..LEN);
        from.qp.send_half().write(part, there).unwrap();
        assert_eq!(from.done().opcode(), WcOpcode::RDMA_WRITE);
        assert_eq!(to.region.to_vec(20_000..20_000 + LEN), sent);

        let back = from.region.slice(40_000..40_000 + LEN);
        from.qp.send_half().read(back, there).unwrap();
        assert_eq!(from.done().opcode(), WcOpcode::RDMA_READ);
        assert_eq!(from.region.to_vec(40_000..40_000 + LEN), sent);
        ends.swap(0, 1);
    }
}

#[test]
fn two_devices_exchange_data() {
    for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let devices = [device(link, 1), device(link, 2)];
        let _cable = Cable::new(&devices[0], &devices[1]);
        let [one, other] = open(&devices);
        exchange(&mut connected(&one, &other), 1);
    }
}

/// An adversary uses the freedoms that real devices have: delays, few doorbell pages, requests for memory.
#[test]
fn adversaries_change_nothing() {
    for seed in 1..=3 {
        let devices = [1, 2].map(|serial| {
            InProcess::new(Config {
                adversary: Some(seed),
                serial,
                ..Config::default()
            })
        });
        let _cable = Cable::new(&devices[0], &devices[1]);
        let [one, other] = open(&devices);
        exchange(&mut connected(&one, &other), seed as u8);
    }
}

/// A write of nine packets of at most 1024 bytes, whose headers are counted with its data.
#[test]
fn ports_count_packets_and_requests() {
    let devices = [1, 2].map(|serial| device(LinkLayer::InfiniBand, serial));
    let _cable = Cable::new(&devices[0], &devices[1]);
    let [one, other] = open(&devices);
    let [mut from, to] = connected(&one, &other);
    let before = [&one, &other].map(|context| context.port_counters(1).unwrap());
    let part = from.region.slice(0..9_000);
    (from.qp.send_half())
        .write(part, to.region.remote(0))
        .unwrap();
    from.done();
    let after = [&one, &other].map(|context| context.port_counters(1).unwrap());
    let more = |end: usize, name: &str| after[end][name] - before[end][name];
    // On a busy machine an answer may come late, and packets are sent again.
    let most = 1 + more(0, "hw_counters/local_ack_timeout_err");
    let packets = more(0, "counters/port_xmit_packets");
    assert!((9..=9 * most).contains(&packets), "{packets} packets");
    let received = more(1, "counters/port_rcv_packets");
    assert!((9..=packets).contains(&received), "{received} packets");
    assert_eq!(more(1, "hw_counters/rx_write_requests"), 1);
    assert_eq!(more(0, "hw_counters/rx_write_requests"), 0);
    let words = more(0, "counters/port_xmit_data");
    let all = 9_000 / 4..9_700 / 4 * most;
    assert!(all.contains(&words), "{words} words");
    let words = more(1, "counters/port_rcv_data");
    assert!(all.contains(&words), "{words} words received");
    assert!(one.port_counters(2).is_err());
}

/// Both ends ask for what both have, and are told that they have it.
#[test]
fn ends_agree_on_options() {
    let devices = [1, 2].map(|serial| device(LinkLayer::InfiniBand, serial));
    let _cable = Cable::new(&devices[0], &devices[1]);
    let contexts = open(&devices);
    let mut ends = contexts.each_ref().map(End::new);
    let offered = ends.each_ref().map(|end| end.qp.ece().unwrap());
    assert_eq!(offered[0], offered[1]);
    // one that the device has, and one that nobody has
    let some = offered[0].options & (offered[0].options - 1);
    assert!(some != 0 && some != offered[0].options);
    let strange = 1 << 20;
    assert_eq!(offered[0].options & strange, 0);
    for end in &mut ends {
        let vendor = 0x1234;
        assert!(
            end.qp
                .set_ece(Ece {
                    vendor,
                    ..offered[0]
                })
                .is_err()
        );
        let options = some | strange;
        end.qp
            .set_ece(Ece {
                options,
                ..offered[0]
            })
            .unwrap();
    }
    let at = |end: &End| end.qp.endpoint(1, 0).unwrap();
    let [a, b] = ends.each_ref().map(at);
    ends[0].qp.connect(&a, &b, ALL).unwrap();
    ends[1].qp.connect(&b, &a, ALL).unwrap();
    for end in &ends {
        assert_eq!(end.qp.ece().unwrap().options, some);
    }
    exchange(&mut ends, 3);
}

#[test]
fn one_device_talks_to_itself() {
    for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let context = Context::over_pci(device(link, 1)).unwrap();
        let gid = context.usual_gid(1).unwrap().index as u8;
        traffic::send_write_read_and_atomics(&context, gid);
    }
}

/// Extended reliable connections, between devices and of one with itself.
#[test]
fn one_connection_reaches_many_shared_queues() {
    for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let devices = [device(link, 1), device(link, 2)];
        let _cable = Cable::new(&devices[0], &devices[1]);
        let [one, other] = open(&devices);
        xrc::two_queues_behind_one_target(&one, &other);
        xrc::two_queues_behind_one_target(&other, &other);
        // No other process has anything on a device that this one drives.
        let domain = one.xrc_domain().unwrap();
        assert!(domain.open_target(1).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(one.shared_xrc_domain(&file).is_err());
    }
}

/// Tags, which InfiniBand ports match.
#[test]
fn messages_find_their_tags() {
    let context = Context::over_pci(device(LinkLayer::InfiniBand, 1)).unwrap();
    tags::messages_find_their_tags(&context);
    let ethernet = Context::over_pci(device(LinkLayer::Ethernet, 1)).unwrap();
    let pd = ethernet.protection_domain().unwrap();
    let cq = ethernet.completion_queue(16).unwrap();
    let refused = pd
        .tag_matching_queue(&cq, tags::RECEIVES, tags::LIST)
        .unwrap_err();
    assert!(refused.to_string().contains("make a"), "{refused}");
}

#[test]
fn completion_channels_wake() {
    let context = Context::over_pci(device(LinkLayer::InfiniBand, 1)).unwrap();
    writes_on_a_channel(&context, 50, |_| (), || ());
}

/// The clock of the initialization segment, against this machine's.
#[test]
fn the_clock_goes_as_fast_as_it_says() {
    let context = Context::over_pci(device(LinkLayer::InfiniBand, 1)).unwrap();
    let attributes = context.query_device().unwrap();
    let start = std::time::Instant::now();
    let first = context.read_clock().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    let cycles = context.read_clock().unwrap() - first;
    let took = start.elapsed().as_nanos();
    let told = attributes.nanoseconds(cycles);
    // the device in this process looks at the time when its thread runs, which may be a while ago
    assert!((took / 2..=took * 2).contains(&told), "{told} ns of {took}");
}

/// Opening and closing leaves nothing: no descriptor, no mapping, no page with the device.
#[test]
fn nothing_is_left_behind() {
    let device = device(LinkLayer::InfiniBand, 1);
    for _ in 0..50 {
        let context = Context::over_pci(device.clone()).unwrap();
        let _end = End::new(&context);
        drop(context);
    }
    assert_eq!(device.mappings(), 0);
    assert_eq!(device.mapped_pages(), 0);
}

/// Bytes that nobody wants go nowhere, and those that nobody gives are zero.
#[test]
fn lists_may_have_gaps() {
    let device = device(LinkLayer::InfiniBand, 1);
    let context = Context::over_pci(device).unwrap();
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    let builder = pd.queue_pair::<Rc>(&cq);
    let builder = builder.max_send_sge(3).max_recv_sge(3);
    let mut qp = builder.create().unwrap();
    traffic::connect(&mut qp, 0);
    let region = pd.allocate(4096, ALL).unwrap();
    let nothing = pd.null_region().unwrap();
    let [given, wanted] = [0, 2000];
    region.copy_in(given, &[1; 300]);
    region.copy_in(wanted, &[2; 300]);

    // 100 bytes, 50 of nothing, 100 more; of those that arrive the 30 in front of the last 40 go nowhere.
    let receives = [
        region.sge(wanted..wanted + 180),
        nothing.sge(30),
        region.sge(wanted + 180..wanted + 220),
    ];
    // SAFETY: the region outlives the queue pair and is never lent as a slice.
    unsafe { qp.recv_half().post_sges(1, &receives) }.unwrap();
    let mut batch = qp.send_batch();
    batch.send(2).signaled().sges(&[
        region.sge(given..given + 100),
        nothing.sge(50),
        region.sge(given + 100..given + 200),
    ]);
    // SAFETY: as above.
    unsafe { batch.post() }.unwrap();
    for _ in 0..2 {
        traffic::good(&mut cq);
    }
    let expected = [vec![1; 100], vec![0; 50], vec![1; 70], vec![2; 80]].concat();
    assert_eq!(region.to_vec(wanted..wanted + 300), expected);
}

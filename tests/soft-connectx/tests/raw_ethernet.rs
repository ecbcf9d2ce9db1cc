//! Raw Ethernet packets through the userspace driver: between devices in this process, with every byte checked.

#![cfg(feature = "in-process")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxverbs::{
    AccessFlags, Completion, CompletionQueue, Context, FlowMatch, MemoryRegion, QpAttributes,
    QpState, QueuePair, RateLimit, RawPacket, WcOpcode, WcStatus,
};
use soft_connectx::in_process::{Cable, InProcess};
use soft_connectx::{Config, LinkLayer};

mod frames;

/// Bytes of a slot of an end's memory, and its slots: the first is what is sent.
const SLOT: usize = 2048;
const SLOTS: usize = 33;
/// A type that nobody has (IEEE 802, local experimental).
const TYPE: u16 = 0x88b5;

fn device(link: LinkLayer, serial: u16) -> Arc<InProcess> {
    InProcess::new(Config {
        link,
        serial,
        ..Config::default()
    })
}

/// `errno-base.h`, `errno.h` of Linux' `asm-generic`.
const EOPNOTSUPP: i32 = 95;
const EINVAL: i32 = 22;

/// One end: a queue pair, and memory for what it sends and receives.
struct Station {
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    region: MemoryRegion,
    next: usize,
}

impl Station {
    fn new(context: &Context) -> Station {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let builder = pd.queue_pair::<RawPacket>(&cq);
        let mut qp = builder.max_send_wr(16).max_recv_wr(32).create().unwrap();
        qp.to_ready(1).unwrap();
        let access = AccessFlags::LOCAL_WRITE;
        let region = pd.allocate(SLOT * SLOTS, access).unwrap();
        let mut station = Station {
            qp,
            cq,
            region,
            next: 1,
        };
        for _ in 0..16 {
            station.post();
        }
        station
    }

    /// Makes room for one more packet.
    fn post(&mut self) {
        let at = self.next * SLOT;
        self.next = self.next % (SLOTS - 1) + 1;
        let sge = self.region.sge(at..at + SLOT);
        // SAFETY: the region outlives the queue pair, is never lent as a slice, and the slot is read after its completion.
        unsafe { self.qp.recv_half().post_sges(at as u64, &[sge]) }.unwrap();
    }

    fn poll(&mut self, patience: Duration) -> Option<Completion> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(completion) = self.cq.poll().next() {
                assert_eq!(completion.status(), WcStatus::SUCCESS);
                return Some(completion);
            }
            std::thread::yield_now();
        }
        None
    }

    fn send(&mut self, frame: &[u8]) {
        frames::post(&mut self.qp, &self.region, frame);
        let completion = self.poll(Duration::from_secs(30)).expect("a completion");
        assert_eq!(completion.opcode(), WcOpcode::SEND);
    }

    /// The next packet, which comes soon.
    fn receive(&mut self) -> Vec<u8> {
        let packet = self.receive_in(Duration::from_secs(30));
        packet.expect("a packet in time")
    }

    fn receive_in(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let completion = self.poll(patience)?;
        assert_eq!(completion.opcode(), WcOpcode::RECV);
        let at = completion.wr_id() as usize;
        let packet = self.region.to_vec(at..at + completion.byte_len() as usize);
        self.post();
        Some(packet)
    }

    fn silent(&mut self) {
        assert_eq!(self.receive_in(Duration::from_millis(30)), None);
    }
}

fn mac(context: &Context) -> [u8; 6] {
    // of the link-local address that each port has (RFC 4291 appendix A)
    let gid = context.query_gid(1, 0).unwrap().unwrap().gid.0;
    [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]]
}

fn frame(to: [u8; 6], from: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ether_type.to_be_bytes(), payload].concat()
}

fn payload(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8 ^ seed).collect()
}

/// A datagram of IPv4 and UDP, as far as steering looks.
fn datagram(to: [u8; 6], from: [u8; 6], addresses: [Ipv4Addr; 2], port: u16, seed: u8) -> Vec<u8> {
    let data = payload(64, seed);
    let length = (20 + 8 + data.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(addresses[0].octets());
    ip.extend(addresses[1].octets());
    ip.extend(40_000u16.to_be_bytes());
    ip.extend(port.to_be_bytes());
    ip.extend((8 + data.len() as u16).to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(data);
    frame(to, from, 0x0800, &ip)
}

/// Two devices with a cable, and a station on each.
fn pair() -> ([Context; 2], [Station; 2], Cable) {
    let devices = [
        device(LinkLayer::Ethernet, 1),
        device(LinkLayer::Ethernet, 2),
    ];
    let cable = Cable::new(&devices[0], &devices[1]);
    let contexts = devices
        .each_ref()
        .map(|device| Context::over_pci(device.clone()).unwrap());
    let stations = contexts.each_ref().map(Station::new);
    (contexts, stations, cable)
}

#[test]
fn packets_of_every_length_arrive_where_a_rule_lets_them_in() {
    let (contexts, [mut one, mut other], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    one.send(&frame(b, a, TYPE, &payload(100, 0)));
    other.silent();
    let rules = [
        one.qp.steer(1, &FlowMatch::new().mac(a)).unwrap(),
        other.qp.steer(1, &FlowMatch::new().mac(b)).unwrap(),
    ];
    for turn in 0..200 {
        // the shortest frames are filled up on the wire (IEEE 802.3 3.2.7)
        let len = 46 + turn * 7;
        let sent = frame(b, a, TYPE, &payload(len, turn as u8));
        one.send(&sent);
        assert_eq!(other.receive(), sent);
        let answer = frame(a, b, TYPE, &payload(len, !turn as u8));
        other.send(&answer);
        assert_eq!(one.receive(), answer);
    }
    drop(rules);
    one.send(&frame(b, a, TYPE, &payload(100, 0)));
    other.silent();
}

#[test]
fn rules_look_at_types_addresses_and_ports() {
    let (contexts, [mut one, mut other], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    let ours = Ipv4Addr::new(10, 1, 2, 3);
    let theirs = Ipv4Addr::new(10, 1, 2, 4);
    let to = |packets: FlowMatch| packets.mac(b);
    let udp = |port| datagram(b, a, [ours, theirs], port, 3);
    let frames = [frame(b, a, TYPE, &payload(64, 1)), udp(7), udp(8)];
    let cases: [(FlowMatch, &[usize]); 7] = [
        (to(FlowMatch::new()), &[0, 1, 2]),
        (to(FlowMatch::new()).ether_type(TYPE), &[0]),
        (to(FlowMatch::new()).udp_port(7), &[1]),
        (to(FlowMatch::new()).udp_port(8), &[2]),
        (
            to(FlowMatch::new()).source(ours).destination(theirs),
            &[1, 2],
        ),
        (to(FlowMatch::new()).source(theirs), &[]),
        (to(FlowMatch::new()).tcp_port(7), &[]),
    ];
    for (packets, wanted) in cases {
        let rule = other.qp.steer(1, &packets).unwrap();
        for sent in &frames {
            one.send(sent);
        }
        for index in wanted {
            assert_eq!(other.receive(), frames[*index], "{packets:?}");
        }
        other.silent();
        drop(rule);
    }
}

/// Rules that want the same packets share an entry of the device's, and each gets them all.
#[test]
fn two_queue_pairs_get_the_same_packets() {
    let (contexts, [mut one, mut first], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    let mut second = Station::new(&contexts[1]);
    let packets = FlowMatch::new().mac(b);
    let rules = [
        first.qp.steer(1, &packets).unwrap(),
        second.qp.steer(1, &packets).unwrap(),
    ];
    let sent = frame(b, a, TYPE, &payload(500, 9));
    one.send(&sent);
    assert_eq!(first.receive(), sent);
    assert_eq!(second.receive(), sent);
    let [of_first, of_second] = rules;
    drop(of_first);
    one.send(&sent);
    assert_eq!(second.receive(), sent);
    first.silent();
    drop(of_second);
    one.send(&sent);
    second.silent();
}

/// More rules than a group of entries holds, in more ways than one.
#[test]
fn many_rules() {
    let (contexts, [mut one, mut other], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    for _ in 0..2 {
        let mut rules: Vec<_> = (0..300)
            .map(|port| {
                let packets = FlowMatch::new().mac(b).udp_port(1000 + port);
                other.qp.steer(1, &packets).unwrap()
            })
            .collect();
        rules.push(
            other
                .qp
                .steer(1, &FlowMatch::new().ether_type(TYPE))
                .unwrap(),
        );
        for port in [1000, 1063, 1064, 1299] {
            let sent = datagram(b, a, addresses, port, port as u8);
            one.send(&sent);
            assert_eq!(other.receive(), sent);
        }
        one.send(&datagram(b, a, addresses, 1300, 0));
        other.silent();
    }
}

#[test]
fn states_and_attributes() {
    let (contexts, [mut one, mut other], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    let _rule = other.qp.steer(1, &FlowMatch::new().mac(b)).unwrap();
    let sent = frame(b, a, TYPE, &payload(200, 5));
    one.send(&sent);
    assert_eq!(other.receive(), sent);
    assert_eq!(other.qp.query().unwrap().qp_state, QpState::RTS);
    let to = |state| QpAttributes::new().state(state);
    other.qp.modify(&to(QpState::ERR)).unwrap();
    assert_eq!(other.qp.query().unwrap().qp_state, QpState::ERR);
    let mut flushed = 0;
    while let Some(completion) = other.cq.poll().next() {
        assert_eq!(completion.status(), WcStatus::WR_FLUSH_ERR);
        flushed += 1;
    }
    assert!(flushed <= 16);
    other.qp.modify(&to(QpState::RESET)).unwrap();
    assert_eq!(other.qp.query().unwrap().qp_state, QpState::RESET);
    while other.cq.poll().next().is_some() {}
    other.qp.to_ready(1).unwrap();
    other.post();
    let sent = frame(b, a, TYPE, &payload(300, 6));
    one.send(&sent);
    assert_eq!(other.receive(), sent);
}

/// A queue pair is held to its rate, and to no other's; without a limit it sends as it can.
#[test]
fn packets_leave_at_the_rate_that_is_asked_for() {
    let (contexts, [mut one, mut other], _cable) = pair();
    let [a, b] = contexts.each_ref().map(mac);
    let _rule = other
        .qp
        .steer(1, &FlowMatch::new().ether_type(TYPE))
        .unwrap();
    let mut free = Station::new(&contexts[0]);
    let packet = frame(b, a, TYPE, &[7; 986]);
    assert_eq!(packet.len(), 1000);
    // a packet in 100 ms
    let slow = RateLimit {
        kbits: 80,
        ..RateLimit::default()
    };
    let mut time = |station: &mut Station| {
        let start = Instant::now();
        for _ in 0..6 {
            station.send(&packet);
            assert_eq!(other.receive(), packet);
        }
        start.elapsed()
    };
    one.qp.limit_rate(slow).unwrap();
    let limited = time(&mut one);
    let least = Duration::from_millis(480);
    assert!(limited >= least, "{limited:?}");
    assert!(time(&mut free) < limited);
    one.qp.limit_rate(RateLimit::default()).unwrap();
    assert!(time(&mut one) < limited);
    // a burst goes at once
    let bursts = RateLimit {
        burst: 6000,
        ..slow
    };
    one.qp.limit_rate(bursts).unwrap();
    assert!(time(&mut one) < limited);

    let fast = RateLimit {
        kbits: u32::MAX,
        ..RateLimit::default()
    };
    let refused = one.qp.limit_rate(fast).unwrap_err();
    assert_eq!(refused.errno(), Some(EINVAL));
    // a queue pair that starts over has no limit
    one.qp.limit_rate(slow).unwrap();
    one.qp.reset().unwrap();
    // what it did before goes when somebody looks
    assert!(one.cq.poll().next().is_none());
    one.qp.to_ready(1).unwrap();
    assert!(time(&mut one) < limited);
}

#[test]
fn what_is_refused() {
    let context = Context::over_pci(device(LinkLayer::InfiniBand, 1)).unwrap();
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(4).unwrap();
    let error = pd.queue_pair::<RawPacket>(&cq).create().unwrap_err();
    assert_eq!(error.errno(), Some(EOPNOTSUPP), "{error}");

    let ([_, context], [_, other], _cable) = pair();
    assert!(other.qp.steer(2, &FlowMatch::new()).is_err());
    let attributes = context.query_device().unwrap();
    assert_eq!(attributes.extended.rss_caps.supported_qpts, 1 << 8);
    let _ = Config::default();
}

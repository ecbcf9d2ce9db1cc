//! RoCE over IP addresses where nobody but the userspace driver answers for them: ARP and neighbour discovery.

#![cfg(feature = "in-process")]

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use oxverbs::{
    AccessFlags, Address, Context, FlowMatch, Gid, QueuePair, RawPacket, WcOpcode, WcStatus,
};
use soft_connectx::LinkLayer;
use soft_connectx::in_process::Cable;

mod ends;
mod frames;
#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

use ends::{End, connected, device, open, writes_on_a_channel};

/// `errno.h` of Linux' `asm-generic`.
const ENETUNREACH: i32 = 101;
const ETIMEDOUT: i32 = 110;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn gid(text: &str) -> Gid {
    Gid(match ip(text) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    })
}

/// Two devices with a cable.
fn pair() -> ([Context; 2], Cable) {
    let devices = [
        device(LinkLayer::Ethernet, 1),
        device(LinkLayer::Ethernet, 2),
    ];
    let cable = Cable::new(&devices[0], &devices[1]);
    (open(&devices), cable)
}

fn mac(context: &Context) -> [u8; 6] {
    // of the link-local address that each port has (RFC 4291 appendix A)
    let gid = context.query_gid(1, 0).unwrap().unwrap().gid.0;
    [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]]
}

fn write_and_check([from, to]: &mut [End; 2]) {
    let sent: Vec<u8> = (0..10_000u32).map(|at| (at * 13) as u8).collect();
    from.region.copy_in(0, &sent);
    let part = from.region.slice(0..sent.len());
    from.qp
        .send_half()
        .write(part, to.region.remote(100))
        .unwrap();
    assert_eq!(from.done().opcode(), WcOpcode::RDMA_WRITE);
    assert_eq!(to.region.to_vec(100..100 + sent.len()), sent);
}

#[test]
fn connections_between_ip_addresses() {
    for addresses in [["10.7.0.1", "10.7.0.2"], ["fd07::1", "fd07::2"]] {
        let ([one, other], _cable) = pair();
        for (context, address) in [(&one, addresses[0]), (&other, addresses[1])] {
            let index = context.add_address(ip(address)).unwrap();
            let entry = context.query_gid(1, index).unwrap().unwrap();
            assert_eq!(entry.gid, gid(address));
            assert_eq!(context.usual_gid(1).unwrap().index, index);
        }
        write_and_check(&mut connected(&one, &other));
    }
}

#[test]
fn both_protocols_and_many_neighbours_of_one_port() {
    let ([one, other], _cable) = pair();
    one.add_address(ip("10.7.0.1")).unwrap();
    one.add_address(ip("fd07::1")).unwrap();
    let pd = one.protection_domain().unwrap();
    for number in 0..10 {
        for text in [format!("10.7.1.{number}"), format!("fd07::1:{number}")] {
            other.add_address(ip(&text)).unwrap();
            let index = if text.contains(':') { 3 } else { 2 };
            let address = Address::global(1, index, gid(&text));
            pd.address_handle(&address).unwrap();
        }
    }
}

#[test]
fn nobody_answers() {
    let ([one, _other], _cable) = pair();
    one.add_address(ip("10.7.0.1")).unwrap();
    let pd = one.protection_domain().unwrap();
    let start = Instant::now();
    let lonely = Address::global(1, 2, gid("10.7.0.9"));
    let error = pd.address_handle(&lonely).unwrap_err();
    // three requests, a second apart (RFC 4861 10)
    assert!(start.elapsed() >= Duration::from_secs(3));
    assert_eq!(error.errno(), Some(ETIMEDOUT));
    assert!(error.to_string().contains("nobody answers"), "{error}");

    // one that answers to nobody, but whose place was said
    one.add_neighbour(gid("10.7.0.9"), [2, 0, 0, 0, 0, 9])
        .unwrap();
    pd.address_handle(&lonely).unwrap();

    let mixed = Address::global(1, 2, gid("fd07::9"));
    let error = pd.address_handle(&mixed).unwrap_err();
    assert_eq!(error.errno(), Some(ENETUNREACH));
}

#[test]
fn a_request_that_is_lost_is_said_again() {
    let ([one, other], cable) = pair();
    one.add_address(ip("10.7.0.1")).unwrap();
    other.add_address(ip("10.7.0.2")).unwrap();
    // both have heard of each other's addresses, but only those that are waited for are remembered
    cable.cut();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            cable.mend();
        });
        let pd = one.protection_domain().unwrap();
        let address = Address::global(1, 2, gid("10.7.0.2"));
        let start = Instant::now();
        pd.address_handle(&address).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(900));
    });
}

/// A program that speaks the protocols by itself.
struct Stranger {
    qp: QueuePair<RawPacket>,
    cq: oxverbs::CompletionQueue,
    region: oxverbs::MemoryRegion,
}

impl Stranger {
    fn new(context: &Context) -> Stranger {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
        qp.to_ready(1).unwrap();
        let region = pd.allocate(4096, AccessFlags::LOCAL_WRITE).unwrap();
        Stranger { qp, cq, region }
    }

    fn next(&mut self) -> oxverbs::Completion {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(completion) = self.cq.poll().next() {
                assert_eq!(completion.status(), WcStatus::SUCCESS);
                return completion;
            }
            assert!(Instant::now() < deadline, "nothing in time");
            std::thread::yield_now();
        }
    }

    fn listen(&mut self) {
        let sge = self.region.sge(2048..4096);
        // SAFETY: the region outlives the queue pair and is never lent as a slice.
        unsafe { self.qp.recv_half().post_sges(1, &[sge]) }.unwrap();
    }

    fn send(&mut self, frame: &[u8]) {
        frames::post(&mut self.qp, &self.region, frame);
    }

    fn heard(&mut self) -> Vec<u8> {
        loop {
            let completion = self.next();
            if completion.opcode() == WcOpcode::RECV {
                return self
                    .region
                    .to_vec(2048..2048 + completion.byte_len() as usize);
            }
        }
    }
}

/// What our port says, byte by byte, to one whose requests are written down here.
#[test]
fn requests_of_others_are_answered() {
    let ([one, other], _cable) = pair();
    let (ours, theirs) = (mac(&one), mac(&other));
    let mut stranger = Stranger::new(&other);
    let arp = FlowMatch::new().ether_type(0x0806);
    let rule = stranger.qp.steer(1, &arp).unwrap();
    stranger.listen();
    one.add_address(ip("10.7.0.1")).unwrap();
    let announced = stranger.heard();
    let expected = [
        &[0xff; 6][..],
        &ours,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &ours,
        &[10, 7, 0, 1, 0, 0, 0, 0, 0, 0, 10, 7, 0, 1],
    ];
    assert_eq!(announced[..42], expected.concat());

    stranger.listen();
    let request = [
        &[0xff; 6][..],
        &theirs,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &theirs,
        &[10, 7, 0, 77, 0, 0, 0, 0, 0, 0, 10, 7, 0, 1],
        &[0; 18],
    ];
    stranger.send(&request.concat());
    let expected = [
        &theirs[..],
        &ours,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &ours,
        &[10, 7, 0, 1],
        &theirs,
        &[10, 7, 0, 77],
    ];
    assert_eq!(stranger.heard()[..42], expected.concat());
    // whoever asks for us is remembered: nobody answers for 10.7.0.77
    let pd = one.protection_domain().unwrap();
    let address = Address::global(1, 2, gid("10.7.0.77"));
    pd.address_handle(&address).unwrap();
    drop(rule);

    // neighbour discovery: a solicitation with its checksum by RFC 1071
    let source: Ipv6Addr = "fd07::77".parse().unwrap();
    let target: Ipv6Addr = "fd07::1:2345".parse().unwrap();
    one.add_address(target.into()).unwrap();
    let group: Ipv6Addr = "ff02::1:ff01:2345".parse().unwrap();
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]);
    message.extend(theirs);
    let pseudo = [
        &source.octets()[..],
        &group.octets(),
        &[0, 0, 0, 32, 0, 0, 0, 58],
        &message,
    ];
    let words = pseudo.concat();
    let words = words
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
    let check = 0xffff - (words.sum::<u64>() % 0xffff) as u16;
    message[2..4].copy_from_slice(&check.to_be_bytes());
    let solicitation = [
        &[0x33, 0x33, 0xff, 0x01, 0x23, 0x45][..],
        &theirs,
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255],
        &source.octets(),
        &group.octets(),
        &message,
    ];
    let discovery = FlowMatch::new().ether_type(0x86dd).mac(theirs);
    let _rule = stranger.qp.steer(1, &discovery).unwrap();
    stranger.listen();
    stranger.send(&solicitation.concat());
    let answer = stranger.heard();
    assert_eq!(answer[..12], [theirs, ours].concat());
    assert_eq!(answer[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
    assert_eq!(answer[22..38], target.octets());
    assert_eq!(answer[38..54], source.octets());
    // an advertisement, solicited, that overrides
    assert_eq!(answer[54..56], [136, 0]);
    assert_eq!(answer[58..62], [0x60, 0, 0, 0]);
    assert_eq!(answer[62..78], target.octets());
    assert_eq!(answer[78..86], [&[2, 1][..], &ours].concat());
    let pseudo = [&answer[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &answer[54..]].concat();
    let words = pseudo
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
    assert_eq!(words.sum::<u64>() % 0xffff, 0);
}

/// Opening and closing leaves nothing of it: no thread, no mapping.
#[test]
fn nothing_is_left_behind() {
    let device = device(LinkLayer::Ethernet, 1);
    for _ in 0..20 {
        let context = Context::over_pci(device.clone()).unwrap();
        context.add_address(ip("10.7.0.1")).unwrap();
        writes_on_a_channel(&context, 2, |_| (), || ());
    }
    assert_eq!(device.mappings(), 0);
    assert_eq!(device.mapped_pages(), 0);
}

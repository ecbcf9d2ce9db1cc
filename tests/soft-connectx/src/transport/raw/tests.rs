use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use wqe_format::mlx5::firmware::rq::Rqc;
use wqe_format::mlx5::firmware::sq::Sqc;
use wqe_format::mlx5::firmware::tir::Tirc;
use wqe_format::mlx5::{ChecksumFlags, Cqe64, CqeOpcode, L3_IPV4, Opcode, Syndrome};

use crate::resources::flow::action;
use crate::resources::{
    Destination, Dispatch, FlowCounter, FlowEntry, FlowGroup, FlowTable, MATCH_LEN, QpKind,
    QpState, Receive, Rqt, SrqKind, Strides, Table, Tir, Tis,
};
use crate::transport::tests::{Bench, data, srq};
use crate::wire::{Bth, Deth, Extended, Global, Packet, Route, op};
use crate::{GuestMemory, Link, LinkLayer};

const SEND: u32 = 0x41;
const RECEIVE: u32 = 0x42;
const TIR: u32 = 7;
/// Transport domains of who sends and of who receives.
const SENDER: u32 = 1;
const RECEIVER: u32 = 2;
const THERE: [u8; 6] = [0x24, 0x8a, 0x07, 1, 2, 3];
const HERE: [u8; 6] = [0x24, 0x8a, 0x07, 4, 5, 6];
const COUNTER: u32 = 3;
const TAG: u32 = 0xab_cdef;

#[derive(Clone, Default)]
struct Cable(Arc<Mutex<Vec<Vec<u8>>>>);

impl Link for Cable {
    fn send(&mut self, frame: &[u8]) {
        self.0.lock().unwrap().push(frame.to_vec());
    }
}

fn receive_queue(bench: &mut Bench, number: u32, change: impl Fn(&mut Rqc<&mut [u8]>)) {
    bench.qp(number, QpKind::RawReceive, 0, 0);
    let qp = bench.device.resources.qps.get_mut(number).unwrap();
    let mut context = Rqc::zeroed();
    context.set_vsd(true);
    let mut bytes = context.into_inner().to_vec();
    change(&mut Rqc::new(&mut bytes[..]).unwrap());
    qp.context = bytes;
    qp.send = None;
    bench.to(number, QpState::Rts);
}

fn tir(bench: &mut Bench, dispatch: Dispatch, change: impl Fn(&mut Tirc<&mut [u8]>)) {
    let mut context = Tirc::zeroed().into_inner().to_vec();
    change(&mut Tirc::new(&mut context[..]).unwrap());
    let tir = Tir {
        uid: 0,
        context,
        dispatch,
        transport_domain: RECEIVER,
    };
    bench.device.resources.steering.tirs.insert(TIR, tir);
}

/// A flow table whose only entry takes frames to [`THERE`].
fn flow(bench: &mut Bench, action: u16) {
    let mut criteria = vec![0; MATCH_LEN];
    let mut value = criteria.clone();
    // `fte_match_set_lyr_2_4.dmac` is at byte 8.
    criteria[8..14].fill(0xff);
    value[8..14].copy_from_slice(&THERE);
    let mut table = FlowTable {
        uid: 0,
        kind: 0,
        level: 0,
        log_size: 1,
        miss: None,
        groups: Table::new(0, 15),
        entries: Default::default(),
    };
    let group = FlowGroup {
        entries: 0..=1,
        enable: 1,
        criteria,
    };
    table.groups.insert(0, group);
    let entry = FlowEntry {
        group: 0,
        tag: TAG,
        action,
        value,
        destinations: vec![Destination::Tir(TIR)],
        counters: vec![COUNTER],
        context: Vec::new(),
    };
    table.entries.insert(0, entry);
    let flow = &mut bench.device.resources.flow;
    flow.tables.insert(1, table);
    flow.roots.insert(0, 1);
    flow.counters.insert(COUNTER, FlowCounter::default());
}

/// A port with a send queue, a receive queue, and a rule that leads from one to the other; and its cable.
fn bench() -> (Bench, Cable) {
    let mut bench = Bench::new(1);
    bench.device.config.link = LinkLayer::Ethernet;
    let cable = Cable::default();
    bench.device.plug(1, Box::new(cable.clone()));
    bench.qp(SEND, QpKind::RawSend, 0, 0);
    let mut context = Sqc::zeroed();
    context.set_tis_num_0(5);
    let qp = bench.device.resources.qps.get_mut(SEND).unwrap();
    qp.context = context.into_inner().to_vec();
    qp.receive = Receive::None;
    let tis = Tis {
        uid: 0,
        context: Vec::new(),
        transport_domain: SENDER,
    };
    bench.device.resources.steering.tiss.insert(5, tis);
    bench.to(SEND, QpState::Rts);
    receive_queue(&mut bench, RECEIVE, |_| {});
    tir(&mut bench, Dispatch::Queue(RECEIVE), |_| {});
    flow(&mut bench, action::FORWARD | action::COUNT);
    (bench, cable)
}

/// An Ethernet segment as `mlx5_wqe_eth_seg` lays it out.
fn segment(flags: ChecksumFlags, mss: u16, insert: Option<u16>, inline: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes[4] = flags.0;
    bytes[6..8].copy_from_slice(&mss.to_be_bytes());
    match insert {
        Some(tci) => {
            bytes.extend([0x80, 0]);
            bytes.extend(tci.to_be_bytes());
        }
        None => {
            bytes.extend((inline.len() as u16).to_be_bytes());
            bytes.extend(inline);
        }
    }
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

fn ethernet(to: [u8; 6], kind: u16) -> Vec<u8> {
    [&to[..], &HERE, &kind.to_be_bytes()].concat()
}

/// UDP over IPv4; its header is the example of Wikipedia's "Internet checksum", without the sum.
fn udp() -> Vec<u8> {
    let mut frame = ethernet(THERE, 0x0800);
    frame.extend([0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0]);
    frame.extend([0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7]);
    frame.extend([4, 0, 8, 0, 0, 95, 0, 0]);
    frame.extend(0..87);
    frame
}

fn post(bench: &mut Bench, opcode: Opcode, segment: &[u8], payload: &[u8]) {
    bench.ram.write(0x1000, payload).unwrap();
    let data = data(0x1000, payload.len() as u32);
    let list = zerocopy::IntoBytes::as_bytes(&data);
    bench.post(SEND, opcode, 0, &[segment, list]);
}

fn received(bench: &mut Bench, len: usize) -> (Cqe64, Vec<u8>) {
    let cqe = bench.done(RECEIVE, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.byte_cnt.get() as usize, len);
    let bytes = bench.bytes(0x2_0000, len);
    (cqe, bytes)
}

/// Check sums are made, a part of the frame being in the request; the completion says what the headers are; the rule counts.
#[test]
fn a_frame_comes_back_by_its_rule() {
    let (mut bench, _) = bench();
    bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
    let frame = udp();
    let (inline, rest) = frame.split_at(18);
    let segment = segment(ChecksumFlags::L3_AND_L4, 0, None, inline);
    post(&mut bench, Opcode::SEND, &segment, rest);
    bench.done(SEND, CqeOpcode::REQ);
    let (cqe, bytes) = received(&mut bench, frame.len());
    let mut expected = frame.clone();
    expected[24..26].copy_from_slice(&[0xb8, 0x61]);
    expected[40..42].copy_from_slice(&[0x05, 0xd7]);
    assert_eq!(bytes, expected);
    assert_eq!(cqe.srqn_uidx.get(), RECEIVE + 0x1000);
    assert_eq!(cqe.sop_drop_qpn.qpn(), TAG);
    let (right, kinds) = (cqe.hds_ip_ext, cqe.l4_hdr_type_etc);
    assert!(right.l2_ok() && right.l3_ok() && right.l4_ok());
    assert_eq!((kinds.l3(), kinds.l4()), (L3_IPV4, 2));
    assert!(!kinds.vlan_stripped());
    let counter = bench.device.resources.flow.counters.get(COUNTER).unwrap();
    assert_eq!((counter.packets, counter.octets), (1, frame.len() as u64));
}

/// What came over the link with wrong sums is delivered, and said to be wrong.
#[test]
fn wrong_sums_are_told() {
    let (mut bench, _) = bench();
    bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
    let mut frame = udp();
    frame[41] = 1;
    bench.device.receive(&frame);
    let (cqe, _) = received(&mut bench, frame.len());
    assert!(!cqe.hds_ip_ext.l3_ok() && !cqe.hds_ip_ext.l4_ok());
}

/// A tag is put in by the sender, and taken off by a receiver that wants that; another one gets it in the frame.
#[test]
fn vlan_tags() {
    for keeps in [false, true] {
        let (mut bench, _) = bench();
        receive_queue(&mut bench, RECEIVE, |context| {
            context.set_vsd(keeps).set_scatter_fcs(true);
        });
        bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
        let frame = [ethernet(THERE, 0x1234), vec![9; 50]].concat();
        let segment = segment(ChecksumFlags::NONE, 0, Some(0x6123), &[]);
        post(&mut bench, Opcode::SEND, &segment, &frame);
        let tagged = [&frame[..12], &[0x81, 0, 0x61, 0x23], &frame[12..]].concat();
        let body = if keeps { &tagged } else { &frame };
        let check = crc32fast::hash(&tagged).to_le_bytes();
        let (cqe, bytes) = received(&mut bench, body.len() + 4);
        assert_eq!(bytes, [&body[..], &check].concat());
        assert_eq!(cqe.l4_hdr_type_etc.vlan_stripped(), !keeps);
        assert_eq!(cqe.vlan_info.get(), if keeps { 0 } else { 0x6123 });
    }
}

/// 250 bytes in segments of 100: numbers and lengths go on, the last frame alone has FIN and PSH.
#[test]
fn large_sends() {
    let (mut bench, cable) = bench();
    let mut header = ethernet([2, 0, 0, 0, 0, 9], 0x0800);
    header.extend([0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0]);
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    header.extend([
        0x30, 0, 0, 80, 0xff, 0xff, 0xff, 0xc0, 0, 0, 0, 1, 0x50, 0x99,
    ]);
    header.extend([1, 0, 0, 0, 0, 0]);
    let payload: Vec<u8> = (0..250).collect();
    let segment = segment(ChecksumFlags::L3_AND_L4, 100, None, &header);
    post(&mut bench, Opcode::TSO, &segment, &payload);
    bench.done(SEND, CqeOpcode::REQ);
    let frames = cable.0.lock().unwrap();
    let fields: Vec<_> = (frames.iter())
        .map(|frame| {
            let headers = super::Headers::parse(frame).unwrap();
            assert_eq!(super::sums::are_right(frame, &headers), (true, true));
            let number = u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
            (&frame[16..20], number, frame[47], &frame[54..])
        })
        .collect();
    assert_eq!(
        fields,
        [
            (
                &[0, 140, 0xff, 0xff][..],
                0xffff_ffc0,
                0x90,
                &payload[..100]
            ),
            (&[0, 140, 0, 0][..], 0x24, 0x10, &payload[100..200]),
            (&[0, 90, 0, 1][..], 0x88, 0x19, &payload[200..]),
        ]
    );
}

/// Frames for others go out, filled up to the shortest; what is the port's own does not; those of one's own domain are
/// heard only if the TIR says so.
#[test]
fn where_frames_go() {
    let (mut bench, cable) = bench();
    let own = bench.device.config.mac();
    let segment = segment(ChecksumFlags::NONE, 0, None, &[]);
    for to in [own, THERE, [0xff; 6]] {
        post(&mut bench, Opcode::SEND, &segment, &ethernet(to, 0x1234));
    }
    let sent = std::mem::take(&mut *cable.0.lock().unwrap());
    let lengths: Vec<_> = sent.iter().map(|it| (&it[..6], it.len())).collect();
    assert_eq!(lengths, [(&THERE[..], 60), (&[0xff; 6][..], 60)]);
    let counted = bench.device.port.nic.sent;
    let counts = (counted.unicast.0, counted.broadcast.0, counted.unicast.1);
    assert_eq!(counts, (2, 1, 28));
    // What comes back counts where a rule takes it.
    assert_eq!(bench.device.port.nic.received.unicast.0, 1);
    // The frame to THERE had no receive request and was dropped.
    assert!(bench.poll(RECEIVE).is_none());
    for (domain, hears, arrives) in [
        (RECEIVER, 0, false),
        (RECEIVER, 2, false),
        (RECEIVER, 1, true),
        (SENDER, 0, true),
    ] {
        bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
        let tis = bench.device.resources.steering.tiss.get_mut(5).unwrap();
        tis.transport_domain = domain;
        tir(&mut bench, Dispatch::Queue(RECEIVE), |context| {
            context.set_self_lb_block(hears);
        });
        post(&mut bench, Opcode::SEND, &segment, &ethernet(THERE, 0x1234));
        assert_eq!(bench.poll(RECEIVE).is_some(), arrives);
    }
}

/// A rule that drops counts and hands to nobody; a frame that is too long for its request fails that alone.
#[test]
fn drops_and_lengths() {
    let (mut bench, _) = bench();
    bench.post_receive(RECEIVE, &[data(0x2_0000, 64)]);
    bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
    const DROP: u16 = 2;
    flow(&mut bench, DROP | action::COUNT);
    bench.device.receive(&udp());
    assert!(bench.poll(RECEIVE).is_none());
    let counter = bench.device.resources.flow.counters.get(COUNTER).unwrap();
    assert_eq!(counter.packets, 1);
    flow(&mut bench, action::FORWARD);
    let qp = bench.device.resources.qps.get_mut(RECEIVE).unwrap();
    qp.counter = 9;
    (bench.device.resources.counters).insert(9, Default::default());
    bench.device.receive(&udp());
    bench.device.receive(&udp());
    bench.failed(RECEIVE, Syndrome::LOCAL_LENGTH_ERR);
    received(&mut bench, udp().len());
    // Nobody waits for this one.
    bench.device.receive(&udp());
    let counters = bench.device.resources.counters.get(9).unwrap();
    assert_eq!(counters.out_of_buffer, 1);
}

/// RoCE to one of the port's RoCE addresses is the transport's, whatever the rules say; other UDP to that address is steered.
#[test]
fn roce_is_not_steered() {
    const UD: u32 = 0x48;
    let (mut bench, _) = bench();
    bench.qp(UD, QpKind::Ud, 0, 0);
    bench.up(UD);
    for queue in [UD, RECEIVE] {
        bench.post_receive(queue, &[data(0x2_0000, 2048)]);
    }
    let global = Global {
        source: [0xfe; 16],
        destination: [0xfd; 16],
        ..Global::default()
    };
    let packet = Packet {
        route: Route::Ethernet {
            destination: THERE,
            source: HERE,
            vlan: None,
            global,
            udp: Some(0xc000),
        },
        bth: Bth {
            opcode: 3 << 5 | op::SEND_ONLY,
            solicited: false,
            pad: 0,
            pkey: 0xffff,
            dest_qp: UD,
            ack_request: false,
            psn: 0,
        },
        extended: Extended {
            deth: Some(Deth {
                qkey: 0x1111,
                source_qp: 5,
            }),
            ..Extended::default()
        },
        payload: vec![1; 8],
    };
    let frame = packet.emit();
    let address = &mut bench.device.port.nic.roce[3];
    (address.gid, address.mac) = (global.destination, THERE);
    let mut changed = frame.clone();
    changed[70] ^= 1;
    bench.device.receive(&changed);
    let segment = segment(ChecksumFlags::NONE, 0, None, &[]);
    post(&mut bench, Opcode::SEND, &segment, &frame);
    assert!(bench.poll(RECEIVE).is_none());
    assert_eq!(bench.done(UD, CqeOpcode::RESP_SEND).byte_cnt.get(), 48);
    assert!(bench.poll(UD).is_none());
    bench.device.receive(&udp());
    received(&mut bench, udp().len());
    // To nobody's RoCE address it is a frame like others.
    bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
    bench.device.port.nic.roce[3] = Default::default();
    bench.device.receive(&frame);
    assert_eq!(received(&mut bench, frame.len()).1, frame);
}

/// A receive queue that takes its requests from a shared one.
#[test]
fn from_a_shared_queue() {
    let (mut bench, _) = bench();
    srq(&mut bench, 9, SrqKind::Rmp, 0);
    let at = Bench::place(9);
    bench.ram.write(at + 0x1_1000, &[0, 0, 0, 2]).unwrap();
    let qp = bench.device.resources.qps.get_mut(RECEIVE).unwrap();
    qp.receive = Receive::Shared {
        srqn: 9,
        cqn: RECEIVE,
    };
    for index in 0..3 {
        bench.device.receive(&udp());
        if index < 2 {
            let cqe = bench.done(RECEIVE, CqeOpcode::RESP_SEND);
            assert_eq!(cqe.wqe_counter.get(), index);
            let to = 0x3_0000 + 0x1000 * u64::from(index);
            assert_eq!(bench.bytes(to, udp().len()), udp());
        }
    }
    assert!(bench.poll(RECEIVE).is_none());
}

/// A request that is longer than any frame fails.
#[test]
fn too_long() {
    for (opcode, len) in [(Opcode::SEND, 1 << 16), (Opcode::TSO, 1 << 18)] {
        let (mut bench, _) = bench();
        let header = &udp()[..42];
        let segment = segment(ChecksumFlags::NONE, 100, None, header);
        let data = data(0x1000, len);
        let list = zerocopy::IntoBytes::as_bytes(&data);
        bench.post(SEND, opcode, 0, &[&segment, list]);
        bench.failed(SEND, Syndrome::LOCAL_LENGTH_ERR);
    }
}

/// Microsoft's verification suite through the whole way: the hash is told, and its low bits choose the queue.
#[test]
fn packets_are_spread() {
    let (mut bench, _) = bench();
    let queues: Vec<u32> = (0x43..0x47).collect();
    for queue in &queues {
        receive_queue(&mut bench, *queue, |_| {});
        bench.post_receive(*queue, &[data(0x2_0000, 2048); 1]);
        bench.post_receive(*queue, &[data(0x2_0000, 2048); 1]);
        bench.post_receive(*queue, &[data(0x2_0000, 2048); 1]);
    }
    let rqt = Rqt {
        uid: 0,
        largest: 4,
        queues: queues.clone(),
    };
    bench.device.resources.steering.rqts.insert(1, rqt);
    tir(&mut bench, Dispatch::Table(1), |context| {
        context.set_rx_hash_fn(2);
        for (index, word) in super::rss::tests::KEY.chunks_exact(4).enumerate() {
            let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            context.set_rx_hash_toeplitz_key(index, word);
        }
        // Addresses and ports of TCP over IPv4.
        context
            .rx_hash_field_selector_outer_mut()
            .set_selected_fields(0xf);
    });
    for (source, from, destination, to, hash) in [
        (
            [66, 9, 149, 187],
            2794u16,
            [161, 142, 100, 80],
            1766u16,
            0x51cc_c178u32,
        ),
        (
            [199, 92, 111, 2],
            14230,
            [65, 69, 140, 83],
            4739,
            0xc626_b0ea,
        ),
        (
            [24, 19, 198, 95],
            12898,
            [12, 22, 207, 184],
            38024,
            0x5c2b_394a,
        ),
        (
            [38, 27, 205, 30],
            48228,
            [209, 142, 163, 6],
            2217,
            0xafc7_327f,
        ),
    ] {
        let mut frame = ethernet(THERE, 0x0800);
        frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend([source, destination].concat());
        frame.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        bench.device.receive(&frame);
        let cqe = bench.done(queues[hash as usize % 4], CqeOpcode::RESP_SEND);
        assert_eq!(cqe.rx_hash_result.get(), hash);
        // TCP over IPv4 (`CQE_RSS_L4_TCP | CQE_RSS_IPV4`); an empty acknowledgment.
        assert_eq!(cqe.rx_hash_type, 0x44);
        assert_eq!(cqe.l4_hdr_type_etc.l4(), 3);
    }
}

proptest! {
    /// Frames of which nothing is right are taken apart without harm, whoever made them.
    #[test]
    fn frames_of_any_kind(
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88a8, 7]),
        version in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0]),
        protocol in prop::sample::select(vec![0u8, 6, 17, 43, 44, 60]),
        mut body in prop::collection::vec(any::<u8>(), 0..120),
        mss in 0usize..9,
        cut in 0usize..80,
    ) {
        for (at, byte) in [(0, version), (6, protocol), (9, protocol)] {
            if let Some(place) = body.get_mut(at) {
                *place = byte;
            }
        }
        let mut frame = [ethernet(THERE, kind), body].concat();
        let (header, payload) = frame.split_at(cut.min(frame.len()));
        for mut frame in super::segment::frames(header, payload, mss).unwrap_or_default() {
            super::sums::fill(&mut frame, true, true);
        }
        super::sums::fill(&mut frame, true, true);
        let (mut bench, _) = bench();
        bench.post_receive(RECEIVE, &[data(0x2_0000, 2048)]);
        bench.device.receive(&frame);
        // Those that end within their tags are none.
        let is_whole = frame.len() >= 14 + 8 || !matches!(kind, 0x8100 | 0x88a8);
        prop_assert!(bench.poll(RECEIVE).is_some() || !is_whole);
    }
}

/// Requests of four strides of 256 bytes. What completions say are the fields that Linux' `mpwrq_get_cqe_*` read
/// (include/linux/mlx5/device.h): request, stride, strides in the upper half of the count of bytes, its top bit for a filler.
#[test]
fn requests_are_divided_into_strides() {
    // In a list the requests follow each other as they say: after the first the third.
    for (linked, order) in [(false, [0, 1, 2]), (true, [0, 2, 1])] {
        let (mut bench, _) = bench();
        let qp = bench.device.resources.qps.get_mut(RECEIVE).unwrap();
        qp.strides = Some(Strides {
            log_count: 2,
            log_size: 8,
            shifts: true,
            linked,
        });
        let ring = Bench::place(RECEIVE) + 0x4000;
        for (slot, next) in [(0u64, 2u16), (1, 7), (2, 1)] {
            let mut request = [0; 32];
            request[2..4].copy_from_slice(&next.to_be_bytes());
            let buffer = data(0x2_0000 + slot * 0x1000, 1024);
            request[16..].copy_from_slice(zerocopy::IntoBytes::as_bytes(&buffer));
            bench.ram.write(ring + slot * 32, &request).unwrap();
        }
        let record = Bench::place(RECEIVE) + 0x1_1000;
        bench.ram.write(record, &3u32.to_be_bytes()).unwrap();
        let frame = |len: usize| {
            let mut frame = ethernet(THERE, 0x88b5);
            frame.extend((14..len).map(|at| (at * 7 + len) as u8));
            frame
        };
        let [a, b, c] = order;
        let mut sent = vec![(frame(100), a, 0, 1), (frame(600), a, 1, 3)];
        sent.extend([(frame(300), b, 0, 2), (frame(700), c, 0, 3)]);
        for (frame, ..) in &sent {
            bench.device.receive(frame);
        }
        // One that no request has room for, and one for which only another request would have.
        bench.device.receive(&frame(1023));
        bench.device.receive(&frame(300));
        let expect = |bench: &mut Bench, request: u16, stride: u16, bytes: u32| {
            let cqe = bench.done(RECEIVE, CqeOpcode::RESP_SEND);
            let said = (cqe.wqe_id.get(), cqe.wqe_counter.get(), cqe.byte_cnt.get());
            assert_eq!(said, (request, stride, bytes));
        };
        for (nth, (frame, request, stride, count)) in sent.iter().enumerate() {
            if nth == 3 {
                expect(&mut bench, b, 2, 0x8002 << 16);
            }
            let bytes = count << 16 | frame.len() as u32;
            expect(&mut bench, *request, *stride, bytes);
            let at = 0x2_0000 + u64::from(*request) * 0x1000 + u64::from(*stride) * 256 + 2;
            assert_eq!(bench.bytes(at, frame.len()), *frame);
        }
        expect(&mut bench, c, 3, 0x8001 << 16);
        assert_eq!(bench.poll(RECEIVE), None);
    }
}

//! Every operation, over more than one packet, around the rings.

use wqe_format::mlx5::{AtomicSegment, DatagramSegment, XrcSegment};
use zerocopy::byteorder::big_endian::U16;

use super::*;
use crate::adversary::Adversary;
use crate::caps::Caps;
use crate::memic;

#[test]
fn messages_are_cut_and_put_together() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut bench = Bench::pair(kind);
        let sent = bench.fill(0x1000, 1000);
        bench.post_receive(0x42, &[data(0x5000, 300), data(0x9000, 2000)]);
        let list = [data(0x1000, 600), data(0x1000 + 600, 400)];
        bench.post(
            0x41,
            Opcode::SEND_IMM,
            0xabcd,
            &[list.as_slice().as_bytes()],
        );
        let cqe = bench.done(0x42, CqeOpcode::RESP_SEND_IMM);
        assert_eq!(cqe.byte_cnt.get(), 1000);
        assert_eq!(cqe.imm_inval_pkey.get(), 0xabcd);
        assert_eq!((cqe.qpn(), cqe.user_index()), (0x42, 0x1042));
        let cqe = bench.done(0x41, CqeOpcode::REQ);
        assert_eq!(cqe.send_opcode(), Opcode::SEND_IMM);
        assert_eq!(bench.bytes(0x5000, 300), sent[..300]);
        assert_eq!(bench.bytes(0x9000, 700), sent[300..]);
        assert_eq!(bench.poll(0x41), None);
    }
}

#[test]
fn memory_is_written_and_read() {
    let mut bench = Bench::pair(QpKind::Rc);
    let sent = bench.fill(0x1000, 777);
    bench.post_receive(0x42, &[]);
    let body = [remote(0x5000).as_bytes(), data(0x1000, 777).as_bytes()].concat();
    bench.post(0x41, Opcode::RDMA_WRITE_IMM, 5, &[&body]);
    let cqe = bench.done(0x42, CqeOpcode::RESP_WR_IMM);
    assert_eq!((cqe.byte_cnt.get(), cqe.imm_inval_pkey.get()), (777, 5));
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x5000, 777), sent);
    // Five reads, of which four are asked for at once.
    for turn in 0..5u64 {
        let to = data(0x9000 + turn * 0x400, 777);
        let body = [remote(0x5000).as_bytes(), to.as_bytes()].concat();
        bench.post(0x41, Opcode::RDMA_READ, 0, &[&body]);
    }
    for turn in 0..5 {
        assert_eq!(bench.done(0x41, CqeOpcode::REQ).byte_cnt.get(), 777);
        assert_eq!(bench.bytes(0x9000 + turn * 0x400, 777), sent);
    }
}

#[test]
fn atomics_happen_once_each() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.ram.write(0x5000, &40u64.to_le_bytes()).unwrap();
    let add = AtomicSegment::fetch_add(2);
    let swap = AtomicSegment::compare_swap(42, 7);
    for (opcode, operands) in [(Opcode::ATOMIC_FA, add), (Opcode::ATOMIC_CS, swap)] {
        let (to, back) = (remote(0x5000), data(0x6000, 8));
        let parts = [to.as_bytes(), operands.as_bytes(), back.as_bytes()];
        bench.post(0x41, opcode, 0, &parts);
        assert_eq!(bench.done(0x41, CqeOpcode::REQ).send_opcode(), opcode);
    }
    assert_eq!(bench.bytes(0x6000, 8), 42u64.to_le_bytes());
    assert_eq!(bench.bytes(0x5000, 8), 7u64.to_le_bytes());
}

#[test]
fn atomics_come_in_the_wires_order_until_the_driver_asks() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.caps = Caps::new(&bench.device.config);
    bench.ram.write(0x5000, &40u64.to_le_bytes()).unwrap();
    let (to, back) = (remote(0x5000), data(0x6000, 8));
    let add = AtomicSegment::fetch_add(2);
    let parts = [to.as_bytes(), add.as_bytes(), back.as_bytes()];
    bench.post(0x41, Opcode::ATOMIC_FA, 0, &parts);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x6000, 8), 40u64.to_be_bytes());
    assert_eq!(bench.bytes(0x5000, 8), 42u64.to_le_bytes());
}

/// Software that changes a request after it was posted gets what it was posted as, if it was fetched early.
#[test]
fn an_adversary_fetches_receive_requests_early() {
    let mut early = 0;
    for seed in 0..20 {
        let mut bench = Bench::pair(QpKind::Rc);
        bench.device.adversary = Adversary::new(Some(seed));
        let sent = bench.fill(0x1000, 64);
        for turn in 0..4 {
            bench.post_receive(0x42, &[data(0x5000 + turn * 0x100, 64)]);
        }
        for turn in 0..4 {
            bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 64).as_bytes()]);
            bench.done(0x41, CqeOpcode::REQ);
            bench.done(0x42, CqeOpcode::RESP_SEND);
            if turn == 0 {
                // The second, elsewhere.
                let moved = data(0x9000, 64);
                let slot = Bench::place(0x42) + 0x4000 + 32;
                bench.ram.write(slot, moved.as_bytes()).unwrap();
            }
        }
        let (posted, moved) = (bench.bytes(0x5100, 64), bench.bytes(0x9000, 64));
        assert!((posted == sent) != (moved == sent), "seed {seed}");
        early += u32::from(posted == sent);
        assert_eq!(bench.bytes(0x5300, 64), sent);
    }
    assert!((5..20).contains(&early), "{early}");
}

/// A program writes its message to the device's memory, the request, the record and the doorbell, in that order. The record is
/// in memory and may be seen before the stores to the device arrive, with a doorbell of before (UCX sends so: twice what was
/// there from the message before).
#[test]
fn data_on_the_device_are_not_fetched_before_their_doorbell() {
    const ON_DEVICE: u32 = 0x22 << 8;
    let mut bench = Bench::pair(QpKind::Rc);
    let start = bench.device.memic.alloc((memic::START, 4096), 64).unwrap();
    let key = key(5, 0b00011, (start, 64), Vec::new());
    bench.device.resources.mkeys.insert(ON_DEVICE >> 8, key);
    for at in [0x5000, 0x5100, 0x5200] {
        bench.post_receive(0x42, &[data(at, 64)]);
    }
    let body = DataSegment::new(0, 64, ON_DEVICE);
    bench.device.bar_write(start, &[1; 64]);
    bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    bench.done(0x41, CqeOpcode::REQ);
    // The second one is in the ring; so is a third, of plain memory, behind it.
    let second = bench.request(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    bench.put(0x41, &second);
    let sent = bench.fill(0x1000, 64);
    let third = bench.request(0x41, Opcode::SEND, 0, &[data(0x1000, 64).as_bytes()]);
    bench.put(0x41, &third);
    wake(&mut bench.device, 0x41);
    assert_eq!(bench.poll(0x41), None);
    bench.device.bar_write(start, &[2; 64]);
    let register = u64::from(UAR) * 4096 + 0x900;
    bench.device.bar_write(register, &third[..8]);
    bench.done(0x41, CqeOpcode::REQ);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x5000, 64), [1; 64]);
    assert_eq!(bench.bytes(0x5100, 64), [2; 64]);
    assert_eq!(bench.bytes(0x5200, 64), sent);
}

/// A thousand requests of one to four basic blocks in a ring of 16: the 17th, and all later turns.
#[test]
fn rings_turn() {
    let mut bench = Bench::pair(QpKind::Rc);
    let sent = bench.fill(0x1000, 2048);
    for turn in 0..1000u32 {
        let pieces = 1 + turn as usize % 13;
        let list: Vec<DataSegment> = (0..pieces as u64)
            .map(|piece| data(0x1000 + piece * 10, 10))
            .collect();
        let len = pieces * 10;
        bench.post_receive(0x42, &[data(0x5000, 2048)]);
        bench.post(0x41, Opcode::SEND, 0, &[list.as_slice().as_bytes()]);
        let cqe = bench.done(0x42, CqeOpcode::RESP_SEND);
        assert_eq!(
            (cqe.byte_cnt.get() as usize, cqe.wqe_counter.get()),
            (len, turn as u16)
        );
        bench.done(0x41, CqeOpcode::REQ);
        assert_eq!(bench.bytes(0x5000, len), sent[..len]);
    }
}

#[test]
fn datagrams_carry_their_route() {
    let mut bench = Bench::new(1);
    for number in [0x41, 0x42] {
        bench.qp(number, QpKind::Ud, 0, 0);
        bench.up(number);
    }
    let sent = bench.fill(0x1000, 100);
    bench.post_receive(0x42, &[data(0x5000, 200)]);
    bench.post_receive(0x42, &[data(0x5000, 100)]);
    let mut av = DatagramSegment {
        rlid: U16::new(1),
        ..DatagramSegment::default()
    };
    av.grh_gid_fl = av.grh_gid_fl.with_grh(true);
    av.rgid = bench.device.port.gid(0);
    let to = av.to_qp(0x42, 0x1111);
    let body = [to.as_bytes(), data(0x1000, 100).as_bytes()].concat();
    bench.post(0x41, Opcode::SEND, 0, &[&body]);
    let cqe = bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(
        (cqe.byte_cnt.get(), cqe.src_qp(), cqe.slid.get()),
        (140, 0x41, 1)
    );
    assert!(cqe.has_grh());
    assert_eq!(bench.bytes(0x5000 + 40, 100), sent);
    assert_eq!(bench.bytes(0x5000 + 24, 16), av.rgid);
    bench.done(0x41, CqeOpcode::REQ);
    // By the LID alone a vector may end after 16 bytes (`compact_address_vector`).
    let mut short = to;
    short.dqp_dct = short.dqp_dct.with_extended(false);
    short.grh_gid_fl = short.grh_gid_fl.with_grh(false);
    let short = &short.as_bytes()[..DatagramSegment::COMPACT];
    bench.post_receive(0x42, &[data(0x6000, 200)]);
    bench.post_receive(0x42, &[data(0x5000, 100)]);
    // The buffer of 100 bytes, first in the queue, is taken by a message of 20 behind the place of the header.
    let body_of_20 = [short, data(0x1000, 20).as_bytes()].concat();
    bench.post(0x41, Opcode::SEND, 0, &[&body_of_20]);
    let cqe = bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!((cqe.byte_cnt.get(), cqe.src_qp()), (60, 0x41));
    assert!(!cqe.has_grh());
    assert_eq!(bench.bytes(0x5000 + 40, 20), sent[..20]);
    bench.done(0x41, CqeOpcode::REQ);
    let body_of_100 = [short, data(0x1000, 100).as_bytes()].concat();
    bench.post(0x41, Opcode::SEND, 0, &[&body_of_100]);
    bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(bench.bytes(0x6000 + 40, 100), sent);
    bench.done(0x41, CqeOpcode::REQ);
    // One that is too long for its buffer, and one with another key.
    bench.post(0x41, Opcode::SEND, 0, &[&body]);
    bench.failed(0x42, Syndrome::LOCAL_LENGTH_ERR);
    let wrong = [
        av.to_qp(0x42, 0x1112).as_bytes(),
        data(0x1000, 100).as_bytes(),
    ]
    .concat();
    bench.post(0x41, Opcode::SEND, 0, &[&wrong]);
    assert_eq!(bench.poll(0x42), None);
    assert_eq!(bench.state(0x42), QpState::Rts);
}

#[test]
fn shared_queues_are_lists() {
    let mut bench = Bench::pair(QpKind::Rc);
    srq(&mut bench, 0x110, SrqKind::Rmp, 0);
    let qp = bench.device.resources.qps.get_mut(0x42).unwrap();
    qp.receive = Receive::Shared {
        srqn: 0x110,
        cqn: 0x42,
    };
    let sent = bench.fill(0x1000, 600);
    bench
        .ram
        .write(Bench::place(0x110) + 0x1_1000, &2u32.to_be_bytes())
        .unwrap();
    for index in 0..2 {
        bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
        let cqe = bench.done(0x42, CqeOpcode::RESP_SEND);
        assert_eq!((cqe.wqe_counter.get(), cqe.user_index()), (index, 0x1042));
        assert_eq!(bench.bytes(0x3_0000 + 0x1000 * u64::from(index), 600), sent);
        bench.done(0x41, CqeOpcode::REQ);
    }
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    assert_eq!(bench.poll(0x41), None);
}

#[test]
fn extended_connections_name_their_queue() {
    let mut bench = Bench::pair(QpKind::Xrc);
    bench.cq(0x50);
    srq(&mut bench, 0x110, SrqKind::Xrc, 0x50);
    for number in [0x41, 0x42] {
        let qp = bench.device.resources.qps.get_mut(number).unwrap();
        (qp.receive, qp.xrcd) = (Receive::None, 1);
    }
    bench
        .ram
        .write(Bench::place(0x110) + 0x1_1000, &2u32.to_be_bytes())
        .unwrap();
    let sent = bench.fill(0x1000, 600);
    let body = [
        XrcSegment::new(0x110).as_bytes(),
        data(0x1000, 600).as_bytes(),
    ]
    .concat();
    bench.post(0x41, Opcode::SEND, 0, &[&body]);
    let cqe = bench.done(0x50, CqeOpcode::RESP_SEND);
    assert_eq!((cqe.user_index(), cqe.qpn()), (0x77, 0x42));
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x3_0000, 600), sent);
    // A queue of another domain is none of the target's.
    bench.device.resources.srqs.get_mut(0x110).unwrap().xrcd = 2;
    bench.post(0x41, Opcode::SEND, 0, &[&body]);
    bench.failed(0x41, Syndrome::REMOTE_OP_ERR);
}

/// Two initiators' requests to one target.
#[test]
fn targets_serve_many() {
    let mut bench = Bench::new(1);
    bench.qp(0x43, QpKind::Dct, 0, 0);
    srq(&mut bench, 0x110, SrqKind::Rmp, 0);
    let target = bench.device.resources.qps.get_mut(0x43).unwrap();
    target.dc_access_key = 0x1234_5678_9abc;
    target.receive = Receive::Shared {
        srqn: 0x110,
        cqn: 0x43,
    };
    target.state = QpState::Rtr;
    bench
        .ram
        .write(Bench::place(0x110) + 0x1_1000, &6u32.to_be_bytes())
        .unwrap();
    let sent = bench.fill(0x1000, 600);
    let av = DatagramSegment {
        rlid: U16::new(1),
        ..DatagramSegment::default()
    };
    let to = av.to_dct(0x43, 0x1234_5678_9abc);
    for number in [0x41, 0x42] {
        bench.qp(number, QpKind::Dci, 0, 0);
        bench.up(number);
        for _ in 0..2 {
            let body = [to.as_bytes(), data(0x1000, 600).as_bytes()].concat();
            bench.post(number, Opcode::SEND, 0, &[&body]);
            let cqe = bench.done(0x43, CqeOpcode::RESP_SEND);
            // Whose it is: flow control of UCX answers to the LID.
            assert_eq!(
                (cqe.slid.get(), cqe.src_qp(), cqe.has_grh()),
                (1, number, false)
            );
            let index = u64::from(cqe.wqe_counter.get());
            assert_eq!(bench.bytes(0x3_0000 + 0x1000 * index, 600), sent);
            bench.done(number, CqeOpcode::REQ);
        }
        let body = [
            to.as_bytes(),
            remote(0x1000).as_bytes(),
            data(0x7000, 600).as_bytes(),
        ]
        .concat();
        bench.post(number, Opcode::RDMA_READ, 0, &[&body]);
        bench.done(number, CqeOpcode::REQ);
        assert_eq!(bench.bytes(0x7000, 600), sent);
        // After a reset its numbers start anew.
        bench.to(number, QpState::Rst);
        bench.forget(number);
        bench.up(number);
        let body = [to.as_bytes(), data(0x1000, 6).as_bytes()].concat();
        bench.post(number, Opcode::SEND, 0, &[&body]);
        bench.done(0x43, CqeOpcode::RESP_SEND);
        bench.done(number, CqeOpcode::REQ);
    }
}

/// The kernel's test of write-combining: copies whose completion is asked for in the register only.
#[test]
fn a_nop_in_a_register_counts() {
    let mut bench = Bench::new(1);
    bench.qp(0x41, QpKind::RawSend, 0, 0);
    bench.up(0x41);
    let register = u64::from(UAR) * 4096 + 0x800;
    for turn in 0..40u16 {
        let mut bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
        bytes.resize(64, 0);
        let copy = bytes.clone();
        bytes[11] = 0;
        bench.post_bytes(0x41, &bytes);
        assert_eq!(bench.poll(0x41), None);
        for (at, word) in copy.chunks(8).enumerate() {
            bench.device.bar_write(register + at as u64 * 8, word);
        }
        assert_eq!(bench.done(0x41, CqeOpcode::REQ).wqe_counter.get(), turn);
        assert_eq!(bench.poll(0x41), None);
    }
}

/// All registers of a page ring, those for fast requests among them, on which the kernel registers memory.
#[test]
fn every_register_rings() {
    let mut bench = Bench::pair(QpKind::Rc);
    for register in (0x800..0x1000).step_by(0x100) {
        let bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
        bench.put(0x41, &bytes);
        assert_eq!(bench.poll(0x41), None);
        let at = u64::from(UAR) * 4096 + register;
        bench.device.bar_write(at, &bytes[..8]);
        bench.done(0x41, CqeOpcode::REQ);
    }
}

/// Mistakes that a device does not notice are noticed on request.
#[test]
fn strict_sees_mistakes() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.config.strict = true;
    let mut to = remote(0x5000);
    bench.post(
        0x41,
        Opcode::RDMA_WRITE,
        0,
        &[to.as_bytes(), data(0x1000, 8).as_bytes()],
    );
    assert_eq!(bench.device.checks.faults(), []);
    to.reserved.set(1);
    bench.post(
        0x41,
        Opcode::RDMA_WRITE,
        0,
        &[to.as_bytes(), data(0x1000, 8).as_bytes()],
    );
    // One that waits for a receive request, and changes meanwhile.
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 8).as_bytes()]);
    bench
        .ram
        .write(Bench::place(0x41) + 0x8000 + 2 * 64 + 40, &[1])
        .unwrap();
    bench
        .ram
        .write(Bench::place(0x41) + 0x8000 + 2 * 64 + 20, &[1])
        .unwrap();
    bench.post_receive(0x42, &[data(0x5000, 8)]);
    bench.wait(Duration::from_millis(1));
    // A copy that is not what memory has.
    let mut bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
    bench.post_bytes(0x41, &bytes);
    bytes.resize(64, 0);
    bytes[9] = 1;
    let register = u64::from(UAR) * 4096 + 0x800;
    for (at, word) in bytes.chunks(8).enumerate() {
        bench.device.bar_write(register + at as u64 * 8, word);
    }
    let qpn = 0x41;
    let expected = [
        crate::checks::Fault::ReservedRequestBit { qpn, index: 1 },
        crate::checks::Fault::RequestChanged { qpn, index: 2 },
        crate::checks::Fault::CopyDiffers { qpn, index: 3 },
    ];
    assert_eq!(bench.device.checks.faults(), expected);
}

/// UCX sets address and key of the peer and leaves the reserved word behind them as it finds it.
#[test]
fn what_an_earlier_request_left_is_no_mistake() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.config.strict = true;
    let write = |bench: &mut Bench, reserved: u32| {
        let mut to = remote(0x5000);
        to.reserved.set(reserved);
        let body = [to.as_bytes(), data(0x1000, 8).as_bytes()].concat();
        bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&body]);
        bench.done(0x41, CqeOpcode::REQ);
    };
    // Where the word will be, a data segment has the end of its address.
    for _ in 0..1 << LOG_SQ {
        bench.post_receive(0x42, &[data(0x5000, 8)]);
        bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 8).as_bytes()]);
        bench.done(0x41, CqeOpcode::REQ);
        bench.done(0x42, CqeOpcode::RESP_SEND);
    }
    write(&mut bench, 0x1000);
    write(&mut bench, 0);
    assert_eq!(bench.device.checks.faults(), []);
    write(&mut bench, 0x1001);
    let (qpn, index) = (0x41, (1 << LOG_SQ) + 2);
    let expected = [crate::checks::Fault::ReservedRequestBit { qpn, index }];
    assert_eq!(bench.device.checks.faults(), expected);
}

/// A copy may arrive when its request is completed and the place in memory has another, for writes to registers are posted; one
/// that is not what was fetched is found all the same.
#[test]
fn a_late_copy_is_compared_with_what_was_fetched() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.config.strict = true;
    let slot = Bench::place(0x41) + 0x8000;
    let register = u64::from(UAR) * 4096 + 0x800;
    let mut expected = Vec::new();
    for index in 0..2u16 {
        let mut bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
        bench.post_bytes(0x41, &bytes);
        bytes.resize(64, 0);
        bench.done(0x41, CqeOpcode::REQ);
        (bench.ram)
            .write(slot + u64::from(index) * 64, &[0xee; 64])
            .unwrap();
        if index == 1 {
            bytes[9] = 1;
            expected.push(crate::checks::Fault::CopyDiffers { qpn: 0x41, index });
        }
        for (at, word) in (8..).step_by(8).zip(bytes[8..].chunks(8)) {
            bench.device.bar_write(register + at, word);
        }
        assert_eq!(bench.device.checks.faults(), expected);
    }
}

/// `QUERY_QP` says how far a queue pair is, over the end of the numbers too, and `QUERY_VPORT_COUNTER` what was on the way.
#[test]
fn progress_is_told() {
    use wqe_format::mlx5::firmware::qp::{QueryQpIn, QueryQpOut};
    use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;
    use wqe_format::mlx5::firmware::register::counters::{IbExtPortCntrsGrpDataLayout, PpcntReg};
    use wqe_format::mlx5::firmware::vport::{QueryVportCounterIn, QueryVportCounterOut};

    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.hca.stage = crate::command::Stage::Initialized;
    let query = |bench: &mut Bench, qpn| {
        let mut input = QueryQpIn::zeroed();
        input.set_opcode(0x50b).set_qpn(qpn);
        let output = crate::command::execute(&mut bench.device, &input.into_inner());
        let output = QueryQpOut::new(output).unwrap();
        let context = output.qpc();
        let sent = (context.next_send_psn(), context.last_acked_psn());
        (sent, context.next_rcv_psn(), context.rmsn())
    };
    let (first, none) = (0xff_fffa, 0xff_fff9);
    assert_eq!(query(&mut bench, 0x41), ((first, none), first, 0));
    bench.fill(0x1000, 2048);
    for _ in 0..8 {
        let body = [remote(0x5000).as_bytes(), data(0x1000, 10).as_bytes()].concat();
        bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&body]);
        bench.done(0x41, CqeOpcode::REQ);
    }
    assert_eq!(query(&mut bench, 0x41), ((2, 1), first, 0));
    assert_eq!(query(&mut bench, 0x42), ((first, none), 2, 8));

    let counters = |bench: &mut Bench, clear| {
        let mut input = QueryVportCounterIn::zeroed();
        input.set_opcode(0x770).set_clear(clear);
        let output = crate::command::execute(&mut bench.device, &input.into_inner());
        let output = QueryVportCounterOut::new(output).unwrap();
        [
            output.transmitted_ib_unicast(),
            output.received_ib_unicast(),
        ]
        .map(|counter| (counter.packets(), counter.octets()))
    };
    // Each a write (LRH 8, BTH 12, RETH 16, 10 bytes in 12, check sum 4) and its acknowledgement (LRH, BTH, AETH 4, check sum).
    let expected = (16, 8 * (52 + 28));
    // The same in the port's own counters (PPCNT), in units of four octets.
    let mut input = AccessRegisterIn::zeroed();
    input
        .set_opcode(0x805)
        .set_op_mod(1)
        .set_register_id(0x5008);
    let mut asked = PpcntReg::zeroed();
    asked.set_local_port(1).set_grp(0x21);
    let input = [&input.into_inner()[..], &asked.into_inner()].concat();
    let output = crate::command::execute(&mut bench.device, &input);
    let register = PpcntReg::new(&output[16..]).unwrap();
    let group = IbExtPortCntrsGrpDataLayout::new(register.counter_set()).unwrap();
    let words = [group.port_xmit_data_low(), group.port_rcv_data_low()];
    assert_eq!(words.map(u64::from), [expected.1 / 4; 2]);
    assert_eq!(u64::from(group.port_unicast_xmit_pkts_low()), expected.0);
    assert_eq!(counters(&mut bench, true), [expected; 2]);
    assert_eq!(counters(&mut bench, false), [(0, 0); 2]);
}

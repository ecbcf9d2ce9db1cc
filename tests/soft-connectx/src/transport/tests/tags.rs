//! Tag matching. What is expected of messages is rdma-core's `Documentation/tag_matching.md`.

use wqe_format::mlx5::{TagSegment, tag_operation};

use super::*;

/// Sends messages, and receives what tells that they were read.
const SENDER: u32 = 0x41;
const RECEIVER: u32 = 0x42;
/// The queue with tags, the queue pair that its list is changed by, and its completion queue.
const QUEUE: u32 = 0x43;
const CHANGES: u32 = 0x44;
const COMPLETIONS: u32 = 0x45;
/// Where messages are sent from, and where those go that meet tags.
const FROM: u64 = 0x1000;
const BUFFER: u64 = 0x5000;
/// Of entries of the shared queue, see [`srq`].
const UNTAGGED: u64 = 0x3_0000;

const RNDV: u8 = 1;
const FIN: u8 = 2;
const EAGER: u8 = 3;

/// With so many receives posted.
fn bench(receives: u32) -> Bench {
    let mut bench = Bench::new(1);
    for (number, remote) in [(SENDER, RECEIVER), (RECEIVER, SENDER), (CHANGES, CHANGES)] {
        bench.qp(number, QpKind::Rc, 1, remote);
    }
    bench.cq(COMPLETIONS);
    srq(&mut bench, QUEUE, SrqKind::Tag, COMPLETIONS);
    let queue = bench.device.resources.srqs.get_mut(QUEUE).unwrap();
    // Eight places, and messages that are announced are read.
    queue.data = SrqData::with_tags(Tags::new(3, 1));
    for number in [RECEIVER, CHANGES] {
        let qp = bench.device.resources.qps.get_mut(number).unwrap();
        qp.receive = Receive::Shared {
            srqn: QUEUE,
            cqn: number,
        };
    }
    let record = Bench::place(QUEUE) + 0x1_1000;
    bench.ram.write(record, &receives.to_be_bytes()).unwrap();
    for number in [SENDER, RECEIVER, CHANGES] {
        bench.up(number);
    }
    bench
}

fn change(bench: &mut Bench, segment: TagSegment, buffer: Option<DataSegment>) -> Cqe64 {
    let buffer = buffer.map(|buffer| buffer.as_bytes().to_vec());
    let parts = [segment.as_bytes(), buffer.as_deref().unwrap_or_default()];
    bench.post(CHANGES, Opcode::TAG_MATCHING, 0, &parts);
    bench.done(CHANGES, CqeOpcode::REQ);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::NO_PACKET);
    assert_eq!((cqe.app, cqe.user_index()), (1, 0x77));
    cqe
}

fn segment(opcode: u8, index: u16) -> TagSegment {
    TagSegment {
        opcode,
        flags: TagSegment::CQE_REQ,
        index: index.into(),
        ..TagSegment::default()
    }
}

/// Appends a tag of which only the low byte counts.
fn append(bench: &mut Bench, next: u16, tag: u8, room: u32) -> Cqe64 {
    let segment = TagSegment {
        append_tag: u64::from(tag).into(),
        append_mask: 0xff.into(),
        ..segment(TagSegment::APPEND, next)
    };
    let cqe = change(bench, segment, Some(data(BUFFER, room)));
    assert_eq!(cqe.app_op, tag_operation::APPEND);
    cqe
}

fn sync(bench: &mut Bench, count: u16) -> Cqe64 {
    let mut segment = segment(TagSegment::NOP, 0);
    segment.flags |= TagSegment::SW_CNT;
    segment.sw_cnt = count.into();
    change(bench, segment, None)
}

/// Sends a message of `len` bytes with a header; all of it.
fn send(bench: &mut Bench, kind: u8, tag: u64, len: u32) -> Vec<u8> {
    bench.fill(FROM, len as usize);
    let mut header = [0; 16];
    header[0] = kind;
    header[4..8].copy_from_slice(&[1, 2, 3, 4]);
    header[8..].copy_from_slice(&tag.to_be_bytes());
    bench.ram.write(FROM, &header).unwrap();
    bench.post(SENDER, Opcode::SEND, 0, &[data(FROM, len).as_bytes()]);
    bench.done(SENDER, CqeOpcode::REQ);
    bench.bytes(FROM, len as usize)
}

#[test]
fn a_message_goes_where_its_tag_says() {
    let mut bench = bench(0);
    append(&mut bench, 1, 7, 0x100);
    let sent = send(&mut bench, EAGER, 0xab07, 200);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::CONSUMED_MSG);
    assert_eq!((cqe.app_info.get(), cqe.byte_cnt.get()), (0, 184));
    assert_eq!(cqe.inline_32()[..16], sent[..16]);
    assert_eq!((cqe.qpn(), cqe.user_index()), (RECEIVER, 0x77));
    assert_eq!(bench.bytes(BUFFER, 184), sent[16..]);
}

#[test]
fn messages_meet_the_first_tag_and_those_of_several_packets_complete_twice() {
    let mut bench = bench(0);
    append(&mut bench, 1, 6, 0x1000);
    append(&mut bench, 5, 7, 0x1000);
    append(&mut bench, 2, 7, 0x1000);
    for place in [1, 5] {
        let sent = send(&mut bench, EAGER, 7, 1000);
        let cqe = bench.done(COMPLETIONS, CqeOpcode::NO_PACKET);
        assert_eq!(
            (cqe.app_op, cqe.app_info.get()),
            (tag_operation::CONSUMED, place)
        );
        let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
        assert_eq!(
            (cqe.app_op, cqe.app_info.get()),
            (tag_operation::EXPECTED, place)
        );
        assert_eq!(cqe.byte_cnt.get(), 984);
        assert_eq!(bench.bytes(BUFFER, 984), sent[16..]);
    }
}

#[test]
fn after_a_message_without_tag_new_tags_wait_for_the_program() {
    let mut bench = bench(8);
    let sent = send(&mut bench, EAGER, 7, 100);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!((cqe.app, cqe.app_op), (1, tag_operation::UNEXPECTED));
    assert_eq!((cqe.wqe_counter.get(), cqe.byte_cnt.get()), (0, 100));
    assert_eq!(bench.bytes(UNTAGGED, 100), sent);
    // It may be the one that the message missed.
    let cqe = append(&mut bench, 1, 7, 0x100);
    assert_eq!(cqe.tag_state().hw_phase_cnt, 1);
    send(&mut bench, EAGER, 7, 100);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::UNEXPECTED);
    // One of two was looked at, then both.
    assert_eq!(sync(&mut bench, 1).tag_state().hw_phase_cnt, 2);
    send(&mut bench, 0, 7, 100);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::NO_TAG);
    assert_eq!(sync(&mut bench, 2).tag_state().hw_phase_cnt, 2);
    send(&mut bench, EAGER, 7, 100);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::CONSUMED_MSG);
}

#[test]
fn a_tag_is_taken_out_once() {
    let mut bench = bench(8);
    append(&mut bench, 1, 7, 0x100);
    for success in [true, false] {
        let cqe = change(&mut bench, segment(TagSegment::REMOVE, 0), None);
        assert_eq!(cqe.app_op, tag_operation::REMOVE);
        assert_eq!(cqe.tag_state().success, success);
    }
    send(&mut bench, EAGER, 7, 100);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::UNEXPECTED);
}

/// Announces `len` bytes at `from`; sends 64 bytes.
fn announce(bench: &mut Bench, from: u64, len: u32) -> Vec<u8> {
    let rest = [
        &from.to_be_bytes()[..],
        &KEY.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat();
    let mut message = vec![0; 64];
    message[0] = RNDV;
    message[15] = 7;
    message[16..32].copy_from_slice(&rest);
    bench.ram.write(FROM, &message).unwrap();
    bench.post(SENDER, Opcode::SEND, 0, &[data(FROM, 64).as_bytes()]);
    message
}

#[test]
fn an_announced_message_is_read_and_its_sender_is_told() {
    let mut bench = bench(0);
    append(&mut bench, 1, 7, 0x1000);
    bench.post_receive(SENDER, &[data(0xa000, 64)]);
    let sent = bench.fill(0x9000, 1000);
    let message = announce(&mut bench, 0x9000, 1000);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::NO_PACKET);
    assert_eq!(cqe.app_op, tag_operation::CONSUMED);
    assert_eq!(cqe.inline_32()[..16], message[..16]);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(
        (cqe.app_op, cqe.byte_cnt.get()),
        (tag_operation::EXPECTED, 1000)
    );
    assert_eq!(bench.bytes(BUFFER, 1000), sent);
    // Both headers come back, but for what the message is.
    let told = [
        bench.done(SENDER, CqeOpcode::REQ),
        bench.done(SENDER, CqeOpcode::RESP_SEND),
    ];
    assert_eq!(told[1].byte_cnt.get(), 32);
    let mut back = message[..32].to_vec();
    back[0] = FIN;
    assert_eq!(bench.bytes(0xa000, 32), back);
    // Nothing of it completes at the receiver.
    assert_eq!(bench.poll(RECEIVER), None);
}

#[test]
fn what_is_longer_than_the_buffer_is_the_programs_to_read() {
    let mut bench = bench(0);
    append(&mut bench, 1, 7, 100);
    let message = announce(&mut bench, 0x9000, 101);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::CONSUMED_MSG_SW_RNDV);
    assert_eq!(bench.bytes(BUFFER, 64), message);
    bench.done(SENDER, CqeOpcode::REQ);
    assert_eq!(bench.state(SENDER), QpState::Rts);
}

#[test]
fn a_read_that_is_refused_cancels_its_message() {
    let mut bench = bench(0);
    append(&mut bench, 1, 7, 0x1000);
    // The peer lets nobody read.
    let peer = bench.device.resources.qps.get_mut(SENDER).unwrap();
    peer.rights.read = false;
    announce(&mut bench, 0x9000, 1000);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::NO_PACKET);
    assert_eq!(cqe.app_op, tag_operation::CONSUMED);
    let cqe = bench.done(COMPLETIONS, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.app_op, tag_operation::MSG_COMPLETION_CANCELED);
    assert_eq!(bench.state(RECEIVER), QpState::Err);
}

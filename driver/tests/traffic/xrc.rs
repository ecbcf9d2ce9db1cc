//! The same over extended reliable connections.

use oxverbs::{
    Context, MemoryRegion, QueuePair, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber,
    WcOpcode, XrcDomain, XrcInitiator, XrcTarget,
};

use crate::traffic::{ALL, good};

/// Bytes of a message of more than one packet.
const LEN: usize = 5_000;

/// A shared receive queue of a domain.
pub(crate) fn queue(
    region: &MemoryRegion,
    pd: &oxverbs::ProtectionDomain,
    domain: &XrcDomain,
    cq: &oxverbs::CompletionQueue,
    place: usize,
) -> SharedReceiveQueue {
    let attributes = SharedReceiveQueueAttributes {
        max_wr: 8,
        max_sge: 1,
        limit: 0,
    };
    let mut srq = pd
        .xrc_shared_receive_queue(domain, cq, attributes)
        .expect("a queue");
    srq.post(region.slice(place..place + LEN))
        .expect("a receive");
    srq
}

/// An initiator and a target that are connected.
pub(crate) fn connected(
    from: (&Context, &mut QueuePair<XrcInitiator>),
    to: (&Context, &mut XrcTarget),
) {
    let gid = |context: &Context| context.usual_gid(1).expect("a GID").index as u8;
    let initiator = from.1.endpoint(1, gid(from.0)).expect("an end");
    let target = to.1.endpoint(1, gid(to.0)).expect("an end");
    to.1.accept(&target, &initiator, ALL).expect("accepts");
    from.1.connect(&initiator, &target).expect("connects");
}

/// One connection reaches two shared queues, each of which completes in a queue of its own; writes, reads and atomics go
/// over it as over any other. Every byte is checked.
pub(crate) fn two_queues_behind_one_target(from: &Context, to: &Context) {
    let near = from.protection_domain().unwrap();
    let mut sent = from.completion_queue(32).unwrap();
    let mut initiator = near
        .queue_pair::<XrcInitiator>(&sent)
        .max_inline(64)
        .create()
        .unwrap();
    assert_eq!(initiator.cap().max_recv_wr, 0);
    let source = near.allocate(1 << 15, ALL).unwrap();

    let far = to.protection_domain().unwrap();
    let domain = to.xrc_domain().unwrap();
    let mut target = domain.target().unwrap();
    connected((from, &mut initiator), (to, &mut target));
    let sink = far.allocate(1 << 15, ALL).unwrap();
    let mut received = [(); 2].map(|()| to.completion_queue(32).unwrap());
    let [one, other] = &received;
    let mut queues = [
        queue(&sink, &far, &domain, one, 0),
        queue(&sink, &far, &domain, other, 1 << 13),
    ];
    let numbers: [SrqNumber; 2] = queues.each_ref().map(|srq| srq.number().unwrap());
    assert_ne!(numbers[0], numbers[1]);

    for (turn, which) in [0, 1, 1, 0, 0].into_iter().enumerate() {
        let message: Vec<u8> = (0..LEN).map(|at| (at * 31 + turn * 7) as u8).collect();
        source.copy_in(0, &message);
        let token = initiator
            .send_half()
            .send(source.slice(0..LEN), numbers[which])
            .unwrap();
        assert!(token.is_of(&good(&mut sent)));
        let completion = good(&mut received[which]);
        assert_eq!(completion.opcode(), WcOpcode::RECV);
        assert_eq!(completion.byte_len(), LEN as u32);
        assert_eq!(completion.qp_num(), target.qp_num());
        let buffer = queues[which]
            .reclaim(&completion)
            .expect("the receive's own");
        let place = which << 13;
        assert_eq!(sink.to_vec(place..place + LEN), message, "turn {turn}");
        queues[which].post(buffer).unwrap();
        assert!(received[1 - which].poll().next().is_none());
    }

    // Memory of the receiver's, which takes no receive.
    let there = sink.remote(20_000);
    let to_one = numbers[0];
    let send = initiator.send_half();
    send.write(source.slice(0..LEN), to_one, there).unwrap();
    assert_eq!(good(&mut sent).opcode(), WcOpcode::RDMA_WRITE);
    assert_eq!(
        sink.to_vec(20_000..20_000 + LEN),
        source.to_vec(0..LEN),
        "the write"
    );
    let send = initiator.send_half();
    send.read(source.slice(10_000..10_000 + LEN), to_one, there)
        .unwrap();
    assert_eq!(good(&mut sent).opcode(), WcOpcode::RDMA_READ);
    assert_eq!(
        source.to_vec(10_000..10_000 + LEN),
        source.to_vec(0..LEN),
        "the read"
    );

    sink.copy_in(16_000, &40u64.to_ne_bytes());
    let counter = sink.remote(16_000);
    let mut batch = initiator.send_batch();
    batch
        .fetch_add(1, to_one, counter, 2)
        .signaled()
        .sges(&[source.sge(0..8)]);
    batch
        .compare_swap(2, to_one, counter, 42, 7)
        .signaled()
        .fenced()
        .sges(&[source.sge(8..16)]);
    batch
        .write_imm(3, numbers[1], sink.remote(64), 0x0102_0304)
        .signaled()
        .inline(b"inline");
    // SAFETY: the regions outlive the queue pair and are never lent as slices.
    unsafe { batch.post() }.unwrap();
    let ids: Vec<_> = (0..3).map(|_| good(&mut sent).wr_id()).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(
        source.to_vec(0..16),
        [40u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat()
    );
    assert_eq!(sink.to_vec(16_000..16_008), 7u64.to_ne_bytes());
    assert_eq!(sink.to_vec(64..70), b"inline");
    let completion = good(&mut received[1]);
    assert_eq!(completion.opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
    assert_eq!(completion.immediate(), Some(0x0102_0304));
    assert!(queues[1].reclaim(&completion).is_some());
}

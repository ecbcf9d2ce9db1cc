//! What the native API does on devices of every family; the mlx5 tests of `tests/fake-kernel` run it too.

use oxverbs::{
    AccessFlags, Completion, CompletionQueue, Context, QueuePair, Rc, WcOpcode, WcStatus,
};

/// All rights that a region of these tests has.
pub(crate) const ALL: AccessFlags = AccessFlags(
    AccessFlags::LOCAL_WRITE.0
        | AccessFlags::REMOTE_WRITE.0
        | AccessFlags::REMOTE_READ.0
        | AccessFlags::REMOTE_ATOMIC.0,
);

/// A queue pair that is its own peer, over the port's GID of this index.
pub(crate) fn connect(qp: &mut QueuePair<Rc>, gid: u8) {
    let me = qp.endpoint(1, gid).unwrap();
    qp.connect(&me, &me, ALL).unwrap();
}

pub(crate) fn good(cq: &mut CompletionQueue) -> Completion {
    let completion = cq.spin();
    assert_eq!(completion.status(), WcStatus::SUCCESS);
    completion
}

pub(crate) fn send_write_read_and_atomics(context: &Context, gid: u8) {
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(32).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).max_inline(64).create().unwrap();
    connect(&mut qp, gid);
    let a = pd.allocate(8192, ALL).unwrap();
    let b = pd.allocate(8192, ALL).unwrap();
    a.copy_in(0, b"to be sent");

    let received = qp.recv_half().post(b.slice(100..200)).unwrap();
    let sent = qp.send_half().send(a.slice(0..10)).unwrap();
    let completions = [good(&mut cq), good(&mut cq)];
    let of = |token: oxverbs::Token| completions.iter().find(|c| token.is_of(c)).unwrap();
    assert_eq!(
        (of(received).opcode(), of(received).byte_len()),
        (WcOpcode::RECV, 10)
    );
    assert_eq!(of(sent).opcode(), WcOpcode::SEND);
    assert_eq!(b.to_vec(100..110), b"to be sent");
    // Each buffer comes back once, whichever half is asked.
    for completion in &completions {
        assert!(qp.reclaim(completion).is_some());
        assert!(qp.reclaim(completion).is_none());
    }

    let written = qp
        .send_half()
        .write(a.slice(0..10), b.remote(4000))
        .unwrap();
    assert!(written.is_of(&good(&mut cq)));
    assert_eq!(b.to_vec(4000..4010), b"to be sent");
    let read = qp
        .send_half()
        .read(a.slice(50..60), b.remote(4000))
        .unwrap();
    let completion = good(&mut cq);
    assert!(read.is_of(&completion));
    assert_eq!(completion.opcode(), WcOpcode::RDMA_READ);
    assert_eq!(a.to_vec(50..60), b"to be sent");

    b.copy_in(8, &40u64.to_ne_bytes());
    let mut batch = qp.send_batch();
    batch
        .fetch_add(1, b.remote(8), 2)
        .signaled()
        .sges(&[a.sge(0..8)]);
    batch
        .compare_swap(2, b.remote(8), 42, 7)
        .signaled()
        .fenced()
        .sges(&[a.sge(8..16)]);
    batch.write(3, b.remote(64)).signaled().inline(b"inline");
    // SAFETY: the regions outlive the queue pair and are never lent as slices.
    unsafe { batch.post() }.unwrap();
    let ids: Vec<_> = (0..3).map(|_| good(&mut cq).wr_id()).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(
        a.to_vec(0..16),
        [40u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat()
    );
    assert_eq!(b.to_vec(8..16), 7u64.to_ne_bytes());
    assert_eq!(b.to_vec(64..70), b"inline");

    qp.recv_half().post(b.slice(0..8)).unwrap();
    let mut batch = qp.send_batch();
    batch.write_imm(9, b.remote(80), 0x0102_0304).inline(b"imm");
    // SAFETY: the payload is inline.
    unsafe { batch.post() }.unwrap();
    // The write is not signaled: only the receive completes.
    let completion = good(&mut cq);
    assert_eq!(completion.opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
    assert_eq!(completion.immediate(), Some(0x0102_0304));
    assert!(cq.poll().next().is_none());
}

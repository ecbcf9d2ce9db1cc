//! The native API on a device.
//!
//! Uses the device called `OXVERBS_DEVICE`, or the first one. Without one, every test is skipped by name; with
//! `OXVERBS_LAB=1` the last one runs all of them in a guest that has one.

use oxverbs::{
    AccessFlags, Address, AsyncEvent, Context, EventType, PostError, QpState, QueuePair, Rc,
    SharedReceiveQueueAttributes, Subject, Uc, Ud, WcFlags, WcStatus,
};

mod traffic;

use traffic::{ALL, good};

/// A context, or `None` after naming the test as skipped.
fn open(test: &str) -> Option<Context> {
    let context = match std::env::var("OXVERBS_DEVICE") {
        Ok(name) => Context::open(&name),
        Err(_) => Context::open_first(),
    };
    match context {
        Ok(context) => Some(context),
        Err(error) if std::path::Path::new("/sys/class/infiniband_verbs/uverbs0").exists() => {
            panic!("{error}")
        }
        Err(_) => {
            test_support::skip(&format!("oxverbs::native::{test}"), "no uverbs device");
            None
        }
    }
}

fn connect(qp: &mut QueuePair<Rc>, context: &Context) {
    traffic::connect(qp, usual_gid(context));
}

fn usual_gid(context: &Context) -> u8 {
    context.usual_gid(1).unwrap().index as u8
}

#[test]
fn send_write_read_and_atomics() {
    if let Some(context) = open("send_write_read_and_atomics") {
        traffic::send_write_read_and_atomics(&context, usual_gid(&context));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let Some(context) = open("errors_say_what_is_wrong") else {
        return;
    };
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(32).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).max_send_wr(4).create().unwrap();
    let region = pd.allocate(4096, ALL).unwrap();
    let wrong_state = PostError::Refused(oxverbs::data::rxe::PostError::WrongState);
    assert_eq!(qp.send_half().send(region.all()), Err(wrong_state));
    assert_eq!(qp.recv_half().post(region.all()), Err(wrong_state));

    let rtr = oxverbs::QpAttributes::new().state(QpState::RTR).rq_psn(1);
    let error = qp.modify(&rtr).unwrap_err().to_string();
    assert!(error.contains("RESET to RTR"), "{error}");
    qp.to_init(1, AccessFlags::NONE).unwrap();
    let error = qp.modify(&rtr.qkey(3)).unwrap_err().to_string();
    assert!(error.contains("missing IBV_QP_AV"), "{error}");
    assert!(error.contains("not allowed here IBV_QP_QKEY"), "{error}");
    qp.reset().unwrap();
    connect(&mut qp, &context);

    // A batch with an error posts nothing of itself.
    let mut batch = qp.send_batch();
    batch.send(1).signaled().empty();
    batch
        .send(2)
        .sges(&[region.sge(0..1), region.sge(0..1), region.sge(0..1)]);
    // SAFETY: the region outlives the queue pair.
    let refused = unsafe { batch.post() };
    assert!(matches!(refused, Err(PostError::Refused(_))), "{refused:?}");
    assert!(cq.poll().next().is_none());

    // A key that the peer does not have ends the connection, and the rest is flushed. The peer is another queue pair
    // here: its own end goes to the error state as well.
    let mut peer = pd.queue_pair::<Rc>(&cq).create().unwrap();
    qp.reset().unwrap();
    let gid = context.usual_gid(1).unwrap().index as u8;
    let (here, there) = (qp.endpoint(1, gid).unwrap(), peer.endpoint(1, gid).unwrap());
    qp.connect(&here, &there, ALL).unwrap();
    peer.connect(&there, &here, ALL).unwrap();
    let mut nowhere = region.remote(0);
    nowhere.rkey ^= 0xff;
    let first = qp.send_half().write(region.slice(0..8), nowhere).unwrap();
    let completion = cq.spin();
    assert!(first.is_of(&completion));
    assert_eq!(completion.status(), WcStatus::REM_ACCESS_ERR);
    assert!(qp.reclaim(&completion).is_some());
    assert_eq!(qp.query().unwrap().qp_state, QpState::ERR);
    let second = qp.send_half().send(region.slice(0..8)).unwrap();
    let completion = cq.spin();
    assert!(second.is_of(&completion));
    assert_eq!(completion.status(), WcStatus::WR_FLUSH_ERR);

    // After a reset the queue pair is as new.
    qp.reset().unwrap();
    connect(&mut qp, &context);
    for _ in 0..3 * qp.cap().max_send_wr {
        let token = qp
            .send_half()
            .write(region.slice(0..8), region.remote(8))
            .unwrap();
        let completion = good(&mut cq);
        assert!(token.is_of(&completion));
        qp.reclaim(&completion).unwrap();
    }
    assert!(
        Context::open("no-such-device")
            .unwrap_err()
            .to_string()
            .contains("there is")
    );
    let error = pd.allocate(1 << 46, ALL).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOMEM));
}

#[test]
fn datagrams() {
    let Some(context) = open("datagrams") else {
        return;
    };
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(32).unwrap();
    let mut qp = pd.queue_pair::<Ud>(&cq).create().unwrap();
    qp.to_init(1, 0x1234).unwrap();
    qp.to_rtr().unwrap();
    qp.to_rts(0).unwrap();
    let gid = context.usual_gid(1).unwrap();
    let address = Address::global(1, gid.index as u8, gid.gid);
    let ah = pd.address_handle(&address).unwrap();
    let region = pd.allocate(4096, ALL).unwrap();
    region.copy_in(0, b"datagram");
    let received = qp.recv_half().post(region.slice(1000..2000)).unwrap();
    let to = ah.queue_pair(qp.qp_num(), 0x1234);
    qp.send_half().send(region.slice(0..8), &to).unwrap();
    let completions = [good(&mut cq), good(&mut cq)];
    let completion = completions.iter().find(|c| received.is_of(c)).unwrap();
    assert_eq!(completion.byte_len(), 48);
    assert_eq!(completion.src_qp(), qp.qp_num());
    assert!(completion.flags().contains(WcFlags::GRH));
    assert_eq!(region.to_vec(1040..1048), b"datagram");
    // Nobody answers for an address that nobody has.
    let nobody = Address {
        gid: Some("::ffff:10.9.0.77".parse().unwrap()),
        ..address
    };
    if let Err(error) = pd.address_handle(&nobody) {
        assert!(error.advice().is_some(), "{error}");
    }
}

#[test]
fn shared_receive_queue_and_its_limit() {
    let Some(context) = open("shared_receive_queue_and_its_limit") else {
        return;
    };
    context.set_events_nonblocking(true).unwrap();
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(64).unwrap();
    let attributes = SharedReceiveQueueAttributes {
        max_wr: 16,
        max_sge: 1,
        limit: 0,
    };
    let mut srq = pd.shared_receive_queue(attributes).unwrap();
    let builder = pd.queue_pair::<Rc>(&cq).shared_receive_queue(&srq);
    let mut qp = builder.max_recv_wr(0).create().unwrap();
    connect(&mut qp, &context);
    let region = pd.allocate(4096, ALL).unwrap();
    for at in 0..8 {
        srq.post(region.slice(at * 16..at * 16 + 16)).unwrap();
    }
    srq.set_limit(4).unwrap();
    assert_eq!(srq.query().unwrap().limit, 4);
    for _ in 0..5 {
        qp.send_half().send(region.slice(2048..2050)).unwrap();
        for _ in 0..2 {
            let completion = good(&mut cq);
            let buffer = qp.reclaim(&completion).or_else(|| srq.reclaim(&completion));
            assert!(buffer.is_some());
        }
    }
    let event = AsyncEvent {
        event_type: EventType::SRQ_LIMIT_REACHED,
        subject: Subject::SharedReceiveQueue(srq.id()),
    };
    let mut came = context.next_event();
    if came
        .as_ref()
        .is_ok_and(|event| event.event_type == EventType::COMM_EST)
    {
        came = context.next_event();
    }
    assert_eq!(came.unwrap(), event);
    assert_eq!(srq.query().unwrap().limit, 0);
    srq.resize(64).unwrap();
    assert!(srq.max_wr() >= 64);
    for _ in 3..srq.max_wr() {
        srq.post(region.slice(0..16)).unwrap();
    }
    assert!(srq.post(region.all()).unwrap_err().is_queue_full());
}

#[test]
fn resize_keeps_completions_and_events_name_the_queue() {
    let Some(context) = open("resize_keeps_completions_and_events_name_the_queue") else {
        return;
    };
    let pd = context.protection_domain().unwrap();
    let channel = context.completion_channel().unwrap();
    let mut cq = channel.completion_queue(8).unwrap();
    let other = channel.completion_queue(8).unwrap();
    assert_ne!(cq.id(), other.id());
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    connect(&mut qp, &context);
    let region = pd.allocate(4096, ALL).unwrap();
    cq.request_notify(false).unwrap();
    let tokens: Vec<_> = (0..4)
        .map(|_| {
            qp.send_half()
                .write(region.slice(0..8), region.remote(8))
                .unwrap()
        })
        .collect();
    assert_eq!(channel.wait().unwrap(), cq.id());
    // All four are there once the last read has completed after them.
    let read = qp
        .send_half()
        .read(region.slice(16..24), region.remote(8))
        .unwrap();
    let first = good(&mut cq);
    std::thread::sleep(std::time::Duration::from_millis(200));
    cq.resize(100).unwrap();
    assert!(cq.entries() >= 100);
    let rest: Vec<_> = (0..4).map(|_| good(&mut cq).wr_id()).collect();
    let mut expected: Vec<_> = tokens.iter().map(|token| token.wr_id()).collect();
    expected.push(read.wr_id());
    assert_eq!(first.wr_id(), expected[0]);
    assert_eq!(rest, expected[1..]);
    channel.set_nonblocking(true).unwrap();
    assert_eq!(channel.wait().unwrap_err().errno(), Some(libc::EAGAIN));
}

#[test]
fn halves_work_in_two_threads() {
    const MESSAGES: u64 = 500;
    let Some(context) = open("halves_work_in_two_threads") else {
        return;
    };
    let pd = context.protection_domain().unwrap();
    let mut send_cq = context.completion_queue(32).unwrap();
    let mut recv_cq = context.completion_queue(32).unwrap();
    let builder = pd
        .queue_pair::<Rc>(&send_cq)
        .recv_completion_queue(&recv_cq);
    let mut qp = builder.create().unwrap();
    connect(&mut qp, &context);
    let region = pd.allocate(4096, ALL).unwrap();
    let (mut send, mut recv) = qp.split();
    std::thread::scope(|scope| {
        let from = &region;
        scope.spawn(move || {
            for _ in 0..8 {
                recv.post(from.slice(0..8)).unwrap();
            }
            for _ in 0..MESSAGES {
                let completion = good(&mut recv_cq);
                recv.reclaim(&completion).unwrap();
                recv.post(from.slice(0..8)).unwrap();
            }
        });
        for number in 0..MESSAGES {
            from.copy_in(64, &number.to_ne_bytes());
            send.send(from.slice(64..72)).unwrap();
            let completion = good(&mut send_cq);
            send.reclaim(&completion).unwrap();
        }
    });
    assert_eq!(region.to_vec(0..8), (MESSAGES - 1).to_ne_bytes());
}

#[test]
fn drop_order_does_not_matter_and_a_child_posts_nothing() {
    let Some(context) = open("drop_order_does_not_matter_and_a_child_posts_nothing") else {
        return;
    };
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(8).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    connect(&mut qp, &context);
    let region = pd.allocate(4096, ALL).unwrap();
    let uc = pd.queue_pair::<Uc>(&cq).create().unwrap();
    drop(context);
    drop(pd);
    // SAFETY: the child posts, drops and exits without running the parent's other code.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let (slice, remote) = (region.slice(0..8), region.remote(8));
        let refused = qp.send_half().write(slice, remote) == Err(PostError::ForkedChild)
            && qp.recv_half().post(region.all()) == Err(PostError::ForkedChild)
            && cq.poll().next().is_none();
        drop((qp, uc, region, cq));
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, `child` is our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    // The child's end took nothing away.
    qp.send_half()
        .write(region.slice(0..8), region.remote(8))
        .unwrap();
    good(&mut cq);
    drop(cq);
    drop(region);
    drop((uc, qp));
}

/// This very program, run in a guest.
#[test]
fn in_the_lab() {
    if std::env::var_os("OXVERBS_LAB").is_none() {
        test_support::skip(
            "oxverbs::native::in_the_lab",
            "boots QEMU: wants OXVERBS_LAB=1",
        );
        return;
    }
    let config = lab::Config {
        provider: lab::Provider::Official,
        ..lab::Config::default()
    };
    let program = std::env::current_exe().unwrap().canonicalize().unwrap();
    let target = config.target().canonicalize().unwrap();
    let program =
        std::path::Path::new("/oxverbs/target").join(program.strip_prefix(target).unwrap());
    let mut guest = lab::Guest::boot(&config).unwrap();
    let before = guest.resources().unwrap();
    let command = [program.to_str().unwrap(), "--test-threads=1", "--nocapture"];
    let outcome = guest.run(lab::Step::program("native", command)).unwrap();
    println!("{}", outcome.stdout);
    eprintln!("{}", outcome.stderr);
    assert!(outcome.ok());
    assert!(outcome.stdout.contains("8 passed; 0 failed"));
    assert_eq!(
        outcome.stderr.matches("skipped: ").count(),
        1,
        "only this test skips itself"
    );
    let after = guest.resources().unwrap();
    assert_eq!(
        format!("{after:?}"),
        format!("{before:?}"),
        "objects are left"
    );
    assert!(guest.complaints().is_empty(), "{:?}", guest.complaints());
}

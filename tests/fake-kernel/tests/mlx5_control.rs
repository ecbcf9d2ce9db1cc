//! mlx5's control path on the fake kernel: what the kernel is told, and that the queues that come out work.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fake_kernel::hca::{Cqe, Received};
use fake_kernel::{Census, Config, FakeKernel, Family, Mlx5};
use oxverbs::control::kernel::Uctx;
use oxverbs::control::mlx5::cq::{CqObject, CqRequest};
use oxverbs::control::mlx5::domain::PdObject;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::Transport;
use oxverbs::control::mlx5::qp::{MadeQp, QpRequest};
use oxverbs::control::mlx5::srq::{SrqObject, SrqRequest};
use oxverbs::control::mlx5::{Mlx5Context, OpenError, context};
use oxverbs::data::mlx5::{
    Completion, CompletionQueue, Operation, SendFlags, SendQueue, SharedReceiveQueue,
};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use uverbs_abi::types::{DriverId, QpAttrMask, QpCap, QpState};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::rxe::Sge;

fn kernel(mlx5: Mlx5) -> FakeKernel {
    FakeKernel::new(Config {
        family: Family::Mlx5,
        mlx5,
        ..Config::default()
    })
}

fn open_with(kernel: &FakeKernel, environment: Environment) -> Result<Arc<Mlx5Context>, OpenError> {
    let fd = UverbsFd::open(kernel.kernel_ref(), c"/dev/infiniband/uverbs0")?;
    let opened = Mlx5Context::open(context::uctx(fd)?, environment)?;
    Ok(opened.context)
}

fn open(kernel: &FakeKernel) -> Arc<Mlx5Context> {
    open_with(kernel, Environment::default()).expect("the fake device")
}

/// A context with a domain and a completion queue.
struct Base {
    cq: CqObject,
    queue: CompletionQueue,
    pd: PdObject,
    context: Arc<Mlx5Context>,
}

fn base(kernel: &FakeKernel) -> Base {
    let context = open(kernel);
    let (cq, queue) = context
        .create_cq(&CqRequest {
            cqe: 100,
            ..CqRequest::default()
        })
        .expect("a completion queue");
    Base {
        cq,
        queue,
        pd: context.alloc_pd().expect("a protection domain"),
        context,
    }
}

impl Base {
    fn request(&self, transport: Transport) -> QpRequest<'static> {
        QpRequest {
            pd: self.pd.handle(),
            send_cq: self.cq.handle(),
            recv_cq: self.cq.handle(),
            cookie: 4711,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 100,
                max_send_sge: 1,
                max_recv_sge: 3,
                max_inline_data: 0,
            },
            ..QpRequest::new(transport)
        }
    }
}

/// Brings a queue pair to a state, with whatever the fake kernel wants for it.
fn bring(qp: &mut MadeQp, state: QpState) {
    let mask = match state {
        QpState::INIT => QpAttrMask(0x39),
        QpState::RTR => QpAttrMask(0x12_9181),
        QpState::RTS => QpAttrMask(0x1_2e01),
        _ => QpAttrMask::STATE,
    };
    let mut base = ModifyQp {
        attr_mask: mask,
        qp_state: state,
        port_num: 1,
        path_mtu: 3,
        ..ModifyQp::default()
    };
    base.dest.is_global = 1;
    base.dest.port_num = 1;
    let change = qp
        .object
        .modify(&ExModifyQp {
            base,
            ..ExModifyQp::default()
        })
        .expect("a change of state");
    if let Some(send) = &mut qp.send {
        change.apply_to_send(send);
    }
    if let Some(receive) = &mut qp.receive {
        change.apply_to_receive(receive);
    }
}

fn ready(qp: &mut MadeQp) {
    for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
        bring(qp, state);
    }
}

fn post(queue: &mut SendQueue, wr_id: u64) -> Result<u32, oxverbs::data::mlx5::PostError> {
    let mut draft = queue.begin();
    // SAFETY: the operation reads no memory.
    unsafe { queue.open(&mut draft, wr_id, SendFlags::SIGNALED, &Operation::Send) }?;
    queue.commit(&mut draft)
}

fn poll(queue: &mut CompletionQueue) -> Vec<Completion> {
    let mut all = [Completion::default(); 16];
    let count = queue.poll(&mut all);
    all[..count].to_vec()
}

/// B14: the kernel is told the sizes that the program is told.
#[test]
fn a_queue_pair_has_the_sizes_that_were_granted() {
    let kernel = kernel(Mlx5::default());
    let mut base = base(&kernel);
    let mut made = base
        .context
        .create_qp(&base.request(Transport::Rc))
        .expect("a queue pair");
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 128,
        max_send_sge: 1,
        max_recv_sge: 4,
        max_inline_data: 60,
    };
    assert_eq!(*made.object.cap(), cap);
    let answer = made.object.query(QpAttrMask::STATE).expect("a query");
    assert_eq!((answer.max_send_wr, answer.max_inline_data), (16, 60));
    let device = kernel
        .hca(0)
        .qp(made.object.number())
        .expect("the device's");
    let (send, recv) = (device.send.expect("sends"), device.recv.expect("receives"));
    assert_eq!((send.len(), recv.len()), (64 * 64, 128 * 64));
    assert_eq!(send.entry(0), recv.entry(0) + 8192);

    // B32: the queues open with the states
    let (sends, receives) = (made.send.as_mut(), made.receive.as_mut());
    assert!(post(sends.unwrap(), 1).is_err());
    let sge = [Sge {
        addr: 0x1000,
        length: 8,
        lkey: 1,
    }];
    let recv_once = |queue: &mut oxverbs::data::mlx5::RecvQueue| queue.post([(7_u64, &sge[..])]);
    assert!(recv_once(receives.unwrap()).is_err());
    bring(&mut made, QpState::INIT);
    assert!(recv_once(made.receive.as_mut().unwrap()).is_ok());
    assert!(post(made.send.as_mut().unwrap(), 1).is_err());
    bring(&mut made, QpState::RTR);
    assert!(post(made.send.as_mut().unwrap(), 1).is_err());
    bring(&mut made, QpState::RTS);
    assert!(post(made.send.as_mut().unwrap(), 11).is_ok());

    // and what completes is found by the number that was chosen
    let device = kernel
        .hca(0)
        .qp(made.object.number())
        .expect("the device's");
    let wqes = device.take_sends();
    assert_eq!(wqes.len(), 1);
    assert_eq!(wqes[0].qpn(), made.object.number());
    let cq = device.send_cq.as_ref().expect("a completion queue");
    let (counter, _) = device.next_recv().expect("a receive");
    cq.push(&Cqe::requester(&device, &wqes[0])).expect("room");
    cq.push(&Cqe::responder(&device, Received::Send, 8, counter))
        .expect("room");
    let done = poll(&mut base.queue);
    let ids: Vec<_> = done.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(ids, [(11, 0), (7, 0)]);
    assert!(done.iter().all(|one| one.qp_num == made.object.number()));

    // B32: after RESET everything starts over
    bring(&mut made, QpState::RESET);
    assert!(post(made.send.as_mut().unwrap(), 1).is_err());
    assert_eq!(device.send_doorbell(), Some(0));
    assert_eq!(device.recv_doorbell(), Some(0));
}

/// B16: halves that are not asked for do not exist, and beside a shared queue nothing that is asked of
/// receives counts.
#[test]
fn one_sided_queue_pairs() {
    let kernel = kernel(Mlx5::default());
    let base = base(&kernel);
    let make = |change: &dyn Fn(&mut QpRequest<'_>)| {
        let mut request = base.request(Transport::Rc);
        change(&mut request);
        let mut made = base.context.create_qp(&request).expect("a queue pair");
        ready(&mut made);
        made
    };
    let receiver = make(&|request| request.cap.max_send_wr = 0);
    assert!(receiver.send.is_none() && receiver.receive.is_some());
    let sender = make(&|request| request.cap.max_recv_wr = 0);
    assert!(sender.send.is_some() && sender.receive.is_none());
    let neither = make(&|request| request.cap = QpCap::default());
    assert!(neither.send.is_none() && neither.receive.is_none());
    let (srq, shared) = srq(&base, 10);
    let fed = make(&|request| {
        request.srq = Some((srq.handle(), shared.shared().clone()));
        request.cap.max_recv_wr = 0x7fff_ffff;
        request.cap.max_recv_sge = 1000;
    });
    assert!(fed.receive.is_none());
    let cap = fed.object.cap();
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge), (0, 0));
}

/// A context is taken part in by its descriptor: there the domain of whoever made it is known, and queues of one's own work.
#[test]
fn a_context_of_another_process() {
    let import = |kernel: &FakeKernel, of: &Mlx5Context| {
        let fd = of.uctx().as_raw_fd();
        let uctx = Uctx::borrow(kernel.kernel_ref(), fd, DriverId::MLX5).expect("a descriptor");
        Mlx5Context::import(uctx, Environment::default())
    };
    let fake = kernel(Mlx5::default());
    let base = base(&fake);
    let opened = import(&fake, &base.context).expect("the same context");
    assert!(opened.async_event.is_none());
    let (imported, limits) = (opened.context, base.context.limits());
    assert_eq!(format!("{:?}", imported.limits()), format!("{limits:?}"));
    let (cq, mut queue) = imported
        .create_cq(&CqRequest {
            cqe: 100,
            ..CqRequest::default()
        })
        .expect("a completion queue");
    let request = QpRequest {
        send_cq: cq.handle(),
        recv_cq: cq.handle(),
        ..base.request(Transport::Rc)
    };
    let mut made = imported.create_qp(&request).expect("a queue pair");
    ready(&mut made);
    assert!(post(made.send.as_mut().expect("sends"), 5).is_ok());
    let device = fake.hca(0).qp(made.object.number()).expect("the device's");
    let wqes = device.take_sends();
    let cqe = Cqe::requester(&device, &wqes[0]);
    let cq = device.send_cq.as_ref().expect("a completion queue");
    cq.push(&cqe).expect("room");
    assert_eq!(poll(&mut queue)[0].wr_id, 5);

    // registers that came with a context are that process'
    let old = kernel(Mlx5 {
        tot_bfregs: Some(16),
        ..Mlx5::default()
    });
    let context = open(&old);
    let refused = import(&old, &context).expect_err("no registers");
    assert_eq!(refused, OpenError::Kernel(Errno(libc::EINVAL)));
}

fn srq(base: &Base, max_wr: u32) -> (SrqObject, SharedReceiveQueue) {
    base.context
        .create_srq(&SrqRequest {
            pd: base.pd.handle(),
            max_wr,
            max_sge: 2,
            ..SrqRequest::default()
        })
        .expect("a shared receive queue")
}

/// B58: sizes of shared queues, as the kernel hears them.
#[test]
fn shared_receive_queues() {
    let kernel = kernel(Mlx5::default());
    let base = base(&kernel);
    let (object, queue) = srq(&base, 100);
    assert_eq!(
        (object.max_wr(), object.max_sge(), queue.max_sge()),
        (127, 3, 3)
    );
    let answer = object.query().expect("a query");
    assert_eq!((answer.max_wr, answer.max_sge), (127, 3));
    object.set_limit(5).expect("a limit");
    let mut posted = 0;
    while queue.post([(posted, &[][..])]).is_ok() {
        posted += 1;
    }
    assert_eq!(posted, 127);
}

/// B55: devices on kernels of every age: registers that come with the context, completions that carry
/// the queue's number, no BlueFlame, no clock, no DEVX.
#[test]
fn older_kernels_and_lesser_devices() {
    let devices = [
        Mlx5 {
            tot_bfregs: Some(16),
            ..Mlx5::default()
        },
        Mlx5 {
            cqe_version: 0,
            ..Mlx5::default()
        },
        Mlx5 {
            has_blue_flame: false,
            has_devx: false,
            has_clock: false,
            has_dump_fill_mkey: false,
            eth_min_inline: 2,
            ..Mlx5::default()
        },
    ];
    for device in devices {
        let kernel = kernel(device);
        let mut base = base(&kernel);
        assert_eq!(base.context.clock_page().is_some(), device.has_clock);
        assert_eq!(base.context.has_devx(), device.has_devx);
        let mut many: Vec<_> = (0..40)
            .map(|_| {
                let mut made = base
                    .context
                    .create_qp(&base.request(Transport::Rc))
                    .expect("a queue pair");
                ready(&mut made);
                made
            })
            .collect();
        for (wr_id, made) in (0..).zip(&mut many) {
            post(made.send.as_mut().unwrap(), wr_id).expect("room");
            let device = kernel.hca(0).qp(made.object.number()).expect("there");
            let wqes = device.take_sends();
            let cq = device.send_cq.as_ref().expect("a completion queue");
            cq.push(&Cqe::requester(&device, &wqes[0])).expect("room");
            let done = poll(&mut base.queue);
            assert_eq!(done.len(), 1, "{device:?}");
            assert_eq!(
                (done[0].wr_id, done[0].qp_num),
                (wr_id, made.object.number())
            );
        }
        // destroyed ones are not found any more, whatever still comes in
        let mut made = many.swap_remove(3);
        let device = kernel.hca(0).qp(made.object.number()).expect("there");
        post(made.send.as_mut().unwrap(), 1).expect("room");
        let wqes = device.take_sends();
        drop(made);
        let cq = device.send_cq.as_ref().expect("a completion queue");
        cq.push(&Cqe::requester(&device, &wqes[0])).expect("room");
        assert!(poll(&mut base.queue).is_empty());
    }
}

#[test]
fn settings_reach_the_kernel() {
    let kernel = kernel(Mlx5::default());
    let set = |variables: &'static [(&str, &str)]| {
        let environment = Environment::read(|name| {
            let (_, value) = variables.iter().find(|(set, _)| *set == name)?;
            Some(value.into())
        });
        open_with(&kernel, environment)
    };
    let error = set(&[("MLX5_TOTAL_UUARS", "0")]).expect_err("refused");
    assert_eq!(Errno::from(error), Errno(libc::EINVAL));
    let context = set(&[("MLX5_CQE_SIZE", "100")]).expect("opens");
    let request = CqRequest {
        cqe: 1,
        ..CqRequest::default()
    };
    assert_eq!(
        context.create_cq(&request).unwrap_err(),
        Errno(libc::EINVAL)
    );
    let context = set(&[("MLX5_CQE_SIZE", "128"), ("MLX5_SHUT_UP_BF", "1")]).expect("opens");
    let (cq, queue) = context.create_cq(&request).expect("a completion queue");
    assert_eq!(queue.entries(), 2);
    assert!(kernel.hca(0).cq(cq.number()).is_some());
}

/// Nothing is left when the last object is gone, in whichever order they go.
#[test]
fn nothing_is_left() {
    let kernel = kernel(Mlx5::default());
    let base = base(&kernel);
    let made = base
        .context
        .create_qp(&base.request(Transport::Ud))
        .expect("a queue pair");
    let (srq, shared) = srq(&base, 10);
    let MadeQp {
        object,
        send,
        receive,
    } = made;
    // the rings live as long as the kernel's queue pair
    drop((send, receive, shared));
    drop((object, srq));
    drop(base);
    assert_eq!(kernel.census(), Census::default());
}

/// B40: completions that wait are carried over, in order; what has no room for them is refused before
/// the kernel hears of it, and so is nothing to do.
#[test]
fn resizing_carries_completions_over() {
    let kernel = kernel(Mlx5::default());
    let mut base = base(&kernel);
    let mut made = base
        .context
        .create_qp(&base.request(Transport::Rc))
        .expect("a queue pair");
    ready(&mut made);
    let device = kernel.hca(0).qp(made.object.number()).expect("there");
    let complete = |queue: &mut SendQueue, wr_id| {
        post(queue, wr_id).expect("room");
        let wqes = device.take_sends();
        let cq = device.send_cq.as_ref().expect("a completion queue");
        cq.push(&Cqe::requester(&device, &wqes[0])).expect("room");
    };
    let send = made.send.as_mut().unwrap();
    let before = kernel.calls();
    assert_eq!(base.cq.resize(&mut base.queue, 100), Ok(127));
    assert_eq!(base.cq.resize(&mut base.queue, 0), Err(Errno(libc::EINVAL)));
    assert_eq!(kernel.calls(), before);
    for wr_id in 0..5 {
        complete(send, wr_id);
    }
    assert_eq!(base.cq.resize(&mut base.queue, 3), Err(Errno(libc::EINVAL)));
    assert_eq!(kernel.calls(), before);
    for cqe in [1000, 7, 300] {
        assert!(
            base.cq
                .resize(&mut base.queue, cqe)
                .is_ok_and(|granted| granted >= cqe)
        );
    }
    complete(send, 5);
    let ids: Vec<_> = poll(&mut base.queue).iter().map(|one| one.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}

//! mlx5's control path on the fake kernel: the rarer objects, memory of the program's own, threads.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use fake_kernel::hca::Cqe;
use fake_kernel::{Census, Config, FakeKernel, Family, Mlx5};
use oxverbs::control::mlx5::buffer::{Allocated, Allocator, ResourceType};
use oxverbs::control::mlx5::cq::{CqObject, CqRequest};
use oxverbs::control::mlx5::domain::PdObject;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::{SendOps, Transport};
use oxverbs::control::mlx5::qp::{MadeQp, QpRequest};
use oxverbs::control::mlx5::srq::SrqRequest;
use oxverbs::control::mlx5::wq::{WqRequest, WqState};
use oxverbs::control::mlx5::{Mlx5Context, context};
use oxverbs::data::mlx5::{Completion, CompletionQueue, Operation, SendFlags, SendQueue};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use uverbs_abi::types::{QpAttrMask, QpCap, QpState, SrqType};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use uverbs_abi::write::wq::ExModifyWq;

fn kernel(mlx5: Mlx5) -> FakeKernel {
    FakeKernel::new(Config {
        family: Family::Mlx5,
        mlx5,
        ..Config::default()
    })
}

fn open(kernel: &FakeKernel) -> Arc<Mlx5Context> {
    let fd = UverbsFd::open(kernel.kernel_ref(), c"/dev/infiniband/uverbs0").expect("a node");
    let uctx = context::uctx(fd).expect("a descriptor");
    Mlx5Context::open(uctx, Environment::default())
        .expect("the fake device")
        .context
}

fn queue(
    context: &Arc<Mlx5Context>,
    allocator: Option<Arc<dyn Allocator>>,
) -> (CqObject, CompletionQueue) {
    context
        .create_cq(&CqRequest {
            cqe: 60,
            allocator,
            ..CqRequest::default()
        })
        .expect("a completion queue")
}

fn request(transport: Transport, pd: &PdObject, cq: &CqObject) -> QpRequest<'static> {
    QpRequest {
        pd: pd.handle(),
        send_cq: cq.handle(),
        recv_cq: cq.handle(),
        cap: QpCap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 16,
        },
        ..QpRequest::new(transport)
    }
}

/// Brings a queue pair to RTS, with whatever the fake kernel wants for it.
fn ready(made: &mut MadeQp) {
    // what responders and requesters have to know
    let (rtr, rts) = match made.object.transport() {
        Transport::XrcSend => (0x10_1181, 0x1_2e01),
        Transport::XrcRecv => (0x12_9181, 0x1_0201),
        _ => (0x12_9181, 0x1_2e01),
    };
    let steps = [
        (QpState::INIT, 0x39),
        (QpState::RTR, rtr),
        (QpState::RTS, rts),
    ];
    for (state, mask) in steps {
        let mut base = ModifyQp {
            attr_mask: QpAttrMask(mask),
            qp_state: state,
            port_num: 1,
            path_mtu: 3,
            ..ModifyQp::default()
        };
        base.dest.is_global = 1;
        base.dest.port_num = 1;
        let change = made
            .object
            .modify(&ExModifyQp {
                base,
                ..ExModifyQp::default()
            })
            .expect("a change of state");
        if let Some(send) = &mut made.send {
            change.apply_to_send(send);
        }
        if let Some(receive) = &mut made.receive {
            change.apply_to_receive(receive);
        }
    }
}

fn post(queue: &mut SendQueue, wr_id: u64) {
    let mut draft = queue.begin();
    // SAFETY: the operation reads no memory.
    unsafe { queue.open(&mut draft, wr_id, SendFlags::SIGNALED, &Operation::Send) }.expect("room");
    queue.commit(&mut draft).expect("posted");
}

fn poll(queue: &mut CompletionQueue) -> Vec<Completion> {
    let mut all = [Completion::default(); 16];
    let count = queue.poll(&mut all);
    all[..count].to_vec()
}

/// Gives memory of the heap and counts it.
#[derive(Debug, Default)]
struct Heap {
    given: Mutex<HashMap<usize, (Layout, ResourceType)>>,
    asked: Mutex<Vec<(ResourceType, usize, usize)>>,
}

// SAFETY: memory is the heap's, of the size and alignment that are asked for.
unsafe impl Allocator for Heap {
    fn alloc(&self, size: usize, alignment: usize, what: ResourceType) -> Allocated {
        self.asked.lock().unwrap().push((what, size, alignment));
        let layout = Layout::from_size_align(size, alignment).unwrap();
        // SAFETY: the layout has bytes.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap();
        // SAFETY: just allocated, as long as the layout.
        unsafe { memory.write_bytes(0xa5, size) };
        let mut given = self.given.lock().unwrap();
        given.insert(memory.addr().get(), (layout, what));
        Allocated::At(memory)
    }

    unsafe fn free(&self, memory: NonNull<u8>, what: ResourceType) {
        let mut given = self.given.lock().unwrap();
        let (layout, was) = given.remove(&memory.addr().get()).expect("given before");
        assert_eq!(was, what);
        // SAFETY: from `alloc` with this layout, as the caller vouches for.
        unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
    }
}

/// Memory of a program's own allocator is aligned as the device needs it, and is given back before the
/// destroy is over.
#[test]
fn memory_of_the_programs_own() {
    let kernel = kernel(Mlx5::default());
    let context = open(&kernel);
    let heap = Arc::new(Heap::default());
    let own: Arc<dyn Allocator> = heap.clone();
    let pd = context.alloc_pd().expect("a protection domain");
    let (mut cq, mut completions) = queue(&context, Some(own.clone()));
    let mut made = context
        .create_qp(&QpRequest {
            allocator: Some(own.clone()),
            ..request(Transport::Rc, &pd, &cq)
        })
        .expect("a queue pair");
    let (srq, shared) = context
        .create_srq(&SrqRequest {
            pd: pd.handle(),
            max_wr: 10,
            max_sge: 1,
            allocator: Some(own),
            ..SrqRequest::default()
        })
        .expect("a shared receive queue");
    let asked = heap.asked.lock().unwrap().clone();
    let kinds: Vec<_> = asked.iter().map(|(what, ..)| *what).collect();
    let record = ResourceType::DBR;
    assert_eq!(
        kinds,
        [
            ResourceType::CQ,
            record,
            ResourceType::QP,
            record,
            ResourceType::SRQ,
            record
        ]
    );
    // 64 entries of 64 bytes; 8 receives of 32 bytes and 8 sends of 256
    assert_eq!(asked[0], (ResourceType::CQ, 4096, 4096));
    assert_eq!(asked[1], (record, 8, 8));
    assert_eq!(asked[2], (ResourceType::QP, 2304, 64));
    ready(&mut made);
    post(made.send.as_mut().unwrap(), 5);
    let device = kernel.hca(0).qp(made.object.number()).expect("there");
    let wqes = device.take_sends();
    let device_cq = device.send_cq.as_ref().expect("a completion queue");
    device_cq
        .push(&Cqe::requester(&device, &wqes[0]))
        .expect("room");
    assert_eq!(poll(&mut completions)[0].wr_id, 5);

    let MadeQp {
        mut object,
        send,
        receive,
    } = made;
    drop(object.destroy().expect("destroys"));
    drop((send, receive, object));
    assert_eq!(heap.given.lock().unwrap().len(), 4);
    drop((srq, shared));
    cq.destroy().expect("destroys");
    drop((cq, completions));
    assert!(heap.given.lock().unwrap().is_empty());
}

/// Extended reliable connections: completions of receives name the shared queue.
#[test]
fn xrc() {
    let kernel = kernel(Mlx5::default());
    let context = open(&kernel);
    let pd = context.alloc_pd().expect("a protection domain");
    let (cq, mut completions) = queue(&context, None);
    let xrcd = context
        .uctx()
        .open_xrcd(None, libc::O_CREAT)
        .expect("a domain");
    let (srq, shared) = context
        .create_srq(&SrqRequest {
            srq_type: SrqType::XRC,
            pd: pd.handle(),
            xrcd,
            cq: cq.handle(),
            max_wr: 10,
            max_sge: 1,
            ..SrqRequest::default()
        })
        .expect("a shared receive queue");
    let mut target = context
        .create_qp(&QpRequest {
            xrcd,
            ..QpRequest::new(Transport::XrcRecv)
        })
        .expect("a target");
    assert!(target.send.is_none() && target.receive.is_none());
    assert_eq!(target.object.key(), None);
    ready(&mut target);
    let mut initiator = context
        .create_qp(&QpRequest {
            cap: QpCap {
                max_send_wr: 8,
                max_send_sge: 1,
                ..QpCap::default()
            },
            ..request(Transport::XrcSend, &pd, &cq)
        })
        .expect("an initiator");
    ready(&mut initiator);
    shared.post([(77_u64, &[][..])]).expect("room");
    let device = kernel.hca(0).srq(srq.number()).expect("there");
    let (index, _) = device.next().expect("a receive");
    let cqe = Cqe::new(2)
        .with_user_index(srq.key().expect("an index"))
        .with(56, &target.object.number().to_be_bytes())
        .with_counter(index);
    let device_cq = kernel.hca(0).cq(cq.number()).expect("there");
    device_cq.push(&cqe).expect("room");
    let done = poll(&mut completions);
    assert_eq!(
        (done[0].wr_id, done[0].qp_num),
        (77, target.object.number())
    );

    // another handle of the same target
    let opened = context
        .open_qp(xrcd, target.object.number(), 0)
        .expect("opens");
    assert_eq!(opened.number(), target.object.number());
    drop((opened, initiator, target, srq, shared));
    context.uctx().close_xrcd(xrcd).expect("closes");
    drop((cq, completions, pd));
    drop(context);
    assert_eq!(kernel.census(), Census::default());
}

/// Raw packets: a buffer for each direction; receives are not shown to the device before RTR.
#[test]
fn raw_packets() {
    let kernel = kernel(Mlx5::default());
    let context = open(&kernel);
    let pd = context.alloc_pd().expect("a protection domain");
    let (cq, _completions) = queue(&context, None);
    let mut made = context
        .create_qp(&QpRequest {
            send_ops: Some(SendOps::SEND.with(SendOps::TSO)),
            max_tso_header: 54,
            ..request(Transport::RawPacket, &pd, &cq)
        })
        .expect("a queue pair");
    let device = kernel.hca(0).qp(made.object.number()).expect("there");
    let (send, recv) = (device.send.expect("sends"), device.recv.expect("receives"));
    assert_eq!(
        (send.len(), recv.len()),
        (8 * 192_usize.next_power_of_two(), 8 * 32)
    );
    assert!(send.entry(0).abs_diff(recv.entry(0)) >= 4096);
    let limits = made
        .send
        .as_ref()
        .map(|send| *send.limits())
        .expect("sends");
    assert_eq!(limits.max_tso_header, 54);
    let modify = |made: &mut MadeQp, state, mask| {
        let base = ModifyQp {
            attr_mask: QpAttrMask(mask),
            qp_state: state,
            port_num: 1,
            ..ModifyQp::default()
        };
        let change = made
            .object
            .modify(&ExModifyQp {
                base,
                ..ExModifyQp::default()
            })
            .expect("a change of state");
        change.apply_to_receive(made.receive.as_mut().unwrap());
    };
    modify(&mut made, QpState::INIT, 0x21);
    let receive = made.receive.as_mut().expect("receives");
    receive.post([(1_u64, &[][..])]).expect("room");
    let device = kernel.hca(0).qp(made.object.number()).expect("there");
    assert_eq!(device.recv_doorbell(), Some(0));
    modify(&mut made, QpState::RTR, 1);
    assert_eq!(device.recv_doorbell(), Some(1));
    // headers to repeat are of raw packets only
    let wrong = QpRequest {
        max_tso_header: 54,
        ..request(Transport::Rc, &pd, &cq)
    };
    assert_eq!(context.create_qp(&wrong).unwrap_err(), Errno(libc::EINVAL));
}

/// Work queues start over when they become ready again.
#[test]
fn work_queues() {
    let kernel = kernel(Mlx5::default());
    let context = open(&kernel);
    let pd = context.alloc_pd().expect("a protection domain");
    let (cq, _completions) = queue(&context, None);
    let (mut wq, mut receives) = context
        .create_wq(&WqRequest {
            pd: pd.handle(),
            cq: cq.handle(),
            max_wr: 5,
            max_sge: 1,
            ..WqRequest::default()
        })
        .expect("a work queue");
    assert_eq!((wq.max_wr(), wq.max_sge()), (8, 1));
    let to = |state: WqState| ExModifyWq {
        attr_mask: 1,
        wq_state: state.0,
        ..ExModifyWq::default()
    };
    let lost = ExModifyWq {
        attr_mask: 3,
        wq_state: WqState::READY.0,
        curr_wq_state: WqState::ERROR.0,
        ..ExModifyWq::default()
    };
    assert_eq!(wq.modify(&lost), Err(Errno(libc::EINVAL)));
    for _ in 0..3 {
        let ready = to(WqState::READY);
        assert!(wq.starts_over(&ready));
        wq.start_over(&mut receives);
        wq.modify(&ready).expect("ready");
        for wr_id in 0..8_u64 {
            receives.post([(wr_id, &[][..])]).expect("room");
        }
        assert!(receives.post([(9_u64, &[][..])]).is_err());
        assert!(!wq.starts_over(&ready));
        wq.modify(&to(WqState::RESET)).expect("reset");
    }
    let table = context
        .create_rwq_ind_table(&[wq.handle()])
        .expect("a table");
    assert!(wq.destroy().is_err(), "a table has it");
    drop(table);
    drop((receives, wq));
    assert_eq!(
        context.create_rwq_ind_table(&[]).unwrap_err(),
        Errno(libc::EINVAL)
    );
}

/// B38: numbers that the kernel gives again at once: a queue pair that is made while another thread ends
/// one with the same number is found by its completions.
#[test]
fn numbers_come_back_at_once() {
    for cqe_version in [0, 1] {
        let kernel = kernel(Mlx5 {
            cqe_version,
            ..Mlx5::default()
        });
        let context = open(&kernel);
        let pd = context.alloc_pd().expect("a protection domain");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (context, pd, kernel) = (&context, &pd, &kernel);
                scope.spawn(move || {
                    let (cq, mut completions) = queue(context, None);
                    for round in 0..100 {
                        let wr_id = thread << 32 | round;
                        let mut made = context
                            .create_qp(&request(Transport::Rc, pd, &cq))
                            .expect("a queue pair");
                        ready(&mut made);
                        post(made.send.as_mut().unwrap(), wr_id);
                        let device = kernel.hca(0).qp(made.object.number()).expect("there");
                        let wqes = device.take_sends();
                        let device_cq = device.send_cq.as_ref().expect("a completion queue");
                        device_cq
                            .push(&Cqe::requester(&device, &wqes[0]))
                            .expect("room");
                        let done = poll(&mut completions);
                        assert_eq!(done.len(), 1);
                        assert_eq!(
                            (done[0].wr_id, done[0].qp_num),
                            (wr_id, made.object.number())
                        );
                        // and what is left of it at its end is cleaned
                        post(made.send.as_mut().unwrap(), wr_id);
                        let wqes = device.take_sends();
                        device_cq
                            .push(&Cqe::requester(&device, &wqes[0]))
                            .expect("room");
                        let dying = made.object.destroy().expect("destroys");
                        let key = dying.key().expect("a number");
                        assert_eq!(completions.clean(key, None), 1);
                        drop(dying);
                        assert!(poll(&mut completions).is_empty());
                    }
                });
            }
        });
    }
}

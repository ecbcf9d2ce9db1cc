//! Every kind of object of the userspace driver, made and destroyed over and over under the eyes of who counts what that
//! leaves: of a device in this process (`tests/soft-connectx`), and of one of vfio-pci's (the example `vfio_growth`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxverbs::control::kernel::Uctx;
use oxverbs::control::mlx5::Mlx5Context;
use oxverbs::control::mlx5::cq::CqRequest;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::Transport;
use oxverbs::control::mlx5::qp::QpRequest;
use oxverbs::control::mlx5::special::DctRequest;
use oxverbs::control::mlx5::srq::SrqRequest;
use oxverbs::control::vfio::objects::Objects;
use oxverbs::ffi_core::uverbs_abi::types::{QpAttrMask, QpCap, QpState, SrqType};
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::AllocPdResp;
use oxverbs::ffi_core::uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use oxverbs::{
    AccessFlags, Address, Context, DriverUsage, FlowMatch, LinkLayer, MwType, RawPacket, Rc,
    SharedReceiveQueueAttributes, Uc, Ud,
};

const ALL: AccessFlags = AccessFlags(
    AccessFlags::LOCAL_WRITE.0
        | AccessFlags::REMOTE_WRITE.0
        | AccessFlags::REMOTE_READ.0
        | AccessFlags::REMOTE_ATOMIC.0,
);

/// Does something a few times, and then often, and sees that the size of everything stays.
pub(crate) trait Watch {
    /// `most` is how often at most, `usage` what the driver says of itself.
    fn steady(
        &mut self,
        what: &str,
        most: usize,
        usage: &dyn Fn() -> DriverUsage,
        act: &mut dyn FnMut(),
    );
}

/// Does something `few` times, and then `count` times: sizes before and behind those, and how long they took.
pub(crate) fn repeated<S>(
    few: usize,
    count: usize,
    sizes: impl Fn() -> S,
    act: &mut dyn FnMut(),
) -> (S, S, Duration) {
    for _ in 0..few {
        act();
    }
    let (before, started) = (sizes(), Instant::now());
    for _ in 0..count {
        act();
    }
    (before, sizes(), started.elapsed())
}

/// What the native API has nouns for.
pub(crate) fn nouns(context: &Context, watch: &mut dyn Watch) {
    let usage = || context.driver_usage().unwrap();
    let mut steady = |what: &str, act: &mut dyn FnMut()| {
        watch.steady(what, usize::MAX, &usage, act);
    };
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    steady("protection domain", &mut || {
        drop(context.protection_domain().unwrap());
    });
    steady("completion queue", &mut || {
        drop(context.completion_queue(100).unwrap());
    });
    steady("completion channel", &mut || {
        let channel = context.completion_channel().unwrap();
        drop(channel.completion_queue(4).unwrap());
    });
    steady("memory region", &mut || {
        drop(pd.allocate(8192, ALL).unwrap());
    });
    steady("shared receive queue", &mut || {
        let attributes = SharedReceiveQueueAttributes {
            max_wr: 16,
            max_sge: 1,
            limit: 0,
        };
        drop(pd.shared_receive_queue(attributes).unwrap());
    });
    // completions of a queue pair that is gone may lie in their queue until somebody looks
    steady("RC queue pair", &mut || {
        drop(pd.queue_pair::<Rc>(&cq).create().unwrap());
        assert!(cq.poll().next().is_none());
    });
    steady("UD queue pair", &mut || {
        drop(pd.queue_pair::<Ud>(&cq).create().unwrap());
        assert!(cq.poll().next().is_none());
    });
    steady("UC queue pair", &mut || {
        drop(pd.queue_pair::<Uc>(&cq).create().unwrap());
        assert!(cq.poll().next().is_none());
    });
    for kind in [MwType::TYPE_1, MwType::TYPE_2] {
        steady("memory window", &mut || {
            drop(pd.memory_window(kind).unwrap());
        });
    }
    // on Ethernet paths go by GIDs only
    if context.query_port(1).unwrap().link_layer() == LinkLayer::INFINIBAND {
        steady("address handle", &mut || {
            drop(pd.address_handle(&Address::local(1, 1)).unwrap());
        });
    }
}

/// Queue pairs of raw packets and rules, and paths to an IP address, where there is something to remember of it.
pub(crate) fn ethernet(context: &Context, watch: &mut dyn Watch) {
    let usage = || context.driver_usage().unwrap();
    let mut steady = |what: &str, act: &mut dyn FnMut()| {
        watch.steady(what, usize::MAX, &usage, act);
    };
    let index = context.add_address([10, 0, 0, 1].into()).unwrap() as u8;
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    let own = context.query_gid(1, index.into()).unwrap().unwrap().gid;
    steady("address handle on Ethernet", &mut || {
        let path = Address::global(1, index, own);
        drop(pd.address_handle(&path).unwrap());
    });
    steady("raw packet queue pair", &mut || {
        let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
        qp.to_ready(1).unwrap();
        drop(qp);
        assert!(cq.poll().next().is_none());
    });
    let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
    qp.to_ready(1).unwrap();
    steady("rule", &mut || {
        drop(qp.steer(1, &FlowMatch::new().udp_port(7)).unwrap());
    });
}

/// XRC and dynamic connections, which have no nouns of their own yet.
pub(crate) fn below_the_nouns(objects: Arc<Objects>, watch: &mut dyn Watch) {
    let usage = || objects.platform().usage();
    let mut steady = |what: &str, most: usize, act: &mut dyn FnMut()| {
        watch.steady(what, most, &usage, act);
    };
    let uctx = Uctx::over(objects.clone()).unwrap();
    let opened = Mlx5Context::open(uctx, Environment::of_process()).unwrap();
    let context = opened.context;
    let (pd, _) = context.uctx().alloc_pd::<AllocPdResp>().unwrap();
    let asked = CqRequest {
        cqe: 15,
        ..CqRequest::default()
    };
    let (cq, _queue) = context.create_cq(&asked).unwrap();
    let xrcd = context.uctx().open_xrcd(None, 0).unwrap();
    steady("XRC domain", usize::MAX, &mut || {
        let xrcd = context.uctx().open_xrcd(None, 0).unwrap();
        context.uctx().close_xrcd(xrcd).unwrap();
    });
    let shared = SrqRequest {
        pd,
        max_wr: 15,
        max_sge: 1,
        ..SrqRequest::default()
    };
    let for_xrc = SrqRequest {
        srq_type: SrqType::XRC,
        xrcd,
        cq: cq.handle(),
        ..shared.clone()
    };
    steady("XRC shared receive queue", usize::MAX, &mut || {
        drop(context.create_srq(&for_xrc).unwrap());
    });
    let (srq, queue) = context.create_srq(&shared).unwrap();
    let cap = QpCap {
        max_send_wr: 4,
        max_send_sge: 1,
        ..QpCap::default()
    };
    let pair = |transport| QpRequest {
        pd,
        xrcd,
        send_cq: cq.handle(),
        recv_cq: cq.handle(),
        cap: match transport {
            Transport::XrcRecv => QpCap::default(),
            _ => cap,
        },
        ..QpRequest::new(transport)
    };
    for (what, transport) in [
        ("XRC initiator", Transport::XrcSend),
        ("XRC target", Transport::XrcRecv),
        ("DC initiator", Transport::Dci),
    ] {
        steady(what, usize::MAX, &mut || {
            let made = context.create_qp(&pair(transport)).unwrap();
            let mut object = made.object;
            let _ = object.destroy().unwrap();
        });
    }
    let target = DctRequest {
        pd,
        cq: cq.handle(),
        srq: (srq.handle(), queue.shared().clone()),
        access_key: 7,
        user_handle: 0,
        cookie: 0,
        no_scatter_to_cqe: false,
        async_event: None,
    };
    let change = |to, attr: ModifyQp| ExModifyQp {
        base: ModifyQp {
            qp_state: to,
            attr_mask: attr.attr_mask | QpAttrMask::STATE,
            ..attr
        },
        ..ExModifyQp::default()
    };
    let init = ModifyQp {
        attr_mask: QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::ACCESS_FLAGS,
        port_num: 1,
        ..ModifyQp::default()
    };
    let ready = ModifyQp {
        attr_mask: QpAttrMask::MIN_RNR_TIMER | QpAttrMask::AV | QpAttrMask::PATH_MTU,
        path_mtu: 3,
        min_rnr_timer: 12,
        ..ModifyQp::default()
    };
    // each one is drained, and the device says when it is
    steady("DC target", 10_000, &mut || {
        let mut target = context.create_dct(&target).unwrap();
        target.modify(&change(QpState::INIT, init)).unwrap();
        target.modify(&change(QpState::RTR, ready)).unwrap();
    });
}

/// Memory of this process that no child gets, in KiB: that which a device reaches, and which nobody but the driver makes.
/// What else there is is the allocator's.
pub(crate) fn kib_for_devices() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // neighbours count as one or as two, so mappings are not counted
    let (mut kib, mut ours) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Size:") {
            kib = size.trim().trim_end_matches(" kB").parse().unwrap();
        } else if line.starts_with("VmFlags:") && line.contains(" dc") {
            ours += kib;
        }
    }
    ours
}

/// Open files of this process.
pub(crate) fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

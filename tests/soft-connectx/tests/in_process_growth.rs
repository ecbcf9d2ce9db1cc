//! Opening, closing, making and destroying, over and over: nothing grows.
//!
//! `OXVERBS_LONG=1` does it a thousand and a hundred thousand times. One test, since descriptors are the whole process'.

#![cfg(feature = "in-process")]

use std::sync::Arc;

use oxverbs::control::kernel::Uctx;
use oxverbs::control::mlx5::Mlx5Context;
use oxverbs::control::mlx5::cq::CqRequest;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::Transport;
use oxverbs::control::mlx5::qp::QpRequest;
use oxverbs::control::mlx5::special::DctRequest;
use oxverbs::control::mlx5::srq::SrqRequest;
use oxverbs::control::vfio;
use oxverbs::control::vfio::hca::{Hca, Options};
use oxverbs::control::vfio::objects::Objects;
use oxverbs::ffi_core::uverbs_abi::types::{QpAttrMask, QpCap, QpState, SrqType};
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::AllocPdResp;
use oxverbs::ffi_core::uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use oxverbs::{
    Address, Context, FlowMatch, MwType, RawPacket, Rc, SharedReceiveQueueAttributes, Uc, Ud,
};
use soft_connectx::in_process::InProcess;
use soft_connectx::{Config, LinkLayer};

#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

/// Everything that could grow: open files, memory for the device, its mappings, its pages in the process.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    files: usize,
    kib: usize,
    mappings: usize,
    pages: usize,
}

fn sizes(device: &InProcess) -> Sizes {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // those that a child does not get are ours, the others are the allocator's; neighbours count as one or as two
    let (mut kib, mut ours) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Size:") {
            kib = size.trim().trim_end_matches(" kB").parse().unwrap();
        } else if line.starts_with("VmFlags:") && line.contains(" dc") {
            ours += kib;
        }
    }
    Sizes {
        files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        kib: ours,
        mappings: device.mappings(),
        pages: device.mapped_pages(),
    }
}

fn times(usual: usize, long: usize) -> usize {
    match std::env::var_os("OXVERBS_LONG") {
        Some(_) => long,
        None => usual,
    }
}

/// Does something a few times, and then often: the size of everything stays.
fn steady(device: &InProcess, what: &str, count: usize, mut act: impl FnMut()) {
    for _ in 0..10 {
        act();
    }
    let before = sizes(device);
    for _ in 0..count {
        act();
    }
    let after = sizes(device);
    eprintln!("{count} x {what}: {after:?}");
    assert_eq!(after, before, "{what}");
}

#[test]
fn nothing_grows() {
    let device: Arc<InProcess> = InProcess::new(Config::default());
    steady(&device, "open and close", times(100, 1000), || {
        drop(Context::over_pci(device.clone()).unwrap());
    });
    assert_eq!(device.mappings(), 0);

    // free I/O addresses and the firmware's pages, below the nouns
    let hca = Arc::new(Hca::open(device.clone(), Options::default()).unwrap());
    let (addresses, pages) = (hca.iommu().addresses_left(), hca.device_pages());
    for _ in 0..times(100, 1000) {
        let objects = Objects::new(hca.clone()).unwrap();
        let (pd, _) = objects.alloc_pd().unwrap();
        objects.dealloc_pd(pd).unwrap();
        drop(hca.iommu().allocate(3 << 20, true).unwrap());
    }
    assert_eq!(hca.iommu().addresses_left(), addresses);
    assert_eq!(hca.device_pages(), pages);
    drop(hca);

    let context = Context::over_pci(device.clone()).unwrap();
    let count = times(500, 100_000);
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    steady(&device, "protection domain", count, || {
        drop(context.protection_domain().unwrap());
    });
    steady(&device, "completion queue", count, || {
        drop(context.completion_queue(100).unwrap());
    });
    steady(&device, "completion channel", count, || {
        let channel = context.completion_channel().unwrap();
        drop(channel.completion_queue(4).unwrap());
    });
    steady(&device, "memory region", count, || {
        drop(pd.allocate(8192, traffic::ALL).unwrap());
    });
    steady(&device, "shared receive queue", count, || {
        let attributes = SharedReceiveQueueAttributes {
            max_wr: 16,
            max_sge: 1,
            limit: 0,
        };
        drop(pd.shared_receive_queue(attributes).unwrap());
    });
    steady(&device, "RC queue pair", count, || {
        drop(pd.queue_pair::<Rc>(&cq).create().unwrap());
        // its completions may lie there until somebody looks
        assert!(cq.poll().next().is_none());
    });
    steady(&device, "UD queue pair", count, || {
        drop(pd.queue_pair::<Ud>(&cq).create().unwrap());
        // its completions may lie there until somebody looks
        assert!(cq.poll().next().is_none());
    });
    steady(&device, "UC queue pair", count, || {
        drop(pd.queue_pair::<Uc>(&cq).create().unwrap());
        // its completions may lie there until somebody looks
        assert!(cq.poll().next().is_none());
    });
    for kind in [MwType::TYPE_1, MwType::TYPE_2] {
        steady(&device, "memory window", count, || {
            drop(pd.memory_window(kind).unwrap());
        });
    }
    steady(&device, "address handle", count, || {
        drop(pd.address_handle(&Address::local(1, 1)).unwrap());
    });
    drop((context, pd, cq));
    below_the_nouns(&device, count);
    raw_ethernet(count);
}

/// Queue pairs of raw packets and rules, and paths to an IP address, where there is something to remember of it.
fn raw_ethernet(count: usize) {
    let device = InProcess::new(Config {
        link: LinkLayer::Ethernet,
        ..Config::default()
    });
    let opened = times(50, 1000);
    steady(&device, "open and close with neighbours", opened, || {
        let context = Context::over_pci(device.clone()).unwrap();
        context.add_address([10, 0, 0, 1].into()).unwrap();
    });
    let context = Context::over_pci(device.clone()).unwrap();
    let index = context.add_address([10, 0, 0, 1].into()).unwrap() as u8;
    let pd = context.protection_domain().unwrap();
    let mut cq = context.completion_queue(16).unwrap();
    let own = context.query_gid(1, index.into()).unwrap().unwrap().gid;
    steady(&device, "address handle on Ethernet", count, || {
        let path = Address::global(1, index, own);
        drop(pd.address_handle(&path).unwrap());
    });
    steady(&device, "raw packet queue pair", count, || {
        let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
        qp.to_ready(1).unwrap();
        drop(qp);
        assert!(cq.poll().next().is_none());
    });
    let mut qp = pd.queue_pair::<RawPacket>(&cq).create().unwrap();
    qp.to_ready(1).unwrap();
    steady(&device, "rule", count, || {
        drop(qp.steer(1, &FlowMatch::new().udp_port(7)).unwrap());
    });
}

/// XRC and dynamic connections, which have no nouns of their own yet.
fn below_the_nouns(device: &Arc<InProcess>, count: usize) {
    let objects = vfio::open(device.clone(), Options::default()).unwrap();
    let uctx = Uctx::over(objects).unwrap();
    let opened = Mlx5Context::open(uctx, Environment::of_process()).unwrap();
    let context = opened.context;
    let (pd, _) = context.uctx().alloc_pd::<AllocPdResp>().unwrap();
    let asked = CqRequest {
        cqe: 15,
        ..CqRequest::default()
    };
    let (cq, _queue) = context.create_cq(&asked).unwrap();
    let xrcd = context.uctx().open_xrcd(None, 0).unwrap();
    steady(device, "XRC domain", count, || {
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
    steady(device, "XRC shared receive queue", count, || {
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
        steady(device, what, count, || {
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
    steady(device, "DC target", count.min(10_000), || {
        let mut target = context.create_dct(&target).unwrap();
        target.modify(&change(QpState::INIT, init)).unwrap();
        target.modify(&change(QpState::RTR, ready)).unwrap();
    });
}

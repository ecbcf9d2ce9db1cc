//! Packets spread over receive queues by a hash, and their times, through the userspace driver: between devices in this
//! process.

#![cfg(feature = "in-process")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use oxverbs::control::kernel::{Uctx, UserMr};
use oxverbs::control::mlx5::Mlx5Context;
use oxverbs::control::mlx5::cq::{CqObject, CqRequest};
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::special::{BareQp, RssRequest};
use oxverbs::control::mlx5::wq::{TableObject, WqObject, WqRequest, WqState};
use oxverbs::control::vfio;
use oxverbs::data::mlx5::{Completion, CompletionQueue, RecvQueue};
use oxverbs::ffi_core::uverbs_abi::handle::{Cq, Flow, Pd};
use oxverbs::ffi_core::uverbs_abi::types::{AccessFlags, QpType};
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::{RxHashFields, RxHashFunction};
use oxverbs::ffi_core::uverbs_abi::write::flow::{EthFilter, FlowAttr, FlowSpecEth, FlowSpecHdr};
use oxverbs::ffi_core::uverbs_abi::write::wq::ExModifyWq;
use oxverbs::{Context, QueuePair, RawPacket, WcStatus};
use soft_connectx::in_process::{Cable, InProcess};
use soft_connectx::{Config, LinkLayer};
use wqe_format::rxe::Sge;
use zerocopy::IntoBytes;

mod frames;

/// The key of "Verifying the RSS hash calculation", Microsoft's documentation of network drivers.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
/// Addresses and ports of UDP over IPv4.
const FIELDS: RxHashFields = RxHashFields(
    RxHashFields::SRC_IPV4.0
        | RxHashFields::DST_IPV4.0
        | RxHashFields::SRC_PORT_UDP.0
        | RxHashFields::DST_PORT_UDP.0,
);
const QUEUES: usize = 4;
const RECEIVES: usize = 64;
const SLOT: usize = 256;
/// A type that nobody has (IEEE 802, local experimental), and that of IPv4.
const EXPERIMENTAL: u16 = 0x88b5;
const IPV4: u16 = 0x0800;
/// Addresses that are nobody's (IEEE 802, locally administered).
const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// `IB_FLOW_SPEC_ETH` (`include/rdma/ib_verbs.h`, which uapi has no name for).
const ETH: u32 = 0x20;

/// Work queues with a table, and who spreads packets over them. What uses others comes before them.
struct Spread {
    rule: Flow,
    _qp: BareQp,
    _table: TableObject,
    _queues: Vec<(WqObject, RecvQueue)>,
    cq: CompletionQueue,
    _cq: CqObject,
    context: Arc<Mlx5Context>,
    /// The device's, until it is closed.
    _memory: Vec<u8>,
}

impl Drop for Spread {
    fn drop(&mut self) {
        self.context.uctx().destroy_flow(self.rule).unwrap();
    }
}

fn work_queue(context: &Arc<Mlx5Context>, pd: Pd, cq: Cq) -> (WqObject, RecvQueue) {
    let request = WqRequest {
        pd,
        cq,
        max_wr: RECEIVES as u32,
        max_sge: 1,
        ..WqRequest::default()
    };
    let (mut object, mut queue) = context.create_wq(&request).unwrap();
    let ready = ExModifyWq {
        attr_mask: 1,
        wq_state: WqState::READY.0,
        ..ExModifyWq::default()
    };
    object.start_over(&mut queue);
    object.modify(&ready).unwrap();
    (object, queue)
}

impl Spread {
    /// `order` says which queue each entry of the table names.
    fn new(pci: Arc<InProcess>, order: &[usize]) -> Spread {
        let objects = vfio::open(pci, vfio::hca::Options::default()).unwrap();
        let uctx = Uctx::over(objects).unwrap();
        let opened = Mlx5Context::open(uctx, Environment::of_process()).unwrap();
        let context = opened.context;
        let (pd, ()) = context.uctx().alloc_pd().unwrap();
        let request = CqRequest {
            cqe: (QUEUES * RECEIVES) as u32,
            wall_clock: true,
            ..CqRequest::default()
        };
        let (object, cq) = context.create_cq(&request).unwrap();
        let mut queues: Vec<_> = (0..QUEUES)
            .map(|_| work_queue(&context, pd, object.handle()))
            .collect();
        let memory = vec![0; QUEUES * RECEIVES * SLOT];
        let start = memory.as_ptr().expose_provenance() as u64;
        let region = UserMr {
            pd,
            start,
            length: memory.len() as u64,
            hca_va: start,
            access: AccessFlags::LOCAL_WRITE,
        };
        // SAFETY: the memory is kept until the device is closed, and nobody looks at it: the test looks at lengths only.
        let keys = unsafe { context.uctx().reg_mr(&region) }.unwrap();
        for (number, (_, queue)) in queues.iter_mut().enumerate() {
            for at in 0..RECEIVES {
                let sges = [Sge {
                    addr: start + ((number * RECEIVES + at) * SLOT) as u64,
                    length: SLOT as u32,
                    lkey: keys.lkey,
                }];
                let posted = queue.post_one((number as u64, &sges[..]));
                assert!(posted.is_ok(), "queue {number}, receive {at}");
            }
        }
        let handles: Vec<_> = order.iter().map(|at| queues[*at].0.handle()).collect();
        let table = context.create_rwq_ind_table(&handles).unwrap();
        let qp = context.create_rss_qp(&RssRequest {
            qp_type: QpType::RAW_PACKET,
            pd,
            table: table.handle(),
            function: RxHashFunction::TOEPLITZ,
            fields: FIELDS,
            key: KEY.to_vec(),
            ..RssRequest::default()
        });
        let qp = qp.unwrap();
        // What the test sends, and not what the other port's driver says of its addresses.
        let ours = FlowSpecEth {
            hdr: FlowSpecHdr {
                r#type: ETH,
                size: size_of::<FlowSpecEth>() as u16,
                ..FlowSpecHdr::default()
            },
            val: EthFilter {
                dst_mac: TO,
                ..EthFilter::default()
            },
            mask: EthFilter {
                dst_mac: [0xff; 6],
                ..EthFilter::default()
            },
        };
        let attr = FlowAttr {
            num_of_specs: 1,
            port: 1,
            ..FlowAttr::default()
        };
        let uctx = context.uctx();
        let rule = uctx.create_flow_mlx5(qp.handle(), &attr, ours.as_bytes(), None);
        Spread {
            rule: rule.unwrap(),
            _qp: qp,
            _table: table,
            _queues: queues,
            cq,
            _cq: object,
            context,
            _memory: memory,
        }
    }

    /// When the next packet came, by the device's clock and by the system's, in nanoseconds.
    fn next_time(&mut self) -> (u64, u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.cq.start_poll().is_err() {
            assert!(Instant::now() < deadline, "no packet in time");
            std::thread::yield_now();
        }
        let times = (
            self.cq.read_completion_ts(),
            self.cq.read_completion_wallclock_ns(),
        );
        self.cq.end_poll();
        times
    }

    /// Which queue the next packet comes to, and its length.
    fn next(&mut self) -> (usize, usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut completions = [Completion::default()];
        while self.cq.poll(&mut completions) == 0 {
            assert!(Instant::now() < deadline, "no packet in time");
            std::thread::yield_now();
        }
        let [completion] = completions;
        assert_eq!(completion.status(), WcStatus::SUCCESS);
        (completion.wr_id as usize, completion.byte_len as usize)
    }
}

/// Two ends of UDP over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
}

impl Connection {
    /// So many different ones.
    fn some(count: u16) -> impl Iterator<Item = Connection> {
        (0..count).map(|number| Connection {
            from: (
                Ipv4Addr::new(66, 9, 149, 187 - number as u8),
                2794 + 7 * number,
            ),
            to: (Ipv4Addr::new(161, 142, 100, 80), 1766),
        })
    }

    fn back(self) -> Connection {
        Connection {
            from: self.to,
            to: self.from,
        }
    }

    fn frame(self, data: usize) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend((28 + data as u16).to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        ip.extend(self.from.0.octets());
        ip.extend(self.to.0.octets());
        ip.extend(self.from.1.to_be_bytes());
        ip.extend(self.to.1.to_be_bytes());
        ip.extend((8 + data as u16).to_be_bytes());
        ip.extend([0, 0]);
        ip.resize(ip.len() + data, 0xa5);
        ethernet(IPV4, &ip)
    }
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&TO[..], &FROM, &ether_type.to_be_bytes(), payload].concat()
}

/// Who sends, and the queues that packets are spread over.
struct Ends {
    spread: Spread,
    qp: QueuePair<RawPacket>,
    sent: oxverbs::CompletionQueue,
    region: oxverbs::MemoryRegion,
    _cable: Cable,
}

impl Ends {
    fn new(order: &[usize]) -> Ends {
        let [one, other] = [1, 2].map(|serial| {
            InProcess::new(Config {
                link: LinkLayer::Ethernet,
                serial,
                ..Config::default()
            })
        });
        let cable = Cable::new(&one, &other);
        let context = Context::over_pci(one).unwrap();
        let pd = context.protection_domain().unwrap();
        let sent = context.completion_queue(16).unwrap();
        let mut qp = pd.queue_pair::<RawPacket>(&sent).create().unwrap();
        qp.to_ready(1).unwrap();
        Ends {
            spread: Spread::new(other, order),
            qp,
            sent,
            region: pd.allocate(2 * SLOT, AccessFlags::LOCAL_WRITE).unwrap(),
            _cable: cable,
        }
    }

    /// Sends a packet; the queue that it comes to.
    fn queue_of(&mut self, frame: &[u8]) -> usize {
        frames::post(&mut self.qp, &self.region, frame);
        assert_eq!(self.sent.spin().status(), WcStatus::SUCCESS);
        let (queue, len) = self.spread.next();
        assert_eq!(len, frame.len());
        queue
    }

    /// Where each connection's packets come to.
    fn queues(&mut self, count: u16) -> BTreeMap<Connection, usize> {
        Connection::some(count)
            .map(|connection| (connection, self.queue_of(&connection.frame(60))))
            .collect()
    }
}

#[test]
fn connections_are_spread_and_each_stays_where_it_is() {
    let mut ends = Ends::new(&[0, 1, 2, 3]);
    let queues = ends.queues(24);
    for queue in 0..QUEUES {
        let there = queues.values().filter(|at| **at == queue).count();
        assert!(there > 0, "nothing came to queue {queue} of {queues:?}");
    }
    for (connection, queue) in &queues {
        // What else is in a packet does not matter, and both directions are together.
        assert_eq!(ends.queue_of(&connection.frame(100)), *queue);
        assert_eq!(ends.queue_of(&connection.back().frame(60)), *queue);
    }
}

#[test]
fn the_table_says_which_queue_a_hash_means() {
    let straight = Ends::new(&[0, 1, 2, 3]).queues(24);
    let backwards = Ends::new(&[3, 2, 1, 0]).queues(24);
    let two = Ends::new(&[2, 1]).queues(24);
    for (connection, entry) in straight {
        assert_eq!(backwards[&connection], 3 - entry, "{connection:?}");
        // the last bit of the hash
        assert_eq!(two[&connection], [2, 1][entry % 2], "{connection:?}");
    }
}

#[test]
fn packets_without_a_hash_come_to_the_first_of_the_table() {
    let mut ends = Ends::new(&[2, 1, 0, 3]);
    for number in 0..16 {
        let frame = ethernet(EXPERIMENTAL, &[number; 60]);
        assert_eq!(ends.queue_of(&frame), 2);
    }
}

/// The clock's page is kept for as long as the device is open, and goes on with the device's clock.
#[test]
fn packets_have_the_times_at_which_they_came() {
    let mut ends = Ends::new(&[0]);
    let context = ends.spread.context.clone();
    let wall = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64
    };
    let (page, _keep) = context.clock_page().unwrap();
    let first = page.read().unwrap();
    // nanoseconds between the system's clock and the device's, which are both looked at while the other may run
    const APART: u64 = 50_000_000;
    let mut before = 0;
    for _ in 0..4 {
        let frame = ethernet(EXPERIMENTAL, &[7; 60]);
        let (began, ticks) = (wall(), context.read_clock().unwrap());
        frames::post(&mut ends.qp, &ends.region, &frame);
        assert_eq!(ends.sent.spin().status(), WcStatus::SUCCESS);
        let (came, at) = ends.spread.next_time();
        let (ended, later) = (wall(), context.read_clock().unwrap());
        assert!((ticks..=later).contains(&came), "{ticks} {came} {later}");
        let range = began - APART..ended + APART;
        assert!(range.contains(&at), "{range:?} {at}");
        assert!(at > before, "{before} {at}");
        before = at;
        std::thread::sleep(Duration::from_millis(150));
    }
    let last = page.read().unwrap();
    assert!(last.last_cycles > first.last_cycles && last.nsec > first.nsec);
    let passed = first.to_ns(last.last_cycles);
    assert!(passed.abs_diff(last.nsec) < 1000, "{passed} {last:?}");
}

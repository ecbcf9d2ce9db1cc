//! Commands against those of Linux' own drivers for the same requests, field by field.
//!
//! The requests are what rdma-core's pingpong programs ask for; numbers and addresses that the kernel chose are taken
//! from its commands. What differs, and why:
//!
//! - `uid`: the kernel names the program's DEVX context, which a driver that is alone with its device does not need.
//! - lists of pages, and with them `log_page_size` and `page_offset`: the kernel's are physical, ours are of addresses
//!   that we choose, contiguous and so in larger pages.
//! - `srqn_rmpn_xrqn` and `xrcd` of queue pairs that have no shared queue: the kernel names empty ones of its own, which
//!   the device looks at for other types of receive queues only.

use std::collections::BTreeSet;

use uverbs_abi::handle::{Cq, Pd, Qp};
use uverbs_abi::types::{QpAttrMask, QpState, QpType};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp, QpDest};
use wqe_format::mlx5::firmware::cq::CreateCqIn;
use wqe_format::mlx5::firmware::qp::CreateQpIn;
use wqe_format::mlx5::firmware::qp_modify::Rst2initQpIn;
use wqe_format::mlx5::firmware::rmp::CreateRmpIn;
use wqe_format::mlx5::firmware::{Count, Layout, Opcode, bits};

use super::super::Objects;
use super::{Recorder, objects};
use crate::control::kernel::{CreateCq, CreateQp, CreateSrq};

/// Differences that every command may have.
const EXPLAINED: [&str; 7] = [
    "uid",
    "log_page_size",
    "log_wq_pg_sz",
    "page_offset",
    "pas",
    "srqn_rmpn_xrqn",
    "xrcd",
];

/// The kernel's command of a program.
pub(super) fn golden(program: &str, opcode: &str) -> Vec<u8> {
    let texts = [
        include_str!("mlx5_core.trace"),
        include_str!("mlx5_roce.trace"),
        include_str!("mlx5_xrc.trace"),
    ];
    let title = format!("{program} {opcode}");
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut lines = lines.skip_while(|line| *line != title).skip(1);
    let lines = lines.by_ref().take_while(|line| !line.is_empty());
    let words = lines.flat_map(|line| line.split(' ').skip(1));
    words
        .flat_map(|word| u32::from_str_radix(word, 16).unwrap().to_be_bytes())
        .collect()
}

/// Names of fields in which two commands differ.
fn differences(layout: &'static Layout, ours: &[u8], kernel: &[u8]) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for field in layout.fields {
        if field.count != Count::One {
            if bits::rest(ours, field.offset) != bits::rest(kernel, field.offset) {
                names.insert(field.name);
            }
        } else if let Some(nested) = field.nested {
            let part = |bytes| bits::part(bytes, field.offset, field.width);
            names.extend(differences(nested, part(ours), part(kernel)));
        } else if field.width > 64 {
            let part = |bytes| bits::part(bytes, field.offset, field.width);
            if part(ours) != part(kernel) {
                names.insert(field.name);
            }
        } else {
            let value = |bytes| bits::get(bytes, field.offset, field.width);
            if value(ours) != value(kernel) {
                names.insert(field.name);
            }
        }
    }
    names
}

/// Whether the last command of its kind is the kernel's.
#[track_caller]
pub(super) fn same(device: &Recorder, program: &str, opcode: Opcode) {
    same_but(device, program, opcode, &[]);
}

/// The same, but for fields whose difference the caller explains.
#[track_caller]
pub(super) fn same_but(device: &Recorder, program: &str, opcode: Opcode, explained: &[&str]) {
    let (ours, kernel) = (
        device.last_of(opcode),
        golden(program, opcode.name().unwrap()),
    );
    assert!(
        !kernel.is_empty(),
        "{program} {opcode:?} is not in the traces"
    );
    let layout = opcode.input().unwrap();
    let mut names = differences(layout, &ours, &kernel);
    for explained in EXPLAINED.iter().chain(explained) {
        names.remove(explained);
    }
    assert!(
        names.is_empty(),
        "{program} {opcode:?}: {names:?} differ\nours   {:#?}\nkernel {:#?}",
        layout.view(&ours),
        layout.view(&kernel)
    );
}

/// The completion queue of a program's queue pair.
fn receives_complete_in(device: &Recorder, objects: &Objects, program: &str, cqe: u32) -> Cq {
    let queues = golden(program, "CREATE_QP");
    let number = CreateQpIn::new(&queues[..]).unwrap().qpc().cqn_rcv();
    completion_queue(device, objects, program, cqe, number)
}

/// A completion queue like the program's, of so many completions, which gets this number.
pub(super) fn completion_queue(
    device: &Recorder,
    objects: &Objects,
    program: &str,
    cqe: u32,
    number: u32,
) -> Cq {
    let kernel = golden(program, "CREATE_CQ");
    let kernel = CreateCqIn::new(&kernel[..]).unwrap();
    let context = kernel.cq_context();
    let request = CreateCq {
        cqe,
        ..CreateCq::default()
    };
    let input = udata::CreateCq {
        buf_addr: 0x5000_0000,
        db_addr: context.dbr_addr(),
        cqe_size: 64,
        uar_page_index: context.uar_page() as u16,
        flags: udata::CreateCqFlags::UAR_PAGE_INDEX,
        ..udata::CreateCq::default()
    };
    device.call(number);
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_cq(&request, &input) }.unwrap();
    made.handle
}

/// A protection domain that gets this number.
pub(super) fn domain(device: &Recorder, objects: &Objects, number: u32) -> Pd {
    device.call(number);
    objects.alloc_pd().unwrap().0
}

/// Changes a queue pair's state, and what else the mask names.
pub(super) fn modify(objects: &Objects, qp: Qp, attr: ModifyQp) {
    let attr = ExModifyQp {
        base: ModifyQp {
            qp_handle: qp,
            attr_mask: attr.attr_mask | QpAttrMask::STATE,
            ..attr
        },
        ..ExModifyQp::default()
    };
    objects.modify_qp(&attr, &Default::default()).unwrap();
}

/// The set of counters that is allocated next is the kernel's.
pub(super) fn counter_set(device: &Recorder, program: &str) {
    let init = golden(program, "RST2INIT_QP");
    let init = Rst2initQpIn::new(&init[..]).unwrap();
    device.call(init.qpc().counter_set_id().into());
}

/// A program's queue pair and the kernel's numbers.
struct Program {
    name: &'static str,
    qp_type: QpType,
    /// Blocks of sends; receives and the logarithm of their bytes.
    queues: (u32, u32, u32),
    flags: udata::CreateQpFlags,
}

impl Program {
    fn queue_pair(&self, device: &Recorder, objects: &Objects, pd: Pd, cq: Cq) -> Qp {
        let kernel = golden(self.name, "CREATE_QP");
        let kernel = CreateQpIn::new(&kernel[..]).unwrap();
        let context = kernel.qpc();
        let request = CreateQp {
            qp_type: self.qp_type,
            pd,
            send_cq: cq,
            recv_cq: cq,
            ..CreateQp::default()
        };
        let (sends, receives, shift) = self.queues;
        let input = udata::CreateQp {
            buf_addr: 0x6000_0000,
            db_addr: context.dbr_addr(),
            sq_wqe_count: sends,
            rq_wqe_count: receives,
            rq_wqe_shift: shift,
            uidx: context.user_index(),
            bfreg_index: context.uar_page(),
            flags: self.flags | udata::CreateQpFlags::UAR_PAGE_INDEX,
            ..udata::CreateQp::default()
        };
        let number = golden(self.name, "RST2INIT_QP");
        device.call(Rst2initQpIn::new(&number[..]).unwrap().qpn());
        // SAFETY: nobody looks at the memory.
        let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
        made.handle
    }

    /// The three changes of state that a pingpong program makes.
    fn connect(&self, device: &Recorder, objects: &Objects, qp: Qp) {
        let numbers = |opcode: &str| golden(self.name, opcode);
        let (rtr, rts) = (numbers("INIT2RTR_QP"), numbers("RTR2RTS_QP"));
        let rtr = Rst2initQpIn::new(&rtr[..]).unwrap();
        let rts = Rst2initQpIn::new(&rts[..]).unwrap();
        let modify = |attr| modify(objects, qp, attr);
        counter_set(device, self.name);
        let datagram = self.qp_type == QpType::UD;
        let reliable = self.qp_type == QpType::RC;
        let mut init = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
        init |= match datagram {
            true => QpAttrMask::QKEY,
            false => QpAttrMask::ACCESS_FLAGS,
        };
        modify(ModifyQp {
            attr_mask: init,
            qp_state: QpState::INIT,
            port_num: 1,
            qkey: 0x1111_1111,
            ..ModifyQp::default()
        });
        same(device, self.name, Opcode::RST2INIT_QP);
        let mut to_rtr = ModifyQp {
            qp_state: QpState::RTR,
            ..ModifyQp::default()
        };
        if !datagram {
            to_rtr.attr_mask =
                QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN;
            to_rtr.path_mtu = 3;
            to_rtr.dest_qp_num = rtr.qpc().remote_qpn();
            to_rtr.rq_psn = rtr.qpc().next_rcv_psn();
            to_rtr.dest = QpDest {
                dlid: 1,
                port_num: 1,
                ..QpDest::default()
            };
        }
        if reliable {
            to_rtr.attr_mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
            to_rtr.max_dest_rd_atomic = 1;
            to_rtr.min_rnr_timer = 12;
        }
        modify(to_rtr);
        same(device, self.name, Opcode::INIT2RTR_QP);
        let mut to_rts = ModifyQp {
            attr_mask: QpAttrMask::SQ_PSN,
            qp_state: QpState::RTS,
            sq_psn: rts.qpc().next_send_psn(),
            ..ModifyQp::default()
        };
        if reliable {
            to_rts.attr_mask |= QpAttrMask::TIMEOUT
                | QpAttrMask::RETRY_CNT
                | QpAttrMask::RNR_RETRY
                | QpAttrMask::MAX_QP_RD_ATOMIC;
            to_rts.timeout = 14;
            to_rts.retry_cnt = 7;
            to_rts.rnr_retry = 7;
            to_rts.max_rd_atomic = 1;
        }
        modify(to_rts);
        same(device, self.name, Opcode::RTR2RTS_QP);
    }

    fn run(&self) {
        let (device, objects) = objects();
        let queues = golden(self.name, "CREATE_QP");
        let number = CreateQpIn::new(&queues[..]).unwrap().qpc().pd();
        let pd = domain(&device, &objects, number);
        // 500 receives and one send
        let cq = receives_complete_in(&device, &objects, self.name, 501);
        same(&device, self.name, Opcode::CREATE_CQ);
        let qp = self.queue_pair(&device, &objects, pd, cq);
        same(&device, self.name, Opcode::CREATE_QP);
        self.connect(&device, &objects, qp);
    }
}

#[test]
fn a_reliable_connection() {
    Program {
        name: "ibv_rc_pingpong",
        qp_type: QpType::RC,
        queues: (4, 512, 4),
        flags: udata::CreateQpFlags::SCATTER_CQE,
    }
    .run();
}

#[test]
fn an_unreliable_connection() {
    Program {
        name: "ibv_uc_pingpong",
        qp_type: QpType::UC,
        queues: (4, 512, 4),
        flags: udata::CreateQpFlags::SCATTER_CQE,
    }
    .run();
}

#[test]
fn datagrams() {
    Program {
        name: "ibv_ud_pingpong",
        qp_type: QpType::UD,
        queues: (2, 512, 4),
        flags: udata::CreateQpFlags::SCATTER_CQE,
    }
    .run();
}

#[test]
fn a_shared_receive_queue() {
    let (device, objects) = objects();
    let kernel = golden("ibv_srq_pingpong", "CREATE_RMP");
    let kernel = CreateRmpIn::new(&kernel[..]).unwrap();
    let work_queue = kernel.ctx();
    let work_queue = work_queue.wq();
    device.call(work_queue.pd());
    let request = CreateSrq {
        pd: objects.alloc_pd().unwrap().0,
        // 500, and as many again that wait for pages on demand
        max_wr: 1023,
        max_sge: 1,
        ..CreateSrq::default()
    };
    let input = udata::CreateSrq {
        buf_addr: 0x6000_0000,
        db_addr: work_queue.dbr_addr(),
        ..udata::CreateSrq::default()
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.create_srq(&request, &input) }.unwrap();
    same(&device, "ibv_srq_pingpong", Opcode::CREATE_RMP);
}

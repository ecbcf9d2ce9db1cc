//! Commands of extended reliable connections against those of Linux' own drivers for `ibv_xsrq_pingpong`, field by field.
//! Differences beyond those of all commands are explained where they are let through.

use std::sync::Arc;

use uverbs_abi::handle::{Cq, Pd, Qp};
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState, QpType, SrqType};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::qp::{ModifyQp, QpDest};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::cq::CreateCqIn;
use wqe_format::mlx5::firmware::qp::CreateQpIn;
use wqe_format::mlx5::firmware::qp_modify::Rst2initQpIn;
use wqe_format::mlx5::firmware::xrc_srq::CreateXrcSrqIn;

use super::golden::{completion_queue, counter_set, domain, golden, modify, same, same_but};
use super::{Objects, Recorder, objects};
use crate::control::kernel::{CreateQp, CreateSrq};

const PROGRAM: &str = "ibv_xsrq_pingpong";
const TARGET: &str = "xrc_target";
const INITIATOR: &str = "xrc_initiator";

/// What the kernel names of a target: a domain and completion queues of its own, which nothing completes in, an empty shared
/// queue of its own, and the key of its own memory. Ours has none of them but a domain, which commands that change it do not
/// name again, and no receives.
const OF_TARGET: &[&str] = &["pd", "cqn_snd", "cqn_rcv", "rq_type", "rlky"];

/// The program's completion queue, which is the kernel's.
fn same_completion_queue(device: &Recorder, objects: &Objects, program: &str, number: u32) -> Cq {
    let kernel = golden(program, "CREATE_CQ");
    let log_size = CreateCqIn::new(&kernel[..]).unwrap();
    let log_size = log_size.cq_context().log_cq_size();
    let made = completion_queue(device, objects, program, (1 << log_size) - 1, number);
    same(device, program, Opcode::CREATE_CQ);
    made
}

/// The three changes of state, each the kernel's.
fn connect(device: &Recorder, objects: &Objects, program: &str, qp: Qp, explained: &[&str]) {
    let (rtr, rts) = (
        golden(program, "INIT2RTR_QP"),
        golden(program, "RTR2RTS_QP"),
    );
    let rtr = Rst2initQpIn::new(&rtr[..]).unwrap();
    let rts = Rst2initQpIn::new(&rts[..]).unwrap();
    let target = program == TARGET;
    counter_set(device, program);
    let change = |attr: ModifyQp, opcode: Opcode| {
        modify(objects, qp, attr);
        same_but(device, program, opcode, explained);
    };
    let init = ModifyQp {
        attr_mask: QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS,
        qp_access_flags: match target {
            true => AccessFlags::REMOTE_WRITE,
            false => AccessFlags::NONE,
        },
        qp_state: QpState::INIT,
        port_num: 1,
        ..ModifyQp::default()
    };
    change(init, Opcode::RST2INIT_QP);
    let mut to_rtr = ModifyQp {
        attr_mask: QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN,
        qp_state: QpState::RTR,
        path_mtu: 3,
        dest_qp_num: rtr.qpc().remote_qpn(),
        rq_psn: rtr.qpc().next_rcv_psn(),
        dest: QpDest {
            dlid: 1,
            port_num: 1,
            ..QpDest::default()
        },
        ..ModifyQp::default()
    };
    if target {
        to_rtr.attr_mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
        to_rtr.max_dest_rd_atomic = 1;
        to_rtr.min_rnr_timer = 12;
    }
    change(to_rtr, Opcode::INIT2RTR_QP);
    let mut to_rts = ModifyQp {
        attr_mask: QpAttrMask::SQ_PSN | QpAttrMask::TIMEOUT,
        qp_state: QpState::RTS,
        sq_psn: rts.qpc().next_send_psn(),
        timeout: 14,
        ..ModifyQp::default()
    };
    if !target {
        to_rts.attr_mask |=
            QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY | QpAttrMask::MAX_QP_RD_ATOMIC;
        to_rts.retry_cnt = 7;
        to_rts.rnr_retry = 7;
        to_rts.max_rd_atomic = 1;
    }
    change(to_rts, Opcode::RTR2RTS_QP);
}

/// A device with the domain of the program's, and its protection domain.
fn program() -> (Arc<Recorder>, Objects, uverbs_abi::handle::Xrcd, Pd) {
    let (device, objects) = objects();
    let queue = golden(PROGRAM, "CREATE_XRC_SRQ");
    let queue = CreateXrcSrqIn::new(&queue[..]).unwrap();
    let context = queue.xrc_srq_context_entry();
    device.call(context.xrcd());
    let xrcd = objects.open_xrcd().unwrap();
    same(&device, PROGRAM, Opcode::ALLOC_XRCD);
    let pd = domain(&device, &objects, context.pd());
    (device, objects, xrcd, pd)
}

#[test]
fn a_domain_and_its_shared_receive_queue() {
    let (device, objects, xrcd, pd) = program();
    let queue = golden(PROGRAM, "CREATE_XRC_SRQ");
    let queue = CreateXrcSrqIn::new(&queue[..]).unwrap();
    let context = queue.xrc_srq_context_entry();
    let cq = same_completion_queue(&device, &objects, PROGRAM, context.cqn());
    let request = CreateSrq {
        srq_type: SrqType::XRC,
        pd,
        xrcd,
        cq,
        max_wr: (1 << context.log_xrc_srq_size()) - 1,
        max_sge: 1,
        ..CreateSrq::default()
    };
    let record =
        u64::from(context.db_record_addr_h()) << 32 | u64::from(context.db_record_addr_l()) << 2;
    let input = udata::CreateSrq {
        buf_addr: 0x6000_0000,
        db_addr: record,
        uidx: context.user_index(),
        ..udata::CreateSrq::default()
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.create_srq(&request, &input) }.unwrap();
    same(&device, PROGRAM, Opcode::CREATE_XRC_SRQ);
}

#[test]
fn a_target() {
    let (device, objects, xrcd, _) = program();
    let kernel = golden(TARGET, "CREATE_QP");
    let kernel = CreateQpIn::new(&kernel[..]).unwrap();
    let context = kernel.qpc();
    let request = CreateQp {
        qp_type: QpType::XRC_TGT,
        xrcd,
        ..CreateQp::default()
    };
    let input = udata::CreateQp {
        db_addr: context.dbr_addr(),
        uidx: context.user_index(),
        ..udata::CreateQp::default()
    };
    device.call(context.pd());
    let number = golden(TARGET, "RST2INIT_QP");
    device.call(Rst2initQpIn::new(&number[..]).unwrap().qpn());
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
    same_but(&device, TARGET, Opcode::CREATE_QP, OF_TARGET);
    // The domain stands in the explained field of every command; here it is the program's.
    let ours = device.last_of(Opcode::CREATE_QP);
    assert_eq!(
        CreateQpIn::new(&ours[..]).unwrap().qpc().xrcd(),
        context.xrcd()
    );
    connect(&device, &objects, TARGET, made.handle, OF_TARGET);
}

#[test]
fn an_initiator() {
    let (device, objects, _, _) = program();
    let kernel = golden(INITIATOR, "CREATE_QP");
    let kernel = CreateQpIn::new(&kernel[..]).unwrap();
    let context = kernel.qpc();
    let pd = domain(&device, &objects, context.pd());
    let cq = same_completion_queue(&device, &objects, INITIATOR, context.cqn_snd());
    let request = CreateQp {
        qp_type: QpType::XRC_INI,
        pd,
        send_cq: cq,
        recv_cq: cq,
        ..CreateQp::default()
    };
    let input = udata::CreateQp {
        buf_addr: 0x6000_0000,
        db_addr: context.dbr_addr(),
        sq_wqe_count: 1 << context.log_sq_size(),
        uidx: context.user_index(),
        bfreg_index: context.uar_page(),
        flags: udata::CreateQpFlags::UAR_PAGE_INDEX,
        ..udata::CreateQp::default()
    };
    // the domain of initiators, which are in none of the program's
    device.call(context.xrcd());
    let number = golden(INITIATOR, "RST2INIT_QP");
    device.call(Rst2initQpIn::new(&number[..]).unwrap().qpn());
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
    // The kernel names an empty shared queue of its own, and one that receives would complete in; ours has no receives.
    let receives = &["rq_type", "cqn_rcv"];
    same_but(&device, INITIATOR, Opcode::CREATE_QP, receives);
    connect(&device, &objects, INITIATOR, made.handle, &[]);
}

//! Commands of an Ethernet port against those of Linux' own drivers, field by field: raw packets, rules, addresses,
//! dynamic connections, memory. Differences beyond those of all commands are explained where they are let through.

use std::sync::Arc;

use uverbs_abi::handle::{Cq, Qp};
use uverbs_abi::types::{AccessFlags, GidType, QpAttrMask, QpState, QpType};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::flow::{EthFilter, FlowAttr, FlowSpecEth, FlowSpecHdr};
use uverbs_abi::write::qp::{ModifyQp, QpDest};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::dct::CreateDctIn;
use wqe_format::mlx5::firmware::flow::entry::SetFteIn;
use wqe_format::mlx5::firmware::mkey::CreateMkeyIn;
use wqe_format::mlx5::firmware::qp::CreateQpIn;
use wqe_format::mlx5::firmware::qp_modify::Rst2initQpIn;
use wqe_format::mlx5::firmware::rq::{CreateRqIn, ModifyRqIn};
use wqe_format::mlx5::firmware::sq::{CreateSqIn, ModifySqIn};
use wqe_format::mlx5::firmware::tir::CreateTirIn;
use wqe_format::mlx5::firmware::tis::CreateTisIn;
use zerocopy::IntoBytes;

use super::golden::{self, counter_set, domain, golden, same, same_but};
use super::{Objects, Recorder, cq};
use crate::control::kernel::{CreateQp, CreateSrq, UserMr};

const RAW: &str = "raw_ethernet_bw";
const DC: &str = "ib_send_bw_dc";
const KERNEL: &str = "mlx5_ib";

fn ethernet() -> (Arc<Recorder>, Objects) {
    let device = Arc::new(Recorder {
        ethernet: true,
        ..Recorder::default()
    });
    let objects = Objects::new(device.clone()).unwrap();
    (device, objects)
}

fn completion_queue(device: &Recorder, objects: &Objects, number: u32) -> Cq {
    device.call(number);
    cq(objects, 0x5000_0000, 31).unwrap()
}

fn modify(objects: &Objects, qp: Qp, to: QpState, attr: ModifyQp) {
    let qp_state = to;
    golden::modify(objects, qp, ModifyQp { qp_state, ..attr });
}

fn port() -> ModifyQp {
    ModifyQp {
        attr_mask: QpAttrMask::PORT,
        port_num: 1,
        ..ModifyQp::default()
    }
}

#[test]
fn raw_packets() {
    let (device, objects) = ethernet();
    let (sq, rq) = (golden(RAW, "CREATE_SQ"), golden(RAW, "CREATE_RQ"));
    let sq = CreateSqIn::new(&sq[..]).unwrap();
    let rq = CreateRqIn::new(&rq[..]).unwrap();
    let (send, receive) = (sq.ctx(), rq.ctx());
    let (tis, tir) = (golden(RAW, "CREATE_TIS"), golden(RAW, "CREATE_TIR"));
    let tis = CreateTisIn::new(&tis[..]).unwrap();
    let tir = CreateTirIn::new(&tir[..]).unwrap();
    let (sqn, rqn) = (golden(RAW, "MODIFY_SQ"), golden(RAW, "MODIFY_RQ"));
    let sqn = ModifySqIn::new(&sqn[..]).unwrap().sqn();
    let rqn = ModifyRqIn::new(&rqn[..]).unwrap().rqn();
    assert_eq!(tir.ctx().inline_rqn(), rqn);
    let pd = domain(&device, &objects, send.wq().pd());
    let send_cq = completion_queue(&device, &objects, send.cqn());
    let recv_cq = completion_queue(&device, &objects, receive.cqn());
    let domain = tis.ctx().transport_domain();
    for number in [domain, send.tis_num_0(), sqn, rqn] {
        device.call(number);
    }
    let request = CreateQp {
        qp_type: QpType::RAW_PACKET,
        pd,
        send_cq,
        recv_cq,
        ..CreateQp::default()
    };
    let input = udata::CreateQp {
        buf_addr: 0x6000_0000,
        sq_buf_addr: 0x6001_0000,
        db_addr: send.wq().dbr_addr(),
        sq_wqe_count: 1 << send.wq().log_wq_sz(),
        rq_wqe_count: 1 << receive.wq().log_wq_sz(),
        rq_wqe_shift: receive.wq().log_wq_stride().into(),
        uidx: send.user_index(),
        bfreg_index: send.wq().uar_page(),
        flags: udata::CreateQpFlags::UAR_PAGE_INDEX,
        ..udata::CreateQp::default()
    };
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
    same(&device, RAW, Opcode::CREATE_TIS);
    same(&device, RAW, Opcode::CREATE_SQ);
    same(&device, RAW, Opcode::CREATE_RQ);
    same(&device, RAW, Opcode::CREATE_TIR);
    modify(&objects, made.handle, QpState::INIT, port());
    same(&device, RAW, Opcode::MODIFY_RQ);
    modify(&objects, made.handle, QpState::RTR, ModifyQp::default());
    modify(&objects, made.handle, QpState::RTS, ModifyQp::default());
    // The kernel sends one more, from RESET to RESET, with the receive queue's.
    same(&device, RAW, Opcode::MODIFY_SQ);

    // A rule for one MAC address. The kernel's table is one of its tree, and larger, as are its groups.
    let rule = golden(RAW, "SET_FLOW_TABLE_ENTRY");
    let eth = FlowSpecEth {
        hdr: FlowSpecHdr {
            r#type: 0x20,
            size: size_of::<FlowSpecEth>() as u16,
            ..FlowSpecHdr::default()
        },
        val: EthFilter {
            dst_mac: [0, 2, 0xc9, 0, 0, 1],
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
    let kernel = SetFteIn::new(&rule[..]).unwrap();
    device.call(kernel.table_id());
    // SET_FLOW_TABLE_ROOT, then the group
    device.call(0);
    device.call(kernel.flow_context().group_id());
    objects
        .create_flow(made.handle, &attr, eth.as_bytes())
        .unwrap();
    same_but(&device, RAW, Opcode::CREATE_FLOW_GROUP, &["end_flow_index"]);
    // Where packets go is the other program's number.
    same_but(&device, RAW, Opcode::SET_FLOW_TABLE_ENTRY, &["destination"]);
    let destination = |command: &[u8]| command[SetFteIn::SIZE];
    let ours = device.last_of(Opcode::SET_FLOW_TABLE_ENTRY);
    assert_eq!(destination(&ours), destination(&rule));
}

#[test]
fn roce_addresses() {
    let (device, objects) = ethernet();
    same(&device, KERNEL, Opcode::MODIFY_NIC_VPORT_CONTEXT);
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];
    assert_eq!(objects.add_gid(gid, GidType::ROCE_V1), Ok(2));
    assert_eq!(objects.add_gid(gid, GidType::ROCE_V2), Ok(3));
    same(&device, KERNEL, Opcode::SET_ROCE_ADDRESS);
}

#[test]
fn a_target_of_dynamic_connections() {
    let (device, objects) = ethernet();
    let kernel = golden(DC, "CREATE_DCT");
    let kernel = CreateDctIn::new(&kernel[..]).unwrap();
    let context = kernel.dct_context_entry();
    let pd = domain(&device, &objects, context.pd());
    let recv_cq = completion_queue(&device, &objects, context.cqn());
    device.call(context.srqn_xrqn());
    let srq = CreateSrq {
        pd,
        max_wr: 31,
        max_sge: 1,
        ..CreateSrq::default()
    };
    let input = udata::CreateSrq {
        buf_addr: 0x6000_0000,
        db_addr: 0x7000_0080,
        ..udata::CreateSrq::default()
    };
    // SAFETY: nobody looks at the memory.
    let srq = unsafe { objects.create_srq(&srq, &input) }.unwrap();
    let request = CreateQp {
        qp_type: QpType::DRIVER,
        pd,
        recv_cq,
        srq: Some(srq.handle),
        ..CreateQp::default()
    };
    let input = udata::CreateQp {
        sq_buf_addr: context.dc_access_key(),
        flags: udata::CreateQpFlags::TYPE_DCT,
        ..udata::CreateQp::default()
    };
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
    let init = ModifyQp {
        attr_mask: QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::ACCESS_FLAGS,
        qp_access_flags: AccessFlags::REMOTE_WRITE,
        ..port()
    };
    modify(&objects, made.handle, QpState::INIT, init);
    device.call(context.counter_set_id().into());
    let ready = ModifyQp {
        attr_mask: QpAttrMask::MIN_RNR_TIMER | QpAttrMask::AV | QpAttrMask::PATH_MTU,
        min_rnr_timer: context.min_rnr_nak(),
        path_mtu: context.mtu(),
        dest: QpDest {
            sgid_index: context.my_addr_index(),
            hop_limit: context.hop_limit(),
            is_global: 1,
            port_num: 1,
            ..QpDest::default()
        },
        ..ModifyQp::default()
    };
    modify(&objects, made.handle, QpState::RTR, ready);
    same(&device, DC, Opcode::CREATE_DCT);
}

#[test]
fn an_initiator_of_dynamic_connections() {
    let (device, objects) = ethernet();
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];
    objects.add_gid(gid, GidType::ROCE_V1).unwrap();
    objects.add_gid(gid, GidType::ROCE_V2).unwrap();
    let kernel = golden(DC, "CREATE_QP");
    let kernel = CreateQpIn::new(&kernel[..]).unwrap();
    let context = kernel.qpc();
    let number = golden(DC, "RST2INIT_QP");
    let rts = golden(DC, "RTR2RTS_QP");
    let rts = Rst2initQpIn::new(&rts[..]).unwrap();
    let pd = domain(&device, &objects, context.pd());
    let send_cq = completion_queue(&device, &objects, context.cqn_snd());
    let recv_cq = completion_queue(&device, &objects, context.cqn_rcv());
    let request = CreateQp {
        qp_type: QpType::DRIVER,
        pd,
        send_cq,
        recv_cq,
        ..CreateQp::default()
    };
    let input = udata::CreateQp {
        buf_addr: 0x6000_0000,
        db_addr: context.dbr_addr(),
        sq_wqe_count: 1 << context.log_sq_size(),
        uidx: context.user_index(),
        bfreg_index: context.uar_page(),
        flags: udata::CreateQpFlags::UAR_PAGE_INDEX | udata::CreateQpFlags::TYPE_DCI,
        ..udata::CreateQp::default()
    };
    // a domain and a shared queue that nobody uses, which are made with the first one
    for reserved in 1..=2 {
        device.call(reserved);
    }
    device.call({ Rst2initQpIn::new(&number[..]).unwrap() }.qpn());
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
    same(&device, DC, Opcode::CREATE_QP);
    let init = ModifyQp {
        attr_mask: QpAttrMask::PORT | QpAttrMask::PKEY_INDEX,
        ..port()
    };
    counter_set(&device, DC);
    modify(&objects, made.handle, QpState::INIT, init);
    // The kernel says again which queues complete where, as here; of this kind it leaves that out.
    same_but(&device, DC, Opcode::RST2INIT_QP, &["cqn_snd", "cqn_rcv"]);
    let ready = ModifyQp {
        attr_mask: QpAttrMask::AV | QpAttrMask::PATH_MTU,
        path_mtu: 5,
        dest: QpDest {
            dgid: gid,
            sgid_index: 3,
            hop_limit: 0xff,
            is_global: 1,
            port_num: 1,
            ..QpDest::default()
        },
        ..ModifyQp::default()
    };
    modify(&objects, made.handle, QpState::RTR, ready);
    same_but(&device, DC, Opcode::INIT2RTR_QP, &["cqn_snd", "cqn_rcv"]);
    let send = ModifyQp {
        attr_mask: QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::SQ_PSN
            | QpAttrMask::MAX_QP_RD_ATOMIC,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
        sq_psn: rts.qpc().next_send_psn(),
        ..ModifyQp::default()
    };
    modify(&objects, made.handle, QpState::RTS, send);
    same_but(&device, DC, Opcode::RTR2RTS_QP, &["cqn_snd", "cqn_rcv"]);
}

#[test]
fn memory() {
    let (device, objects) = ethernet();
    let kernel = golden(RAW, "CREATE_MKEY");
    let kernel = CreateMkeyIn::new(&kernel[..]).unwrap();
    let context = kernel.memory_key_mkey_entry();
    let pd = domain(&device, &objects, context.pd());
    let region = UserMr {
        pd,
        start: context.start_addr(),
        length: context.len(),
        hca_va: context.start_addr(),
        access: AccessFlags::LOCAL_WRITE,
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.reg_mr(&region) }.unwrap();
    same_but(
        &device,
        RAW,
        Opcode::CREATE_MKEY,
        &[
            // counted, so that a stale key is noticed
            "mkey_7_0",
            // the kernel changes registrations by work requests of its own, and says so
            "umr_en",
            // as for all lists of pages
            "translations_octword_size",
            "translations_octword_actual_size",
            "klm_pas_mtt",
            // and the kernel's says with each page, in the low bits of its address, what may be done there
            "pg_access",
        ],
    );
}

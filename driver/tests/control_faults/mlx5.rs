//! Every verb that only mlx5 has, and those that take or give its data.

use oxverbs::control::kernel::{
    CreateCq, CreateMatcher, CreateQp, CreateRule, CreateSrq, CreateWq, DevxNotice, DmMr, DmabufMr,
    RegUmem, Uctx,
};
use oxverbs::sys::errno::Errno;
use uverbs_abi::handle::mlx5::{
    Any as AnyObject, DevxObj, DevxUmem, FlowMatcher, Pp, SteeringAnchor, Uar, Var,
};
use uverbs_abi::handle::{Counters, Cq, Dm, Flow, FlowAction, Pd, RwqIndTbl, Srq, Wq, Xrcd};
use uverbs_abi::object::mlx5::{
    CreateFlowFlags, DevxEventChannelFlags, DmType, FlowTableType, FlowType, PacketReformatType,
    PpAllocFlags, RegDmabufFlags, UarAllocType,
};
use uverbs_abi::types::{AccessFlags, QpCap, QpType, ReadCountersFlags, SrqType};
use uverbs_abi::udata::mlx5;
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::flow::{FlowAttr, FlowSpecActionDrop};
use uverbs_abi::write::qp::ExModifyQp;
use uverbs_abi::write::wq::ExModifyWq;
use zerocopy::IntoBytes;

use crate::Answer::{Fd, Object, Plain};
use crate::Case;
use crate::Form::{Any, Ioctl};

pub(crate) const VERBS: &[Case] = &[
    ("query_device_ex", Any, Plain, |u| {
        u.query_device_ex::<mlx5::QueryDeviceResp>().map(drop)
    }),
    ("alloc_pd", Any, Plain, |u| {
        u.alloc_pd::<mlx5::AllocPdResp>().map(drop)
    }),
    ("query_context_mlx5", Ioctl, Plain, |u| {
        u.query_context_mlx5().map(drop)
    }),
    ("reg_dmabuf_mr_mlx5", Ioctl, Object, |u| {
        let mr = DmabufMr {
            pd: Pd(1),
            offset: 0,
            length: 4096,
            iova: 0,
            fd: 5,
            access: AccessFlags::LOCAL_WRITE,
        };
        u.reg_dmabuf_mr_mlx5(&mr, RegDmabufFlags::DATA_DIRECT)
            .map(drop)
    }),
    ("alloc_uar", Ioctl, Object, |u| {
        u.alloc_uar(UarAllocType::BF).map(drop)
    }),
    ("destroy_uar", Ioctl, Plain, |u| u.destroy_uar(Uar(1))),
    ("alloc_var", Ioctl, Object, |u| u.alloc_var().map(drop)),
    ("destroy_var", Ioctl, Plain, |u| u.destroy_var(Var(1))),
    ("alloc_pp", Ioctl, Object, |u| {
        u.alloc_pp(&[1; 48], PpAllocFlags::NONE).map(drop)
    }),
    ("destroy_pp", Ioctl, Plain, |u| u.destroy_pp(Pp(1))),
    ("devx_command", Ioctl, Plain, |u| {
        u.devx_command(&[0; 16], &mut [0; 4112])
    }),
    ("devx_query_uar", Ioctl, Plain, |u| {
        u.devx_query_uar(1).map(drop)
    }),
    ("devx_query_eqn", Ioctl, Plain, |u| {
        u.devx_query_eqn(1).map(drop)
    }),
    ("devx_obj_create", Ioctl, Object, |u| {
        u.devx_obj_create(&[0; 64], &mut [0; 16]).map(drop)
    }),
    ("devx_obj_modify", Ioctl, Plain, |u| {
        u.devx_obj_modify(AnyObject(1), &[0; 64], &mut [0; 16])
    }),
    ("devx_obj_query", Ioctl, Plain, |u| {
        u.devx_obj_query(AnyObject(1), &[0; 16], &mut [0; 64])
    }),
    ("devx_obj_destroy", Ioctl, Plain, |u| {
        u.devx_obj_destroy(DevxObj(1))
    }),
    ("devx_umem_reg", Ioctl, Object, |u| {
        let umem = RegUmem {
            page_sizes: Some(1 << 12),
            dmabuf: Some(5),
            ..RegUmem::default()
        };
        // SAFETY: no device is behind this kernel.
        unsafe { u.devx_umem_reg(&umem) }.map(drop)
    }),
    ("devx_umem_dereg", Ioctl, Plain, |u| {
        u.devx_umem_dereg(DevxUmem(1))
    }),
    ("devx_async_cmd_file", Ioctl, Fd, |u| {
        u.devx_async_cmd_file().map(drop)
    }),
    ("devx_event_file", Ioctl, Fd, |u| {
        u.devx_event_file(DevxEventChannelFlags::OMIT_DATA)
            .map(drop)
    }),
    ("query_pd", Ioctl, Plain, |u| u.query_pd(Pd(1)).map(drop)),
    ("query_port_mlx5", Ioctl, Plain, |u| {
        u.query_port_mlx5(1).map(drop)
    }),
    ("alloc_dm_mlx5", Ioctl, Object, |u| {
        u.alloc_dm_mlx5(4096, 0).map(drop)
    }),
    ("alloc_icm_mlx5", Ioctl, Object, |u| {
        u.alloc_icm_mlx5(DmType::STEERING_SW_ICM, 4096, 0).map(drop)
    }),
    ("dm_map_op_addr", Ioctl, Plain, |u| {
        u.dm_map_op_addr(Dm(1), 2).map(drop)
    }),
    ("query_dm", Ioctl, Plain, |u| u.query_dm(Dm(1)).map(drop)),
    ("reg_dm_mr", Ioctl, Object, |u| {
        u.reg_dm_mr(&DmMr::default()).map(drop)
    }),
    ("free_dm", Ioctl, Plain, |u| u.free_dm(Dm(1))),
    ("open_xrcd", Any, Plain, |u| {
        u.open_xrcd(None, libc::O_CREAT).map(drop)
    }),
    ("close_xrcd", Any, Plain, |u| u.close_xrcd(Xrcd(1))),
    ("create_cq with data", Any, Object, |u| {
        let (attr, input) = (CreateCq::default(), mlx5::CreateCq::default());
        // SAFETY: no device is behind this kernel.
        unsafe { u.create_cq_with::<_, mlx5::CreateCqResp>(&attr, &input) }.map(drop)
    }),
    ("resize_cq with data", Any, Plain, |u| {
        // SAFETY: no device is behind this kernel.
        unsafe { u.resize_cq_with::<_, ()>(Cq(1), 8, &mlx5::ResizeCq::default()) }.map(drop)
    }),
    ("modify_cq_moderation", Any, Plain, |u| {
        u.modify_cq_moderation(Cq(1), 8, 16)
    }),
    ("create_srq with data", Any, Object, |u| {
        srq(u, SrqType::BASIC)
    }),
    ("create_srq for XRC", Any, Object, |u| srq(u, SrqType::XRC)),
    ("create_srq for tags", Any, Object, |u| srq(u, SrqType::TM)),
    ("create_qp with data", Any, Object, |u| {
        qp(u, &CreateQp::default(), QpType::RC)
    }),
    ("create_qp XRC initiator", Any, Object, |u| {
        qp(u, &CreateQp::default(), QpType::XRC_INI)
    }),
    ("create_qp XRC target", Any, Object, |u| {
        qp(u, &CreateQp::default(), QpType::XRC_TGT)
    }),
    ("create_qp of the driver's", Any, Object, |u| {
        qp(u, &CreateQp::default(), QpType::DRIVER)
    }),
    ("create_qp with a source", Any, Object, |u| {
        let attr = CreateQp {
            source_qpn: Some(3),
            ..CreateQp::default()
        };
        qp(u, &attr, QpType::UD)
    }),
    ("create_qp over a table", Any, Object, |u| {
        let attr = CreateQp {
            qp_type: QpType::RAW_PACKET,
            ind_table: Some(RwqIndTbl(1)),
            ..CreateQp::default()
        };
        let input = mlx5::CreateQpRss::default();
        // SAFETY: no device is behind this kernel.
        unsafe { u.create_qp_with::<_, mlx5::CreateQpResp>(&attr, &input) }.map(drop)
    }),
    ("open_qp", Any, Plain, |u| {
        u.open_qp(Xrcd(1), 5, 1).map(drop)
    }),
    ("modify_qp_ex with data", Any, Plain, |u| {
        let input = mlx5::ModifyQp::default();
        u.modify_qp_ex_with::<_, mlx5::ModifyQpResp>(&ExModifyQp::default(), &input)
            .map(drop)
    }),
    ("create_ah with data", Any, Plain, |u| {
        u.create_ah::<mlx5::CreateAhResp>(Pd(1), 1, &AhAttr::default())
            .map(drop)
    }),
    ("create_wq", Any, Object, |u| {
        let (attr, input) = (CreateWq::default(), mlx5::CreateWq::default());
        // SAFETY: no device is behind this kernel.
        unsafe { u.create_wq_with::<_, mlx5::CreateWqResp>(&attr, &input) }.map(drop)
    }),
    ("modify_wq", Any, Plain, |u| {
        u.modify_wq_with(&ExModifyWq::default(), &mlx5::ModifyWq::default())
    }),
    ("destroy_wq", Any, Plain, |u| u.destroy_wq(Wq(1)).map(drop)),
    ("create_rwq_ind_table of one", Any, Plain, |u| {
        u.create_rwq_ind_table::<mlx5::CreateRwqIndTblResp>(&[Wq(1)])
            .map(drop)
    }),
    ("create_rwq_ind_table of the most", Any, Plain, |u| {
        u.create_rwq_ind_table::<mlx5::CreateRwqIndTblResp>(&[Wq(1); 1 << 13])
            .map(drop)
    }),
    ("destroy_rwq_ind_table", Any, Plain, |u| {
        u.destroy_rwq_ind_table(RwqIndTbl(1))
    }),
    ("create_flow", Any, Plain, |u| {
        let spec = FlowSpecActionDrop::default();
        let attr = FlowAttr::default();
        u.create_flow(uverbs_abi::handle::Qp(1), &attr, spec.as_bytes())
            .map(drop)
    }),
    ("create_flow with counters", Any, Plain, |u| {
        let counters = [mlx5::FlowCountersDesc::default(); 2];
        let attr = FlowAttr::default();
        u.create_flow_mlx5(uverbs_abi::handle::Qp(1), &attr, &[0; 880], Some(&counters))
            .map(drop)
    }),
    ("destroy_flow", Any, Plain, |u| u.destroy_flow(Flow(1))),
    ("create_counters", Ioctl, Object, |u| {
        u.create_counters().map(drop)
    }),
    ("read_counters", Ioctl, Plain, |u| {
        u.read_counters(Counters(1), ReadCountersFlags::NONE, &mut [0; 2])
    }),
    ("destroy_counters", Ioctl, Plain, |u| {
        u.destroy_counters(Counters(1))
    }),
    ("devx_obj_query_async", Ioctl, Plain, |u| {
        u.devx_obj_query_async(AnyObject(1), &[0; 16], 64, 1, 7)
    }),
    ("devx_subscribe", Ioctl, Plain, |u| {
        let notice = DevxNotice::Record { cookie: 1 };
        u.devx_subscribe(7, Some(DevxObj(1)), &[5; 9], notice)
    }),
    ("devx_subscribe by eventfd", Ioctl, Plain, |u| {
        u.devx_subscribe(7, None, &[5], DevxNotice::EventFd(8))
    }),
    ("create_flow_matcher", Ioctl, Object, |u| {
        let matcher = CreateMatcher {
            mask: &[0xff; 640],
            flow_type: FlowType::NORMAL,
            priority: 1,
            criteria: 1,
            flow_flags: 4,
            table: Some(FlowTableType::RDMA_RX),
        };
        u.create_flow_matcher(&matcher).map(drop)
    }),
    ("create_flow_matcher for all", Ioctl, Object, |u| {
        let matcher = CreateMatcher {
            mask: &[0xff; 64],
            flow_type: FlowType::ALL_DEFAULT,
            priority: 0,
            criteria: 1,
            flow_flags: 0,
            table: None,
        };
        u.create_flow_matcher(&matcher).map(drop)
    }),
    ("destroy_flow_matcher", Ioctl, Plain, |u| {
        u.destroy_flow_matcher(FlowMatcher(1))
    }),
    ("create_flow_rule", Ioctl, Object, |u| {
        let rule = CreateRule {
            value: &[1; 64],
            devx: Some(DevxObj(1)),
            actions: &[FlowAction(1); 5],
            tag: Some(1),
            counters: &[DevxObj(2)],
            counter_offsets: &[3],
            flags: CreateFlowFlags::DROP,
            ..CreateRule::default()
        };
        u.create_flow_rule(&rule).map(drop)
    }),
    ("create_modify_header", Ioctl, Object, |u| {
        u.create_modify_header(FlowTableType::NIC_RX, &[[1; 8]; 2])
            .map(drop)
    }),
    ("create_packet_reformat", Ioctl, Object, |u| {
        let kind = PacketReformatType::L2_TO_L2_TUNNEL;
        u.create_packet_reformat(kind, FlowTableType::NIC_TX, &[1; 50])
            .map(drop)
    }),
    ("destroy_flow_action", Ioctl, Plain, |u| {
        u.destroy_flow_action(FlowAction(1))
    }),
    ("create_steering_anchor", Ioctl, Object, |u| {
        u.create_steering_anchor(FlowTableType::NIC_RX, 1).map(drop)
    }),
    ("destroy_steering_anchor", Ioctl, Plain, |u| {
        u.destroy_steering_anchor(SteeringAnchor(1))
    }),
];

fn srq(uctx: &Uctx, srq_type: SrqType) -> Result<(), Errno> {
    let attr = CreateSrq {
        srq_type,
        max_num_tags: 4,
        ..CreateSrq::default()
    };
    let input = mlx5::CreateSrq::default();
    // SAFETY: no device is behind this kernel.
    unsafe { uctx.create_srq_with::<_, mlx5::CreateSrqResp>(&attr, &input) }.map(drop)
}

fn qp(uctx: &Uctx, attr: &CreateQp, qp_type: QpType) -> Result<(), Errno> {
    let attr = CreateQp {
        qp_type,
        srq: Some(Srq(1)),
        cap: QpCap {
            max_send_wr: 1,
            ..QpCap::default()
        },
        async_event: Some(3),
        ..*attr
    };
    let input = mlx5::CreateQp::default();
    // SAFETY: no device is behind this kernel.
    unsafe { uctx.create_qp_with::<_, mlx5::CreateQpResp>(&attr, &input) }.map(drop)
}

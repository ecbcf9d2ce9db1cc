//! Every verb that rxe has.

use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, DmabufMr, UserMr};
use uverbs_abi::handle::{Ah, Cq, Mr, Mw, Pd, Qp, Srq};
use uverbs_abi::types::{
    AccessFlags, AdviseMrAdvice, AdviseMrFlags, CreateCqFlags, CreateQpFlags, GidEntry, MwType,
    QpAttrMask, QpCap, QpType, ReregMrFlags, Sge, SrqAttrMask,
};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};

use crate::Answer::{Count, Fd, FdByWrite, Object, Plain};
use crate::Case;
use crate::Form::{Any, Ioctl};

pub(crate) const VERBS: &[Case] = &[
    ("get_context", Any, FdByWrite, |u| {
        u.get_context::<()>().map(drop)
    }),
    ("query_device", Any, Plain, |u| u.query_device().map(drop)),
    ("query_device_ex", Any, Plain, |u| {
        u.query_device_ex::<()>().map(drop)
    }),
    ("query_port", Any, Plain, |u| u.query_port(1).map(drop)),
    ("query_gid_table", Ioctl, Count, |u| {
        u.query_gid_table(&mut [GidEntry::default(); 4]).map(drop)
    }),
    ("query_gid_entry", Ioctl, Plain, |u| {
        u.query_gid_entry(1, 0).map(drop)
    }),
    ("alloc_async_event", Ioctl, Fd, |u| {
        u.alloc_async_event().map(drop)
    }),
    ("create_comp_channel", Any, Fd, |u| {
        u.create_comp_channel().map(drop)
    }),
    ("alloc_pd", Any, Plain, |u| u.alloc_pd::<()>().map(drop)),
    ("dealloc_pd", Any, Plain, |u| u.dealloc_pd(Pd(1))),
    ("reg_mr", Any, Plain, |u| {
        // SAFETY: no device is behind this kernel.
        unsafe { u.reg_mr(&UserMr::default()) }.map(drop)
    }),
    ("rereg_mr", Any, Plain, |u| {
        // SAFETY: no device is behind this kernel.
        unsafe { u.rereg_mr(Mr(1), ReregMrFlags::CHANGE_ACCESS, &UserMr::default()) }.map(drop)
    }),
    ("reg_dmabuf_mr", Ioctl, Object, |u| {
        u.reg_dmabuf_mr(&DmabufMr {
            pd: Pd(1),
            offset: 0,
            length: 4096,
            iova: 0,
            fd: 5,
            access: AccessFlags::LOCAL_WRITE,
        })
        .map(drop)
    }),
    ("advise_mr", Ioctl, Plain, |u| {
        let list = [Sge::default(); 2];
        u.advise_mr(Pd(1), AdviseMrAdvice::PREFETCH, AdviseMrFlags::FLUSH, &list)
    }),
    ("query_mr", Ioctl, Plain, |u| u.query_mr(Mr(1)).map(drop)),
    ("dereg_mr", Any, Plain, |u| u.dereg_mr(Mr(1))),
    ("alloc_mw", Any, Plain, |u| {
        u.alloc_mw(Pd(1), MwType::TYPE_1).map(drop)
    }),
    ("dealloc_mw", Any, Plain, |u| u.dealloc_mw(Mw(1))),
    ("create_cq", Any, Object, |u| {
        u.create_cq::<rxe::CreateCqResp>(&CreateCq::default())
            .map(drop)
    }),
    ("create_cq with flags", Any, Object, |u| {
        let attr = CreateCq {
            flags: CreateCqFlags::IGNORE_OVERRUN,
            ..CreateCq::default()
        };
        u.create_cq::<rxe::CreateCqResp>(&attr).map(drop)
    }),
    ("resize_cq", Any, Plain, |u| {
        u.resize_cq::<rxe::ResizeCqResp>(Cq(1), 8).map(drop)
    }),
    ("req_notify_cq", Any, Plain, |u| {
        u.req_notify_cq(Cq(1), false)
    }),
    ("destroy_cq", Any, Plain, |u| u.destroy_cq(Cq(1)).map(drop)),
    ("create_qp", Any, Object, |u| {
        u.create_qp::<rxe::CreateQpResp>(&qp()).map(drop)
    }),
    ("create_qp with flags", Any, Object, |u| {
        let attr = CreateQp {
            flags: CreateQpFlags::BLOCK_MULTICAST_LOOPBACK,
            ..qp()
        };
        u.create_qp::<rxe::CreateQpResp>(&attr).map(drop)
    }),
    ("modify_qp", Any, Plain, |u| {
        u.modify_qp(&ModifyQp::default())
    }),
    ("modify_qp_ex", Any, Plain, |u| {
        u.modify_qp_ex(&ExModifyQp::default())
    }),
    ("query_qp", Any, Plain, |u| {
        u.query_qp(Qp(1), QpAttrMask::STATE).map(drop)
    }),
    ("destroy_qp", Any, Plain, |u| u.destroy_qp(Qp(1)).map(drop)),
    ("create_srq", Any, Object, |u| {
        u.create_srq::<rxe::CreateSrqResp>(&CreateSrq::default())
            .map(drop)
    }),
    ("modify_srq", Any, Plain, |u| {
        u.modify_srq(Srq(1), SrqAttrMask::LIMIT, 0, 1)
    }),
    ("modify_srq_rxe", Any, Plain, |u| {
        u.modify_srq_rxe(Srq(1), SrqAttrMask::MAX_WR, 9, 0)
            .map(drop)
    }),
    ("query_srq", Any, Plain, |u| u.query_srq(Srq(1)).map(drop)),
    ("destroy_srq", Any, Plain, |u| {
        u.destroy_srq(Srq(1)).map(drop)
    }),
    ("create_ah", Any, Plain, |u| {
        u.create_ah::<rxe::CreateAhResp>(Pd(1), 1, &AhAttr::default())
            .map(drop)
    }),
    ("destroy_ah", Any, Plain, |u| u.destroy_ah(Ah(1))),
    ("attach_mcast", Any, Plain, |u| {
        u.attach_mcast(Qp(1), [0; 16], 0)
    }),
    ("detach_mcast", Any, Plain, |u| {
        u.detach_mcast(Qp(1), [0; 16], 0)
    }),
];

fn qp() -> CreateQp {
    CreateQp {
        qp_type: QpType::RC,
        pd: Pd(1),
        send_cq: Cq(1),
        recv_cq: Cq(1),
        srq: Some(Srq(1)),
        user_handle: 1,
        cap: QpCap::default(),
        sq_sig_all: true,
        async_event: Some(3),
        ..CreateQp::default()
    }
}

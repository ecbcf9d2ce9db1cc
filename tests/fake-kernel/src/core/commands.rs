//! Write commands, in whichever framing they came.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpState, ReregMrFlags, SrqAttrMask};
use uverbs_abi::udata;
use uverbs_abi::write::{
    WriteCommand, ah, context, cq, device as dev, mcast, mr, pd, post, qp, srq,
};

use crate::config::Family;
use crate::core::create::{NewCq, NewQp, NewSrq};
use crate::core::{extended, modify_qp};
use crate::event::EventKind;
use crate::mlx5;
use crate::request::WriteRequest;
use crate::rxe;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

type Handler = fn(&mut State, RawFd, &mut WriteRequest) -> Result<(), Errno>;

/// What this kernel runs, by command.
const COMMANDS: &[(u32, Handler)] = &[
    (context::GetContext::SPEC.command(), get_context),
    (
        context::CreateCompChannel::SPEC.command(),
        create_comp_channel,
    ),
    (dev::QueryDevice::SPEC.command(), query_device),
    (dev::ExQueryDevice::SPEC.command(), query_device_ex),
    (dev::QueryPort::SPEC.command(), query_port),
    (pd::AllocPd::SPEC.command(), alloc_pd),
    (pd::DeallocPd::SPEC.command(), |st, fd, request| {
        st.dealloc_pd(fd, request.get::<pd::DeallocPd>()?.pd_handle.0)
    }),
    (mr::RegMr::SPEC.command(), reg_mr),
    (mr::ReregMr::SPEC.command(), rereg_mr),
    (mr::DeregMr::SPEC.command(), |st, fd, request| {
        st.dereg_mr(fd, request.get::<mr::DeregMr>()?.mr_handle.0)
    }),
    (mr::AllocMw::SPEC.command(), alloc_mw),
    (mr::DeallocMw::SPEC.command(), |st, fd, request| {
        st.dealloc_mw(fd, request.get::<mr::DeallocMw>()?.mw_handle.0)
    }),
    (ah::CreateAh::SPEC.command(), create_ah),
    (ah::DestroyAh::SPEC.command(), |st, fd, request| {
        st.destroy_ah(fd, request.get::<ah::DestroyAh>()?.ah_handle.0)
    }),
    (cq::CreateCq::SPEC.command(), create_cq),
    (cq::ExCreateCq::SPEC.command(), create_cq_ex),
    (cq::ResizeCq::SPEC.command(), resize_cq),
    (cq::ReqNotifyCq::SPEC.command(), req_notify_cq),
    (cq::DestroyCq::SPEC.command(), |st, fd, request| {
        let resp = st.destroy_cq(fd, request.get::<cq::DestroyCq>()?.cq_handle.0)?;
        request.answer(resp);
        Ok(())
    }),
    (srq::CreateSrq::SPEC.command(), create_srq),
    (srq::CreateXsrq::SPEC.command(), create_xsrq),
    (srq::ModifySrq::SPEC.command(), modify_srq),
    (srq::QuerySrq::SPEC.command(), query_srq),
    (srq::DestroySrq::SPEC.command(), |st, fd, request| {
        let events_reported = st.destroy_srq(fd, request.get::<srq::DestroySrq>()?.srq_handle.0)?;
        request.answer(srq::DestroySrqResp { events_reported });
        Ok(())
    }),
    (qp::CreateQp::SPEC.command(), create_qp),
    (qp::QueryQp::SPEC.command(), query_qp),
    (qp::ModifyQp::SPEC.command(), modify_qp::legacy),
    (qp::ExModifyQp::SPEC.command(), modify_qp::extended),
    (qp::DestroyQp::SPEC.command(), |st, fd, request| {
        let events_reported = st.destroy_qp(fd, request.get::<qp::DestroyQp>()?.qp_handle.0)?;
        request.answer(qp::DestroyQpResp { events_reported });
        Ok(())
    }),
    (post::PostSend::SPEC.command(), post_send),
    (mcast::AttachMcast::SPEC.command(), attach_mcast),
    (mcast::DetachMcast::SPEC.command(), detach_mcast),
];

/// Runs the command.
pub(crate) fn run(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let (_, handler) = COMMANDS
        .iter()
        .chain(extended::COMMANDS)
        .find(|(command, _)| *command == request.command)
        .ok_or(Errno(libc::EOPNOTSUPP))?;
    if !st.context(fd)?.is_made && request.command != context::GetContext::SPEC.command() {
        return Err(EINVAL);
    }
    handler(st, fd, request)
}

fn get_context(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let answer = st.get_context(fd, &request.uhw())?;
    let (file, async_fd) = st.new_file(EventKind::Async)?;
    let context = st.context(fd)?;
    context.async_file = Some(file);
    request.uhw_response = answer;
    request.answer(context::GetContextResp {
        async_fd,
        num_comp_vectors: st.facts().comp_vectors,
    });
    Ok(())
}

fn create_comp_channel(st: &mut State, _: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let (_, fd) = st.new_file(EventKind::Completion)?;
    request.answer(context::CreateCompChannelResp { fd });
    Ok(())
}

fn query_device(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    request.answer(st.query_device(fd)?);
    Ok(())
}

fn query_device_ex(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    if request.get::<dev::ExQueryDevice>()?.comp_mask != 0 {
        return Err(EINVAL);
    }
    request.answer(st.query_device_ex(fd)?);
    if st.config.family == Family::Mlx5 {
        request.answer_uhw(mlx5::device::query_device_udata());
        let room = request.uhw_room;
        request.uhw_response.truncate(room);
    }
    Ok(())
}

fn query_port(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    if request.get::<dev::QueryPort>()?.port_num != 1 {
        return Err(EINVAL);
    }
    request.answer(st.query_port(fd)?.legacy_resp);
    Ok(())
}

fn alloc_pd(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let handle = st.alloc_pd(fd)?;
    let pd_handle = st.told_handle(handle).into();
    request.answer(pd::AllocPdResp { pd_handle });
    if st.config.family == Family::Mlx5 {
        let pdn = st.pd(fd, handle)?;
        // Who has no room for it gets none (`mlx5_ib_alloc_pd`).
        if request.uhw_room < size_of::<udata::mlx5::AllocPdResp>() {
            st.dealloc_pd(fd, handle)?;
            return Err(Errno(libc::EFAULT));
        }
        request.answer_uhw(udata::mlx5::AllocPdResp { pdn });
    }
    Ok(())
}

fn reg_mr(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let mr: mr::RegMr = request.get()?;
    let range = (mr.start, mr.length, mr.hca_va);
    let (handle, key) = st.reg_mr(fd, mr.pd_handle.0, range, mr.access_flags)?;
    request.answer(mr::RegMrResp {
        mr_handle: st.told_handle(handle).into(),
        lkey: key,
        rkey: key,
    });
    Ok(())
}

fn rereg_mr(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let mr: mr::ReregMr = request.get()?;
    let range = mr
        .flags
        .contains(ReregMrFlags::CHANGE_TRANSLATION)
        .then_some((mr.start, mr.length, mr.hca_va));
    let pd = mr
        .flags
        .contains(ReregMrFlags::CHANGE_PD)
        .then_some(mr.pd_handle.0);
    let access = mr
        .flags
        .contains(ReregMrFlags::CHANGE_ACCESS)
        .then_some(mr.access_flags);
    let key = st.rereg_mr(fd, mr.mr_handle.0, pd, access, range)?;
    request.answer(mr::ReregMrResp {
        lkey: key,
        rkey: key,
    });
    Ok(())
}

fn alloc_mw(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let mw: mr::AllocMw = request.get()?;
    let (handle, rkey) = st.alloc_mw(fd, mw.pd_handle.0, mw.mw_type)?;
    let mw_handle = st.told_handle(handle).into();
    request.answer(mr::AllocMwResp { mw_handle, rkey });
    Ok(())
}

fn create_ah(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let ah: ah::CreateAh = request.get()?;
    let (handle, number) = st.create_ah(fd, ah.pd_handle.0, ah.attr)?;
    let ah_handle = st.told_handle(handle).into();
    request.answer(ah::CreateAhResp { ah_handle });
    if st.config.family == Family::Mlx5 {
        let index = st.context(fd)?.device;
        let answer = mlx5::device::create_ah(index, &st.config, &ah.attr, request.uhw_room)?;
        request.uhw_response = answer;
    } else if st.config.has_ah_num && request.uhw_room >= size_of::<udata::rxe::CreateAhResp>() {
        request.answer_uhw(udata::rxe::CreateAhResp {
            ah_num: number,
            ..udata::rxe::CreateAhResp::default()
        });
    }
    Ok(())
}

fn create_cq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let cq: cq::CreateCq = request.get()?;
    let new = NewCq {
        cqe: cq.cqe,
        user_handle: cq.user_handle,
        channel: (cq.comp_channel >= 0).then_some(cq.comp_channel),
        vector: cq.comp_vector,
        flags: 0,
        event_fd: None,
    };
    let made = st.create_cq(fd, &new, &request.uhw())?;
    request.answer(cq::CreateCqResp {
        cq_handle: st.told_handle(made.handle).into(),
        cqe: made.cqe,
    });
    request.uhw_response = made.uhw;
    Ok(())
}

fn create_cq_ex(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let cq: cq::ExCreateCq = request.get()?;
    if cq.comp_mask != 0 {
        return Err(EINVAL);
    }
    let new = NewCq {
        cqe: cq.cqe,
        user_handle: cq.user_handle,
        channel: (cq.comp_channel >= 0).then_some(cq.comp_channel),
        vector: cq.comp_vector,
        flags: cq.flags.0.into(),
        event_fd: None,
    };
    let made = st.create_cq(fd, &new, &request.uhw())?;
    request.answer(cq::ExCreateCqResp {
        base: cq::CreateCqResp {
            cq_handle: st.told_handle(made.handle).into(),
            cqe: made.cqe,
        },
        comp_mask: 0,
        response_length: size_of::<cq::ExCreateCqResp>() as u32,
    });
    request.uhw_response = made.uhw;
    Ok(())
}

fn resize_cq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let resize: cq::ResizeCq = request.get()?;
    let (cqe, uhw) = st.resize_cq(fd, resize.cq_handle.0, resize.cqe, &request.uhw())?;
    request.answer(cq::ResizeCqResp {
        cqe,
        ..cq::ResizeCqResp::default()
    });
    request.uhw_response = uhw;
    Ok(())
}

fn req_notify_cq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let notify: cq::ReqNotifyCq = request.get()?;
    let number = st.cq_number(fd, notify.cq_handle.0)?;
    let cq = st.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
    let armed = &mut cq.rxe().ok_or(EOPNOTSUPP)?.armed;
    let solicited = notify.solicited_only != 0;
    armed.next |= !solicited;
    armed.solicited |= solicited;
    Ok(())
}

fn srq_answer(
    st: &mut State,
    fd: RawFd,
    new: &NewSrq,
    request: &mut WriteRequest,
) -> Result<(), Errno> {
    let made = st.create_srq(fd, new, &request.uhw())?;
    request.answer(srq::CreateSrqResp {
        srq_handle: st.told_handle(made.handle).into(),
        max_wr: made.max_wr,
        max_sge: made.max_sge,
        srqn: made.srqn,
    });
    request.uhw_response = made.uhw;
    Ok(())
}

fn create_srq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let srq: srq::CreateSrq = request.get()?;
    let new = NewSrq {
        pd: srq.pd_handle.0,
        user_handle: srq.user_handle,
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        limit: srq.srq_limit,
        srq_type: 0,
        xrcd: None,
        cq: None,
        max_num_tags: 0,
        event_fd: None,
    };
    srq_answer(st, fd, &new, request)
}

fn create_xsrq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let srq: srq::CreateXsrq = request.get()?;
    let new = NewSrq {
        pd: srq.pd_handle.0,
        user_handle: srq.user_handle,
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        limit: srq.srq_limit,
        srq_type: srq.srq_type.0.into(),
        xrcd: (srq.srq_type.0 == 1).then_some(srq.xrcd_handle.0),
        cq: (srq.srq_type.0 != 0).then_some(srq.cq_handle.0),
        max_num_tags: srq.max_num_tags,
        event_fd: None,
    };
    srq_answer(st, fd, &new, request)
}

fn modify_srq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let modify: srq::ModifySrq = request.get()?;
    let max_wr = modify
        .attr_mask
        .contains(SrqAttrMask::MAX_WR)
        .then_some(modify.max_wr);
    let limit = modify
        .attr_mask
        .contains(SrqAttrMask::LIMIT)
        .then_some(modify.srq_limit);
    st.modify_srq(fd, modify.srq_handle.0, max_wr, limit, &request.uhw())
}

fn query_srq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let number = st.srq_number(fd, request.get::<srq::QuerySrq>()?.srq_handle.0)?;
    let srq = st.device(fd)?.srqs.get(&number).ok_or(EINVAL)?;
    request.answer(srq::QuerySrqResp {
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        srq_limit: srq.limit,
        ..srq::QuerySrqResp::default()
    });
    Ok(())
}

fn create_qp(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let qp: qp::CreateQp = request.get()?;
    let new = NewQp {
        pd: Some(qp.pd_handle.0),
        send_cq: Some(qp.send_cq_handle.0),
        recv_cq: Some(qp.recv_cq_handle.0),
        srq: (qp.is_srq != 0).then_some(qp.srq_handle.0),
        xrcd: None,
        ind_table: None,
        source_qpn: None,
        user_handle: qp.user_handle,
        cap: uverbs_abi::types::QpCap {
            max_send_wr: qp.max_send_wr,
            max_recv_wr: qp.max_recv_wr,
            max_send_sge: qp.max_send_sge,
            max_recv_sge: qp.max_recv_sge,
            max_inline_data: qp.max_inline_data,
        },
        qp_type: qp.qp_type,
        signal_all: qp.sq_sig_all != 0,
        flags: 0,
        event_fd: None,
    };
    let made = st.create_qp(fd, &new, &request.uhw())?;
    let cap = made.cap;
    request.answer(qp::CreateQpResp {
        qp_handle: st.told_handle(made.handle).into(),
        qpn: made.qpn,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
        ..qp::CreateQpResp::default()
    });
    request.uhw_response = made.uhw;
    Ok(())
}

fn query_qp(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let qpn = st.qp_number(fd, request.get::<qp::QueryQp>()?.qp_handle.0)?;
    let qp = st.device(fd)?.qps.get_mut(&qpn).ok_or(EINVAL)?;
    let is_busy = qp.rxe().is_some_and(|own| own.send.used() > 0);
    let attr = &qp.attr;
    request.answer(qp::QueryQpResp {
        dest: attr.dest,
        alt_dest: attr.alt_dest,
        max_send_wr: qp.cap.max_send_wr,
        max_recv_wr: if qp.srq.is_some() {
            0
        } else {
            qp.cap.max_recv_wr
        },
        max_send_sge: qp.cap.max_send_sge,
        max_recv_sge: if qp.srq.is_some() {
            0
        } else {
            qp.cap.max_recv_sge
        },
        max_inline_data: qp.cap.max_inline_data,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags,
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        qp_state: qp.state,
        cur_qp_state: qp.state,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        sq_draining: u8::from(qp.state == QpState::SQD && is_busy),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        sq_sig_all: qp.signal_all.into(),
        ..qp::QueryQpResp::default()
    });
    Ok(())
}

/// rxe's doorbell: no work request in it, the queue in shared memory has them.
fn post_send(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let post: post::PostSend = request.get()?;
    let qpn = st.qp_number(fd, post.qp_handle.0)?;
    let qp = st.device(fd)?.qps.get(&qpn).ok_or(EINVAL)?;
    if post.wr_count != 0 || matches!(qp.state, QpState::RESET | QpState::INIT | QpState::RTR) {
        return Err(EINVAL);
    }
    st.doorbells += 1;
    rxe::engine::run(st);
    request.answer(post::PostSendResp { bad_wr: 0 });
    Ok(())
}

fn attach_mcast(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let attach: mcast::AttachMcast = request.get()?;
    let qpn = st.qp_number(fd, attach.qp_handle.0)?;
    let device = st.device(fd)?;
    let qp = device.qps.get_mut(&qpn).ok_or(EINVAL)?;
    if qp.qp_type != uverbs_abi::types::QpType::UD || !is_multicast(&attach.gid) {
        return Err(EINVAL);
    }
    let members = device.groups.entry(attach.gid).or_default();
    if !members.contains(&qpn) {
        members.push(qpn);
        qp.groups += 1;
    }
    Ok(())
}

fn detach_mcast(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let detach: mcast::DetachMcast = request.get()?;
    let qpn = st.qp_number(fd, detach.qp_handle.0)?;
    let device = st.device(fd)?;
    let members = device.groups.get_mut(&detach.gid).ok_or(EINVAL)?;
    let at = members
        .iter()
        .position(|member| *member == qpn)
        .ok_or(EINVAL)?;
    members.remove(at);
    if members.is_empty() {
        device.groups.remove(&detach.gid);
    }
    if let Some(qp) = device.qps.get_mut(&qpn) {
        qp.groups -= 1;
    }
    Ok(())
}

/// Whether the GID is a group's: ff00::/8, or an IPv4 multicast address in its mapped form.
fn is_multicast(gid: &[u8; 16]) -> bool {
    gid[0] == 0xff || (gid[..10] == [0; 10] && gid[12] & 0xf0 == 0xe0)
}

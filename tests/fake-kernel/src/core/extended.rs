//! Commands and methods for objects that of the families here only mlx5 has.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::ioctl::MethodSpec;
use uverbs_abi::ioctl::attribute::Attribute;
use uverbs_abi::ioctl::wire::{ATTR_UHW_IN, ATTR_UHW_OUT};
use uverbs_abi::object::{
    counters, dm, flow as flow_object, mr, rwq_ind_tbl, wq as wq_object, xrcd,
};
use uverbs_abi::types::AccessFlags;
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::flow::{self, CreateFlow};
use uverbs_abi::write::{WriteCommand, cq, qp, wq, xrcd as domain};
use zerocopy::FromBytes;

use crate::core::work_queue::{ModifyWq, NewWq};
use crate::mlx5;
use crate::request::{Call, Uhw, WriteRequest};
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);

type Command = fn(&mut State, RawFd, &mut WriteRequest) -> Result<(), Errno>;
type Method = fn(&mut State, RawFd, &Call<'_>) -> Result<(), Errno>;

/// Write commands.
pub(crate) const COMMANDS: &[(u32, Command)] = &[
    (domain::OpenXrcd::SPEC.command(), open_xrcd),
    (domain::CloseXrcd::SPEC.command(), |st, fd, request| {
        st.close_xrcd(fd, request.get::<domain::CloseXrcd>()?.xrcd_handle.0)
    }),
    (qp::OpenQp::SPEC.command(), open_qp),
    (cq::ExModifyCq::SPEC.command(), modify_cq),
    (wq::ExCreateWq::SPEC.command(), create_wq),
    (wq::ExModifyWq::SPEC.command(), modify_wq),
    (wq::ExDestroyWq::SPEC.command(), destroy_wq),
    (wq::ExCreateRwqIndTable::SPEC.command(), create_ind_table),
    (
        wq::ExDestroyRwqIndTable::SPEC.command(),
        |st, fd, request| {
            let handle = request.get::<wq::ExDestroyRwqIndTable>()?.ind_tbl_handle;
            st.destroy_ind_table(fd, handle.0)
        },
    ),
    (CreateFlow::SPEC.command(), create_flow),
    (flow::DestroyFlow::SPEC.command(), |st, fd, request| {
        st.destroy_flow(fd, request.get::<flow::DestroyFlow>()?.flow_handle.0)
    }),
];

/// Methods of the ioctl.
pub(crate) const METHODS: &[(&MethodSpec, Method)] = &[
    (&xrcd::destroy::SPEC, |st, fd, call| {
        st.close_xrcd(fd, call.doomed(xrcd::destroy::HANDLE)?)
    }),
    (&wq_object::create::SPEC, create_wq_method),
    (&wq_object::destroy::SPEC, |st, fd, call| {
        let events = st.destroy_wq(fd, call.doomed(wq_object::destroy::HANDLE)?)?;
        call.put(wq_object::destroy::RESP, events)
    }),
    (&rwq_ind_tbl::destroy::SPEC, |st, fd, call| {
        st.destroy_ind_table(fd, call.doomed(rwq_ind_tbl::destroy::HANDLE)?)
    }),
    (&flow_object::destroy::SPEC, |st, fd, call| {
        st.destroy_flow(fd, call.doomed(flow_object::destroy::HANDLE)?)
    }),
    (&dm::alloc::SPEC, alloc_dm),
    (&dm::free::SPEC, |st, fd, call| {
        st.free_dm(fd, call.doomed(dm::free::HANDLE)?)
    }),
    (&mr::dm_reg::SPEC, reg_dm_mr),
    (&mr::reg_dmabuf::SPEC, reg_dmabuf_mr),
    (&mr::advise::SPEC, advise_mr),
    (&counters::create::SPEC, |st, fd, call| {
        let handle = st.create_counters(fd)?;
        call.put_handle(counters::create::HANDLE, handle)
    }),
    (&counters::destroy::SPEC, |st, fd, call| {
        st.destroy_counters(fd, call.doomed(counters::destroy::HANDLE)?)
    }),
];

fn open_xrcd(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let open: domain::OpenXrcd = request.get()?;
    let handle = st.open_xrcd(fd, open.fd, open.oflags)?;
    let xrcd_handle = st.told_handle(handle).into();
    request.answer(domain::OpenXrcdResp { xrcd_handle });
    Ok(())
}

fn open_qp(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let open: qp::OpenQp = request.get()?;
    let (handle, cap) = st.open_qp(fd, open.pd_handle, open.qpn, open.qp_type)?;
    request.answer(qp::CreateQpResp {
        qp_handle: st.told_handle(handle).into(),
        qpn: open.qpn,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        ..Default::default()
    });
    Ok(())
}

/// `ib_uverbs_ex_modify_cq`
fn modify_cq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    st.only_mlx5()?;
    let modify: cq::ExModifyCq = request.get()?;
    if modify.attr_mask == 0 || !modify.reserved.is_zero() {
        return Err(EINVAL);
    }
    if modify.attr_mask & !1 != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let number = st.cq_number(fd, modify.cq_handle.0)?;
    let (count, period) = (modify.attr.cq_count, modify.attr.cq_period);
    // `MLX5_MAX_CQ_PERIOD`
    if period > 0xfff {
        return Err(EINVAL);
    }
    let cq = st.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
    cq.moderation = (count, period);
    Ok(())
}

fn create_wq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let wq: wq::ExCreateWq = request.get()?;
    if wq.comp_mask != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let new = NewWq {
        pd: wq.pd_handle.0,
        cq: wq.cq_handle.0,
        user_handle: wq.user_handle,
        wq_type: wq.wq_type.0,
        max_wr: wq.max_wr,
        max_sge: wq.max_sge,
        flags: wq.create_flags.0.into(),
        event_fd: None,
    };
    let made = st.create_wq(fd, &new, &request.uhw())?;
    request.answer(wq::ExCreateWqResp {
        comp_mask: 0,
        response_length: size_of::<wq::ExCreateWqResp>() as u32,
        wq_handle: st.told_handle(made.handle).into(),
        max_wr: wq.max_wr,
        max_sge: wq.max_sge,
        wqn: made.wqn,
    });
    request.uhw_response = made.uhw;
    Ok(())
}

fn create_wq_method(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use wq_object::create;
    let new = NewWq {
        pd: call.handle(create::PD_HANDLE)?.ok_or(EINVAL)?,
        cq: call.handle(create::CQ_HANDLE)?.ok_or(EINVAL)?,
        user_handle: call.input(create::USER_HANDLE)?,
        wq_type: call.constant(create::TYPE) as u32,
        max_wr: call.input(create::MAX_WR)?,
        max_sge: call.input(create::MAX_SGE)?,
        flags: call.flags(create::FLAGS),
        event_fd: call.fd(create::EVENT_FD)?,
    };
    let input = call.bytes(ATTR_UHW_IN)?;
    let uhw = Uhw {
        input: &input,
        room: call.room(ATTR_UHW_OUT).unwrap_or(0),
    };
    let made = st.create_wq(fd, &new, &uhw)?;
    call.put_handle(create::HANDLE, st.told_handle(made.handle))?;
    call.put(create::RESP_MAX_WR, new.max_wr)?;
    call.put(create::RESP_MAX_SGE, new.max_sge)?;
    call.put(create::RESP_WQ_NUM, made.wqn)?;
    call.put_bytes(ATTR_UHW_OUT, &made.uhw)
}

fn modify_wq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let modify: wq::ExModifyWq = request.get()?;
    if let Ok((sent, _)) = udata::ModifyWq::read_from_prefix(&request.uhw)
        && (sent.comp_mask != 0 || !sent.reserved.is_zero())
    {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    st.modify_wq(
        fd,
        modify.wq_handle.0,
        &ModifyWq {
            mask: modify.attr_mask,
            state: modify.wq_state,
            current: modify.curr_wq_state,
            flags_mask: modify.flags_mask.0,
        },
    )
}

fn destroy_wq(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let handle = request.get::<wq::ExDestroyWq>()?.wq_handle.0;
    let events_reported = st.destroy_wq(fd, handle)?;
    request.answer(wq::ExDestroyWqResp {
        response_length: size_of::<wq::ExDestroyWqResp>() as u32,
        events_reported,
        ..Default::default()
    });
    Ok(())
}

fn create_ind_table(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let table: wq::ExCreateRwqIndTable = request.get()?;
    if table.comp_mask != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let rest = &request.core[size_of::<wq::ExCreateRwqIndTable>()..];
    let handles: Vec<u32> = rest
        .chunks_exact(4)
        .map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let (handle, number) = st.create_ind_table(fd, table.log_ind_tbl_size, &handles)?;
    request.answer(wq::ExCreateRwqIndTableResp {
        comp_mask: 0,
        response_length: size_of::<wq::ExCreateRwqIndTableResp>() as u32,
        ind_tbl_handle: st.told_handle(handle).into(),
        ind_tbl_num: number,
    });
    if request.uhw_room >= size_of::<udata::CreateRwqIndTblResp>() {
        request.answer_uhw(udata::CreateRwqIndTblResp {
            response_length: size_of::<udata::CreateRwqIndTblResp>() as u32,
            ..Default::default()
        });
    }
    Ok(())
}

fn create_flow(st: &mut State, fd: RawFd, request: &mut WriteRequest) -> Result<(), Errno> {
    let command: CreateFlow = request.get()?;
    let specs = request.core[size_of::<CreateFlow>()..].to_vec();
    let handle = st.create_flow(fd, &command, &specs)?;
    request.answer(flow::CreateFlowResp {
        comp_mask: 0,
        flow_handle: st.told_handle(handle).into(),
    });
    Ok(())
}

fn alloc_dm(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dm::alloc;
    // Memory that work requests use; what steering uses needs DEVX and is not here.
    if mlx5::methods::dm_type(call) != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let length = call.input(alloc::LENGTH)?;
    let (handle, page) = st.alloc_dm(fd, length, call.input(alloc::ALIGNMENT)?)?;
    call.put_handle(alloc::HANDLE, st.told_handle(handle))?;
    mlx5::methods::answer_dm(call, page)
}

fn reg_dm_mr(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use mr::dm_reg as reg;
    let pd = call.handle(reg::PD_HANDLE)?.ok_or(EINVAL)?;
    let dm = call.handle(reg::DM_HANDLE)?.ok_or(EINVAL)?;
    let range = (call.input(reg::OFFSET)?, call.input(reg::LENGTH)?);
    let access = AccessFlags(call.flags(reg::ACCESS_FLAGS) as u32);
    let (handle, key) = st.reg_dm_mr(fd, pd, dm, range, access)?;
    call.put_handle(reg::HANDLE, st.told_handle(handle))?;
    call.put(reg::RESP_LKEY, key)?;
    call.put(reg::RESP_RKEY, key)
}

fn reg_dmabuf_mr(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use mr::reg_dmabuf as reg;
    let pd = call.handle(reg::PD_HANDLE)?.ok_or(EINVAL)?;
    let offset = call.input(reg::OFFSET)?;
    let range = (offset, call.input(reg::LENGTH)?, call.input(reg::IOVA)?);
    let access = AccessFlags(call.flags(reg::ACCESS_FLAGS) as u32);
    // `UVERBS_ATTR_RAW_FD`: the number itself, not an address of it.
    let file = call.raw_constant(reg::FD.id()).ok_or(EINVAL)? as i32;
    let (handle, key) = st.reg_dmabuf_mr(fd, pd, file, range, access)?;
    call.put_handle(reg::HANDLE, st.told_handle(handle))?;
    call.put(reg::RESP_LKEY, key)?;
    call.put(reg::RESP_RKEY, key)
}

/// `mlx5_ib_advise_mr`: prefetching of pages, of regions that page on demand.
fn advise_mr(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use mr::advise;
    st.only_mlx5()?;
    let pd = call.handle(advise::PD_HANDLE)?.ok_or(EINVAL)?;
    let pd = st.pd(fd, pd)?;
    // `IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH`, `_WRITE` and `_NO_FAULT`; the flag is `FLUSH`.
    if call.constant(advise::ADVICE) > 2 || call.flags(advise::FLAGS) & !1 != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let list = call.slice(advise::SGE_LIST)?;
    if list.is_empty() {
        return Err(EINVAL);
    }
    let device = st.device(fd)?;
    for element in list.chunks_exact(16) {
        let lkey = u32::from_ne_bytes([element[12], element[13], element[14], element[15]]);
        let mr = device.mrs.get(&(lkey >> 8)).filter(|mr| mr.key == lkey);
        let is_fit = mr.is_some_and(|mr| mr.pd == pd && mr.access.contains(AccessFlags::ON_DEMAND));
        if !is_fit {
            return Err(Errno(libc::ENOENT));
        }
    }
    Ok(())
}

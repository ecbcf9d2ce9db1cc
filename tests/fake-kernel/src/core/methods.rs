//! Methods of the ioctl.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::ioctl::attribute::Attribute;
use uverbs_abi::ioctl::spec::Refusal;
use uverbs_abi::ioctl::wire::{ATTR_UHW_IN, ATTR_UHW_OUT};
use uverbs_abi::ioctl::{Method, MethodSpec};
use uverbs_abi::object::{ah, async_event, cq, device as dev, mr, mw, pd, qp, srq};
use uverbs_abi::types::{CoreSupport, CreateQpFlags, QpType};
use uverbs_abi::write;
use zerocopy::IntoBytes;

use crate::config::Family;
use crate::core::create::{NewCq, NewQp, NewSrq};
use crate::core::extended;
use crate::event::EventKind;
use crate::mlx5;
use crate::request::{Call, Uhw, WriteRequest};
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EPROTONOSUPPORT: Errno = Errno(libc::EPROTONOSUPPORT);

type Handler = fn(&mut State, RawFd, &Call<'_>) -> Result<(), Errno>;

/// What this kernel runs, by method.
const METHODS: &[(&MethodSpec, Handler)] = &[
    (&dev::invoke_write::SPEC, invoke_write),
    (&dev::query_port::SPEC, query_port),
    (&dev::get_context::SPEC, get_context),
    (&dev::query_context::SPEC, query_context),
    (&dev::query_gid_table::SPEC, query_gid_table),
    (&dev::query_gid_entry::SPEC, query_gid_entry),
    (&async_event::alloc::SPEC, alloc_async_event),
    (&pd::destroy::SPEC, |st, fd, call| {
        st.dealloc_pd(fd, call.doomed(pd::destroy::HANDLE)?)
    }),
    (&mr::destroy::SPEC, |st, fd, call| {
        st.dereg_mr(fd, call.doomed(mr::destroy::HANDLE)?)
    }),
    (&mr::query::SPEC, query_mr),
    (&mw::destroy::SPEC, |st, fd, call| {
        st.dealloc_mw(fd, call.doomed(mw::destroy::HANDLE)?)
    }),
    (&ah::destroy::SPEC, |st, fd, call| {
        st.destroy_ah(fd, call.doomed(ah::destroy::HANDLE)?)
    }),
    (&cq::create::SPEC, create_cq),
    (&cq::destroy::SPEC, |st, fd, call| {
        let resp = st.destroy_cq(fd, call.doomed(cq::destroy::HANDLE)?)?;
        call.put(cq::destroy::RESP, resp)
    }),
    (&qp::create::SPEC, create_qp),
    (&qp::destroy::SPEC, |st, fd, call| {
        let events_reported = st.destroy_qp(fd, call.doomed(qp::destroy::HANDLE)?)?;
        call.put(
            qp::destroy::RESP,
            write::qp::DestroyQpResp { events_reported },
        )
    }),
    (&srq::create::SPEC, create_srq),
    (&srq::destroy::SPEC, |st, fd, call| {
        let events_reported = st.destroy_srq(fd, call.doomed(srq::destroy::HANDLE)?)?;
        call.put(
            srq::destroy::RESP,
            write::srq::DestroySrqResp { events_reported },
        )
    }),
];

/// Runs the method that a request names.
pub(crate) fn run(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    if st.config.family == Family::Mlx5 {
        if call.view().header().driver_id != st.facts().driver_id {
            return Err(EINVAL);
        }
        if let Some(result) = mlx5::methods::run(st, fd, call) {
            return result;
        }
    }
    let spec = call.view().spec().ok_or(EPROTONOSUPPORT)?;
    let is_missing = st
        .config
        .missing_methods
        .iter()
        .any(|name| name == spec.name);
    let is_invoke = std::ptr::eq(spec, dev::invoke_write::Method::SPEC);
    if is_missing || (is_invoke && !st.config.has_invoke_write) {
        return Err(EPROTONOSUPPORT);
    }
    if call.view().header().driver_id != st.facts().driver_id {
        return Err(EINVAL);
    }
    let has_extended = st.config.family == Family::Mlx5;
    let (_, handler) = METHODS
        .iter()
        .chain(if has_extended { extended::METHODS } else { &[] })
        .find(|(known, _)| known.object == spec.object && known.id == spec.id)
        .ok_or(EPROTONOSUPPORT)?;
    match spec.check(call.view()) {
        Ok(()) => {}
        Err(Refusal::Unknown(id)) if has_extended && mlx5::methods::adds(spec, id) => {}
        Err(Refusal::OtherMethod | Refusal::Unknown(_)) => return Err(EPROTONOSUPPORT),
        Err(_) => return Err(EINVAL),
    }
    handler(st, fd, call)
}

/// The context must exist before anything but making it.
fn made(st: &mut State, fd: RawFd) -> Result<(), Errno> {
    if st.context(fd)?.is_made {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

fn invoke_write(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dev::invoke_write as invoke;
    let command = call.constant(invoke::WRITE_CMD) as u32;
    let spec = write::find(command).ok_or(Errno(libc::EOPNOTSUPP))?;
    let mut request = WriteRequest {
        command,
        core: call.slice(invoke::CORE_IN)?,
        uhw: call.bytes(ATTR_UHW_IN)?,
        uhw_room: call.room(ATTR_UHW_OUT).unwrap_or(0),
        ..WriteRequest::default()
    };
    let room = call.room(invoke::CORE_OUT.id()).unwrap_or(0);
    if request.core.len() < spec.request_len || room < least_response(spec) {
        return Err(Errno(libc::ENOSPC));
    }
    crate::core::commands::run(st, fd, &mut request)?;
    call.put_slice(invoke::CORE_OUT, &request.response)?;
    call.put_bytes(ATTR_UHW_OUT, &request.uhw_response)
}

/// Extended responses have grown over time; their length field ends the part that must fit.
fn least_response(spec: &write::WriteSpec) -> usize {
    use write::device::ExQueryDeviceResp;
    if spec.response_len == size_of::<ExQueryDeviceResp>() {
        std::mem::offset_of!(ExQueryDeviceResp, odp_caps)
    } else {
        spec.response_len
    }
}

fn get_context(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dev::get_context as get;
    let answer = with_uhw(call, |uhw| st.get_context(fd, uhw))?;
    call.put(get::NUM_COMP_VECTORS, st.facts().comp_vectors)?;
    call.put(get::CORE_SUPPORT, CoreSupport::OPTIONAL_MR_ACCESS)?;
    call.put_bytes(ATTR_UHW_OUT, &answer)
}

fn query_context(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dev::query_context as query;
    made(st, fd)?;
    call.put(query::NUM_COMP_VECTORS, st.facts().comp_vectors)?;
    call.put(query::CORE_SUPPORT, CoreSupport::OPTIONAL_MR_ACCESS)?;
    match st.config.family {
        Family::Rxe => Ok(()),
        Family::Mlx5 => mlx5::methods::answer_context(st, fd, call),
    }
}

fn query_port(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    made(st, fd)?;
    if call.constant(dev::query_port::PORT_NUM) != 1 {
        return Err(EINVAL);
    }
    let answer = st.query_port(fd)?;
    call.put(dev::query_port::RESP, answer)
}

fn query_gid_table(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dev::query_gid_table as query;
    made(st, fd)?;
    let size = call.constant(query::ENTRY_SIZE) as usize;
    if call.flags(query::FLAGS) != 0 || size != size_of::<uverbs_abi::types::GidEntry>() {
        return Err(EINVAL);
    }
    let gids = st.device(fd)?.gids.clone();
    let mut bytes = Vec::new();
    for index in 0..gids.len() as u32 {
        if let Some(entry) = st.gid_entry(&gids, index) {
            bytes.extend_from_slice(entry.as_bytes());
        }
    }
    if call.room(query::RESP_ENTRIES.id()).unwrap_or(0) < bytes.len() {
        return Err(EINVAL);
    }
    call.put_slice(query::RESP_ENTRIES, &bytes)?;
    call.put(query::RESP_NUM_ENTRIES, gids.len() as u64)
}

fn query_gid_entry(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use dev::query_gid_entry as query;
    made(st, fd)?;
    if call.constant(query::PORT) != 1 {
        return Err(EINVAL);
    }
    let gids = st.device(fd)?.gids.clone();
    let index = call.constant(query::GID_INDEX) as u32;
    if index >= st.query_port(fd)?.legacy_resp.gid_tbl_len {
        return Err(EINVAL);
    }
    let entry = st.gid_entry(&gids, index).ok_or(Errno(libc::ENODATA))?;
    call.put(query::RESP_ENTRY, entry)
}

fn alloc_async_event(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    made(st, fd)?;
    let (file, event_fd) = st.new_file(EventKind::Async)?;
    let context = st.context(fd)?;
    context.async_file.get_or_insert(file);
    call.put_fd(async_event::alloc::FD_HANDLE, event_fd)
}

fn query_mr(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use mr::query;
    let handle = call.handle(query::HANDLE)?.ok_or(EINVAL)?;
    let mr = st.query_mr(fd, handle)?;
    call.put(query::RESP_LKEY, mr.key)?;
    call.put(query::RESP_RKEY, mr.key)?;
    call.put(query::RESP_LENGTH, mr.length)?;
    call.put(query::RESP_IOVA, mr.iova)
}

fn create_cq(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use cq::create;
    made(st, fd)?;
    let new = NewCq {
        cqe: call.input(create::CQE)?,
        user_handle: call.input(create::USER_HANDLE)?,
        channel: call.fd(create::COMP_CHANNEL)?,
        vector: call.input(create::COMP_VECTOR)?,
        flags: call.flags(create::FLAGS),
        event_fd: call.fd(create::EVENT_FD)?,
    };
    let made = with_uhw(call, |uhw| st.create_cq(fd, &new, uhw))?;
    call.put_handle(create::HANDLE, st.told_handle(made.handle))?;
    call.put(create::RESP_CQE, made.cqe)?;
    call.put_bytes(ATTR_UHW_OUT, &made.uhw)
}

fn create_srq(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use srq::create;
    made(st, fd)?;
    let new = NewSrq {
        pd: call.handle(create::PD_HANDLE)?.ok_or(EINVAL)?,
        user_handle: call.input(create::USER_HANDLE)?,
        max_wr: call.input(create::MAX_WR)?,
        max_sge: call.input(create::MAX_SGE)?,
        limit: call.input(create::LIMIT)?,
        srq_type: call.constant(create::TYPE),
        xrcd: call.handle(create::XRCD_HANDLE)?,
        cq: call.handle(create::CQ_HANDLE)?,
        max_num_tags: call.optional(create::MAX_NUM_TAGS)?.unwrap_or(0),
        event_fd: call.fd(create::EVENT_FD)?,
    };
    let made = with_uhw(call, |uhw| st.create_srq(fd, &new, uhw))?;
    call.put_handle(create::HANDLE, st.told_handle(made.handle))?;
    call.put(create::RESP_MAX_WR, made.max_wr)?;
    call.put(create::RESP_MAX_SGE, made.max_sge)?;
    call.put(create::RESP_SRQ_NUM, made.srqn)?;
    call.put_bytes(ATTR_UHW_OUT, &made.uhw)
}

fn create_qp(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    use qp::create;
    made(st, fd)?;
    let signal_all = u64::from(CreateQpFlags::SQ_SIG_ALL.0);
    let flags = call.flags(create::FLAGS);
    let new = NewQp {
        pd: call.handle(create::PD_HANDLE)?,
        send_cq: call.handle(create::SEND_CQ_HANDLE)?,
        recv_cq: call.handle(create::RECV_CQ_HANDLE)?,
        srq: call.handle(create::SRQ_HANDLE)?,
        xrcd: call.handle(create::XRCD_HANDLE)?,
        ind_table: call.handle(create::IND_TABLE_HANDLE)?,
        source_qpn: call.optional(create::SOURCE_QPN)?,
        user_handle: call.input(create::USER_HANDLE)?,
        cap: call.input(create::CAP)?,
        qp_type: QpType(call.constant(create::TYPE) as u8),
        signal_all: flags & signal_all != 0,
        flags: flags & !signal_all,
        event_fd: call.fd(create::EVENT_FD)?,
    };
    let made = with_uhw(call, |uhw| st.create_qp(fd, &new, uhw))?;
    call.put_handle(create::HANDLE, st.told_handle(made.handle))?;
    call.put(create::RESP_CAP, made.cap)?;
    call.put(create::RESP_QP_NUM, made.qpn)?;
    call.put_bytes(ATTR_UHW_OUT, &made.uhw)
}

/// Runs `f` with the driver's part of the call.
fn with_uhw<T>(call: &Call<'_>, f: impl FnOnce(&Uhw<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
    f(&Uhw {
        input: &call.bytes(ATTR_UHW_IN)?,
        room: call.room(ATTR_UHW_OUT).unwrap_or(0),
    })
}

//! rxe's part in making queues: it allocates them, and answers where they can be mapped.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpCap, QpType};
use uverbs_abi::udata::rxe as udata;
use wqe_format::rxe::{Cqe, RecvWqe, SendWqe, Sge};
use zerocopy::{FromBytes, IntoBytes};

use super::device;
use super::ring::Producer;
use super::{Armed, Cq, Qp};
use crate::config::Lie;
use crate::core::create::{NewCq, NewQp, NewSrq};
use crate::core::objects::{CqKind, QpKind, Srq, SrqKind};
use crate::raw;
use crate::request::Uhw;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// rxe wants room for its whole answer.
fn need<T>(uhw: &Uhw<'_>) -> Result<(), Errno> {
    if uhw.room < size_of::<T>() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Where a queue can be mapped, as this kernel tells it.
fn told(st: &State, mut info: udata::MmapInfo) -> udata::MmapInfo {
    match st.config.lie {
        Some(Lie::QueueSize(size)) => info.size = size,
        Some(Lie::QueueOffset(offset)) => info.offset = offset,
        _ => {}
    }
    info
}

fn recv_entry(max_sge: u32) -> usize {
    RecvWqe::PAYLOAD + max_sge as usize * size_of::<Sge>()
}

pub(crate) fn cq(
    st: &mut State,
    fd: RawFd,
    new: &NewCq,
    uhw: &Uhw<'_>,
) -> Result<(u32, CqKind, Vec<u8>), Errno> {
    need::<udata::CreateCqResp>(uhw)?;
    if new.cqe > device::MAX_CQE {
        return Err(EINVAL);
    }
    if new.flags != 0 {
        return Err(EOPNOTSUPP);
    }
    let ring = st.new_ring(fd, new.cqe, size_of::<Cqe>(), Producer::Kernel)?;
    let mi = told(st, ring.mmap_info());
    let cqe = ring.capacity();
    let kind = CqKind::Rxe(Cq {
        ring,
        armed: Armed::default(),
    });
    Ok((cqe, kind, udata::CreateCqResp { mi }.as_bytes().to_vec()))
}

pub(crate) fn resize_cq(
    st: &mut State,
    fd: RawFd,
    number: u32,
    cqe: u32,
    uhw: &Uhw<'_>,
) -> Result<(u32, Vec<u8>), Errno> {
    need::<udata::ResizeCqResp>(uhw)?;
    if cqe > device::MAX_CQE {
        return Err(EINVAL);
    }
    let old = st.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
    if old.rxe().ok_or(EINVAL)?.ring.used() > cqe {
        return Err(EINVAL);
    }
    let mut ring = st.new_ring(fd, cqe, size_of::<Cqe>(), Producer::Kernel)?;
    let mi = told(st, ring.mmap_info());
    let cq = st.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
    let own = cq.rxe().ok_or(EINVAL)?;
    ring.take_over(&own.ring);
    own.ring = ring;
    cq.cqe = own.ring.capacity();
    Ok((cq.cqe, udata::ResizeCqResp { mi }.as_bytes().to_vec()))
}

/// The queue, the number that the core answers (none), and the driver's answer.
pub(crate) fn srq(
    st: &mut State,
    fd: RawFd,
    new: &NewSrq,
    number: u32,
    uhw: &Uhw<'_>,
) -> Result<(Srq, u32, Vec<u8>), Errno> {
    need::<udata::CreateSrqResp>(uhw)?;
    if new.srq_type != 0 {
        return Err(EOPNOTSUPP);
    }
    if new.max_wr > device::MAX_SRQ_WR || new.max_sge > device::MAX_SRQ_SGE {
        return Err(EINVAL);
    }
    let max_sge = new.max_sge.max(1);
    let ring = st.new_ring(fd, new.max_wr, recv_entry(max_sge), Producer::Program)?;
    let answer = udata::CreateSrqResp {
        mi: told(st, ring.mmap_info()),
        // `RXE_MIN_SRQ_INDEX`
        srq_num: 0x2_0001 + number,
        ..udata::CreateSrqResp::default()
    };
    let max_wr = ring.capacity();
    let srq = Srq::new(SrqKind::Rxe(ring), new, max_wr, max_sge);
    Ok((srq, 0, answer.as_bytes().to_vec()))
}

/// A new size gives a new queue, of which the kernel tells at an address that the program sends.
pub(crate) fn modify_srq(
    st: &mut State,
    fd: RawFd,
    number: u32,
    max_wr: Option<u32>,
    limit: Option<u32>,
    uhw: &Uhw<'_>,
) -> Result<(), Errno> {
    // rxe takes no command without its own part, even where it has nothing to say in it.
    let (sent, _) = udata::ModifySrqCmd::read_from_prefix(uhw.input).map_err(|_| EINVAL)?;
    let srq = st.device(fd)?.srqs.get_mut(&number).ok_or(EINVAL)?;
    let (old_limit, max_sge) = (srq.limit, srq.max_sge);
    let ring = srq.rxe().ok_or(EINVAL)?;
    let (capacity, used) = (ring.capacity(), ring.used());
    if max_wr.is_some_and(|n| n == 0 || n > device::MAX_SRQ_WR || n < used || n < old_limit) {
        return Err(EINVAL);
    }
    if limit.is_some_and(|limit| limit > max_wr.unwrap_or(capacity)) {
        return Err(EINVAL);
    }
    let ring = max_wr
        .map(|n| st.new_ring(fd, n, recv_entry(max_sge), Producer::Program))
        .transpose()?;
    let info = ring.as_ref().map(|ring| told(st, ring.mmap_info()));
    let srq = st.device(fd)?.srqs.get_mut(&number).ok_or(EINVAL)?;
    if let Some(mut ring) = ring {
        srq.max_wr = ring.capacity();
        let own = srq.rxe().ok_or(EINVAL)?;
        ring.take_over(own);
        *own = ring;
    }
    if let Some(limit) = limit {
        srq.limit = limit;
    }
    match info {
        Some(info) => raw::copy_out(sent.mmap_info_addr, info.as_bytes()),
        None => Ok(()),
    }
}

pub(crate) fn qp(
    st: &mut State,
    fd: RawFd,
    new: &NewQp,
    uhw: &Uhw<'_>,
) -> Result<(QpCap, QpKind, Vec<u8>), Errno> {
    need::<udata::CreateQpResp>(uhw)?;
    if !matches!(new.qp_type, QpType::RC | QpType::UC | QpType::UD) || new.flags != 0 {
        return Err(EOPNOTSUPP);
    }
    if new.pd.is_none() || new.send_cq.is_none() || new.recv_cq.is_none() {
        return Err(EINVAL);
    }
    if !device::has_capacity(&new.cap, new.srq.is_none()) {
        return Err(EINVAL);
    }
    let mut cap = new.cap;
    // Elements and inline bytes share the room behind a work request (`rxe_init_sq`).
    let payload = (cap.max_send_sge as usize * size_of::<Sge>()).max(cap.max_inline_data as usize);
    cap.max_send_sge = (payload / size_of::<Sge>()) as u32;
    cap.max_inline_data = payload as u32;
    let entry = SendWqe::PAYLOAD + payload;
    let send = st.new_ring(fd, cap.max_send_wr, entry, Producer::Program)?;
    cap.max_send_wr = send.capacity();
    let recv = match new.srq {
        Some(_) => None,
        None => {
            let entry = recv_entry(cap.max_recv_sge);
            Some(st.new_ring(fd, cap.max_recv_wr, entry, Producer::Program)?)
        }
    };
    if let Some(recv) = &recv {
        cap.max_recv_wr = recv.capacity();
    }
    let answer = udata::CreateQpResp {
        rq_mi: recv
            .as_ref()
            .map(|recv| told(st, recv.mmap_info()))
            .unwrap_or_default(),
        sq_mi: told(st, send.mmap_info()),
    };
    let kind = QpKind::Rxe(Qp {
        send,
        recv,
        wait: None,
    });
    Ok((cap, kind, answer.as_bytes().to_vec()))
}

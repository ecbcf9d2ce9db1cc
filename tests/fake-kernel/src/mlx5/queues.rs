//! mlx5's part in making queues: the program sends where its rings and doorbell records are, and is answered
//! the device's numbers. Checks are those of `drivers/infiniband/hw/mlx5/{cq,srq,qp}.c`.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpCap, QpType};
use uverbs_abi::udata::mlx5 as udata;
use zerocopy::{FromBytes, IntoBytes};

use super::hca::cq::Inner;
use super::hca::qp::BLOCK;
use super::hca::{Buffer, CompletionQueue, QueuePair, Ring, SharedReceiveQueue, UarPage};
use super::{device, uar};
use crate::core::create::{NewCq, NewQp, NewSrq};
use crate::core::objects::{CqKind, QpKind, Srq, SrqKind};
use crate::raw;
use crate::request::Uhw;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// No user index (`MLX5_IB_DEFAULT_UIDX`).
const NO_USER_INDEX: u32 = 0xff_ffff;
/// No register (`MLX5_IB_INVALID_BFREG`).
const INVALID_BFREG: u32 = 1 << 31;
/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION` and `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
const CQ_FLAGS: u64 = 0b11;
const IGNORE_OVERRUN: u64 = 0b10;

/// The request, of which the program sent at least `least` bytes; what is longer must be zero.
pub(super) fn request<T: FromBytes>(uhw: &Uhw<'_>, least: usize) -> Result<T, Errno> {
    if uhw.input.len() < least {
        return Err(EINVAL);
    }
    let mut bytes = uhw.input.to_vec();
    if bytes.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
        return Err(EOPNOTSUPP);
    }
    bytes.resize(size_of::<T>(), 0);
    T::read_from_bytes(&bytes).map_err(|_| EINVAL)
}

/// The kernel pins memory; what is not mapped cannot be.
pub(super) fn pin(address: u64, len: usize) -> Result<(), Errno> {
    if len == 0 || address == 0 {
        return Err(EINVAL);
    }
    raw::copy_in(address, len).map(drop)
}

/// A doorbell record: eight bytes, aligned so that both counters lie in one word.
pub(super) fn pin_record(address: u64) -> Result<(), Errno> {
    if !address.is_multiple_of(8) {
        return Err(EINVAL);
    }
    pin(address, 8)
}

/// As much of an answer as the program has room for.
pub(super) fn answer<T: IntoBytes + zerocopy::Immutable>(uhw: &Uhw<'_>, value: &T) -> Vec<u8> {
    let mut bytes = value.as_bytes().to_vec();
    bytes.truncate(uhw.room);
    bytes
}

/// Whether a user index fits the version of completions (`verify_assign_uidx`).
pub(super) fn check_user_index(st: &mut State, fd: RawFd, uidx: u32) -> Result<(), Errno> {
    let is_new = st.context(fd)?.mlx5.answer.cqe_version == 1;
    let is_none = uidx == NO_USER_INDEX;
    if is_new == is_none || uidx > NO_USER_INDEX {
        return Err(EINVAL);
    }
    Ok(())
}

fn uar_page(st: &mut State, fd: RawFd, page_id: u32) -> Result<Arc<UarPage>, Errno> {
    st.context(fd)?.mlx5.uars.page(page_id).ok_or(EINVAL)
}

pub(crate) fn cq(
    st: &mut State,
    fd: RawFd,
    new: &NewCq,
    number: u32,
    uhw: &Uhw<'_>,
) -> Result<(u32, CqKind, Vec<u8>), Errno> {
    if new.cqe > device::MAX_CQE {
        return Err(EINVAL);
    }
    if new.flags & !CQ_FLAGS != 0 {
        return Err(EOPNOTSUPP);
    }
    let sent: udata::CreateCq = request(uhw, std::mem::offset_of!(udata::CreateCq, flags))?;
    let known = udata::CreateCqFlags::CQE_128B_PAD
        | udata::CreateCqFlags::UAR_PAGE_INDEX
        | udata::CreateCqFlags::REAL_TIME_TS;
    if !known.contains(sent.flags)
        || !matches!(sent.cqe_size, 64 | 128)
        || !sent.reserved0.is_zero()
        || !sent.reserved1.is_zero()
    {
        return Err(EINVAL);
    }
    if sent.flags.contains(udata::CreateCqFlags::CQE_128B_PAD) && sent.cqe_size != 128 {
        return Err(EINVAL);
    }
    let is_known_format = matches!(sent.cqe_comp_res_format, 1 | 2 | 4);
    if sent.cqe_comp_en != 0 && !is_known_format {
        return Err(EOPNOTSUPP);
    }
    let buffer = Buffer {
        address: sent.buf_addr,
        count: (new.cqe + 1).next_power_of_two(),
        entry: sent.cqe_size,
    };
    pin(buffer.address, buffer.len())?;
    pin_record(sent.db_addr)?;
    let uar = if sent.flags.contains(udata::CreateCqFlags::UAR_PAGE_INDEX) {
        uar_page(st, fd, sent.uar_page_index.into())?
    } else {
        let fixed = st.context(fd)?.mlx5.uars.fixed.first();
        fixed.cloned().ok_or(EINVAL)?
    };
    let mut spent_arm = 0;
    if st.config.mlx5.runs {
        // No program writes this word, so the first one that it writes is seen whatever it is, even if another
        // queue's doorbell hides this one's.
        spent_arm = u32::MAX;
        raw::copy_out(sent.db_addr + 4, &spent_arm.to_ne_bytes())?;
    }
    let queue = CompletionQueue {
        cqn: number,
        user_handle: new.user_handle,
        dbrec: sent.db_addr,
        compression: (sent.cqe_comp_en != 0).then_some(sent.cqe_comp_res_format),
        ignores_overrun: new.flags & IGNORE_OVERRUN != 0,
        is_alive: AtomicBool::new(true),
        inner: Mutex::new(Inner {
            buffer,
            producer: 0,
            spent_arm,
            last_solicited: 0,
            is_broken: false,
            spent_bell: uar.read(0x20),
        }),
        uar: Some(uar),
    };
    let resp = udata::CreateCqResp {
        cqn: number,
        ..Default::default()
    };
    let kind = CqKind::Mlx5(Arc::new(queue));
    Ok((buffer.count - 1, kind, answer(uhw, &resp)))
}

pub(crate) fn resize_cq(
    st: &mut State,
    fd: RawFd,
    number: u32,
    cqe: u32,
    uhw: &Uhw<'_>,
) -> Result<(u32, Vec<u8>), Errno> {
    let cq = st.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
    let CqKind::Mlx5(queue) = &cq.kind else {
        return Err(EINVAL);
    };
    if cqe > device::MAX_CQE {
        return Err(EINVAL);
    }
    let count = (cqe + 1).next_power_of_two();
    // The same size is no change at all (`mlx5_ib_resize_cq`).
    if count == cq.cqe + 1 {
        return Ok((cq.cqe, Vec::new()));
    }
    let sent: udata::ResizeCq = request(uhw, size_of::<udata::ResizeCq>())?;
    if !matches!(sent.cqe_size, 64 | 128) || !sent.reserved0.is_zero() || !sent.reserved1.is_zero()
    {
        return Err(EINVAL);
    }
    let buffer = Buffer {
        address: sent.buf_addr,
        count,
        entry: sent.cqe_size.into(),
    };
    pin(buffer.address, buffer.len())?;
    // The firmware moves nothing: what is not taken must fit.
    if queue.held() > count {
        return Err(EINVAL);
    }
    queue.resize(buffer);
    cq.cqe = count - 1;
    Ok((cq.cqe, Vec::new()))
}

/// The queue, the number that the core answers for XRC, and the driver's answer.
pub(crate) fn srq(
    st: &mut State,
    fd: RawFd,
    new: &NewSrq,
    number: u32,
    uhw: &Uhw<'_>,
) -> Result<(Srq, u32, Vec<u8>), Errno> {
    if new.max_wr >= device::MAX_RECV_WR || new.max_sge > 31 {
        return Err(EINVAL);
    }
    let srq_type = u32::try_from(new.srq_type).map_err(|_| EINVAL)?;
    if srq_type > 2 {
        return Err(EINVAL);
    }
    let sent: udata::CreateSrq = request(uhw, std::mem::offset_of!(udata::CreateSrq, uidx))?;
    if !sent.reserved0.is_zero() || !sent.reserved1.is_zero() {
        return Err(EINVAL);
    }
    // A basic queue's receives complete under the queue pair's index.
    if srq_type != 0 {
        check_user_index(st, fd, sent.uidx)?;
    }
    let cq = match new.cq {
        Some(cq) => Some(completion_queue(st, fd, Some(cq))?.ok_or(EINVAL)?),
        None => None,
    };
    let max_sge = new.max_sge;
    let entry = (16 + max_sge as usize * 16).next_power_of_two().max(32);
    let ring = Ring {
        address: sent.buf_addr,
        count: (new.max_wr + 1).next_power_of_two(),
        shift: entry.trailing_zeros(),
    };
    pin(ring.address, ring.len())?;
    pin_record(sent.db_addr)?;
    let queue = SharedReceiveQueue {
        srqn: number,
        srq_type,
        uidx: sent.uidx,
        user_handle: new.user_handle,
        ring,
        has_signature: sent.flags.contains(udata::CreateSrqFlags::SIGNATURE),
        dbrec: sent.db_addr,
        cq,
        is_alive: AtomicBool::new(true),
        progress: Mutex::default(),
    };
    let resp = udata::CreateSrqResp {
        srqn: number,
        ..Default::default()
    };
    let kind = SrqKind::Mlx5(Arc::new(queue));
    let srq = Srq::new(kind, new, ring.count - 1, max_sge);
    let told = if srq_type == 1 { number } else { 0 };
    Ok((srq, told, answer(uhw, &resp)))
}

/// The limit may change, the size may not (`mlx5_ib_modify_srq`).
pub(crate) fn modify_srq(
    st: &mut State,
    fd: RawFd,
    number: u32,
    max_wr: Option<u32>,
    limit: Option<u32>,
) -> Result<(), Errno> {
    if max_wr.is_some() {
        return Err(EINVAL);
    }
    let srq = st.device(fd)?.srqs.get_mut(&number).ok_or(EINVAL)?;
    if let Some(limit) = limit {
        if limit > srq.max_wr {
            return Err(EINVAL);
        }
        srq.limit = limit;
    }
    Ok(())
}

/// What the device sees of a completion queue.
pub(super) fn completion_queue(
    st: &mut State,
    fd: RawFd,
    handle: Option<u32>,
) -> Result<Option<Arc<CompletionQueue>>, Errno> {
    let Some(handle) = handle else {
        return Ok(None);
    };
    let number = st.cq_number(fd, handle)?;
    match &st.device(fd)?.cqs.get(&number).ok_or(EINVAL)?.kind {
        CqKind::Mlx5(cq) => Ok(Some(cq.clone())),
        CqKind::Rxe(_) => Err(EINVAL),
    }
}

fn shared_queue(
    st: &mut State,
    fd: RawFd,
    handle: Option<u32>,
) -> Result<Option<Arc<SharedReceiveQueue>>, Errno> {
    let Some(handle) = handle else {
        return Ok(None);
    };
    let number = st.srq_number(fd, handle)?;
    match &st.device(fd)?.srqs.get(&number).ok_or(EINVAL)?.kind {
        SrqKind::Mlx5(srq) => Ok(Some(srq.clone())),
        SrqKind::Rxe(_) => Err(EINVAL),
    }
}

/// Bits of [`udata::CreateQpFlags`] that Linux 6.12 knows.
const QP_FLAGS: u32 = 0xfff;

pub(crate) fn qp(
    st: &mut State,
    fd: RawFd,
    new: &NewQp,
    qpn: u32,
    uhw: &Uhw<'_>,
) -> Result<(QpCap, QpKind, Vec<u8>), Errno> {
    let is_receiver = matches!(new.qp_type, QpType::XRC_TGT);
    if new.pd.is_none() && !is_receiver {
        return Err(EINVAL);
    }
    let known = matches!(
        new.qp_type,
        QpType::RC
            | QpType::UC
            | QpType::UD
            | QpType::RAW_PACKET
            | QpType::XRC_INI
            | QpType::XRC_TGT
            | QpType::DRIVER
    );
    if !known {
        return Err(EOPNOTSUPP);
    }
    let send_cq = completion_queue(st, fd, new.send_cq)?;
    let recv_cq = completion_queue(st, fd, new.recv_cq)?;
    let srq = shared_queue(st, fd, new.srq)?;
    let has_user_index = st.context(fd)?.mlx5.answer.cqe_version == 1;
    let mut made = QueuePair {
        qpn,
        qp_type: new.qp_type,
        flags: 0,
        uidx: NO_USER_INDEX,
        has_user_index,
        dc_key: 0,
        user_handle: new.user_handle,
        send: None,
        recv: None,
        has_signature: false,
        dbrec: 0,
        uar: None,
        register: None,
        send_cq,
        recv_cq,
        srq,
        is_alive: AtomicBool::new(true),
        progress: Mutex::default(),
    };
    let mut cap = new.cap;
    if new.ind_table.is_some() {
        return super::work_queue::rss_qp(st, fd, new, made, uhw);
    }
    if new.qp_type == QpType::XRC_TGT {
        // Nothing of it is the program's.
        let kind = QpKind::Mlx5(Arc::new(made));
        return Ok((QpCap::default(), kind, Vec::new()));
    }
    let least = std::mem::offset_of!(udata::CreateQp, uidx);
    let sent: udata::CreateQp = request(uhw, least)?;
    if sent.flags.0 & !QP_FLAGS != 0 || !sent.reserved.is_zero() {
        return Err(EINVAL);
    }
    check_user_index(st, fd, sent.uidx)?;
    made.flags = sent.flags.0;
    made.uidx = sent.uidx;
    made.has_signature = sent.flags.contains(udata::CreateQpFlags::SIGNATURE);
    let is_dct = sent.flags.contains(udata::CreateQpFlags::TYPE_DCT);
    let is_dci = sent.flags.contains(udata::CreateQpFlags::TYPE_DCI);
    if (new.qp_type == QpType::DRIVER) != (is_dct != is_dci) {
        return Err(EINVAL);
    }
    if is_dct {
        if made.srq.is_none() || made.recv_cq.is_none() {
            return Err(EINVAL);
        }
        made.dc_key = sent.sq_buf_addr;
        let kind = QpKind::Mlx5(Arc::new(made));
        return Ok((
            QpCap::default(),
            kind,
            answer(uhw, &udata::CreateQpResp::default()),
        ));
    }
    if made.send_cq.is_none()
        || (made.recv_cq.is_none() && new.qp_type != QpType::XRC_INI && !is_dci)
    {
        return Err(EINVAL);
    }
    let has_recv =
        made.srq.is_none() && cap.max_recv_wr > 0 && !is_dci && new.qp_type != QpType::XRC_INI;
    if has_recv {
        made.recv = Some(recv_ring(&sent, &mut cap)?);
    } else {
        cap.max_recv_wr = 0;
        cap.max_recv_sge = 0;
    }
    if sent.sq_wqe_count != 0 {
        if !sent.sq_wqe_count.is_power_of_two() || sent.sq_wqe_count > device::MAX_SEND_WQEBB {
            return Err(EINVAL);
        }
        let separate = new.qp_type == QpType::RAW_PACKET || new.source_qpn.is_some();
        let behind = made.recv.map_or(0, |recv| recv.len()) as u64;
        made.send = Some(Ring {
            address: match separate {
                true => sent.sq_buf_addr,
                false => sent.buf_addr + behind,
            },
            count: sent.sq_wqe_count,
            shift: BLOCK.trailing_zeros(),
        });
    }
    for ring in [made.send, made.recv].into_iter().flatten() {
        pin(ring.address, ring.len())?;
    }
    pin_record(sent.db_addr)?;
    made.dbrec = sent.db_addr;
    let mut resp = udata::CreateQpResp {
        bfreg_index: INVALID_BFREG,
        ece_options: sent.ece_options,
        ..Default::default()
    };
    if sent.flags.contains(udata::CreateQpFlags::UAR_PAGE_INDEX) {
        made.uar = Some(uar_page(st, fd, sent.bfreg_index)?);
    } else if sent.flags.contains(udata::CreateQpFlags::BFREG_INDEX) {
        // Among the pages that the program added, two registers a page (`bfregn_to_uar_index`).
        let added = &st.context(fd)?.mlx5.uars.added;
        made.uar = Some(added.get(&(sent.bfreg_index / 2)).ok_or(EINVAL)?.clone());
    } else {
        let uars = &mut st.context(fd)?.mlx5.uars;
        if uars.fixed.is_empty() {
            return Err(EINVAL);
        }
        let register = uars.choose();
        made.uar = uars.fixed.get(register as usize / 2).cloned();
        made.register = Some(register);
        resp.bfreg_index = uar::told_register(register);
    }
    if new.qp_type == QpType::RAW_PACKET && st.context(fd)?.mlx5.has_devx {
        resp.comp_mask = udata::CreateQpRespMask::TISN | udata::CreateQpRespMask::SQN;
        resp.tisn = qpn + 1;
        resp.sqn = qpn;
        if made.recv.is_some() {
            resp.comp_mask |= udata::CreateQpRespMask::RQN | udata::CreateQpRespMask::TIRN;
            resp.rqn = qpn;
            resp.tirn = qpn + 2;
        }
    }
    let kind = QpKind::Mlx5(Arc::new(made));
    Ok((cap, kind, answer(uhw, &resp)))
}

/// `set_rq_size` in `mlx5/qp.c`.
fn recv_ring(sent: &udata::CreateQp, cap: &mut QpCap) -> Result<Ring, Errno> {
    let signature = u32::from(sent.flags.contains(udata::CreateQpFlags::SIGNATURE));
    if !sent.rq_wqe_count.is_power_of_two()
        || sent.rq_wqe_count > device::MAX_RECV_WR
        || cap.max_recv_wr > device::MAX_RECV_WR
        || sent.rq_wqe_shift > 12
        || (1 << sent.rq_wqe_shift) / 16 <= signature
    {
        return Err(EINVAL);
    }
    cap.max_recv_wr = sent.rq_wqe_count;
    cap.max_recv_sge = (1 << sent.rq_wqe_shift) / 16 - signature;
    Ok(Ring {
        address: sent.buf_addr,
        count: sent.rq_wqe_count,
        shift: sent.rq_wqe_shift,
    })
}

/// The program's memory is its own again.
pub(crate) fn destroyed_qp(st: &mut State, fd: RawFd, qp: &QueuePair) {
    qp.is_alive.store(false, Ordering::Release);
    if let Some(register) = qp.register
        && let Ok(context) = st.context(fd)
    {
        context.mlx5.uars.release(register);
    }
}

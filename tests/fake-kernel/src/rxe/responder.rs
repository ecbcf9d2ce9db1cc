//! The receiving half of the device.

use std::time::Duration;

use uverbs_abi::types::{AccessFlags, EventType, MwType, QpState, QpType};
use wqe_format::rxe::{Cqe, Flush, RecvWqe, WcFlags, WcOpcode, WcStatus};
use zerocopy::FromBytes;

use super::engine::{complete, elements, fail, local};
use super::ring::Ring;
use crate::core::objects::{Device, Qp};
use crate::raw;
use crate::state::State;

/// Why a request was not executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nak {
    /// No receive request is there; try again after this time.
    Rnr(Duration),
    /// Refused, or failed already at the requester.
    Status(WcStatus),
    /// No answer.
    Drop,
}

impl From<WcStatus> for Nak {
    fn from(status: WcStatus) -> Self {
        Self::Status(status)
    }
}

/// Where a datagram came from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
}

/// What takes a receive request.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) data: Vec<u8>,
    /// Immediate data in network order.
    pub(crate) imm: Option<[u8; 4]>,
    pub(crate) invalidate: Option<u32>,
    pub(crate) solicited: bool,
    /// Bytes that an RDMA WRITE has written before its notice.
    pub(crate) written: Option<u32>,
    pub(crate) datagram: Option<Source>,
}

/// Bytes of the header in front of a datagram.
const GRH: usize = 40;

type Peer = (usize, u32);

/// Waiting times that `min_rnr_timer` encodes, in units of 10 µs (IBTA table 45).
pub(crate) const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

fn qp(st: &mut State, (index, qpn): Peer) -> Option<&mut Qp> {
    st.devices[index].qps.get_mut(&qpn)
}

/// The receive queue that serves a queue pair.
fn queue(device: &mut Device, qpn: u32) -> Option<(&mut Ring, Option<u32>)> {
    let srq = device.qps.get(&qpn)?.srq;
    match srq {
        Some(srq) => Some((device.srqs.get_mut(&srq)?.rxe()?, Some(srq))),
        None => Some((device.qps.get_mut(&qpn)?.rxe()?.recv.as_mut()?, None)),
    }
}

/// Whether a receive request is there.
pub(crate) fn ready(st: &mut State, peer: Peer) -> Result<(), Nak> {
    let timer = qp(st, peer).ok_or(Nak::Drop)?.attr.min_rnr_timer;
    let (ring, _) = queue(&mut st.devices[peer.0], peer.1).ok_or(Nak::Drop)?;
    if ring.used() == 0 {
        let units = RNR_TIMERS[usize::from(timer) % RNR_TIMERS.len()];
        return Err(Nak::Rnr(Duration::from_micros(u64::from(units) * 10)));
    }
    Ok(())
}

/// Takes the oldest receive request: its number, and its list if it is one.
fn take_request(st: &mut State, peer: Peer) -> Option<(RecvWqe, Vec<u8>)> {
    let (ring, srq) = queue(&mut st.devices[peer.0], peer.1)?;
    let entry = ring.front()?;
    ring.advance();
    let left = ring.used();
    if let Some(srq) = srq
        && let Some(srq) = st.devices[peer.0].srqs.get_mut(&srq)
        && srq.limit != 0
        && left < srq.limit
    {
        srq.limit = 0;
        let (file, user_handle) = (srq.async_file, srq.user_handle);
        srq.async_events += 1;
        st.send_async(file, user_handle, EventType::SRQ_LIMIT_REACHED);
    }
    let (wqe, _) = RecvWqe::read_from_prefix(&entry).ok()?;
    Some((wqe, entry))
}

/// Delivers a message into a receive request.
pub(crate) fn receive(st: &mut State, peer: Peer, message: &Message) -> Result<(), Nak> {
    let (index, qpn) = peer;
    let receiver = qp(st, peer).ok_or(Nak::Drop)?;
    let answers = matches!(receiver.state, QpState::RTR | QpState::RTS | QpState::SQD);
    if !answers {
        return Err(Nak::Drop);
    }
    if let Some(from) = &message.datagram
        && (receiver.qp_type != QpType::UD || receiver.attr.qkey != from.qkey)
    {
        return Err(Nak::Drop);
    }
    let (cq, qp_type) = (receiver.recv_cq, receiver.qp_type);
    let pd = receiver.pd.ok_or(Nak::Drop)?;
    let src_qp = match &message.datagram {
        Some(from) => from.qpn,
        None => receiver.attr.dest_qp_num,
    };
    ready(st, peer)?;
    let (wqe, entry) = take_request(st, peer).ok_or(Nak::Drop)?;
    let mut data = Vec::new();
    if let Some(from) = &message.datagram {
        data = header(from, message.data.len());
    }
    data.extend_from_slice(&message.data);
    let status =
        scatter(st, index, pd, &wqe, &entry, &data).and_then(|()| match message.invalidate {
            Some(rkey) if !invalidate(&mut st.devices[index], rkey) => {
                Err(WcStatus::REM_INV_REQ_ERR)
            }
            _ => Ok(()),
        });
    let mut cqe = Cqe {
        wr_id: wqe.wr_id,
        qp_num: qpn,
        ..Cqe::default()
    };
    if let Err(status) = status {
        if qp_type != QpType::RC {
            return Err(Nak::Drop);
        }
        // The receiver's own mistake is not told to the requester as such.
        let (own, told) = match status {
            WcStatus::LOC_PROT_ERR => (WcStatus::LOC_QP_OP_ERR, WcStatus::REM_OP_ERR),
            status => (status, WcStatus::REM_INV_REQ_ERR),
        };
        cqe.raw_status = own.0;
        complete(st, index, cq, &cqe, true);
        fail(st, index, qpn);
        return Err(told.into());
    }
    cqe.raw_opcode = match message.written {
        Some(_) => WcOpcode::RECV_RDMA_WITH_IMM.0,
        None => WcOpcode::RECV.0,
    };
    cqe.byte_len = message.written.unwrap_or(data.len() as u32);
    cqe.src_qp = src_qp;
    cqe.port_num = 1;
    if message.datagram.is_some() {
        cqe.raw_flags |= WcFlags::GRH.0;
    }
    if let Some(imm) = message.imm {
        cqe.raw_flags |= WcFlags::WITH_IMM.0;
        cqe.ex = u32::from_ne_bytes(imm);
    }
    if let Some(rkey) = message.invalidate {
        cqe.raw_flags |= WcFlags::WITH_INVALIDATE.0;
        cqe.ex = rkey;
    }
    complete(st, index, cq, &cqe, message.solicited);
    Ok(())
}

/// What rxe puts in front of a datagram: the IPv4 header in the last 20 of 40 bytes, or the IPv6 header.
fn header(from: &Source, len: usize) -> Vec<u8> {
    let mut grh = vec![0; GRH];
    if from.sgid[..10] == [0; 10] {
        grh[20] = 0x45;
        // UDP, and its length: this header, the UDP header, BTH, DETH, payload and ICRC.
        let total = (20 + 8 + 12 + 8 + len + 4) as u16;
        grh[22..24].copy_from_slice(&total.to_be_bytes());
        grh[28] = 64;
        grh[29] = 17;
        grh[32..36].copy_from_slice(&from.sgid[12..]);
        grh[36..40].copy_from_slice(&from.dgid[12..]);
    } else {
        grh[0] = 0x60;
        grh[6] = 17;
        grh[7] = 64;
        grh[8..24].copy_from_slice(&from.sgid);
        grh[24..40].copy_from_slice(&from.dgid);
    }
    grh
}

fn scatter(
    st: &State,
    index: usize,
    pd: u32,
    wqe: &RecvWqe,
    entry: &[u8],
    mut data: &[u8],
) -> Result<(), WcStatus> {
    let list = elements(entry, RecvWqe::PAYLOAD, wqe.dma.num_sge).ok_or(WcStatus::LOC_PROT_ERR)?;
    let room: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if room < data.len() as u64 {
        return Err(WcStatus::REM_INV_REQ_ERR);
    }
    for sge in list {
        let (now, later) = data.split_at(data.len().min(sge.length as usize));
        data = later;
        if now.is_empty() {
            continue;
        }
        let need = AccessFlags::LOCAL_WRITE;
        let address = local(&st.devices[index], pd, &sge, need).ok_or(WcStatus::LOC_PROT_ERR)?;
        raw::copy_out(address, now).map_err(|_| WcStatus::LOC_PROT_ERR)?;
    }
    Ok(())
}

/// Flushes one receive request of a queue pair in error. A shared queue is not flushed.
pub(crate) fn flush(st: &mut State, index: usize, qpn: u32) -> bool {
    let Some(receiver) = st.devices[index].qps.get_mut(&qpn) else {
        return false;
    };
    let cq = receiver.recv_cq;
    let Some(ring) = receiver.rxe().and_then(|own| own.recv.as_mut()) else {
        return false;
    };
    let Some(entry) = ring.front() else {
        return false;
    };
    ring.advance();
    let Ok((wqe, _)) = RecvWqe::read_from_prefix(&entry) else {
        return false;
    };
    let cqe = Cqe {
        wr_id: wqe.wr_id,
        raw_status: WcStatus::WR_FLUSH_ERR.0,
        qp_num: qpn,
        ..Cqe::default()
    };
    complete(st, index, cq, &cqe, true);
    true
}

/// The program's address behind a remote key, if key, queue pair and range allow the access.
fn remote(
    st: &mut State,
    peer: Peer,
    key: u32,
    addr: u64,
    len: u64,
    need: AccessFlags,
) -> Result<u64, Nak> {
    let (index, qpn) = peer;
    let receiver = qp(st, peer).ok_or(Nak::Drop)?;
    let reliable = receiver.qp_type == QpType::RC;
    let pd = receiver.pd.ok_or(Nak::Drop)?;
    let refuse = |status| {
        if reliable {
            Nak::Status(status)
        } else {
            Nak::Drop
        }
    };
    if !receiver.attr.qp_access_flags.contains(need) {
        fail_if(st, peer, reliable);
        return Err(refuse(WcStatus::REM_INV_REQ_ERR));
    }
    let address = find(&st.devices[index], qpn, pd, key, addr, len, need);
    if address.is_none() {
        fail_if(st, peer, reliable);
    }
    address.ok_or(refuse(WcStatus::REM_ACCESS_ERR))
}

fn fail_if(st: &mut State, (index, qpn): Peer, yes: bool) {
    if yes {
        fail(st, index, qpn);
    }
}

fn find(
    device: &Device,
    qpn: u32,
    pd: u32,
    key: u32,
    addr: u64,
    len: u64,
    need: AccessFlags,
) -> Option<u64> {
    if let Some(mw) = device.mws.get(&(key >> 8)) {
        let bound = mw.bound.as_ref()?;
        let offset = addr.checked_sub(bound.addr)?;
        let mine = match mw.mw_type {
            MwType::TYPE_2 => bound.qp == qpn,
            _ => mw.pd == pd,
        };
        let fits = offset.checked_add(len)? <= bound.length;
        let mr = device.mrs.get(&bound.mr)?;
        let allowed = mw.key == key && mine && bound.access.contains(need);
        return (fits && allowed).then(|| mr.start + (addr - mr.iova));
    }
    let mr = device.mrs.get(&(key >> 8))?;
    let offset = addr.checked_sub(mr.iova)?;
    let fits = offset.checked_add(len)? <= mr.length;
    let allowed = mr.key == key && mr.valid && mr.pd == pd && mr.access.contains(need);
    (fits && allowed).then(|| mr.start + offset)
}

pub(crate) fn write(
    st: &mut State,
    peer: Peer,
    addr: u64,
    key: u32,
    data: &[u8],
) -> Result<(), Nak> {
    if data.is_empty() {
        return Ok(());
    }
    let to = remote(
        st,
        peer,
        key,
        addr,
        data.len() as u64,
        AccessFlags::REMOTE_WRITE,
    )?;
    raw::copy_out(to, data).map_err(|_| WcStatus::REM_OP_ERR.into())
}

pub(crate) fn read(
    st: &mut State,
    peer: Peer,
    addr: u64,
    key: u32,
    len: u32,
) -> Result<Vec<u8>, Nak> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let from = remote(st, peer, key, addr, len.into(), AccessFlags::REMOTE_READ)?;
    raw::copy_in(from, len as usize).map_err(|_| WcStatus::REM_OP_ERR.into())
}

/// Replaces 8 bytes; gives what was there. The lock around the whole kernel makes it atomic against
/// other work requests, as rxe's does, not against the program's own stores.
pub(crate) fn atomic(
    st: &mut State,
    peer: Peer,
    addr: u64,
    key: u32,
    new: impl FnOnce(u64) -> u64,
) -> Result<u64, Nak> {
    let at = remote(st, peer, key, addr, 8, AccessFlags::REMOTE_ATOMIC)?;
    if at % 8 != 0 {
        fail(st, peer.0, peer.1);
        return Err(WcStatus::REM_INV_REQ_ERR.into());
    }
    let bytes = raw::copy_in(at, 8).map_err(|_| WcStatus::REM_OP_ERR)?;
    let old = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    raw::copy_out(at, &new(old).to_ne_bytes()).map_err(|_| WcStatus::REM_OP_ERR)?;
    Ok(old)
}

pub(crate) fn flush_memory(st: &mut State, peer: Peer, flush: &Flush) -> Result<(), Nak> {
    // `IB_FLUSH_GLOBAL` and `IB_FLUSH_PERSISTENT` are bits 0 and 1, their rights bits 8 and 9.
    let need = AccessFlags(u32::from(flush.placement & 3) << 8);
    remote(
        st,
        peer,
        flush.rkey,
        flush.remote_addr,
        flush.length.into(),
        need,
    )
    .map(drop)
}

/// Invalidates a memory window of type 2. A user's memory region cannot be invalidated (`rxe_invalidate_mr`).
pub(crate) fn invalidate(device: &mut Device, key: u32) -> bool {
    let Some(mw) = device.mws.get_mut(&(key >> 8)) else {
        return false;
    };
    if mw.key != key || mw.mw_type != MwType::TYPE_2 {
        return false;
    }
    let Some(bound) = mw.bound.take() else {
        return false;
    };
    if let Some(mr) = device.mrs.get_mut(&bound.mr) {
        mr.windows -= 1;
    }
    true
}

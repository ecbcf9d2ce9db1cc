//! The sending half of the device: takes work requests out of send queues and completes them.
//!
//! Everything happens at once, in the doorbell's call: a run of the engine ends when no queue pair can
//! go on. What has to wait (no receive request at the peer, no peer) is tried again by a timer.

use std::time::{Duration, Instant};

use uverbs_abi::types::{AccessFlags, EventType, MwType, QpState, QpType};
use uverbs_abi::write::qp::ModifyQp;
use wqe_format::rxe::{
    BindMw, Cqe, Datagram, Operation, SendFlags, SendWqe, Sge, WcFlags, WcOpcode, WcStatus,
};
use zerocopy::{FromBytes, IntoBytes};

use super::Wait;
use super::device::{self, MAX_MESSAGE};
use super::responder::{self, Message, Nak};
use crate::config::Family;
use crate::core::objects::{Bound, Device, QpKind};
use crate::raw;
use crate::state::State;

/// What a work request needs to know of its queue pair.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) device: usize,
    pub(crate) qpn: u32,
    pub(crate) pd: u32,
    pub(crate) qp_type: QpType,
    pub(crate) attr: ModifyQp,
    max_sge: u32,
    max_inline: u32,
}

/// What became of a work request.
enum Outcome {
    Done(WcStatus),
    Wait(Wait),
}

impl From<WcStatus> for Outcome {
    fn from(status: WcStatus) -> Self {
        Self::Done(status)
    }
}

/// Lets every queue pair go on as far as it can.
pub(crate) fn run(st: &mut State) {
    if st.config.family != Family::Rxe {
        return;
    }
    loop {
        let mut progress = false;
        for index in 0..st.devices.len() {
            let qpns: Vec<u32> = st.devices[index].qps.keys().copied().collect();
            for qpn in qpns {
                while step(st, index, qpn) {
                    progress = true;
                }
            }
        }
        if !progress {
            return;
        }
    }
}

/// When something that waits is due.
pub(crate) fn next_deadline(st: &State) -> Option<Instant> {
    if st.config.family != Family::Rxe {
        return None;
    }
    let qps = st.devices.iter().flat_map(|device| device.qps.values());
    qps.filter_map(|qp| match &qp.kind {
        QpKind::Rxe(own) => own.wait.map(|wait| wait.until),
        QpKind::Mlx5(_) => None,
    })
    .min()
}

/// A queue pair enters the error state.
pub(crate) fn fail(st: &mut State, index: usize, qpn: u32) {
    let Some(qp) = st.devices[index].qps.get_mut(&qpn) else {
        return;
    };
    qp.state = QpState::ERR;
    if let Some(own) = qp.rxe() {
        own.wait = None;
    }
    if qp.srq.is_some() {
        st.send_qp_event(index, qpn, EventType::QP_LAST_WQE_REACHED);
    }
}

/// One work request; `false` if there is none that can go on.
fn step(st: &mut State, index: usize, qpn: u32) -> bool {
    let Some(qp) = st.devices[index].qps.get_mut(&qpn) else {
        return false;
    };
    match qp.state {
        QpState::ERR => return flush(st, index, qpn),
        QpState::RTS => {}
        _ => return false,
    }
    let Some(own) = qp.rxe() else {
        return false;
    };
    if own.wait.is_some_and(|wait| wait.until > Instant::now()) {
        return false;
    }
    let Some(entry) = own.send.front() else {
        return false;
    };
    let waited = own.wait.take();
    let Ok((wqe, _)) = SendWqe::read_from_prefix(&entry) else {
        return false;
    };
    let sender = Sender {
        device: index,
        qpn,
        pd: qp.pd.unwrap_or(0),
        qp_type: qp.qp_type,
        attr: qp.attr,
        max_sge: qp.cap.max_send_sge,
        max_inline: qp.cap.max_inline_data,
    };
    match execute(st, &sender, &wqe, &entry, waited) {
        Outcome::Wait(wait) => {
            let qp = st.devices[index].qps.get_mut(&qpn);
            if let Some(own) = qp.and_then(|qp| qp.rxe()) {
                own.wait = Some(wait);
            }
            false
        }
        Outcome::Done(status) => {
            complete_send(st, index, qpn, &wqe, status);
            true
        }
    }
}

fn complete_send(st: &mut State, index: usize, qpn: u32, wqe: &SendWqe, status: WcStatus) {
    let Some(qp) = st.devices[index].qps.get_mut(&qpn) else {
        return;
    };
    let Some(own) = qp.rxe() else {
        return;
    };
    own.send.advance();
    let is_error = status != WcStatus::SUCCESS;
    let signaled = wqe.wr.flags().contains(SendFlags::SIGNALED);
    let cq = qp.send_cq;
    if qp.signal_all || signaled || is_error {
        let mut cqe = Cqe {
            wr_id: wqe.wr.wr_id,
            raw_status: status.0,
            qp_num: qpn,
            ..Cqe::default()
        };
        if !is_error && let Some(operation) = wqe.wr.operation() {
            cqe.raw_opcode = completion_opcode(&operation).0;
            cqe.byte_len = wqe.dma.length;
            let with_imm = matches!(
                operation,
                Operation::SendWithImm { .. } | Operation::RdmaWriteWithImm { .. }
            );
            if with_imm {
                cqe.raw_flags = WcFlags::WITH_IMM.0;
            }
        }
        complete(st, index, cq, &cqe, false);
    }
    if is_error && status != WcStatus::WR_FLUSH_ERR {
        fail(st, index, qpn);
    }
}

fn completion_opcode(operation: &Operation) -> WcOpcode {
    match operation {
        Operation::Send | Operation::SendWithImm { .. } | Operation::SendWithInv { .. } => {
            WcOpcode::SEND
        }
        Operation::RdmaWrite { .. } | Operation::RdmaWriteWithImm { .. } => WcOpcode::RDMA_WRITE,
        Operation::RdmaRead { .. } => WcOpcode::RDMA_READ,
        Operation::AtomicCmpAndSwp { .. } => WcOpcode::COMP_SWAP,
        Operation::AtomicFetchAndAdd { .. } => WcOpcode::FETCH_ADD,
        Operation::LocalInv { .. } => WcOpcode::LOCAL_INV,
        Operation::BindMw(_) => WcOpcode::BIND_MW,
        Operation::Flush(_) => WcOpcode::FLUSH,
        Operation::AtomicWrite { .. } => WcOpcode::ATOMIC_WRITE,
    }
}

/// Flushes one work request of a queue pair in error, the send queue first.
fn flush(st: &mut State, index: usize, qpn: u32) -> bool {
    let Some(qp) = st.devices[index].qps.get_mut(&qpn) else {
        return false;
    };
    if let Some(entry) = qp.rxe().and_then(|own| own.send.front())
        && let Ok((wqe, _)) = SendWqe::read_from_prefix(&entry)
    {
        complete_send(st, index, qpn, &wqe, WcStatus::WR_FLUSH_ERR);
        return true;
    }
    responder::flush(st, index, qpn)
}

/// Adds a completion, and the event that someone waits for.
pub(crate) fn complete(st: &mut State, index: usize, cq: Option<u32>, cqe: &Cqe, solicited: bool) {
    let Some(cq) = cq.and_then(|cq| st.devices[index].cqs.get_mut(&cq)) else {
        return;
    };
    let Some(own) = cq.rxe() else {
        return;
    };
    if !own.ring.push(cqe.as_bytes()) {
        // Overrun: the completion is lost (`rxe_cq_post`).
        let (file, user_handle) = (cq.async_file, cq.user_handle);
        cq.async_events += 1;
        st.send_async(file, user_handle, EventType::CQ_ERR);
        return;
    }
    if own.armed.next || (own.armed.solicited && solicited) {
        own.armed = Default::default();
        let user_handle = cq.user_handle;
        if let Some(channel) = cq.channel
            && let Some(file) = st.files.get_mut(&channel)
        {
            cq.completion_events += 1;
            file.push(&user_handle.to_ne_bytes());
        }
    }
}

/// The scatter or gather list behind a work request.
pub(crate) fn elements(entry: &[u8], payload: usize, n: u32) -> Option<Vec<Sge>> {
    let bytes = entry.get(payload..payload + n as usize * size_of::<Sge>())?;
    bytes
        .chunks_exact(size_of::<Sge>())
        .map(|bytes| Sge::read_from_bytes(bytes).ok())
        .collect()
}

fn gather(st: &State, sender: &Sender, wqe: &SendWqe, entry: &[u8]) -> Result<Vec<u8>, WcStatus> {
    let length = wqe.dma.length;
    if wqe.wr.flags().contains(SendFlags::INLINE) {
        if length > sender.max_inline {
            return Err(WcStatus::LOC_QP_OP_ERR);
        }
        let bytes = entry.get(SendWqe::PAYLOAD..SendWqe::PAYLOAD + length as usize);
        return bytes.map(<[u8]>::to_vec).ok_or(WcStatus::LOC_QP_OP_ERR);
    }
    let mut data = Vec::with_capacity(length as usize);
    for sge in local_elements(sender, wqe, entry)? {
        if sge.length == 0 {
            continue;
        }
        let device = &st.devices[sender.device];
        let address =
            local(device, sender.pd, &sge, AccessFlags::NONE).ok_or(WcStatus::LOC_PROT_ERR)?;
        let bytes = raw::copy_in(address, sge.length as usize);
        data.extend(bytes.map_err(|_| WcStatus::LOC_PROT_ERR)?);
    }
    Ok(data)
}

/// The list, if it is as long as the work request says.
fn local_elements(sender: &Sender, wqe: &SendWqe, entry: &[u8]) -> Result<Vec<Sge>, WcStatus> {
    if wqe.dma.num_sge > sender.max_sge {
        return Err(WcStatus::LOC_QP_OP_ERR);
    }
    let list = elements(entry, SendWqe::PAYLOAD, wqe.dma.num_sge).ok_or(WcStatus::LOC_QP_OP_ERR)?;
    let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if total != u64::from(wqe.dma.length) || wqe.dma.length > MAX_MESSAGE {
        return Err(WcStatus::LOC_QP_OP_ERR);
    }
    Ok(list)
}

/// Puts the answer of a read or an atomic into the requester's list.
fn scatter_answer(
    st: &State,
    sender: &Sender,
    wqe: &SendWqe,
    entry: &[u8],
    mut data: &[u8],
) -> Result<(), WcStatus> {
    for sge in local_elements(sender, wqe, entry)? {
        let (now, later) = data.split_at(data.len().min(sge.length as usize));
        data = later;
        if now.is_empty() {
            continue;
        }
        let device = &st.devices[sender.device];
        let need = AccessFlags::LOCAL_WRITE;
        let address = local(device, sender.pd, &sge, need).ok_or(WcStatus::LOC_PROT_ERR)?;
        raw::copy_out(address, now).map_err(|_| WcStatus::LOC_PROT_ERR)?;
    }
    Ok(())
}

/// The program's address of a local element, if its key allows the access.
pub(crate) fn local(device: &Device, pd: u32, sge: &Sge, need: AccessFlags) -> Option<u64> {
    let mr = device.mrs.get(&(sge.lkey >> 8))?;
    let offset = sge.addr.checked_sub(mr.iova)?;
    let fits = offset.checked_add(sge.length.into())? <= mr.length;
    let allowed = mr.key == sge.lkey && mr.valid && mr.pd == pd && mr.access.contains(need);
    (fits && allowed).then(|| mr.start + offset)
}

fn execute(
    st: &mut State,
    sender: &Sender,
    wqe: &SendWqe,
    entry: &[u8],
    waited: Option<Wait>,
) -> Outcome {
    let Some(operation) = wqe.wr.operation() else {
        return WcStatus::LOC_QP_OP_ERR.into();
    };
    let is_offered = match sender.qp_type {
        QpType::RC => true,
        QpType::UC => !matches!(
            operation,
            Operation::RdmaRead { .. }
                | Operation::AtomicCmpAndSwp { .. }
                | Operation::AtomicFetchAndAdd { .. }
                | Operation::AtomicWrite { .. }
                | Operation::Flush(_)
        ),
        _ => matches!(operation, Operation::Send | Operation::SendWithImm { .. }),
    };
    if !is_offered {
        return WcStatus::LOC_QP_OP_ERR.into();
    }
    match operation {
        Operation::LocalInv { rkey } => {
            let done = responder::invalidate(&mut st.devices[sender.device], rkey);
            return if done {
                WcStatus::SUCCESS
            } else {
                WcStatus::LOC_QP_OP_ERR
            }
            .into();
        }
        Operation::BindMw(bind) => {
            let done = bind_window(&mut st.devices[sender.device], sender, &bind);
            return if done.is_some() {
                WcStatus::SUCCESS
            } else {
                WcStatus::MW_BIND_ERR
            }
            .into();
        }
        _ => {}
    }
    let result = if sender.qp_type == QpType::UD {
        send_datagram(st, sender, wqe, entry, &wqe.wr.datagram())
    } else {
        transfer(st, sender, wqe, entry, &operation)
    };
    match result {
        Ok(()) => WcStatus::SUCCESS.into(),
        Err(Nak::Status(status)) => status.into(),
        Err(Nak::Drop) if sender.qp_type == QpType::RC => no_answer(sender, waited),
        Err(Nak::Drop) => WcStatus::SUCCESS.into(),
        Err(Nak::Rnr(delay)) if sender.qp_type == QpType::RC => not_ready(sender, waited, delay),
        Err(Nak::Rnr(_)) => WcStatus::SUCCESS.into(),
    }
}

/// The peer has no receive request: try again `rnr_retry` times, where 7 means for ever.
fn not_ready(sender: &Sender, waited: Option<Wait>, delay: Duration) -> Outcome {
    let all = match sender.attr.rnr_retry {
        7 => None,
        n => Some(u32::from(n)),
    };
    let left = waited
        .filter(|wait| !wait.for_peer)
        .map_or(all, |wait| wait.rnr_left);
    if left == Some(0) {
        return WcStatus::RNR_RETRY_EXC_ERR.into();
    }
    Outcome::Wait(Wait {
        until: Instant::now() + delay,
        rnr_left: left.map(|n| n - 1),
        for_peer: false,
    })
}

/// Nobody answers: the request fails after `retry_cnt` timeouts of 4.096 µs times a power of two
/// (IBTA 9.9.2.1.1; no timeout at all for 0).
fn no_answer(sender: &Sender, waited: Option<Wait>) -> Outcome {
    if waited.is_some_and(|wait| wait.for_peer) && sender.attr.timeout != 0 {
        return WcStatus::RETRY_EXC_ERR.into();
    }
    let timeout = match sender.attr.timeout {
        0 => Duration::from_secs(1),
        exponent => Duration::from_nanos(4096 << exponent),
    };
    Outcome::Wait(Wait {
        until: Instant::now() + timeout * (u32::from(sender.attr.retry_cnt) + 1),
        rnr_left: None,
        for_peer: true,
    })
}

fn transfer(
    st: &mut State,
    sender: &Sender,
    wqe: &SendWqe,
    entry: &[u8],
    operation: &Operation,
) -> Result<(), Nak> {
    let peer = find_peer(st, sender).ok_or(Nak::Drop);
    let solicited = wqe.wr.flags().contains(SendFlags::SOLICITED);
    let message = |data, imm, invalidate| Message {
        data,
        imm,
        invalidate,
        solicited,
        written: None,
        datagram: None,
    };
    match *operation {
        Operation::Send => {
            let data = gather(st, sender, wqe, entry)?;
            responder::receive(st, peer?, &message(data, None, None))
        }
        Operation::SendWithImm { .. } => {
            let data = gather(st, sender, wqe, entry)?;
            responder::receive(st, peer?, &message(data, Some(wqe.wr.ex), None))
        }
        Operation::SendWithInv { rkey } => {
            let data = gather(st, sender, wqe, entry)?;
            responder::receive(st, peer?, &message(data, None, Some(rkey)))
        }
        Operation::RdmaWrite { remote_addr, rkey } => {
            let data = gather(st, sender, wqe, entry)?;
            responder::write(st, peer?, remote_addr, rkey, &data)
        }
        Operation::RdmaWriteWithImm {
            remote_addr, rkey, ..
        } => {
            let data = gather(st, sender, wqe, entry)?;
            let peer = peer?;
            responder::ready(st, peer)?;
            responder::write(st, peer, remote_addr, rkey, &data)?;
            let mut note = message(Vec::new(), Some(wqe.wr.ex), None);
            note.written = Some(data.len() as u32);
            responder::receive(st, peer, &note)
        }
        Operation::RdmaRead { remote_addr, rkey } => {
            local_elements(sender, wqe, entry)?;
            let data = responder::read(st, peer?, remote_addr, rkey, wqe.dma.length)?;
            Ok(scatter_answer(st, sender, wqe, entry, &data)?)
        }
        Operation::AtomicCmpAndSwp {
            remote_addr,
            rkey,
            compare,
            swap,
        } => {
            let old = responder::atomic(st, peer?, remote_addr, rkey, |old| {
                if old == compare { swap } else { old }
            })?;
            Ok(scatter_answer(st, sender, wqe, entry, &old.to_ne_bytes())?)
        }
        Operation::AtomicFetchAndAdd {
            remote_addr,
            rkey,
            add,
        } => {
            let old = responder::atomic(st, peer?, remote_addr, rkey, |old| old.wrapping_add(add))?;
            Ok(scatter_answer(st, sender, wqe, entry, &old.to_ne_bytes())?)
        }
        Operation::AtomicWrite { remote_addr, rkey } => {
            let value = entry.get(SendWqe::PAYLOAD..SendWqe::PAYLOAD + 8);
            let value = value.ok_or(WcStatus::LOC_QP_OP_ERR)?.to_vec();
            if remote_addr % 8 != 0 {
                return Err(WcStatus::REM_INV_REQ_ERR.into());
            }
            responder::write(st, peer?, remote_addr, rkey, &value)
        }
        Operation::Flush(flush) => responder::flush_memory(st, peer?, &flush),
        Operation::LocalInv { .. } | Operation::BindMw(_) => Ok(()),
    }
}

/// Device and number of the connected queue pair, if it answers.
fn find_peer(st: &State, sender: &Sender) -> Option<(usize, u32)> {
    let index = st
        .devices
        .iter()
        .position(|device| device.gids.contains(&sender.attr.dest.dgid))?;
    let qpn = sender.attr.dest_qp_num;
    let qp = st.devices[index].qps.get(&qpn)?;
    let answers = matches!(qp.state, QpState::RTR | QpState::RTS | QpState::SQD);
    (answers && qp.qp_type == sender.qp_type).then_some((index, qpn))
}

fn send_datagram(
    st: &mut State,
    sender: &Sender,
    wqe: &SendWqe,
    entry: &[u8],
    to: &Datagram,
) -> Result<(), Nak> {
    let data = gather(st, sender, wqe, entry)?;
    // Larger than a packet: nothing is sent, and that is no error (rxe; IBTA C10-93.1.1).
    if data.len() > 128 << device::MTU {
        return Ok(());
    }
    let device = &st.devices[sender.device];
    let (dgid, sgid_index) = match to.ah_num {
        0 => (to.av.dgid, to.av.sgid_index),
        number => {
            let ah = device.ahs.get(&number).filter(|ah| ah.pd == sender.pd);
            let ah = ah.ok_or(WcStatus::LOC_QP_OP_ERR)?;
            (ah.attr.grh.dgid, ah.attr.grh.sgid_index)
        }
    };
    let sgid = device
        .gids
        .get(usize::from(sgid_index))
        .copied()
        .unwrap_or_default();
    // A key with the top bit set means the queue pair's own (IBTA 10.2.5).
    let qkey = if to.remote_qkey >> 31 == 1 {
        sender.attr.qkey
    } else {
        to.remote_qkey
    };
    let mut peers = Vec::new();
    for (index, device) in st.devices.iter().enumerate() {
        match device.groups.get(&dgid) {
            Some(members) => peers.extend(members.iter().map(|qpn| (index, *qpn))),
            None if device.gids.contains(&dgid) => peers.push((index, to.remote_qpn)),
            None => {}
        }
    }
    let imm = match wqe.wr.operation() {
        Some(Operation::SendWithImm { .. }) => Some(wqe.wr.ex),
        _ => None,
    };
    let message = Message {
        data,
        imm,
        invalidate: None,
        solicited: wqe.wr.flags().contains(SendFlags::SOLICITED),
        written: None,
        datagram: Some(responder::Source {
            qpn: sender.qpn,
            qkey,
            sgid,
            dgid,
        }),
    };
    for peer in peers {
        // Datagrams that do not arrive are nobody's error.
        let _ = responder::receive(st, peer, &message);
    }
    Ok(())
}

/// Binds a memory window (`rxe_check_bind_mw`); `None` if that is not allowed.
fn bind_window(device: &mut Device, sender: &Sender, bind: &BindMw) -> Option<()> {
    let number = bind.mw_rkey >> 8;
    let mw = device
        .mws
        .get(&number)
        .filter(|mw| mw.key == bind.mw_rkey)?;
    let is_free = mw.mw_type == MwType::TYPE_1 || mw.bound.is_none();
    if mw.pd != sender.pd || !is_free || (mw.mw_type == MwType::TYPE_2 && bind.length == 0) {
        return None;
    }
    let access = AccessFlags(bind.access.0);
    let bound = if bind.length == 0 {
        None
    } else {
        let mr = device.mrs.get(&(bind.mr_lkey >> 8))?;
        let needs_write =
            access.0 & (AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC).0 != 0;
        let offset = bind.addr.checked_sub(mr.iova)?;
        let allowed = mr.key == bind.mr_lkey
            && mr.pd == sender.pd
            && mr.access.contains(AccessFlags::MW_BIND)
            && (!needs_write || mr.access.contains(AccessFlags::LOCAL_WRITE))
            && !access.contains(AccessFlags::ZERO_BASED)
            && offset.checked_add(bind.length)? <= mr.length;
        if !allowed {
            return None;
        }
        Some(Bound {
            mr: bind.mr_lkey >> 8,
            qp: sender.qpn,
            addr: bind.addr,
            length: bind.length,
            access,
        })
    };
    let gained = bound.as_ref().map(|bound| bound.mr);
    let mw = device.mws.get_mut(&number)?;
    mw.key = (mw.key & !0xff) | (bind.rkey & 0xff);
    let lost = std::mem::replace(&mut mw.bound, bound).map(|bound| bound.mr);
    if let Some(mr) = lost.and_then(|mr| device.mrs.get_mut(&mr)) {
        mr.windows -= 1;
    }
    if let Some(mr) = gained.and_then(|mr| device.mrs.get_mut(&mr)) {
        mr.windows += 1;
    }
    Some(())
}

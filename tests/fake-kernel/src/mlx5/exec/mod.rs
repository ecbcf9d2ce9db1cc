//! The loopback device: it executes send work requests between queue pairs of the process.
//!
//! A run looks at the doorbell records of all live queue pairs and ends when none can go on. What has to
//! wait (no receive request at the peer, no peer) waits for a later run.

mod atomic;
mod datagram;
pub(crate) mod keys;
pub(crate) mod responder;
pub(crate) mod wqe;

use std::sync::Arc;
use std::time::{Duration, Instant};

use uverbs_abi::types::{AccessFlags, EventType, QpState, QpType};
use uverbs_abi::udata::mlx5::CreateQpFlags;

use super::hca::cqe::syndrome;
use super::hca::qp::Wait;
use super::hca::{self, Armed, Cqe, QueuePair, Received, SendWqe};
use crate::config::Link;
use crate::core::objects::{CqKind, QpKind};
use crate::state::State;
use responder::{Message, Nak, Peer, SCATTER_CQE};
use wqe::{Piece, Request, opcode};

/// `vendor_err_synd` of flushed work requests, as ConnectX-5 has it.
pub(crate) const FLUSH_VENDOR: u8 = 0xf9;

/// `max_msg_sz` of the port.
const MAX_MESSAGE: u64 = 1 << 30;

/// The device's clock, as timestamps of completions carry it: 156.25 MHz.
pub(crate) fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let nanoseconds = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    1_000 + nanoseconds * 10 / 64
}

/// Lets every queue pair go on as far as it can; whether anything happened.
pub(crate) fn run(st: &mut State) -> bool {
    let mut happened = false;
    loop {
        let mut progress = false;
        for index in 0..st.devices.len() {
            let qpns: Vec<u32> = st.devices[index].qps.keys().copied().collect();
            for qpn in qpns {
                while step(st, (index, qpn)) {
                    progress = true;
                }
            }
        }
        if !progress {
            break;
        }
        happened = true;
    }
    happened | late_events(st)
}

/// Events of completion queues that were armed after their completions had come.
fn late_events(st: &mut State) -> bool {
    let mut sent = false;
    for index in 0..st.devices.len() {
        let cqs: Vec<_> = (st.devices[index].cqs.values())
            .filter_map(|cq| match &cq.kind {
                CqKind::Mlx5(own) => Some(own.clone()),
                CqKind::Rxe(_) => None,
            })
            .collect();
        for cq in cqs {
            let newest = match cq.armed() {
                Some(Armed::Any) => cq.producer(),
                Some(Armed::Solicited) => cq.last_solicited(),
                None => continue,
            };
            let seen = cq.arm_word() & 0xff_ffff;
            let ahead = newest.wrapping_sub(seen) & 0xff_ffff;
            if ahead != 0 && ahead < 0x80_0000 {
                sent |= hca::send_cq_event(st, index, &cq);
            }
        }
    }
    sent
}

/// A queue pair enters the error state.
pub(crate) fn fail(st: &mut State, peer: Peer) {
    let Some(qp) = st.devices[peer.0].qps.get_mut(&peer.1) else {
        return;
    };
    qp.state = QpState::ERR;
    if let QpKind::Mlx5(own) = &qp.kind {
        own.set_wait(None);
    }
    if qp.srq.is_some() {
        st.send_qp_event(peer.0, peer.1, EventType::QP_LAST_WQE_REACHED);
    }
}

/// What a request needs to know of its queue pair.
struct Sender {
    peer: Peer,
    own: Arc<QueuePair>,
    pd: u32,
    /// Whether it uses dynamic connections.
    is_initiator: bool,
}

enum Outcome {
    /// Done, with what came back.
    Done(Vec<u8>),
    Failed(u8),
    Wait(Wait),
}

/// One work request; `false` if there is none that can go on.
fn step(st: &mut State, peer: Peer) -> bool {
    let Some(qp) = st.devices[peer.0].qps.get(&peer.1) else {
        return false;
    };
    let QpKind::Mlx5(own) = &qp.kind else {
        return false;
    };
    let (own, state, pd) = (own.clone(), qp.state, qp.pd.unwrap_or(0));
    match state {
        QpState::ERR => return flush(st, peer, &own),
        QpState::RTS => {}
        _ => return false,
    }
    let waited = own.wait();
    if waited.is_some_and(|wait| wait.until > Instant::now()) {
        return false;
    }
    let Some(wqe) = own.peek_send() else {
        return false;
    };
    let sender = Sender {
        peer,
        pd,
        is_initiator: own.flags & CreateQpFlags::TYPE_DCI.0 != 0,
        own: own.clone(),
    };
    own.set_wait(None);
    match execute(st, &sender, &wqe, waited) {
        Outcome::Wait(wait) => {
            own.set_wait(Some(wait));
            false
        }
        Outcome::Done(answer) => {
            own.next_send();
            complete(st, &sender, &wqe, &answer);
            true
        }
        Outcome::Failed(syndrome) => {
            own.next_send();
            if let Some(cq) = &own.send_cq {
                let cqe = Cqe::requester_error(&own, &wqe, syndrome, 0);
                let _ = hca::complete(st, peer.0, cq, &cqe);
            }
            fail(st, peer);
            true
        }
    }
}

/// Flushes one work request of a queue pair in error, the send queue first.
fn flush(st: &mut State, peer: Peer, own: &QueuePair) -> bool {
    if let (Some(wqe), Some(cq)) = (own.next_send(), &own.send_cq) {
        let cqe = Cqe::requester_error(own, &wqe, syndrome::WR_FLUSH_ERR, FLUSH_VENDOR);
        let _ = hca::complete(st, peer.0, cq, &cqe);
        return true;
    }
    responder::flush(st, peer)
}

fn complete(st: &mut State, sender: &Sender, wqe: &SendWqe, answer: &[u8]) {
    let own = &sender.own;
    let (true, Some(cq)) = (wqe.is_signaled(), &own.send_cq) else {
        return;
    };
    let mut cqe = Cqe::requester(own, wqe).with_timestamp(ticks());
    if in_completion(st, sender, answer.len()) {
        cqe = match cq.buffer().entry {
            128 => cqe.scatter_64(answer),
            _ => cqe.scatter_32(answer),
        };
    }
    let _ = hca::complete(st, sender.peer.0, cq, &cqe);
}

/// Whether what came back goes into the completion: as for the receiving side, where all sends are signaled or the
/// program allows it (`configure_requester_scat_cqe` in `mlx5/qp.c`).
fn in_completion(st: &State, sender: &Sender, length: usize) -> bool {
    let own = &sender.own;
    let allows = CreateQpFlags::ALLOW_SCATTER_CQE.0;
    let all = st.devices[sender.peer.0].qps[&sender.peer.1].signal_all;
    let entry = own.send_cq.as_ref().map_or(64, |cq| cq.buffer().entry);
    let room = if entry == 128 { 64 } else { 32 };
    let wants = own.flags & SCATTER_CQE != 0 && (all || own.flags & allows != 0);
    own.qp_type == QpType::RC && wants && length != 0 && length <= room
}

fn gather(st: &State, sender: &Sender, request: &Request) -> Result<Vec<u8>, Nak> {
    if request.length() > MAX_MESSAGE {
        return Err(Nak::Syndrome(syndrome::LOCAL_LENGTH_ERR));
    }
    let mut bytes = Vec::with_capacity(request.length() as usize);
    for piece in &request.data {
        match piece {
            Piece::Inline(inline) => bytes.extend_from_slice(inline),
            Piece::Memory {
                address,
                length,
                key,
            } => {
                let device = &st.devices[sender.peer.0];
                let none = AccessFlags::NONE;
                let found = keys::local(device, sender.pd, *key, *address, (*length).into(), none);
                let read = found.and_then(|memory| memory.read(*length as usize));
                bytes.extend(read.ok_or(Nak::Syndrome(syndrome::LOCAL_PROT_ERR))?);
            }
        }
    }
    Ok(bytes)
}

/// Puts what came back into the list, unless it goes into the completion.
fn scatter_answer(
    st: &State,
    sender: &Sender,
    request: &Request,
    wqe: &SendWqe,
    mut answer: &[u8],
) -> Result<(), Nak> {
    if (answer.len() as u64) > request.length() {
        return Err(Nak::Syndrome(syndrome::LOCAL_LENGTH_ERR));
    }
    if wqe.is_signaled() && in_completion(st, sender, answer.len()) {
        return Ok(());
    }
    for piece in &request.data {
        let Piece::Memory {
            address,
            length,
            key,
        } = piece
        else {
            return Err(Nak::Syndrome(syndrome::LOCAL_QP_OP_ERR));
        };
        let (now, later) = answer.split_at(answer.len().min(*length as usize));
        answer = later;
        let device = &st.devices[sender.peer.0];
        let need = AccessFlags::LOCAL_WRITE;
        let found = keys::local(device, sender.pd, *key, *address, now.len() as u64, need);
        let written = found.and_then(|memory| memory.write(now));
        written.ok_or(Nak::Syndrome(syndrome::LOCAL_PROT_ERR))?;
    }
    Ok(())
}

fn execute(st: &mut State, sender: &Sender, wqe: &SendWqe, waited: Option<Wait>) -> Outcome {
    let own = &sender.own;
    let parsed = wqe::parse(wqe, own.qp_type, sender.is_initiator);
    let Some(request) = parsed.filter(|_| wqe.qpn() == own.qpn && wqe.told_index() == wqe.index)
    else {
        return Outcome::Failed(syndrome::LOCAL_QP_OP_ERR);
    };
    let is_offered = match own.qp_type {
        QpType::UD => matches!(
            request.opcode,
            opcode::NOP | opcode::SEND | opcode::SEND_IMM
        ),
        QpType::RAW_PACKET => {
            matches!(request.opcode, opcode::NOP | opcode::SEND | opcode::TSO)
        }
        QpType::UC => !(opcode::RDMA_READ..=opcode::ATOMIC_MASKED_FA).contains(&request.opcode),
        _ => request.opcode != opcode::TSO,
    };
    if !is_offered {
        return Outcome::Failed(syndrome::LOCAL_QP_OP_ERR);
    }
    let result = match request.opcode {
        opcode::NOP => Ok(Vec::new()),
        opcode::UMR => update_key(st, sender, &request),
        opcode::MMO => copy(st, sender, &request),
        _ => match own.qp_type {
            QpType::UD => datagram::send(st, sender, &request),
            // Onto a wire with nobody at its other end.
            QpType::RAW_PACKET => gather(st, sender, &request).map(|_| Vec::new()),
            _ => transfer(st, sender, &request, wqe),
        },
    };
    let is_reliable = own.qp_type != QpType::UC;
    match result {
        Ok(answer) => Outcome::Done(answer),
        Err(Nak::Syndrome(syndrome)) if is_reliable || is_local(syndrome) => {
            Outcome::Failed(syndrome)
        }
        Err(Nak::Rnr(delay)) if is_reliable => not_ready(st, sender, waited, delay),
        Err(Nak::Drop) if is_reliable => no_answer(st, sender, waited),
        Err(_) => Outcome::Done(Vec::new()),
    }
}

/// Whether the own side found the error, which an unreliable connection reports too.
fn is_local(found: u8) -> bool {
    matches!(
        found,
        syndrome::LOCAL_LENGTH_ERR
            | syndrome::LOCAL_QP_OP_ERR
            | syndrome::LOCAL_PROT_ERR
            | syndrome::MW_BIND_ERR
    )
}

fn update_key(st: &mut State, sender: &Sender, request: &Request) -> Result<Vec<u8>, Nak> {
    let Some(update) = &request.update else {
        return Err(Nak::Syndrome(syndrome::LOCAL_QP_OP_ERR));
    };
    let (index, qpn) = sender.peer;
    match keys::update(&mut st.devices[index], sender.pd, qpn, update) {
        true => Ok(Vec::new()),
        false => Err(Nak::Syndrome(syndrome::MW_BIND_ERR)),
    }
}

/// Copies memory of the own side: from the first piece to the second.
fn copy(st: &mut State, sender: &Sender, request: &Request) -> Result<Vec<u8>, Nak> {
    let failed = Nak::Syndrome(syndrome::LOCAL_PROT_ERR);
    let [
        Piece::Memory {
            address,
            length,
            key,
        },
        Piece::Memory {
            address: to,
            key: to_key,
            ..
        },
    ] = request.data.as_slice()
    else {
        return Err(Nak::Syndrome(syndrome::LOCAL_QP_OP_ERR));
    };
    let device = &st.devices[sender.peer.0];
    let bytes = u64::from(*length);
    let from = keys::local(device, sender.pd, *key, *address, bytes, AccessFlags::NONE);
    let to = keys::local(
        device,
        sender.pd,
        *to_key,
        *to,
        bytes,
        AccessFlags::LOCAL_WRITE,
    );
    let read = from
        .and_then(|memory| memory.read(*length as usize))
        .ok_or(failed)?;
    let written = to.and_then(|memory| memory.write(&read));
    written.map(|()| Vec::new()).ok_or(failed)
}

/// The peer has no receive request: try again `rnr_retry` times, where 7 means for ever.
fn not_ready(st: &State, sender: &Sender, waited: Option<Wait>, delay: Duration) -> Outcome {
    let all = match st.devices[sender.peer.0].qps[&sender.peer.1].attr.rnr_retry {
        7 => None,
        n => Some(u32::from(n)),
    };
    let left = waited
        .filter(|wait| !wait.for_peer)
        .map_or(all, |wait| wait.rnr_left);
    if left == Some(0) {
        return Outcome::Failed(syndrome::RNR_RETRY_EXC_ERR);
    }
    Outcome::Wait(Wait {
        until: Instant::now() + delay,
        rnr_left: left.map(|n| n - 1),
        for_peer: false,
    })
}

/// Nobody answers: the request fails after `retry_cnt` timeouts of 4.096 µs times a power of two
/// (IBTA 9.9.2.1.1; no timeout at all for 0).
fn no_answer(st: &State, sender: &Sender, waited: Option<Wait>) -> Outcome {
    let attr = &st.devices[sender.peer.0].qps[&sender.peer.1].attr;
    if waited.is_some_and(|wait| wait.for_peer) && attr.timeout != 0 {
        return Outcome::Failed(syndrome::TRANSPORT_RETRY_EXC_ERR);
    }
    let timeout = match attr.timeout {
        0 => Duration::from_secs(1),
        exponent => Duration::from_nanos(4096 << exponent),
    };
    Outcome::Wait(Wait {
        until: Instant::now() + timeout * (u32::from(attr.retry_cnt) + 1),
        rnr_left: None,
        for_peer: true,
    })
}

/// Devices that a GID, or on InfiniBand a LID, leads to.
fn devices_at(st: &State, gid: Option<&[u8; 16]>, lid: u16) -> Vec<usize> {
    let is_there = |index: &usize| match (st.config.mlx5.link, gid) {
        (Link::InfiniBand, None) => super::device::lid(*index) == lid,
        (_, Some(gid)) => st.devices[*index].gids.contains(gid),
        (Link::Ethernet, None) => false,
    };
    (0..st.devices.len()).filter(is_there).collect()
}

/// The queue pair at the other end of a connection.
fn find_peer(st: &State, sender: &Sender, request: &Request) -> Option<Peer> {
    let qp = &st.devices[sender.peer.0].qps[&sender.peer.1];
    if let Some(to) = request.destination {
        let gid = (to.has_grh || st.config.mlx5.link == Link::Ethernet).then_some(&to.gid);
        let index = *devices_at(st, gid, to.lid).first()?;
        let target = responder::queue(st, (index, to.qpn))?;
        let is_target = target.flags & CreateQpFlags::TYPE_DCT.0 != 0;
        return (is_target && target.dc_key == to.dc_key).then_some((index, to.qpn));
    }
    let dest = &qp.attr.dest;
    let gid = (dest.is_global != 0).then_some(&dest.dgid);
    let index = *devices_at(st, gid, dest.dlid).first()?;
    let peer = st.devices[index].qps.get(&qp.attr.dest_qp_num)?;
    let matches = match qp.qp_type {
        QpType::XRC_INI => peer.qp_type == QpType::XRC_TGT,
        kind => peer.qp_type == kind,
    };
    let knows_us = peer.attr.dest_qp_num == sender.peer.1;
    (matches && knows_us).then_some((index, qp.attr.dest_qp_num))
}

fn transfer(
    st: &mut State,
    sender: &Sender,
    request: &Request,
    wqe: &SendWqe,
) -> Result<Vec<u8>, Nak> {
    let peer = find_peer(st, sender, request).ok_or(Nak::Drop);
    let message = |received, payload, written| Message {
        received,
        payload,
        written,
        is_solicited: request.is_solicited,
        srqn: request.srqn,
        source: None,
    };
    match (request.opcode, request.remote) {
        (opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL, _) => {
            let received = match request.opcode {
                opcode::SEND => Received::Send,
                opcode::SEND_IMM => Received::SendImm(request.imm),
                _ => Received::SendInv(request.imm),
            };
            let bytes = gather(st, sender, request)?;
            responder::receive(st, peer?, &message(received, bytes, None))?;
            Ok(Vec::new())
        }
        (opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM, Some(to)) => {
            let bytes = gather(st, sender, request)?;
            let peer = peer?;
            let need = AccessFlags::REMOTE_WRITE;
            let length = bytes.len();
            let memory = responder::remote(st, peer, to, length as u64, need)?;
            memory
                .write(&bytes)
                .ok_or(Nak::Syndrome(syndrome::REMOTE_OP_ERR))?;
            if request.opcode == opcode::RDMA_WRITE_IMM {
                let received = Received::WriteImm(request.imm);
                let notice = message(received, Vec::new(), Some(length as u32));
                responder::receive(st, peer, &notice)?;
            }
            Ok(Vec::new())
        }
        (opcode::RDMA_READ, Some(from)) => {
            let length = request.length();
            let need = AccessFlags::REMOTE_READ;
            let memory = responder::remote(st, peer?, from, length, need)?;
            let read = memory.read(length as usize);
            let answer = read.ok_or(Nak::Syndrome(syndrome::REMOTE_OP_ERR))?;
            scatter_answer(st, sender, request, wqe, &answer)?;
            Ok(answer)
        }
        (opcode::ATOMIC_CS..=opcode::ATOMIC_MASKED_FA, Some(at)) => {
            let width = u64::from(request.atomic.width);
            if !at.0.is_multiple_of(width) {
                return Err(Nak::Syndrome(syndrome::REMOTE_INVAL_REQ_ERR));
            }
            let need = AccessFlags::REMOTE_ATOMIC;
            let memory = responder::remote(st, peer?, at, width, need)?;
            let answer = atomic::run(memory, request.opcode, &request.atomic)
                .ok_or(Nak::Syndrome(syndrome::REMOTE_OP_ERR))?;
            scatter_answer(st, sender, request, wqe, &answer)?;
            Ok(answer)
        }
        _ => Err(Nak::Syndrome(syndrome::LOCAL_QP_OP_ERR)),
    }
}

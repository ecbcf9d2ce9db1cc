//! The receiving half of the loopback device.

use std::sync::Arc;
use std::time::Duration;

use uverbs_abi::types::{AccessFlags, EventType, QpState, QpType};

use super::keys::{self, Memory};
use super::wqe::{be32, be64};
use crate::core::objects::QpKind;
use crate::mlx5::hca::cqe::syndrome;
use crate::mlx5::hca::{self, CompletionQueue, Cqe, QueuePair, Received, SharedReceiveQueue};
use crate::rxe::responder::RNR_TIMERS;
use crate::state::State;

/// A queue pair: its device's index and its number.
pub(crate) type Peer = (usize, u32);

/// Why a request was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    /// No receive request is there; try again after this time.
    Rnr(Duration),
    /// The requester completes with this syndrome.
    Syndrome(u8),
    /// No answer.
    Drop,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) lid: u16,
    pub(crate) sl: u8,
    /// Source and destination, where there is a global route header.
    pub(crate) gids: Option<([u8; 16], [u8; 16])>,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) received: Received,
    pub(crate) payload: Vec<u8>,
    /// Bytes that an RDMA write has written before its notice.
    pub(crate) written: Option<u32>,
    pub(crate) is_solicited: bool,
    /// The shared receive queue that an extended connection names.
    pub(crate) srqn: Option<u32>,
    pub(crate) source: Option<Source>,
}

/// Bytes of the header in front of a datagram.
const GRH: usize = 40;
/// `MLX5_INVALID_LKEY`, which ends a list.
const END_KEY: u32 = 0x100;

pub(crate) fn queue(st: &State, (index, qpn): Peer) -> Option<Arc<QueuePair>> {
    match &st.devices[index].qps.get(&qpn)?.kind {
        QpKind::Mlx5(own) => Some(own.clone()),
        QpKind::Rxe(_) => None,
    }
}

/// One element of a scatter list: address, bytes, key.
type Element = (u64, u32, u32);

/// Where receive requests come from.
enum Supply {
    Own(Arc<QueuePair>),
    Shared(Arc<SharedReceiveQueue>),
}

impl Supply {
    fn waiting(&self) -> u16 {
        match self {
            Self::Own(qp) => qp.waiting_recvs(),
            Self::Shared(srq) => srq.waiting(),
        }
    }

    /// Counter and scatter list.
    fn take(&self) -> Option<(u16, Vec<Element>)> {
        let (counter, bytes, skip) = match self {
            Self::Own(qp) => {
                let (counter, bytes) = qp.next_recv()?;
                (counter, bytes, if qp.has_signature { 16 } else { 0 })
            }
            Self::Shared(srq) => {
                let (counter, bytes) = srq.next()?;
                (counter, bytes, if srq.has_signature { 32 } else { 16 })
            }
        };
        let segments = bytes[skip..].chunks_exact(16);
        let list = segments
            .map(|segment| (be64(segment, 8), be32(segment, 0), be32(segment, 4)))
            .take_while(|(_, _, key)| *key != END_KEY)
            .filter(|(_, length, _)| *length != 0)
            .collect();
        Some((counter, list))
    }
}

fn supply(st: &State, peer: Peer, own: &Arc<QueuePair>, srqn: Option<u32>) -> Option<Supply> {
    match (srqn, &own.srq) {
        (Some(srqn), _) => match &st.devices[peer.0].srqs.get(&srqn)?.kind {
            crate::core::objects::SrqKind::Mlx5(srq) => Some(Supply::Shared(srq.clone())),
            crate::core::objects::SrqKind::Rxe(_) => None,
        },
        (None, Some(srq)) => Some(Supply::Shared(srq.clone())),
        (None, None) => Some(Supply::Own(own.clone())),
    }
}

/// Whether the queue pair answers, and to whom.
fn answering(st: &State, peer: Peer) -> Result<Arc<QueuePair>, Nak> {
    let qp = st.devices[peer.0].qps.get(&peer.1).ok_or(Nak::Drop)?;
    match qp.state {
        QpState::RTR | QpState::RTS | QpState::SQD => queue(st, peer).ok_or(Nak::Drop),
        _ => Err(Nak::Drop),
    }
}

/// Delivers a message into a receive request.
pub(crate) fn receive(st: &mut State, peer: Peer, message: &Message) -> Result<(), Nak> {
    let own = answering(st, peer)?;
    let attr = &st.devices[peer.0].qps[&peer.1].attr;
    if let Some(source) = &message.source
        && (own.qp_type != QpType::UD || attr.qkey != source.qkey)
    {
        return Err(Nak::Drop);
    }
    let timer = RNR_TIMERS[usize::from(attr.min_rnr_timer) % RNR_TIMERS.len()];
    let from = supply(st, peer, &own, message.srqn)
        .ok_or(Nak::Syndrome(syndrome::REMOTE_INVAL_REQ_ERR))?;
    if from.waiting() == 0 {
        return Err(Nak::Rnr(Duration::from_micros(u64::from(timer) * 10)));
    }
    let (counter, list) = from.take().ok_or(Nak::Drop)?;
    if let Supply::Shared(srq) = &from {
        hca::check_srq_limit(st, peer.0, srq);
    }
    // Receives of an extended connection complete where its queue does, under that queue's name.
    let (cq, name) = match &from {
        Supply::Shared(srq) if srq.cq.is_some() && own.has_user_index => {
            (srq.cq.clone(), Some(srq.uidx))
        }
        Supply::Shared(srq) if srq.cq.is_some() => (srq.cq.clone(), Some(srq.srqn)),
        _ => (own.recv_cq.clone(), None),
    };
    let Some(cq) = cq else {
        return Err(Nak::Drop);
    };
    let pd = match &from {
        Supply::Shared(srq) => st.devices[peer.0].srqs[&srq.srqn].pd,
        Supply::Own(_) => st.devices[peer.0].qps[&peer.1].pd.unwrap_or(0),
    };
    let mut bytes = Vec::new();
    if let Some(source) = &message.source {
        bytes = header(&source.gids);
    }
    bytes.extend_from_slice(&message.payload);
    if let Received::SendInv(key) = message.received
        && !keys::invalidate(&mut st.devices[peer.0], peer.1, key)
    {
        refuse(st, peer, &own, &cq, counter, syndrome::LOCAL_ACCESS_ERR);
        return Err(Nak::Syndrome(syndrome::REMOTE_ACCESS_ERR));
    }
    let room: u64 = list.iter().map(|(_, length, _)| u64::from(*length)).sum();
    if bytes.len() as u64 > room {
        if own.qp_type == QpType::UD {
            // A datagram that is too long is an error of its receive request only.
            let cqe = Cqe::responder_error(&own, counter, syndrome::LOCAL_LENGTH_ERR, 0);
            let _ = hca::complete(st, peer.0, &cq, &cqe);
            return Ok(());
        }
        refuse(st, peer, &own, &cq, counter, syndrome::LOCAL_LENGTH_ERR);
        return Err(Nak::Syndrome(syndrome::REMOTE_INVAL_REQ_ERR));
    }
    let length = message.written.unwrap_or(bytes.len() as u32);
    let mut cqe = Cqe::responder(&own, message.received, length, counter);
    if let Some(name) = name {
        cqe = cqe.with_user_index(name);
    }
    cqe.is_solicited = message.is_solicited;
    if let Some(source) = &message.source {
        cqe = cqe
            .with_source(u8::from(source.gids.is_some()), source.sl, source.qpn)
            .with_path(source.lid, 0);
    }
    cqe = cqe.with_timestamp(super::ticks());
    let scatters = own.flags & SCATTER_CQE != 0 && !bytes.is_empty();
    if scatters && cq.buffer().entry == 128 && bytes.len() <= 64 {
        cqe = cqe.scatter_64(&bytes);
    } else if scatters && bytes.len() <= 32 && message.source.is_none() {
        // The payload lies over the path fields, which a datagram's completion needs.
        cqe = cqe.scatter_32(&bytes);
    } else if scatter(st, peer.0, pd, &list, &bytes).is_none() {
        refuse(st, peer, &own, &cq, counter, syndrome::LOCAL_PROT_ERR);
        return Err(Nak::Syndrome(syndrome::REMOTE_OP_ERR));
    }
    let _ = hca::complete(st, peer.0, &cq, &cqe);
    Ok(())
}

/// `MLX5_QP_FLAG_SCATTER_CQE`
pub(crate) const SCATTER_CQE: u32 = 1 << 1;

/// The global route header of a datagram, or nothing where it would be.
fn header(gids: &Option<([u8; 16], [u8; 16])>) -> Vec<u8> {
    let mut bytes = vec![0; GRH];
    if let Some((source, destination)) = gids {
        bytes[0] = 0x60;
        bytes[8..24].copy_from_slice(source);
        bytes[24..40].copy_from_slice(destination);
    }
    bytes
}

fn scatter(st: &State, index: usize, pd: u32, list: &[Element], mut bytes: &[u8]) -> Option<()> {
    for (address, length, key) in list {
        let (now, later) = bytes.split_at(bytes.len().min(*length as usize));
        bytes = later;
        if now.is_empty() {
            break;
        }
        let need = AccessFlags::LOCAL_WRITE;
        let device = &st.devices[index];
        keys::local(device, pd, *key, *address, now.len() as u64, need)?.write(now)?;
    }
    Some(())
}

/// A receive request failed, and with it the queue pair.
fn refuse(
    st: &mut State,
    peer: Peer,
    own: &QueuePair,
    cq: &CompletionQueue,
    counter: u16,
    syndrome: u8,
) {
    let cqe = Cqe::responder_error(own, counter, syndrome, 0);
    let _ = hca::complete(st, peer.0, cq, &cqe);
    super::fail(st, peer);
}

/// Memory that a request names with a remote key.
pub(crate) fn remote(
    st: &mut State,
    peer: Peer,
    (address, key): (u64, u32),
    length: u64,
    need: AccessFlags,
) -> Result<Memory, Nak> {
    answering(st, peer)?;
    let qp = &st.devices[peer.0].qps[&peer.1];
    // A target of dynamic or extended connections has the domain of its shared queue.
    let srq = qp.srq.and_then(|srq| st.devices[peer.0].srqs.get(&srq));
    let pd = qp.pd.or(srq.map(|srq| srq.pd));
    let is_target = qp.qp_type == QpType::XRC_TGT;
    let found = if length == 0 {
        Some(Memory::Nowhere)
    } else if is_target {
        let device = &st.devices[peer.0];
        let of_key = device.mrs.get(&(key >> 8)).map(|mr| mr.pd);
        keys::remote(
            device,
            (of_key.unwrap_or(0), peer.1),
            key,
            address,
            length,
            need,
        )
    } else {
        let domain = (pd.unwrap_or(0), peer.1);
        keys::remote(&st.devices[peer.0], domain, key, address, length, need)
    };
    let allows = st.devices[peer.0].qps[&peer.1]
        .attr
        .qp_access_flags
        .contains(need);
    match found.filter(|_| allows || length == 0) {
        Some(memory) => Ok(memory),
        None => {
            st.send_qp_event(peer.0, peer.1, EventType::QP_ACCESS_ERR);
            super::fail(st, peer);
            Err(Nak::Syndrome(syndrome::REMOTE_ACCESS_ERR))
        }
    }
}

/// Flushes one receive request of a queue pair in error. A shared queue is not flushed.
pub(crate) fn flush(st: &mut State, peer: Peer) -> bool {
    let Some(own) = queue(st, peer).filter(|own| own.srq.is_none()) else {
        return false;
    };
    let (Some(cq), Some((counter, _))) = (own.recv_cq.clone(), own.next_recv()) else {
        return false;
    };
    let cqe = Cqe::responder_error(&own, counter, syndrome::WR_FLUSH_ERR, super::FLUSH_VENDOR);
    let _ = hca::complete(st, peer.0, &cq, &cqe);
    true
}

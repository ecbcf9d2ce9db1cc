//! Tag matching (rdma-core `Documentation/tag_matching.md`; the formats are of `infiniband/tm_types.h`).
//!
//! A queue keeps a list of tags, in the order in which they were appended. A message that begins with the header of a tag goes
//! to the buffer of the first that it meets; if it meets none, it goes, with its header, where all messages of a shared
//! receive queue go. The device counts those that met none. The program has looked at as many as it says with its changes of
//! the list; while it has not looked at all, a tag that is appended may be one that a message already missed, and is met by
//! none.
//!
//! What a message that is longer than its tag's buffer does to a real device is not known; here it ends the connection.

use wqe_format::mlx5::{Opcode, Syndrome, TagSegment, tag_operation};

use super::receive::{self, Nothing, Taken};
use super::work::{Piece, Request};
use super::{complete, timestamp};
use crate::completion::Cqe;
use crate::completion::cqe::{Owner, Received, Tagged};
use crate::device::Device;
use crate::resources::{QpKind, Receive, SrqKind};
use crate::wire::{Packet, op};

/// Bytes of the header of a tagged message (`struct ibv_tmh`): what it is, 3 bytes, data of the program's, the tag.
pub(super) const HEADER: usize = 16;
/// Bytes of both headers of a message that is to be read (`struct ibv_rvh` follows): address, key, length.
const RENDEZVOUS: usize = 32;
/// `enum ibv_tmh_op`.
const RNDV: u8 = 1;
const FIN: u8 = 2;
const EAGER: u8 = 3;
/// `MLX5_XRQC_OFFLOAD_RNDV`.
const OFFLOAD_RENDEZVOUS: u8 = 1;
/// The key that ends a scatter list (`MLX5_INVALID_LKEY`).
const NO_KEY: u32 = 0x100;

/// Which tag a message met whose data come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    srqn: u32,
    index: u16,
}

/// A tag of the list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    index: u16,
    tag: u64,
    mask: u64,
    /// Key, address, length.
    buffer: (u32, u64, u64),
    /// Whether messages meet it.
    armed: bool,
}

/// A queue's list of tags.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    list: Vec<Entry>,
    /// As many as fit.
    most: usize,
    /// Where the next one goes.
    next: u16,
    /// Messages that met none; those of them that the program has looked at.
    phase: u16,
    told: u16,
    /// Whether the device reads the messages that only announce themselves.
    reads: bool,
}

impl Tags {
    pub(crate) fn new(log_most: u8, offload: u8) -> Self {
        Self {
            most: 1 << log_most.min(16),
            reads: offload == OFFLOAD_RENDEZVOUS,
            ..Self::default()
        }
    }

    pub(crate) fn next_index(&self) -> u16 {
        self.next
    }

    pub(crate) fn told(&self) -> u16 {
        self.told
    }

    pub(crate) fn phase(&self) -> u16 {
        self.phase
    }

    fn append(&mut self, segment: &TagSegment, buffer: (u32, u64, u64)) -> bool {
        let index = self.next;
        let following = segment.index.get();
        let is_free = |index| self.list.iter().all(|entry| entry.index != index);
        if !is_free(index) || usize::from(index.max(following)) >= self.most {
            return false;
        }
        self.list.push(Entry {
            index,
            tag: segment.append_tag.get(),
            mask: segment.append_mask.get(),
            buffer,
            armed: self.told == self.phase,
        });
        self.next = following;
        true
    }

    /// The first that a message meets leaves the list.
    fn meet(&mut self, tag: u64) -> Option<Entry> {
        let is_met = |entry: &Entry| entry.armed && tag & entry.mask == entry.tag;
        let place = self.list.iter().position(is_met)?;
        Some(self.list.remove(place))
    }
}

/// A tag that a message met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    srqn: u32,
    index: u16,
    /// What the message began with.
    header: [u8; RENDEZVOUS],
    /// Which of its bytes are in front of the data: none are left out of what is for the program to read.
    pub(super) skip: u64,
    operation: u8,
}

/// A change of a list, posted to a queue pair of its queue's.
pub(super) fn change(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let Receive::Shared { srqn, .. } = qp.receive else {
        return Err(wrong);
    };
    let segment = request.tag.ok_or(wrong)?;
    let srq = device.resources.srqs.get_mut(srqn).ok_or(wrong)?;
    if srq.kind != SrqKind::Tag {
        return Err(wrong);
    }
    let (cqn, user_index) = (srq.cqn, srq.user_index);
    let tags = &mut srq.data.tags;
    if segment.flags & TagSegment::SW_CNT != 0 {
        tags.told = segment.sw_cnt.get();
        if tags.told == tags.phase {
            tags.list.iter_mut().for_each(|entry| entry.armed = true);
        }
    }
    let (operation, success) = match segment.opcode {
        TagSegment::NOP => (tag_operation::NOOP, true),
        TagSegment::APPEND => {
            let buffer = match request.data.as_slice() {
                [Piece::Memory { key, va, len }] if *key != NO_KEY => (*key, *va, *len),
                [] | [_] => (0, 0, 0),
                _ => return Err(wrong),
            };
            if !tags.append(&segment, buffer) {
                return Err(wrong);
            }
            (tag_operation::APPEND, true)
        }
        TagSegment::REMOVE => {
            let index = segment.index.get();
            let before = tags.list.len();
            tags.list.retain(|entry| entry.index != index);
            (tag_operation::REMOVE, tags.list.len() != before)
        }
        _ => return Err(wrong),
    };
    if segment.flags & TagSegment::CQE_REQ != 0 {
        let phase = tags.phase;
        let owner = Owner {
            qpn,
            user_index,
            counter: 0,
        };
        let cqe = Cqe::changed(owner, operation, success, phase, timestamp(device));
        complete(device, qpn, cqn, &cqe);
    }
    Ok(())
}

/// The number of the queue with tags that a queue pair receives from.
fn queue(device: &Device, qpn: u32) -> Option<u32> {
    let qp = device.resources.qps.get(qpn)?;
    let (QpKind::Rc, Receive::Shared { srqn, .. }) = (qp.kind, &qp.receive) else {
        return None;
    };
    let srq = device.resources.srqs.get(*srqn)?;
    (srq.kind == SrqKind::Tag).then_some(*srqn)
}

/// Where a message goes whose first packet came, if its queue pair's queue has tags.
pub(super) fn take(
    device: &mut Device,
    qpn: u32,
    packet: &Packet,
) -> Option<Result<Taken, Nothing>> {
    if !op::is_send(packet.bth.op()) {
        return None;
    }
    let srqn = queue(device, qpn)?;
    let head = packet.payload.first_chunk::<HEADER>();
    let kind = head.map(|head| head[0]);
    let tag = head.and_then(|head| head.last_chunk::<8>());
    let tag = tag.map(|tag| u64::from_be_bytes(*tag));
    let who = device.resources.qps.get(qpn)?.who();
    let srq = device.resources.srqs.get_mut(srqn)?;
    let (cqn, user_index) = (srq.cqn, srq.user_index);
    let tags = &mut srq.data.tags;
    let is_announced = kind == Some(RNDV) && tags.reads;
    let is_tagged = kind == Some(EAGER) || is_announced;
    // An announcement must be whole, and in one packet.
    let is_short =
        is_announced && (packet.payload.len() < RENDEZVOUS || !op::ends(packet.bth.op()));
    let entry = tag
        .filter(|_| is_tagged && !is_short)
        .and_then(|tag| tags.meet(tag));
    let Some(entry) = entry else {
        let taken = receive::take(device, qpn, None);
        return Some(taken.map(|mut taken| {
            let operation = match is_tagged {
                true => tag_operation::UNEXPECTED,
                false => tag_operation::NO_TAG,
            };
            if is_tagged && let Some(srq) = device.resources.srqs.get_mut(srqn) {
                let phase = &mut srq.data.tags.phase;
                *phase = phase.wrapping_add(1);
            }
            taken.tagged = Some(Tagged {
                operation,
                index: 0,
                header: None,
            });
            taken
        }));
    };
    let mut header = [0; RENDEZVOUS];
    let known = packet.payload.len().min(RENDEZVOUS);
    header[..known].copy_from_slice(&packet.payload[..known]);
    let (_, _, room) = entry.buffer;
    let fits = length_of(&header) <= room;
    let operation = match (is_announced, fits) {
        (false, _) if op::ends(packet.bth.op()) => tag_operation::CONSUMED_MSG,
        (false, _) | (true, true) => tag_operation::CONSUMED,
        // The program reads it: it finds the headers in its buffer.
        (true, false) => tag_operation::CONSUMED_MSG_SW_RNDV,
    };
    let owner = Owner {
        qpn,
        user_index,
        counter: 0,
    };
    let list = match room {
        0 => Vec::new(),
        _ => vec![(entry.buffer.0, entry.buffer.1, room)],
    };
    let mut taken = Taken::of(&device.resources, cqn, owner, who, list);
    taken.tagged = Some(Tagged {
        operation,
        index: entry.index,
        header: header.first_chunk().copied(),
    });
    taken.met = Some(Met {
        srqn,
        index: entry.index,
        header,
        skip: match operation {
            tag_operation::CONSUMED_MSG_SW_RNDV => 0,
            _ => HEADER as u64,
        },
        operation,
    });
    Some(Ok(taken))
}

/// Length of an announced message.
fn length_of(header: &[u8; RENDEZVOUS]) -> u64 {
    header
        .last_chunk()
        .map_or(0, |len| u32::from_be_bytes(*len).into())
}

impl Met {
    /// Whether the message is only announced, and the device reads it.
    pub(super) fn is_announced(&self) -> bool {
        self.header[0] == RNDV && self.operation == tag_operation::CONSUMED
    }

    /// What the completion of its data is about.
    pub(super) fn own(&self) -> Own {
        Own {
            srqn: self.srqn,
            index: self.index,
        }
    }

    /// Whether the program reads the message, and finds the headers in its buffer.
    pub(super) fn is_left(&self) -> bool {
        self.operation == tag_operation::CONSUMED_MSG_SW_RNDV
    }

    /// Whether a message of several packets.
    pub(super) fn is_several(&self) -> bool {
        self.header[0] == EAGER && self.operation == tag_operation::CONSUMED
    }
}

/// An announced message met a tag: it is read, and then its sender is told.
pub(super) fn read(device: &mut Device, qpn: u32, met: &Met, taken: &Taken) {
    let word = |at: usize| {
        let bytes = met.header[at..].first_chunk().copied();
        bytes.map_or(0, u32::from_be_bytes)
    };
    let address = u64::from(word(16)) << 32 | u64::from(word(20));
    let length = length_of(&met.header);
    let data = taken.pieces(length);
    let mut fin = met.header;
    fin[0] = FIN;
    let requests = [
        Request {
            remote: Some((address, word(24))),
            data,
            ..Request::own(Opcode::RDMA_READ)
        },
        Request {
            data: vec![Piece::Inline(fin.to_vec())],
            ..Request::own(Opcode::SEND)
        },
    ];
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return;
    };
    let [read, tell] = requests;
    let queue = &mut qp.data.requester.own;
    queue.push_back((read, Some(met.own())));
    queue.push_back((tell, None));
    device.transport.active.insert(qpn);
}

/// All of a message is there that met a tag before, of so many bytes; or it will not be.
pub(super) fn done(device: &mut Device, qpn: u32, own: Own, length: Option<u64>) {
    let time = timestamp(device);
    let Some(srq) = device.resources.srqs.get(own.srqn) else {
        return;
    };
    let (cqn, user_index) = (srq.cqn, srq.user_index);
    let owner = Owner {
        qpn,
        user_index,
        counter: 0,
    };
    let tagged = Tagged {
        operation: match length {
            Some(_) => tag_operation::EXPECTED,
            None => tag_operation::MSG_COMPLETION_CANCELED,
        },
        index: own.index,
        header: None,
    };
    let length = length.unwrap_or(0) as u32;
    let cqe = Cqe::received(owner, Received::Send, length, None, time).tagged(&tagged);
    complete(device, qpn, cqn, &cqe);
}

/// A message that met a tag cannot be received.
pub(super) fn cancel(device: &mut Device, qpn: u32, met: &Met) {
    done(device, qpn, met.own(), None);
}

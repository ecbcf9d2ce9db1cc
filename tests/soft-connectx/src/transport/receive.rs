//! Receive work requests: of a queue pair's own ring, and of the linked lists of shared queues.

use wqe_format::mlx5::{RecvSignatureSegment, SrqNextSegment, request::scatter_list};

use wqe_format::mlx5::firmware::EventType;

use super::tags::{Met, Tags};
use super::work::Piece;
use crate::adversary::Freedom;
use crate::checks;
use crate::completion::cqe::{Owner, Tagged};
use crate::device::Device;
use crate::events;
use crate::memory::{self, Fault, Right, Who, signature};
use crate::resources::{Receive, Resources, Ring, SrqKind};

/// Longest receive request that is read.
const MAX_SLOT: usize = 1 << 12;

/// What the data path keeps for a shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct SrqData {
    /// Requests taken, counted over and over.
    taken: u16,
    /// Index of the next one: the list begins at 0.
    next: u16,
    /// Of a queue with tags.
    pub(crate) tags: Tags,
}

impl SrqData {
    /// Of a queue with tags.
    pub(crate) fn with_tags(tags: Tags) -> Self {
        Self {
            tags,
            ..Self::default()
        }
    }
}

/// A request that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) cqn: u32,
    pub(super) owner: Owner,
    pub(super) who: Who,
    /// Key, address, length.
    list: Vec<(u32, u64, u64)>,
    /// What its completion says of tags.
    pub(super) tagged: Option<Tagged>,
    /// The tag whose buffer it is.
    pub(super) met: Option<Met>,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nothing {
    /// None is posted.
    Empty,
    /// There is no queue, or its memory is not there.
    Broken,
}

impl Taken {
    /// Buffers of keys whose data have signatures on the wire are counted with those.
    pub(super) fn of(
        resources: &Resources,
        cqn: u32,
        owner: Owner,
        who: Who,
        mut list: Vec<(u32, u64, u64)>,
    ) -> Self {
        for (key, va, len) in &mut list {
            signature::on_wire(resources, *key, va, len);
        }
        Self {
            cqn,
            owner,
            who,
            list,
            tagged: None,
            met: None,
        }
    }

    /// So many bytes of its buffers, for what the device requests by itself.
    pub(super) fn pieces(&self, len: u64) -> Vec<Piece> {
        let mut left = len;
        let pieces = self.list.iter().map(|(key, va, room)| {
            let len = left.min(*room);
            left -= len;
            Piece::Memory {
                key: *key,
                va: *va,
                len,
            }
        });
        pieces.collect()
    }

    /// Bytes it has room for.
    pub(super) fn room(&self) -> u64 {
        self.list.iter().map(|(_, _, len)| len).sum()
    }

    /// Writes into its buffers, from `offset` on.
    pub(super) fn scatter(&self, device: &Device, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (mut skip, mut rest) = (offset, bytes);
        for (key, va, len) in &self.list {
            if rest.is_empty() {
                break;
            }
            let skipped = skip.min(*len);
            skip -= skipped;
            let here = usize::try_from(len - skipped).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(here));
            rest = later;
            if !now.is_empty() {
                let to = (*key, va.wrapping_add(skipped));
                memory::write(device, &self.who, to, Right::LocalWrite, now)?;
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Fault::Bounds)
        }
    }
}

fn counter(device: &Device, dbr: u64) -> Result<u16, Nothing> {
    let mut word = [0; 4];
    let read = device.memory.read(dbr, &mut word);
    read.map_err(|_| Nothing::Broken)?;
    Ok(u32::from_be_bytes(word) as u16)
}

fn slot(device: &Device, ring: &Ring, index: u16) -> Result<Vec<u8>, Nothing> {
    let mut bytes = vec![0; MAX_SLOT.min(1 << ring.log_stride.min(31))];
    let read = ring.read(device.memory.as_ref(), index.into(), &mut bytes);
    read.map_err(|_| Nothing::Broken)?;
    Ok(bytes)
}

fn list(slot: &[u8], skip: usize) -> Vec<(u32, u64, u64)> {
    scatter_list(slot.get(skip..).unwrap_or_default())
        .map(|it| {
            let len = match it.byte_count.get() & 0x7fff_ffff {
                0 => 1 << 31,
                len => len.into(),
            };
            (it.lkey.get(), it.addr.get(), len)
        })
        .collect()
}

/// Takes the next request of a queue pair. An XRC target's packet says from which shared queue.
pub(super) fn take(device: &mut Device, qpn: u32, xrc_srq: Option<u32>) -> Result<Taken, Nothing> {
    let qp = device.resources.qps.get(qpn).ok_or(Nothing::Broken)?;
    let owner = Owner {
        qpn,
        user_index: qp.user_index,
        counter: 0,
    };
    let who = Who {
        pd: qp.pd,
        qpn,
        reserved_lkey: qp.reserved_lkey,
    };
    match (xrc_srq, &qp.receive) {
        (Some(srqn), _) => {
            let srq = device.resources.srqs.get(srqn).ok_or(Nothing::Broken)?;
            // The target's domain says which queues it may be told of (IBTA annex 14).
            if srq.kind != SrqKind::Xrc || srq.xrcd != qp.xrcd {
                return Err(Nothing::Broken);
            }
            let owner = Owner {
                user_index: srq.user_index,
                ..owner
            };
            let cqn = srq.cqn;
            take_shared(device, srqn, cqn, owner, who)
        }
        (None, Receive::Shared { srqn, cqn }) => {
            let (srqn, mut cqn, mut owner) = (*srqn, *cqn, owner);
            // A queue with tags tells of all its messages itself.
            if let Some(srq) = device.resources.srqs.get(srqn)
                && srq.kind == SrqKind::Tag
            {
                cqn = srq.cqn;
                owner.user_index = srq.user_index;
            }
            take_shared(device, srqn, cqn, owner, who)
        }
        (None, Receive::Ring { ring, cqn }) => {
            let taken = qp.data.received;
            let record = counter(device, qp.dbr)?;
            let posted = record.wrapping_sub(taken);
            if posted == 0 {
                return Err(Nothing::Empty);
            }
            if u32::from(posted) > 1 << ring.log_size.min(16) {
                let fault = checks::Fault::ReceiveRingOverrun {
                    qpn,
                    record,
                    next: taken,
                };
                checks::report(device, fault);
            }
            let skip = if qp.strides.is_some() {
                size_of::<SrqNextSegment>()
            } else if qp.signature {
                size_of::<RecvSignatureSegment>()
            } else {
                0
            };
            let is_linked = qp.strides.is_some_and(|strides| strides.linked);
            let index = if is_linked { qp.data.linked } else { taken };
            let bytes = match qp.data.prefetched.front() {
                Some(bytes) => bytes.clone(),
                None => slot(device, ring, index)?,
            };
            let owner = Owner {
                counter: index,
                ..owner
            };
            let it = Taken::of(&device.resources, *cqn, owner, who, list(&bytes, skip));
            let qp = device.resources.qps.get_mut(qpn).ok_or(Nothing::Broken)?;
            qp.data.received = taken.wrapping_add(1);
            if is_linked {
                qp.data.linked = u16::from_be_bytes([bytes[2], bytes[3]]);
                return Ok(it);
            }
            qp.data.prefetched.pop_front();
            prefetch(device, qpn);
            Ok(it)
        }
        (None, Receive::None) => Err(Nothing::Broken),
    }
}

/// Perhaps fetches requests that are posted, long before their packets come.
fn prefetch(device: &mut Device, qpn: u32) {
    const MOST: u64 = 8;
    let wanted = device.adversary.choose(Freedom::Prefetch, MOST + 1);
    loop {
        let Some(qp) = device.resources.qps.get(qpn) else {
            return;
        };
        let Receive::Ring { ring, .. } = &qp.receive else {
            return;
        };
        let ahead = qp.data.prefetched.len() as u16;
        let index = qp.data.received.wrapping_add(ahead);
        let posted = counter(device, qp.dbr).unwrap_or(index);
        if u64::from(ahead) >= wanted || posted == index {
            return;
        }
        let Ok(bytes) = slot(device, ring, index) else {
            return;
        };
        if let Some(qp) = device.resources.qps.get_mut(qpn) {
            qp.data.prefetched.push_back(bytes);
        }
    }
}

fn take_shared(
    device: &mut Device,
    srqn: u32,
    cqn: u32,
    owner: Owner,
    who: Who,
) -> Result<Taken, Nothing> {
    let srq = device.resources.srqs.get(srqn).ok_or(Nothing::Broken)?;
    if srq.error {
        return Err(Nothing::Broken);
    }
    let posted = counter(device, srq.dbr)?;
    let left = posted.wrapping_sub(srq.data.taken);
    if left == 0 {
        return Err(Nothing::Empty);
    }
    let index = srq.data.next;
    let bytes = slot(device, &srq.ring, index)?;
    let next = u16::from_be_bytes([bytes[2], bytes[3]]);
    let owner = Owner {
        counter: index,
        ..owner
    };
    let who = Who { pd: srq.pd, ..who };
    let list = list(&bytes, size_of::<SrqNextSegment>());
    let it = Taken::of(&device.resources, cqn, owner, who, list);
    let limit = srq.limit;
    let srq = device.resources.srqs.get_mut(srqn).ok_or(Nothing::Broken)?;
    srq.data.next = next;
    srq.data.taken = srq.data.taken.wrapping_add(1);
    if limit != 0 && left - 1 < limit {
        srq.limit = 0;
        events::queue(device, EventType::SRQ_RQ_LIMIT, srqn, 1);
    }
    Ok(it)
}

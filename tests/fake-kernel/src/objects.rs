//! What the kernel keeps of each object.

use std::collections::BTreeMap;

use uverbs_abi::types::{AccessFlags, MwType, QpCap, QpState, QpType};
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::qp::ModifyQp;

use crate::ring::Ring;

/// Number of an [`EventFile`](crate::event::EventFile) in the state; descriptors are used again, these are not.
pub(crate) type FileId = u64;

/// What a handle of a context stands for, with the object's number in its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Pd(u32),
    Mr(u32),
    Mw(u32),
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Ah(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Pd {
    pub(crate) users: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Mr {
    pub(crate) pd: u32,
    pub(crate) key: u32,
    /// Address in the program.
    pub(crate) start: u64,
    /// Address that work requests name.
    pub(crate) iova: u64,
    pub(crate) length: u64,
    pub(crate) access: AccessFlags,
    /// Memory windows bound to it.
    pub(crate) windows: u32,
    /// `false` after an invalidation.
    pub(crate) valid: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Mw {
    pub(crate) pd: u32,
    pub(crate) mw_type: MwType,
    pub(crate) key: u32,
    pub(crate) bound: Option<Bound>,
}

/// What a memory window is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) mr: u32,
    pub(crate) qp: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: AccessFlags,
}

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) ring: Ring,
    pub(crate) cqe: u32,
    pub(crate) user_handle: u64,
    pub(crate) channel: Option<FileId>,
    pub(crate) async_file: Option<FileId>,
    pub(crate) armed: Armed,
    pub(crate) users: u32,
    pub(crate) completion_events: u32,
    pub(crate) async_events: u32,
}

/// What a completion queue waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) next: bool,
    pub(crate) solicited: bool,
}

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) ring: Ring,
    pub(crate) pd: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<FileId>,
    pub(crate) users: u32,
    pub(crate) async_events: u32,
}

#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) pd: u32,
    pub(crate) attr: AhAttr,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qp_type: QpType,
    pub(crate) state: QpState,
    pub(crate) pd: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
    pub(crate) send: Ring,
    pub(crate) recv: Option<Ring>,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<FileId>,
    pub(crate) async_events: u32,
    pub(crate) groups: u32,
    /// Attributes as the last modify left them.
    pub(crate) attr: ModifyQp,
    pub(crate) wait: Option<Wait>,
}

/// Why a send queue stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: std::time::Instant,
    /// Retries left; 7 in the attribute means for ever (`None`).
    pub(crate) rnr_left: Option<u32>,
    /// Waiting for a peer that does not answer, not for one that has no receive request.
    pub(crate) for_peer: bool,
}

/// A device and everything in it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// Where the next queue can be mapped; for all contexts, as in rxe.
    pub(crate) next_offset: u64,
    pub(crate) next_qpn: u32,
    pub(crate) next_number: u32,
    pub(crate) key: u8,
    pub(crate) gids: Vec<[u8; 16]>,
    pub(crate) pds: BTreeMap<u32, Pd>,
    pub(crate) mrs: BTreeMap<u32, Mr>,
    pub(crate) mws: BTreeMap<u32, Mw>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    pub(crate) srqs: BTreeMap<u32, Srq>,
    pub(crate) ahs: BTreeMap<u32, Ah>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) groups: BTreeMap<[u8; 16], Vec<u32>>,
}

impl Device {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            name: format!("rxe{index}"),
            next_offset: crate::ring::PAGE as u64,
            // 16 is the least number, and the kernel's own GSI queue pair takes it.
            next_qpn: 17,
            next_number: 1,
            key: 0x5a,
            gids: crate::device::gids(index),
            pds: BTreeMap::new(),
            mrs: BTreeMap::new(),
            mws: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            ahs: BTreeMap::new(),
            qps: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// A number that no object of the device has.
    pub(crate) fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// A key for an object with that number; the low byte changes from key to key.
    pub(crate) fn key(&mut self, number: u32) -> u32 {
        self.key = self.key.wrapping_mul(5).wrapping_add(0x3b);
        (number << 8) | u32::from(self.key)
    }
}

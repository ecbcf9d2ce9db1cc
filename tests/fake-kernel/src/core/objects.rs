//! What the kernel keeps of each object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uverbs_abi::types::{AccessFlags, MwType, QpCap, QpState, QpType};
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::qp::ModifyQp;

use crate::config::{Config, Family};
use crate::core::create::NewSrq;
use crate::mlx5;
use crate::mlx5::hca;
use crate::raw::{Mapping, PAGE};
use crate::rxe;
use crate::rxe::ring::Ring;

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
    Uar(u32),
    Xrcd(u32),
    /// A queue pair of an XRC domain, opened by its number.
    OpenedQp(u32),
    Wq(u32),
    IndTable(u32),
    Flow(u32),
    Dm(u32),
    Counters(u32),
    /// One of mlx5's own, by the number of its kind.
    Driver(u16),
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
    /// Keeps this side's mapping, of memory that is not the program's own.
    #[allow(dead_code, reason = "`start` points into it")]
    pub(crate) mapping: Option<Arc<Mapping>>,
    /// Device memory that it covers.
    pub(crate) dm: Option<u32>,
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
    pub(crate) kind: CqKind,
    pub(crate) cqe: u32,
    pub(crate) user_handle: u64,
    pub(crate) channel: Option<FileId>,
    pub(crate) async_file: Option<FileId>,
    pub(crate) users: u32,
    pub(crate) completion_events: u32,
    pub(crate) async_events: u32,
    /// Completions and microseconds until an event, as the program set them.
    pub(crate) moderation: (u16, u16),
}

/// A completion queue as its family has it.
#[derive(Debug)]
pub(crate) enum CqKind {
    Rxe(rxe::Cq),
    Mlx5(Arc<hca::CompletionQueue>),
}

impl Cq {
    pub(crate) fn rxe(&mut self) -> Option<&mut rxe::Cq> {
        match &mut self.kind {
            CqKind::Rxe(cq) => Some(cq),
            CqKind::Mlx5(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) kind: SrqKind,
    pub(crate) pd: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<FileId>,
    pub(crate) users: u32,
    pub(crate) async_events: u32,
    pub(crate) xrcd: Option<u32>,
    pub(crate) cq: Option<u32>,
}

impl Srq {
    /// Without protection domain and event file, which the core adds.
    pub(crate) fn new(kind: SrqKind, new: &NewSrq, max_wr: u32, max_sge: u32) -> Self {
        Self {
            kind,
            pd: 0,
            max_wr,
            max_sge,
            limit: new.limit,
            user_handle: new.user_handle,
            async_file: None,
            users: 0,
            async_events: 0,
            xrcd: None,
            cq: None,
        }
    }
}

/// A shared receive queue as its family has it.
#[derive(Debug)]
pub(crate) enum SrqKind {
    Rxe(Ring),
    Mlx5(Arc<hca::SharedReceiveQueue>),
}

impl Srq {
    pub(crate) fn rxe(&mut self) -> Option<&mut Ring> {
        match &mut self.kind {
            SrqKind::Rxe(ring) => Some(ring),
            SrqKind::Mlx5(_) => None,
        }
    }
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
    /// `None` for a receiver of extended reliable connections.
    pub(crate) pd: Option<u32>,
    pub(crate) send_cq: Option<u32>,
    pub(crate) recv_cq: Option<u32>,
    pub(crate) srq: Option<u32>,
    pub(crate) kind: QpKind,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<FileId>,
    pub(crate) async_events: u32,
    pub(crate) groups: u32,
    /// Flow steering rules that lead to it.
    pub(crate) flows: u32,
    /// Handles: more than one where others opened it by its number.
    pub(crate) opens: u32,
    /// The XRC domain of a target.
    pub(crate) xrcd: Option<u32>,
    pub(crate) ind_table: Option<u32>,
    /// Attributes as the last modify left them.
    pub(crate) attr: ModifyQp,
}

/// A queue pair as its family has it.
#[derive(Debug)]
pub(crate) enum QpKind {
    Rxe(rxe::Qp),
    Mlx5(Arc<hca::QueuePair>),
}

impl Qp {
    pub(crate) fn rxe(&mut self) -> Option<&mut rxe::Qp> {
        match &mut self.kind {
            QpKind::Rxe(qp) => Some(qp),
            QpKind::Mlx5(_) => None,
        }
    }
}

/// An XRC domain.
#[derive(Debug, Default)]
pub(crate) struct Xrcd {
    /// The file that names it.
    pub(crate) inode: Option<u64>,
    /// Handles.
    pub(crate) opens: u32,
    /// Queues in it.
    pub(crate) users: u32,
}

/// A receive work queue; what the device sees of it is a queue pair that only receives.
#[derive(Debug)]
pub(crate) struct Wq {
    pub(crate) queue: Arc<hca::QueuePair>,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<FileId>,
    pub(crate) async_events: u32,
    /// `enum ib_uverbs_wq_state` without a name: 0 reset, 1 ready, 2 error.
    pub(crate) state: u32,
    /// Indirection tables that name it.
    pub(crate) users: u32,
}

#[derive(Debug)]
pub(crate) struct IndTable {
    pub(crate) wqs: Vec<u32>,
    pub(crate) users: u32,
}

/// A flow steering rule.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) qp: u32,
}

/// Device memory.
#[derive(Debug)]
pub(crate) struct Dm {
    pub(crate) length: u64,
    pub(crate) page: u32,
    pub(crate) mapping: Arc<Mapping>,
    /// Memory regions in it.
    pub(crate) users: u32,
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
    pub(crate) xrcds: BTreeMap<u32, Xrcd>,
    pub(crate) wqs: BTreeMap<u32, Wq>,
    pub(crate) ind_tables: BTreeMap<u32, IndTable>,
    pub(crate) flows: BTreeMap<u32, Flow>,
    pub(crate) dms: BTreeMap<u32, Dm>,
    pub(crate) counters: BTreeSet<u32>,
    pub(crate) mlx5: mlx5::DeviceState,
}

impl Device {
    pub(crate) fn new(index: usize, config: &Config) -> Self {
        Self {
            name: match config.family {
                Family::Rxe => format!("rxe{index}"),
                Family::Mlx5 => format!("mlx5_{index}"),
            },
            next_offset: PAGE as u64,
            // 16 is the least number, and the kernel's own GSI queue pair takes it.
            next_qpn: 17,
            next_number: 1,
            key: 0x5a,
            gids: match config.family {
                Family::Rxe => rxe::device::gids(index),
                Family::Mlx5 => mlx5::device::gids(index, config.mlx5.link),
            },
            mlx5: mlx5::DeviceState::default(),
            pds: BTreeMap::new(),
            mrs: BTreeMap::new(),
            mws: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            ahs: BTreeMap::new(),
            qps: BTreeMap::new(),
            groups: BTreeMap::new(),
            xrcds: BTreeMap::new(),
            wqs: BTreeMap::new(),
            ind_tables: BTreeMap::new(),
            flows: BTreeMap::new(),
            dms: BTreeMap::new(),
            counters: BTreeSet::new(),
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

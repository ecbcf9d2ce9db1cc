//! What commands create.
//!
//! A resource keeps its context as bytes, as the driver wrote it and as a query answers it, and
//! beside it, parsed, what the data path reads.

pub(crate) mod buffer;
mod cq;
mod domains;
mod eq;
pub(crate) mod flow;
mod mkey;
mod qp;
mod srq;
mod steering;
mod table;

pub(crate) use buffer::{Buffer, Ring};
pub(crate) use cq::Cq;
pub(crate) use domains::{Counter, Pd, Psv, ReservedQpns, TransportDomain, Uar, Uctx, Umem, Xrcd};
pub(crate) use eq::Eq;
pub(crate) use flow::{
    Destination, Flow, FlowCounter, FlowEntry, FlowGroup, FlowTable, MATCH_LEN, Steered,
};
pub(crate) use mkey::{AccessMode, Mkey};
#[cfg(test)]
pub(crate) use qp::Rights;
pub(crate) use qp::{Path, Qp, QpKind, QpState, Receive, RequesterLimits, Send, Strides};
pub(crate) use srq::{Srq, SrqKind};
pub(crate) use steering::{Dispatch, Rqt, Steering, Tir, Tis};
pub(crate) use table::Table;

use std::collections::BTreeMap;

use crate::adversary::{Adversary, Freedom};
use crate::config::Config;

/// A rate that send queues are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) kbits: u32,
    /// Bytes that may be sent at once after a pause.
    pub(crate) burst: u32,
}

/// All resources of the device.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) uars: Table<Uar>,
    pub(crate) uctxs: Table<Uctx>,
    pub(crate) umems: Table<Umem>,
    pub(crate) reserved_qpns: Table<ReservedQpns>,
    pub(crate) pds: Table<Pd>,
    pub(crate) psvs: Table<Psv>,
    pub(crate) xrcds: Table<Xrcd>,
    pub(crate) transport_domains: Table<TransportDomain>,
    pub(crate) counters: Table<Counter>,
    pub(crate) eqs: Table<Eq>,
    pub(crate) cqs: Table<Cq>,
    /// Queue pairs, DC targets, and the send queues of raw Ethernet, which share numbers.
    pub(crate) qps: Table<Qp>,
    /// SRQs, RMPs and XRC SRQs share numbers.
    pub(crate) srqs: Table<Srq>,
    pub(crate) steering: Steering,
    pub(crate) flow: Flow,
    /// Entries of the table of rates that are set.
    pub(crate) rates: BTreeMap<u16, Rate>,
    /// By index: the key without its lowest byte.
    pub(crate) mkeys: Table<Mkey>,
}

impl Resources {
    pub(crate) fn new(config: &Config) -> Resources {
        // Few doorbell pages are as good as many, for software that asks whether there is one left.
        let first = crate::uar::FIRST_USABLE;
        let last = Adversary::new(config.adversary).pick(
            Freedom::Pages,
            [crate::uar::LAST_PAGE, first + 96, first + 48],
        );
        Resources {
            uars: Table::new(first, last),
            uctxs: Table::new(1, 1 << 10),
            umems: Table::new(1, 1 << 16),
            reserved_qpns: Table::new(0, 1023),
            pds: Table::new(1, 1 << 20),
            psvs: Table::new(1, 1 << 16),
            xrcds: Table::new(1, 1 << 16),
            transport_domains: Table::new(1, 1 << 16),
            counters: Table::new(1, 254),
            eqs: Table::new(0, 254),
            cqs: Table::new(0x400, 0x400 + (1 << 16)),
            // Numbers below 0x40 are special (IBTA 3.5.10; log_max_qp counts from there).
            qps: Table::new(0x40, 0x40 + (1 << 17)),
            srqs: Table::new(0x100, 0x100 + (1 << 16)),
            steering: Steering::new(),
            flow: Flow::new(),
            rates: BTreeMap::new(),
            mkeys: Table::new(0x10, 0x10 + (1 << 22)),
        }
    }
}

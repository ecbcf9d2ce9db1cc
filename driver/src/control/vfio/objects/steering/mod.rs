//! Rules that say which received packets go to which queue pair.
//!
//! The port's receive steering is all ours, as there is no network device. A priority is a flow table; packets pass them in
//! the order of priorities, and one that no rule takes ends in nothing. Within a table a group of entries looks at the same
//! bits. Rules that want the same packets at the same priority share an entry, which hands each packet to all of them.
//!
//! | file | what |
//! |---|---|
//! | `specs` | what verbs say of packets, as bits to compare |
//! | `tables` | tables, groups and entries |

mod specs;
mod tables;

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::{Flow, Qp};
use uverbs_abi::write::flow::FlowAttr;

use super::Objects;
use super::raw::RawObject;
use crate::control::vfio::neighbour::{ARP, ICMPV6};
use crate::sys::errno::Errno;

use specs::Match;
use tables::Tables;

/// The tables of the port.
#[derive(Debug, Default)]
pub(super) struct Steering(Mutex<Tables>);

/// A rule, with the queue pair that it hands packets to.
#[derive(Debug)]
pub(super) struct Rule {
    matches: Vec<(u8, Match)>,
    target: Target,
    _object: Arc<RawObject>,
}

/// What becomes of packets that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// They go to a TIR.
    Tir(u32),
    /// Nobody gets them.
    Drop,
}

/// Types of rules (`enum ib_flow_attr_type`).
const NORMAL: u32 = 0;
const ALL_DEFAULT: u32 = 1;
const MULTICAST_DEFAULT: u32 = 2;

/// Priorities (`MLX5_IB_FLOW_LAST_PRIO`, `MLX5_IB_FLOW_MCAST_PRIO` of the kernel's `mlx5_ib.h`): those that programs say, that
/// of rules about groups only, and the one of rules for what no other takes.
const LAST: u16 = 14;
const GROUPS: u8 = 15;
const LEFTOVERS: u8 = 16;
/// Rules of the driver itself come behind those of programs.
const OWN: u8 = 17;

impl Objects {
    /// Makes a rule that gives packets to `qp`. `specs` are the specifications one after the other.
    ///
    /// `EINVAL` for a queue pair that does not receive raw packets and for specifications that contradict each other,
    /// `EOPNOTSUPP` for those that say what is not offered here: tunnels, encryption, counters, rules that do not keep what
    /// they take, sniffers.
    pub fn create_flow(&self, qp: Qp, attr: &FlowAttr, specs: &[u8]) -> Result<Flow, Errno> {
        if !self.caps.is_ethernet() || !self.caps.general.nic_flow_table() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let ports = self.caps.general.num_ports();
        if !(1..=ports).contains(&attr.port) {
            return Err(Errno(libc::EINVAL));
        }
        if attr.flags != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if attr.priority > LAST {
            return Err(Errno(libc::ENOSPC));
        }
        let object = self.raws.get(qp.0)?;
        let tir = object.tir().ok_or(Errno(libc::EINVAL))?;
        let said = specs::read(specs, attr.num_of_specs)?;
        let matches = match attr.r#type {
            NORMAL if said.matches.only_groups() => vec![(GROUPS, said.matches)],
            NORMAL => vec![(attr.priority as u8, said.matches)],
            ALL_DEFAULT if attr.num_of_specs == 0 => vec![(LEFTOVERS, Match::all())],
            MULTICAST_DEFAULT if attr.num_of_specs == 0 => vec![(LEFTOVERS, Match::groups())],
            ALL_DEFAULT | MULTICAST_DEFAULT => return Err(Errno(libc::EINVAL)),
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let target = match said.drop {
            true => Target::Drop,
            false => Target::Tir(tir),
        };
        self.add_rule(object, target, matches, said.tag)
    }

    /// Gives ARP and neighbour discovery to a queue pair, as far as no rule of the program's takes them.
    pub fn steer_neighbours(&self, qp: Qp) -> Result<Flow, Errno> {
        let object = self.raws.get(qp.0)?;
        let tir = object.tir().ok_or(Errno(libc::EINVAL))?;
        let wants = [Match::ether_type(ARP), Match::ipv6_protocol(ICMPV6)];
        let wants = wants.into_iter().map(|wants| (OWN, wants)).collect();
        self.add_rule(object, Target::Tir(tir), wants, 0)
    }

    fn add_rule(
        &self,
        object: Arc<RawObject>,
        target: Target,
        wanted: Vec<(u8, Match)>,
        tag: u32,
    ) -> Result<Flow, Errno> {
        let mut tables = self
            .steering
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut matches = Vec::new();
        for (priority, wants) in wanted {
            if let Err(errno) = tables.add(&*self.platform, priority, &wants, target, tag) {
                for (priority, wants) in matches {
                    // What stays is an entry that hands packets to a queue pair that is there.
                    let _ = tables.remove(&*self.platform, priority, &wants, target);
                }
                return Err(errno);
            }
            matches.push((priority, wants));
        }
        drop(tables);
        let rule = Rule {
            matches,
            target,
            _object: object,
        };
        Ok(Flow(self.rules.insert(rule)))
    }

    /// Destroys a rule.
    pub fn destroy_flow(&self, handle: Flow) -> Result<(), Errno> {
        self.rules.remove(handle.0, |rule| {
            let mut tables = self
                .steering
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for (priority, wants) in &rule.matches {
                tables.remove(&*self.platform, *priority, wants, rule.target)?;
            }
            Ok(())
        })
    }
}

//! The cases, as data: each a name, what it needs, and a body.

mod atomics;
mod clock;
mod completion;
mod datagrams;
mod deviation;
mod events;
mod forks;
mod inline;
mod null_memory;
mod objects;
mod port_counters;
mod post;
mod reliability;
mod rights;
mod rings;
mod scale;
mod shared_receive;
mod spread;
mod states;
mod transfer;
mod windows;

use std::fmt;
use std::time::Duration;

use crate::check::Check;
use crate::fixture::Env;
use crate::verbs::types::*;

/// One named case.
pub(crate) struct Case {
    /// `area/what/parameters`; rules of the fault table in brackets at the end.
    pub(crate) name: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) timeout: Duration,
    /// Takes minutes, and runs with `--long` only.
    pub(crate) long: bool,
    pub(crate) run: Box<dyn Fn(&Env) -> Check>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// What a device must have for a case to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Scatter/gather entries of a request.
    Sge(u32),
    /// Longest message.
    Message(u32),
    /// A datagram of that many bytes fits the path.
    Mtu(u32),
    Atomics,
    Srq,
    SrqResize,
    MemoryWindows,
    MemoryWindows2,
    /// Local and remote invalidation.
    Invalidate,
    Multicast,
    Flush,
    AtomicWrite,
    Ethernet,
    /// So many queue pairs at once.
    QueuePairs(u32),
    /// The kernel has the device, and tells of it in sysfs; a device that this process drives is in no sysfs.
    Sysfs,
    /// The port's counters can be read.
    Counters,
    /// A counter of this name.
    Counter(&'static str),
    /// A key of memory that is nowhere.
    NullMemory,
    /// The device has a clock that can be read.
    Clock,
    /// What the device's time is in wall-clock time is known.
    WallClock,
    /// Packets can be spread over receive queues by a hash.
    Spread,
    /// Both ends in this process: the case looks at the far end with more than verbs, or times it.
    Loopback,
}

impl Need {
    /// Why the device cannot run a case, if it cannot.
    pub(crate) fn missing(self, env: &Env) -> Check<Option<String>> {
        let device = env.v().device()?;
        let port = env.v().port(env.port)?;
        let flag = |bit: u64, name: &str| {
            (device.cap_flags & bit == 0).then(|| format!("device capability {name} is off"))
        };
        let least = |have: u32, want: u32, name: &str| {
            (have < want).then(|| format!("{name} is {have}, the case needs {want}"))
        };
        Ok(match self {
            Self::Sge(n) => least(device.max_sge, n, "max_sge"),
            Self::Message(n) => least(port.max_msg_size, n, "max_msg_sz"),
            Self::Mtu(n) => least(port.mtu_bytes(), n, "the active MTU"),
            Self::QueuePairs(n) => least(device.max_qp, n, "max_qp"),
            Self::Atomics => least(device.atomic_cap, 1, "atomic_cap"),
            Self::Srq => least(device.max_srq, 1, "max_srq"),
            Self::SrqResize => flag(cap::SRQ_RESIZE, "SRQ_RESIZE"),
            Self::MemoryWindows => flag(cap::MEM_WINDOW, "MEM_WINDOW"),
            Self::MemoryWindows2 => flag(cap::MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B"),
            Self::Invalidate => flag(cap::MEM_MGT_EXTENSIONS, "MEM_MGT_EXTENSIONS"),
            Self::Multicast => least(device.max_mcast_grp, 1, "max_mcast_grp"),
            Self::Flush => flag(cap::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
            Self::AtomicWrite => flag(cap::ATOMIC_WRITE, "ATOMIC_WRITE"),
            Self::Ethernet => {
                (port.link_layer == 1).then(|| "the port is InfiniBand, not Ethernet".to_owned())
            }
            Self::Sysfs => crate::verbs::core::is_driven(env.device_name())
                .then(|| "this process drives the device, sysfs does not know it".to_owned()),
            Self::Counters => env
                .v()
                .counters(env.port)?
                .is_empty()
                .then(|| "nobody tells the port's counters".to_owned()),
            Self::Counter(name) => (!env.v().counters(env.port)?.contains_key(name))
                .then(|| format!("the device has no counter {name}")),
            Self::NullMemory => (env.v().extras())
                .and_then(|extras| extras.null_key())
                .is_none()
                .then(|| "no key of memory that is nowhere is known".to_owned()),
            Self::Clock => match env.v().extras() {
                Some(extras) => extras.clock()?,
                None => None,
            }
            .is_none()
            .then(|| "no clock of the device's can be read".to_owned()),
            Self::WallClock => (!env
                .v()
                .extras()
                .is_some_and(|extras| extras.knows_wall_clock()))
            .then(|| "nobody tells what the device's time is in wall-clock time".to_owned()),
            Self::Spread => match env.v().extras() {
                Some(extras) => !extras.spreads()?,
                None => true,
            }
            .then(|| "packets cannot be spread over receive queues".to_owned()),
            Self::Loopback => env
                .far
                .is_some()
                .then(|| "needs both ends in one process, not a peer".to_owned()),
        })
    }
}

/// Collects the cases of one area.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    pub(crate) cases: Vec<Case>,
}

impl Suite {
    /// Adds a case; `needs` come first, so that the body reads as what happens.
    pub(crate) fn case(
        &mut self,
        name: impl Into<String>,
        needs: &[Need],
        run: impl Fn(&Env) -> Check + 'static,
    ) {
        self.slow_case(30, name, needs, run);
    }

    /// A case with a time limit of its own, in seconds.
    pub(crate) fn slow_case(
        &mut self,
        seconds: u64,
        name: impl Into<String>,
        needs: &[Need],
        run: impl Fn(&Env) -> Check + 'static,
    ) {
        self.cases.push(Case {
            name: name.into(),
            needs: needs.to_vec(),
            timeout: Duration::from_secs(seconds),
            long: false,
            run: Box::new(run),
        });
    }

    /// A case that takes minutes.
    pub(crate) fn long_case(
        &mut self,
        seconds: u64,
        name: impl Into<String>,
        needs: &[Need],
        run: impl Fn(&Env) -> Check + 'static,
    ) {
        self.slow_case(seconds, name, needs, run);
        if let Some(case) = self.cases.last_mut() {
            case.long = true;
        }
    }
}

/// All cases, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    let mut suite = Suite::default();
    transfer::cases(&mut suite);
    post::cases(&mut suite);
    inline::cases(&mut suite);
    rights::cases(&mut suite);
    reliability::cases(&mut suite);
    states::cases(&mut suite);
    completion::cases(&mut suite);
    events::cases(&mut suite);
    shared_receive::cases(&mut suite);
    atomics::cases(&mut suite);
    windows::cases(&mut suite);
    datagrams::cases(&mut suite);
    objects::cases(&mut suite);
    rings::cases(&mut suite);
    forks::cases(&mut suite);
    port_counters::cases(&mut suite);
    null_memory::cases(&mut suite);
    clock::cases(&mut suite);
    spread::cases(&mut suite);
    scale::cases(&mut suite);
    suite.cases
}

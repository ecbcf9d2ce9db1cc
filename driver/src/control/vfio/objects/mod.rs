//! Verbs objects by firmware command: what the kernel's `mlx5_ib` does for programs that go through it.
//!
//! [`Objects`] has the methods of [`Uctx`](crate::control::kernel::Uctx) with the same requests and
//! answers, so what calls one can call the other. It turns them into firmware commands, pins the memory
//! that they name, keeps what has to outlive the call, and refuses with the errno that the kernel would give.
//!
//! | file | what |
//! |---|---|
//! | [`Platform`] | what objects need of the device: commands, mappings, event queues |
//! | `table` | handles |
//! | `ring` | memory as commands name it: page size, offset, list of pages |
//! | `domain` | protection, transport and XRC domains, doorbell pages |
//! | `mkey` | memory regions and windows |
//! | `cq`, `srq`, `qp_*`, `dct`, `reserved` | queues |
//! | `raw`, `raw_queue`, `work_queue` | queue pairs of raw Ethernet packets, and work queues that packets are spread over |
//! | `steering` | rules that say which packets go where |
//! | `events`, `dispatch`, `waiting` | what the device says happened, and who hears of it |
//! | `ah` | address handles, multicast groups |
//! | `caps`, `device`, `port`, `gid`, `counters` | what device and ports say of themselves |

mod ah;
mod caps;
mod counters;
mod cq;
mod dct;
mod device;
mod dispatch;
mod domain;
mod events;
mod gid;
mod mkey;
mod pacing;
mod platform;
mod port;
mod qp_create;
mod qp_modify;
mod qp_path;
mod qp_query;
mod raw;
mod raw_queue;
mod reserved;
mod ring;
mod srq;
mod steering;
mod table;
#[cfg(test)]
mod tests;
mod waiting;
mod work_queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use wqe_format::mlx5::firmware::Opcode;

use crate::data::mlx5::KeepAlive;
use crate::sys::errno::Errno;

pub use caps::Caps;
pub use counters::Counter;
use pacing::Rates;
pub use platform::{DriverUsage, Identity, Mapped, Platform};

use ah::{AddressHandle, Groups, Neighbours};
use cq::CompletionQueue;
use dct::Target;
use domain::{MadeOnce, Pdn, Xrcdn};
use events::EventFiles;
use gid::GidTable;
use mkey::{Region, Variants, Window};
use qp_create::QueuePair;
use raw::{RAW_HANDLES, RawObject};
use reserved::ReservedQueue;
use ring::RECORD_PAGE;
use srq::SharedQueue;
use steering::{Rule, Steering};
use table::Table;
use waiting::{Drained, Numbers};
use work_queue::{SpreadTable, WorkQueue};

/// Memory that is only kept.
struct Abandoned(#[expect(dead_code, reason = "only kept")] KeepAlive);

impl std::fmt::Debug for Abandoned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Abandoned")
    }
}

/// The objects of one open device, with the handles that [`Uctx`](crate::control::kernel::Uctx) gives out.
#[derive(Debug)]
pub struct Objects {
    platform: Arc<dyn Platform>,
    caps: Caps,
    /// Pages with doorbell records, by address; many queues share one.
    records: Mutex<HashMap<u64, Weak<Mapped>>>,
    files: EventFiles,
    variants: Variants,
    pds: Table<Pdn>,
    xrcds: Table<Xrcdn>,
    regions: Table<Region>,
    windows: Table<Window>,
    cqs: Table<CompletionQueue>,
    srqs: Table<SharedQueue>,
    /// Shared queues by the device's numbers.
    numbers: Numbers,
    qps: Table<QueuePair>,
    targets: Table<Target>,
    drained: Drained,
    ahs: Table<AddressHandle>,
    groups: Groups,
    gids: GidTable,
    rates: Rates,
    /// The port's address, where nobody else gave it one.
    chosen_address: OnceLock<[u8; 6]>,
    neighbours: Neighbours,
    /// For queue pairs that have none of their own.
    base_pd: MadeOnce,
    /// For initiators of XRC.
    base_xrcd: MadeOnce,
    /// What queue pairs count in.
    counter_set: MadeOnce,
    /// What raw packets are sent and received in.
    transport: MadeOnce,
    raws: Table<RawObject>,
    work_queues: Table<WorkQueue>,
    spreads: Table<SpreadTable>,
    rules: Table<Rule>,
    steering: Steering,
    /// Memory that the device did not let go of. Behind the platform, with which the device goes down.
    abandoned: Mutex<Vec<Abandoned>>,
    /// Its memory too.
    reserved: ReservedQueue,
}

impl Objects {
    /// None yet, on a device that is up.
    pub fn new(platform: Arc<dyn Platform>) -> Result<Self, Errno> {
        let objects = Self {
            caps: Caps::query(&*platform)?,
            platform,
            records: Mutex::default(),
            files: EventFiles::default(),
            variants: Variants::default(),
            pds: Table::default(),
            xrcds: Table::default(),
            regions: Table::default(),
            windows: Table::default(),
            cqs: Table::default(),
            srqs: Table::default(),
            numbers: Numbers::default(),
            qps: Table::default(),
            targets: Table::default(),
            drained: Drained::default(),
            ahs: Table::default(),
            groups: Groups::default(),
            gids: GidTable::default(),
            rates: Rates::default(),
            chosen_address: OnceLock::new(),
            neighbours: Neighbours::default(),
            base_pd: MadeOnce::default(),
            base_xrcd: MadeOnce::default(),
            counter_set: MadeOnce::default(),
            transport: MadeOnce::default(),
            raws: Table::starting_at(RAW_HANDLES),
            work_queues: Table::default(),
            spreads: Table::default(),
            rules: Table::default(),
            steering: Steering::default(),
            abandoned: Mutex::default(),
            reserved: ReservedQueue::default(),
        };
        objects.default_gids()?;
        Ok(objects)
    }

    /// The device.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// Whether objects may be destroyed: not by a forked child, whose device is the parent's.
    pub fn is_ours(&self) -> bool {
        self.platform.is_ours()
    }

    /// Keeps memory until the device is down.
    pub(crate) fn abandon(&self, memory: KeepAlive) {
        let mut abandoned = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        abandoned.push(Abandoned(memory));
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Runs a command; an output of fixed size.
    fn run_bytes<const OUT: usize>(&self, input: &[u8]) -> Result<[u8; OUT], Errno> {
        let mut output = [0; OUT];
        self.platform.execute(input, &mut output)?;
        Ok(output)
    }

    /// Runs a command whose input is opcode and one number of 24 bits, as most that free something, and
    /// whose answer is only whether it was done.
    fn run_on(&self, opcode: Opcode, number: u32) -> Result<(), Errno> {
        self.run_bytes::<16>(&numbered(opcode, number)).map(drop)
    }

    /// Runs a command whose input is only the opcode, and gives the number of 24 bits that it answers.
    fn run_for_number(&self, opcode: Opcode) -> Result<u32, Errno> {
        let output = self.run_bytes::<16>(&numbered(opcode, 0))?;
        Ok(u32::from_be_bytes([0, output[9], output[10], output[11]]))
    }

    /// Where the device finds a doorbell record.
    fn record(&self, address: u64) -> Result<(u64, Arc<Mapped>), Errno> {
        if !address.is_multiple_of(8) {
            return Err(Errno(libc::EINVAL));
        }
        let page = address & !(RECORD_PAGE - 1);
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapped) = records.get(&page).and_then(Weak::upgrade) {
            return Ok((mapped.iova + (address - page), mapped));
        }
        records.retain(|_, mapped| mapped.strong_count() > 0);
        let mapped = Arc::new(self.platform.map(page, RECORD_PAGE)?);
        records.insert(page, Arc::downgrade(&mapped));
        Ok((mapped.iova + (address - page), mapped))
    }
}

/// A command of 16 bytes: opcode, and a number in bits 0x48 to 0x5f, where all of them have it.
fn numbered(opcode: Opcode, number: u32) -> [u8; 16] {
    let mut input = [0; 16];
    input[..2].copy_from_slice(&opcode.0.to_be_bytes());
    input[9..12].copy_from_slice(&number.to_be_bytes()[1..]);
    input
}

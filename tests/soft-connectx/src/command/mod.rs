//! The command interface.
//!
//! | file | what |
//! |---|---|
//! | `mailbox` | entries and mailboxes: how input comes and output goes |
//! | `dispatch` | which function is which command's |
//! | `refusal` | why commands are refused |
//! | the others | a family of commands each |
//!
//! A command is a function from its input to its output: of the output's bytes only status and
//! syndrome are set by the interface. It changes nothing if it is refused.

mod counter;
mod cq;
mod dct;
mod dispatch;
mod domains;
mod ece;
mod eq;
mod flow;
pub(crate) mod hca;
mod mad;
mod mailbox;
mod memic;
mod mkey;
mod nic_vport;
mod object;
mod owner;
mod pacing;
mod page_fault;
mod qp;
mod qp_modify;
mod raw;
mod refusal;
mod register;
mod srq;
mod starve;
mod steering;
mod strict;
mod virtual_function;
mod vport;
mod xrq;

use std::collections::VecDeque;
use std::time::Duration;

use log::{debug, warn};
use wqe_format::mlx5::firmware::{Delivery, EventType, Opcode};

use crate::adversary::Freedom;
use crate::device::Device;
use crate::events;
use crate::init_segment::{LOG_COMMAND_STRIDE, LOG_COMMANDS};
use crate::trace::Direction;
pub(crate) use hca::Hca;
#[cfg(test)]
pub(crate) use hca::Stage;
use mailbox::{ENTRY_LEN, Entry};
pub(crate) use refusal::Refusal;

/// What a command answers.
type Reply = Result<Vec<u8>, Refusal>;

/// Status, syndrome and nothing else: what most commands answer.
fn done() -> Reply {
    Ok(vec![0; 16])
}

/// The commands that the device has taken out of the queue in guest memory and not answered.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    taken: VecDeque<Taken>,
    /// Pages that the device wants before it does anything else.
    hunger: Option<starve::Hunger>,
}

/// The longest time that an adversary keeps a command waiting.
const WAIT: Duration = Duration::from_millis(3);

/// A command taken.
#[derive(Debug)]
struct Taken {
    /// When it is done: at once, but for an adversary.
    due: Duration,
    slot: u8,
    address: u64,
    entry: Entry,
}

/// The driver says that it gave the device these slots of the queue.
pub(crate) fn doorbell(device: &mut Device, slots: u32) {
    if !device.segment.takes_commands() {
        return;
    }
    for slot in (0..1u8 << LOG_COMMANDS).filter(|slot| slots >> slot & 1 != 0) {
        let offset = u64::from(slot) << LOG_COMMAND_STRIDE;
        let address = device.segment.commands().wrapping_add(offset);
        let mut bytes = [0; ENTRY_LEN];
        if let Err(fault) = device.memory.read(address, &mut bytes) {
            warn!("command slot {slot}: {fault}");
            continue;
        }
        let entry = Entry { bytes };
        // A slot rung twice is taken once.
        let taken = device.commands.taken.iter().any(|other| other.slot == slot);
        if entry.owned_by_device() && !taken {
            let wait = device.adversary.delay(Freedom::Command, WAIT);
            starve::perhaps(device, entry.opcode());
            device.commands.taken.push_back(Taken {
                due: device.now + wait,
                slot,
                address,
                entry,
            });
        }
    }
    tick(device);
}

/// Commands that were taken are done; the answer is when to look again.
pub(crate) fn tick(device: &mut Device) -> Option<Duration> {
    let now = device.now;
    loop {
        // A device that failed in the meantime leaves the rest.
        if !device.segment.takes_commands() {
            device.commands.taken.clear();
        }
        let mut due = Vec::new();
        for index in 0..device.commands.taken.len() {
            let taken = &device.commands.taken[index];
            if taken.due <= now && starve::fed(device, taken.entry.opcode()) {
                due.push(index);
            }
        }
        let chosen = device.adversary.choose(Freedom::Command, due.len() as u64);
        let Some(index) = due.get(chosen as usize) else {
            break;
        };
        if let Some(taken) = device.commands.taken.remove(*index) {
            run(device, taken);
        }
    }
    // What is due and still here waits for pages, which come by a command that rings.
    let waiting = device.commands.taken.iter().map(|taken| taken.due);
    let next = waiting.filter(|due| *due > now);
    next.chain(starve::patience(device)).min()
}

/// Does one command and gives its slot back.
fn run(device: &mut Device, taken: Taken) {
    let Taken {
        due: _,
        slot,
        address,
        mut entry,
    } = taken;
    let memory = device.memory.clone();
    let signed = device.caps.checks_commands();
    let told = events::taker(device, EventType::CMD);
    let delivery = match entry.input(&*memory, signed) {
        Ok(input) => {
            let opcode = opcode(&input);
            let room = entry.output_len();
            device
                .trace
                .write(slot, opcode, Direction::Input, &input, input.len());
            let output = execute(device, &input);
            device
                .trace
                .write(slot, opcode, Direction::Output, &output, room);
            entry.output(&*memory, address, &output, signed).err()
        }
        Err(delivery) => Some(delivery),
    };
    if let Some(delivery) = delivery {
        warn!("command slot {slot}: {delivery:?}");
    }
    entry.give_back(&*memory, address, delivery.unwrap_or(Delivery::OK), signed);
    // The driver polls until its first event queue exists, and while it destroys that: it is told
    // by an event iff the queue stood before the command and stands after it.
    if let Some(eqn) = told.filter(|_| told == events::taker(device, EventType::CMD)) {
        events::raise(device, eqn, EventType::CMD, &(1u32 << slot).to_be_bytes());
    }
}

fn opcode(input: &[u8]) -> Opcode {
    Opcode(u16::from_be_bytes([input[0], input[1]]))
}

/// The output of a command.
pub(crate) fn execute(device: &mut Device, input: &[u8]) -> Vec<u8> {
    let opcode = opcode(input);
    strict::check(device, opcode, input);
    match dispatch::dispatch(device, opcode, input) {
        Ok(output) => {
            debug!("{} is done", name(opcode));
            output
        }
        Err(refusal) => {
            let op_mod = u16::from_be_bytes([input[6], input[7]]);
            warn!(
                "{} ({:#x}, op_mod {op_mod:#x}) is refused with {}: {}",
                name(opcode),
                opcode.0,
                refusal.status.name().unwrap_or("?"),
                refusal.reason
            );
            let mut output = vec![0; 16];
            output[0] = refusal.status.0;
            output[4..8].copy_from_slice(&refusal.syndrome().to_be_bytes());
            output
        }
    }
}

fn name(opcode: Opcode) -> &'static str {
    opcode.name().unwrap_or("a command without a name")
}

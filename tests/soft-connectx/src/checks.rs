//! What a real device never checks.
//!
//! A device takes what it is given: these are mistakes that have no effect today and corrupt something another day.

pub(crate) mod allowed;

use std::cell::RefCell;

use wqe_format::mlx5::firmware::Opcode;

use crate::device::Device;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A bit of a command's input is set that Linux' `mlx5_ifc.h` calls reserved.
    ReservedCommandBit { opcode: Opcode, bit: usize },
    /// More basic blocks are posted than the ring has: the doorbell record's counter is too far from the block to be done next.
    SendRingOverrun {
        qpn: u32,
        record: u16,
        next: u16,
        blocks: u32,
    },
    /// A request in a BlueFlame register is not the one in memory.
    CopyDiffers { qpn: u32, index: u16 },
    /// A request was changed between doorbell and completion.
    RequestChanged { qpn: u32, index: u16 },
    /// More receives are posted than the ring has room for.
    ReceiveRingOverrun { qpn: u32, record: u16, next: u16 },
    /// A reserved bit of a request is set.
    ReservedRequestBit { qpn: u32, index: u16 },
}

/// Mistakes that are kept.
const KEPT: usize = 1000;

/// What the checks remember.
#[derive(Debug, Default)]
pub(crate) struct State {
    faults: RefCell<Vec<Fault>>,
}

impl State {
    /// The mistake that was found first, in words.
    pub(crate) fn first(&self) -> Option<String> {
        self.faults
            .borrow()
            .first()
            .map(|fault| format!("{fault:x?}"))
    }

    /// Mistakes that were found.
    #[cfg(test)]
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.borrow().clone()
    }
}

/// Notes a mistake.
pub(crate) fn report(device: &Device, fault: Fault) {
    let mut faults = device.checks.faults.borrow_mut();
    if faults.len() < KEPT && faults.last() != Some(&fault) {
        log::error!("strict: {fault:x?}");
        faults.push(fault);
    }
}

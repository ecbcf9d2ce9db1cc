//! Event queues: rings in which the device says what happened.

use std::sync::Arc;

use wqe_format::mlx5::firmware::eq::{CreateEqIn, CreateEqOut, DestroyEqIn};
use wqe_format::mlx5::firmware::{EventType, Opcode};

use super::command::{CommandError, Commands};
use super::memory::{DmaMemory, Iommu};
use super::pci::Pci;
use crate::sys::errno::Errno;

/// Bytes of an entry (`mlx5_ifc.h` `eqe`), the last of which has the owner bit.
pub(super) const ENTRY: usize = 64;
/// Registers of a doorbell page (Linux `lib/eq.h`, `MLX5_EQ_DOORBEL_OFFSET`): consumer index with and without arming.
const ARM: u64 = 0x40;
const CONSUMER: u64 = 0x48;
/// Bytes of a doorbell page (`MLX5_ADAPTER_PAGE_SIZE`).
pub(super) const UAR_PAGE: u64 = 4096;

/// An event queue to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Entries, as a logarithm.
    pub(super) log_size: u8,
    /// The interrupt vector.
    pub(super) vector: u16,
    /// The doorbell page.
    pub(super) uar: u32,
    /// Event types, a bit each.
    pub(super) events: [u64; 4],
}

/// The bit of event types.
pub(super) fn mask(types: &[EventType]) -> [u64; 4] {
    let mut mask = [0; 4];
    for EventType(number) in types {
        mask[usize::from(number >> 6)] |= 1 << (number & 63);
    }
    mask
}

/// An event queue.
#[derive(Debug)]
pub(super) struct EventQueue {
    pci: Arc<dyn Pci>,
    memory: DmaMemory,
    number: u8,
    request: Request,
    /// Entries taken, counted over and over.
    taken: u32,
}

impl EventQueue {
    /// Makes an event queue. It is not armed yet.
    pub(super) fn new(
        pci: Arc<dyn Pci>,
        iommu: &Arc<Iommu>,
        commands: &dyn Commands,
        request: Request,
    ) -> Result<Self, CommandError> {
        let failed = |errno| {
            let cause = super::command::CommandCause::Process(errno);
            CommandError::other(Opcode::CREATE_EQ, cause)
        };
        let len = ENTRY << request.log_size;
        let memory = iommu.allocate(len, false).map_err(failed)?;
        // Nothing is valid before the device wrote it: the first lap has owner bit 0.
        for entry in (0..len).step_by(ENTRY) {
            memory.store(entry + ENTRY - 1, 1);
        }
        let pages = len.div_ceil(UAR_PAGE as usize);
        let mut input = vec![0; CreateEqIn::SIZE + 8 * pages];
        let mut view = CreateEqIn::new(&mut input[..]).map_err(|_| failed(Errno(libc::EINVAL)))?;
        view.set_opcode(Opcode::CREATE_EQ.0);
        for (index, bits) in request.events.into_iter().enumerate() {
            view.set_event_bitmask(index, bits);
        }
        for page in 0..pages {
            view.set_pas(page, memory.iova(page * UAR_PAGE as usize));
        }
        view.eq_context_entry_mut()
            .set_log_eq_size(request.log_size)
            .set_uar_page(request.uar)
            .set_intr(request.vector);
        let mut output = CreateEqOut::zeroed();
        commands.execute(&input, output.as_bytes_mut())?;
        Ok(Self {
            pci,
            memory,
            number: output.eq_number(),
            request,
            taken: 0,
        })
    }

    /// The device's number.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// How many entries it has room for.
    pub(super) fn entries(&self) -> u32 {
        1 << self.request.log_size
    }

    /// The next entry, if there is one.
    pub(super) fn take(&mut self) -> Option<[u8; ENTRY]> {
        let size = self.entries();
        let at = (self.taken & (size - 1)) as usize * ENTRY;
        let lap = (self.taken >> self.request.log_size & 1) as u8;
        if self.memory.load(at + ENTRY - 1) & 1 != lap {
            return None;
        }
        let mut entry = [0; ENTRY];
        self.memory.read(at, &mut entry);
        self.taken = self.taken.wrapping_add(1);
        // The device stops when it thinks that the ring is full.
        if self.taken.is_multiple_of(size / 4) {
            self.tell(CONSUMER);
        }
        Some(entry)
    }

    /// Has the next event interrupt; one that is there already does so at once.
    pub(super) fn arm(&self) {
        self.tell(ARM);
    }

    fn tell(&self, register: u64) {
        let at = u64::from(self.request.uar) * UAR_PAGE + register;
        let value = u32::from(self.number) << 24 | self.taken & 0xff_ffff;
        // A device that is gone hears nothing; that is noticed elsewhere.
        let _ = self.pci.write_be32(at, value);
    }

    /// Ends it in the device.
    pub(super) fn destroy(&self, commands: &dyn Commands) -> Result<(), CommandError> {
        let mut input = DestroyEqIn::zeroed();
        input
            .set_opcode(Opcode::DESTROY_EQ.0)
            .set_eq_number(self.number);
        commands.execute(input.as_bytes(), &mut [0; 16])
    }
}

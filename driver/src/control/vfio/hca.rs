//! A device that this process drives: bringing it up and down.
//!
//! The order is Linux' (`drivers/net/ethernet/mellanox/mlx5/core/main.c`, `mlx5_function_setup`), with what a driver of
//! one function in user space needs of it.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use wqe_format::mlx5::firmware::hca::{TeardownHcaIn, TeardownHcaOut};
use wqe_format::mlx5::firmware::{EventType, Opcode};

use super::clock::Clock;
use super::command::{CommandCause, CommandError, CommandQueue, Commands};
use super::eq::{self, EventQueue, Request};
use super::events::{EventSink, Reader, Shared, Task};
use super::memory::Iommu;
use super::pages::{DevicePages, When};
use super::pci::Pci;
use super::{segment, start};
use crate::sys::errno::Errno;
use crate::sys::eventfd::eventfd;
use crate::sys::process::ProcessId;

/// Entries of event queues, as a logarithm, where the device has as many (Linux `MLX5_NUM_ASYNC_EQE`).
const LOG_EVENTS: u8 = 12;

/// Profile of TEARDOWN_HCA before the device is stopped by its register (`mlx5_ifc.h`
/// `MLX5_TEARDOWN_HCA_IN_PROFILE_PREPARE_FAST_TEARDOWN`).
const PREPARE_FAST: u16 = 2;
/// How long that may take (Linux `MLX5_TO_TEARDOWN_MS` of a fast teardown).
const STOPPING: Duration = Duration::from_secs(3);

/// How a device is driven.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a command may take (Linux `MLX5_TO_CMD_MS`).
    pub command_time: Duration,
    /// How long firmware may take to come up after a reset (Linux `FW_PRE_INIT_TIMEOUT_MILI`).
    pub firmware_time: Duration,
    /// Completion vectors: event queues that completion queues choose from.
    pub completion_vectors: u16,
    /// Closes the device without taking it down piece by piece, where it can: it stops with everything that is still made, in
    /// a command and a register, and the next open resets it. For who has very many objects or pages.
    pub fast_close: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command_time: Duration::from_secs(60),
            firmware_time: Duration::from_secs(120),
            completion_vectors: 2,
            fast_close: false,
        }
    }
}

/// A ConnectX that is up. It goes down, and all its memory is taken back, when this is dropped.
#[derive(Debug)]
pub struct Hca {
    shared: Arc<Shared>,
    iommu: Arc<Iommu>,
    owner: ProcessId,
    /// The doorbell page of the event queues.
    uar: Option<u32>,
    readers: Vec<Reader>,
    completion_queues: Vec<u8>,
    firmware: [u16; 3],
    fast_close: bool,
}

impl Hca {
    /// Resets a function and brings it up.
    pub fn open(pci: Arc<dyn Pci>, options: Options) -> Result<Self, HcaError> {
        let pci_failed = |what: &'static str| {
            move |error: std::io::Error| HcaError::Process(what, Errno::from(error))
        };
        let failed = |what: &'static str| move |errno| HcaError::Process(what, errno);
        let iommu = Iommu::new(pci.clone()).map_err(failed("ask for I/O addresses"))?;
        pci.reset().map_err(pci_failed("reset the function"))?;
        start::enable_bus(&*pci).map_err(failed("enable the function"))?;
        segment::wait_for_firmware(&*pci, options.firmware_time)
            .map_err(failed("wait for the firmware"))?;
        let firmware = segment::firmware(&*pci).map_err(failed("read the firmware's version"))?;
        let vectors = pci.vectors().min(2 + options.completion_vectors);
        let interrupts = (0..vectors)
            .map(|_| eventfd())
            .collect::<Result<Vec<_>, _>>();
        let interrupts = interrupts.map_err(failed("make eventfds"))?;
        let fds: Vec<_> = interrupts.iter().map(AsFd::as_fd).collect();
        pci.set_interrupts(&fds)
            .map_err(pci_failed("set interrupts"))?;
        let commands = CommandQueue::new(pci.clone(), &iommu, options.command_time)
            .map_err(failed("make the command queue"))?;
        let shared = Shared {
            pages: DevicePages::new(iommu.clone()),
            pci,
            commands,
            interrupts,
            sink: Default::default(),
            clock: Default::default(),
            visits: Default::default(),
        };
        // From here on `drop` takes the device down as far as it came.
        let mut hca = Self {
            shared: Arc::new(shared),
            iommu,
            owner: ProcessId::current(),
            uar: None,
            readers: Vec::new(),
            completion_queues: Vec::new(),
            firmware,
            fast_close: false,
        };
        hca.bring_up()?;
        hca.start_events(options)?;
        Ok(hca)
    }

    fn bring_up(&self) -> Result<(), HcaError> {
        let run = |input: &[u8], output: &mut [u8]| self.execute(input, output);
        start::enable(&run)?;
        self.lend(When::Boot)?;
        let is_virtual = start::is_virtual(&*self.shared.pci);
        if !is_virtual.map_err(|errno| HcaError::Process("read the function's id", errno))? {
            start::host_endianness(&run)?;
        }
        start::negotiate(&run)?;
        self.lend(When::Init)?;
        start::init(&run)?;
        Ok(())
    }

    fn lend(&self, when: When) -> Result<(), CommandError> {
        let run = |input: &[u8], output: &mut [u8]| self.execute(input, output);
        let (function, count) = DevicePages::wanted(&run, when)?;
        match u32::try_from(count) {
            Ok(count) => self.shared.pages.give(&run, function, count),
            Err(_) => Ok(()),
        }
    }

    fn start_events(&mut self, options: Options) -> Result<(), HcaError> {
        let run = |input: &[u8], output: &mut [u8]| self.execute(input, output);
        let general = start::general(&run)?;
        let uar = start::alloc_uar(&run)?;
        self.uar = Some(uar);
        self.fast_close = options.fast_close && general.fast_teardown();
        let clock = Clock::new(&*self.shared.pci, general.device_frequency_khz());
        let clock = clock.map_err(|errno| HcaError::Process("read the device's clock", errno))?;
        if let Some(clock) = clock {
            // the first and only one
            let _ = self.shared.clock.set(Arc::new(clock));
        }
        let log_size = LOG_EVENTS.min(general.log_max_eq_sz()).max(6);
        let vectors = self.shared.interrupts.len() as u16;
        let make = |index: u16, events| {
            let request = Request {
                log_size,
                vector: index.checked_rem(vectors).unwrap_or(0),
                uar,
                events,
            };
            let (pci, iommu) = (self.shared.pci.clone(), &self.iommu);
            let queue = EventQueue::new(pci, iommu, &self.shared.commands, request)?;
            let interrupt = (vectors > 0).then(|| request.vector.into());
            Ok::<_, CommandError>((queue, interrupt))
        };
        let start = |task, queues| {
            Reader::start(self.shared.clone(), task, queues)
                .map_err(|errno| HcaError::Process("start a thread", errno))
        };
        // From here on the next command may wait for pages.
        let pages = make(1, eq::mask(&[EventType::PAGE_REQUEST]))?;
        self.readers.push(start(Task::Pages, vec![pages])?);
        let mut queues = vec![make(0, start::events(&general))?];
        let mut numbers = Vec::new();
        for index in 0..options.completion_vectors.max(1) {
            let queue = make(2 + index, [0; 4])?;
            numbers.push(queue.0.number());
            queues.push(queue);
        }
        self.completion_queues = numbers;
        self.readers.push(start(Task::Events, queues)?);
        Ok(())
    }

    /// The function.
    pub fn pci(&self) -> &Arc<dyn Pci> {
        &self.shared.pci
    }

    /// What of the process' memory the device reaches.
    pub fn iommu(&self) -> &Arc<Iommu> {
        &self.iommu
    }

    /// Pages that the firmware has borrowed.
    pub fn device_pages(&self) -> u32 {
        self.shared.pages.count()
    }

    /// The firmware's version.
    pub fn firmware(&self) -> [u16; 3] {
        self.firmware
    }

    /// The device's time, in its own units.
    pub fn timer(&self) -> Result<u64, Errno> {
        segment::timer(&**self.pci())
    }

    /// The page that turns it into the system's time, if the device has a clock.
    pub fn clock(&self) -> Option<&Arc<Clock>> {
        self.shared.clock.get()
    }

    /// Locked while the thread that reads events has a share in who is told of them.
    pub fn visits(&self) -> &Arc<Mutex<()>> {
        &self.shared.visits
    }

    /// Numbers of the event queues of completion vectors.
    pub fn completion_event_queues(&self) -> &[u8] {
        &self.completion_queues
    }

    /// Says who is told of events.
    pub fn set_sink(&self, sink: Weak<dyn EventSink>) {
        let mut place = (self.shared.sink.lock()).unwrap_or_else(PoisonError::into_inner);
        *place = Some(sink);
    }

    /// Whether this process opened it, rather than a parent.
    pub fn is_ours(&self) -> bool {
        self.owner.is_current()
    }

    /// Stops the device as it is (Linux `mlx5_cmd_fast_teardown_hca`).
    fn stop(&mut self) -> Result<(), CommandError> {
        // Their memory stays until the device has stopped.
        let mut queues = Vec::new();
        for reader in &mut self.readers {
            queues.extend(reader.end());
        }
        let mut teardown = TeardownHcaIn::zeroed();
        teardown
            .set_opcode(Opcode::TEARDOWN_HCA.0)
            .set_profile(PREPARE_FAST);
        let mut answer = TeardownHcaOut::zeroed();
        let commands = &self.shared.commands;
        commands.execute(teardown.as_bytes(), answer.as_bytes_mut())?;
        let other = |errno| CommandError::other(Opcode::TEARDOWN_HCA, CommandCause::Process(errno));
        if answer.state() {
            return Err(other(Errno(libc::EIO)));
        }
        segment::disable(&*self.shared.pci, STOPPING).map_err(other)?;
        self.shared.pages.forget();
        drop(queues);
        Ok(())
    }

    /// Takes the device down in order. An error leaves it half way.
    fn take_down(&mut self) -> Result<(), CommandError> {
        let mut queues = Vec::new();
        for reader in &mut self.readers {
            queues.extend(reader.end());
        }
        let commands = &self.shared.commands;
        for queue in &queues {
            queue.destroy(commands)?;
        }
        if let Some(uar) = self.uar.take() {
            start::dealloc_uar(&|input, output| commands.execute(input, output), uar)?;
        }
        let mut teardown = TeardownHcaIn::zeroed();
        teardown.set_opcode(Opcode::TEARDOWN_HCA.0);
        commands.execute(teardown.as_bytes(), &mut [0; 16])?;
        let run = |input: &[u8], output: &mut [u8]| commands.execute(input, output);
        self.shared.pages.reclaim_all(&run)?;
        start::disable(&run)
    }
}

impl Commands for Hca {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), CommandError> {
        self.shared.commands.execute(input, output)
    }
}

impl Drop for Hca {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let down = match self.fast_close {
            true => self.stop(),
            false => self.take_down(),
        };
        let pages_left = self.device_pages() > 0;
        // A device that did not go down in order, or kept pages, still writes memory until it is reset.
        if (down.is_err() || pages_left) && self.shared.pci.reset().is_ok() {
            self.shared.pages.forget();
        }
        let _ = self.shared.pci.set_interrupts(&[]);
    }
}

/// Why a device does not come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HcaError {
    /// A firmware command failed.
    Command(CommandError),
    /// Something of the process' or the platform's: what, and why.
    Process(&'static str, Errno),
}

impl HcaError {
    /// As an errno.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Command(error) => error.errno(),
            Self::Process(_, errno) => *errno,
        }
    }
}

impl std::fmt::Display for HcaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(error) => error.fmt(f),
            Self::Process(what, errno) => write!(f, "cannot {what}: {errno}"),
        }
    }
}

impl std::error::Error for HcaError {}

impl From<CommandError> for HcaError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

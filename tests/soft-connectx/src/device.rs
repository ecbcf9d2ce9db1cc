//! The device: its parts, and the ways in.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::adversary::Adversary;
use crate::caps::Caps;
use crate::command::{CommandQueue, Hca};
use crate::config::Config;
use crate::host::{GuestMemory, Interrupts, Link};
use crate::init_segment::{self, InitSegment};
use crate::memic::Memic;
use crate::memory::signature::Signatures;
use crate::pages::Pages;
use crate::paging::Paging;
use crate::pci::ConfigSpace;
use crate::port::{self, Port};
use crate::resources::Resources;
use crate::trace::Trace;
use crate::{checks, command, events, transport, uar};

/// Bytes of BAR0, as of the cards whose `log_uar_page_sz` is 0 and which have 8192 pages.
pub const BAR0_SIZE: u64 = 32 << 20;

/// Entries of the MSI-X table.
pub const MSIX_VECTORS: u16 = 32;

/// A ConnectX of one port.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) memory: Arc<dyn GuestMemory>,
    pub(crate) interrupts: Box<dyn Interrupts>,
    /// What was last told by [`Device::tick`].
    pub(crate) now: Duration,
    pub(crate) link: Option<Box<dyn Link>>,
    /// Whether there is somebody at the cable's other end; without a cable the port reaches itself.
    pub(crate) carrier: bool,
    pub(crate) pci: ConfigSpace,
    pub(crate) segment: InitSegment,
    pub(crate) commands: CommandQueue,
    pub(crate) caps: Caps,
    pub(crate) hca: Hca,
    pub(crate) port: Port,
    pub(crate) pages: Pages,
    pub(crate) resources: Resources,
    pub(crate) uar: uar::Assembly,
    pub(crate) memic: Memic,
    pub(crate) paging: Paging,
    pub(crate) signatures: Signatures,
    pub(crate) transport: transport::State,
    pub(crate) checks: checks::State,
    pub(crate) trace: Trace,
    pub(crate) adversary: Adversary,
    pub(crate) stalled: events::Stalled,
    /// Whether nothing in memory is answered for.
    deaf: bool,
    /// Whether doorbell pages are memory.
    pub(crate) watches: bool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// A device as it is after power on, with nothing plugged in.
    pub fn new(
        config: Config,
        memory: Arc<dyn GuestMemory>,
        interrupts: Box<dyn Interrupts>,
    ) -> Device {
        Device {
            pci: ConfigSpace::new(&config),
            segment: InitSegment::default(),
            commands: CommandQueue::default(),
            caps: Caps::new(&config),
            hca: Hca::default(),
            port: Port::new(&config),
            pages: Pages::default(),
            resources: Resources::new(&config),
            uar: uar::Assembly::default(),
            memic: Memic::default(),
            paging: Paging::default(),
            signatures: Signatures::default(),
            transport: transport::State::default(),
            checks: checks::State::default(),
            trace: Trace::default(),
            adversary: Adversary::new(config.adversary),
            stalled: events::Stalled::default(),
            deaf: false,
            watches: false,
            now: Duration::ZERO,
            link: None,
            carrier: true,
            config,
            memory,
            interrupts,
        }
    }

    /// Writes every command and its answer into `sink`, as `mlx5_core` dumps them (see [`trace`](crate::trace)).
    pub fn trace(&mut self, sink: Box<dyn Write + Send>) {
        self.trace = Trace::to(sink);
    }

    /// Reads BAR0. What lies outside reads as ones, as from a bus.
    pub fn bar_read(&mut self, offset: u64, to: &mut [u8]) {
        if self.deaf || outside(offset, to.len()) {
            to.fill(0xff);
        } else if offset < uar::FIRST_PAGE * uar::PAGE_SIZE {
            init_segment::read(self, offset, to);
        } else if Memic::has(offset) {
            self.memic.bar_read(offset, to);
        } else {
            to.fill(0); // doorbell pages are write-only
        }
    }

    /// Writes BAR0: the initialization segment, the doorbell pages and memory on the device.
    pub fn bar_write(&mut self, offset: u64, from: &[u8]) {
        if self.deaf || outside(offset, from.len()) {
            return;
        }
        if offset < uar::FIRST_PAGE * uar::PAGE_SIZE {
            init_segment::write(self, offset, from);
        } else if Memic::has(offset) {
            self.memic.bar_write(offset, from);
        } else {
            uar::write(self, offset, from);
        }
    }

    /// Reads the configuration space.
    pub fn config_read(&self, offset: u64, to: &mut [u8]) {
        self.pci.read(offset, to);
    }

    /// Writes the configuration space; setting the bit that asks for a function level reset
    /// resets the device.
    pub fn config_write(&mut self, offset: u64, from: &[u8]) {
        if self.pci.write(offset, from) {
            self.reset();
        }
        self.deaf &= !self.pci.has_memory();
    }

    /// A function level reset: everything but the identity, the cable and the time is forgotten.
    pub fn reset(&mut self) {
        self.pci = ConfigSpace::new(&self.config);
        self.segment = InitSegment::default();
        self.commands = CommandQueue::default();
        self.caps = Caps::new(&self.config);
        self.hca = Hca::default();
        self.port = Port::new(&self.config);
        self.port.up = self.carrier;
        self.pages = Pages::default();
        self.resources = Resources::new(&self.config);
        self.uar = uar::Assembly::default();
        self.memic = Memic::default();
        self.paging = Paging::default();
        self.transport = transport::State::default();
        self.checks = checks::State::default();
        self.stalled = events::Stalled::default();
    }

    /// A function level reset that its driver did not ask for. It disables the function's memory space (PCIe 6.6.2), and
    /// who asks for one saves the configuration space and writes it back; here nobody does, so that registers read as
    /// ones from now on, until memory space is enabled again.
    pub fn reset_unasked(&mut self) {
        self.reset();
        self.deaf = true;
    }

    /// What a driver asks failed firmware for: all but the function's configuration space begins anew.
    pub(crate) fn reset_firmware(&mut self) {
        let fresh = ConfigSpace::new(&self.config);
        let kept = std::mem::replace(&mut self.pci, fresh);
        self.reset();
        self.pci = kept;
    }

    /// Tells the device the time, which never goes back.
    pub(crate) fn tell_time(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// Tells the device the time since some fixed point, and lets it do what is due. It answers
    /// when it wants to be called next, if it waits for anything.
    pub fn tick(&mut self, now: Duration) -> Option<Duration> {
        self.tell_time(now);
        let commands = command::tick(self);
        let transport = transport::tick(self);
        let events = events::tick(self);
        [commands, transport, events].into_iter().flatten().min()
    }

    /// The first mistake that was found since power on or reset, if [`Config::strict`] had the device look for them.
    pub fn mistake(&self) -> Option<String> {
        self.checks.first()
    }

    /// Cuts the port's link, or brings it up again; the driver is told. A reset does not mend a cable.
    pub fn set_link(&mut self, up: bool) {
        port::set_link(self, up);
    }

    /// The firmware fails for good, with a syndrome for the health buffer
    /// (`MLX5_INITIAL_SEG_HEALTH_SYNDROME_*` of `mlx5_ifc.h`, such as 1, a firmware error): nothing
    /// works any more, until a reset.
    pub fn fail(&mut self, syndrome: u8) {
        self.segment.fail(syndrome.max(1));
    }

    /// Plugs a cable into the port, counted from 1.
    pub fn plug(&mut self, port: u8, link: Box<dyn Link>) {
        if port == 1 {
            self.link = Some(link);
        }
    }

    /// Takes a frame that arrived at the port.
    pub fn receive(&mut self, frame: &[u8]) {
        transport::receive(self, frame);
    }
}

fn outside(offset: u64, len: usize) -> bool {
    offset
        .checked_add(len as u64)
        .is_none_or(|end| end > BAR0_SIZE)
}

//! The device's command queue.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use wqe_format::mlx5::firmware::command::{CmdQueueEntry, MboxIn, MboxOut};
use wqe_format::mlx5::firmware::{Delivery, Opcode};

use super::mailbox::{Boxes, Chain, signature};
use super::slots::{Class, Slots};
use super::unread::Unread;
use super::{CommandCause, CommandError, Commands};
use crate::control::vfio::memory::{DmaMemory, Iommu};
use crate::control::vfio::pci::Pci;
use crate::control::vfio::segment::{self, Health};
use crate::sys::errno::Errno;

/// `MLX5_PCI_CMD_XPORT`.
const TRANSPORT: u8 = 7;
/// Bytes of a command and of an answer in the entry itself.
const INLINE: usize = 16;
/// Places in the entry (`cmd_queue_entry`).
const OUTPUT: usize = 32;
const SIGNATURE: usize = 61;
const STATUS: usize = 63;
/// Bytes of the queue: a page, to which its address is aligned.
const QUEUE_LEN: usize = 4096;
/// The time between two looks at an answer that no event announces: from ..
const FIRST_LOOK: Duration = Duration::from_micros(20);
/// .. to.
const LAST_LOOK: Duration = Duration::from_millis(5);

/// A command that takes longer has its device looked at.
const CHECKUP: Duration = Duration::from_millis(100);

/// The command queue.
///
/// A command waits for its entry to come back, whether or not an event says so: a lost interrupt costs time only.
#[derive(Debug)]
pub struct CommandQueue {
    pci: Arc<dyn Pci>,
    memory: DmaMemory,
    /// Distance of entries, as a logarithm.
    log_stride: u8,
    slots: Slots,
    boxes: Boxes,
    /// Boxes of commands that never ended: the device may still write there.
    lost: Mutex<Vec<Chain>>,
    token: AtomicU8,
    unread: Unread,
    /// Whoever waits looks again when this is signalled.
    events: Mutex<()>,
    ended: Condvar,
    failed: AtomicBool,
    time: Duration,
    /// Whether the device says where it thinks that the queue is: one that was reset by somebody else does not know any more.
    says_where: bool,
}

impl CommandQueue {
    /// Tells the device where the queue is. `time` is how long a command may take.
    pub(in crate::control::vfio) fn new(
        pci: Arc<dyn Pci>,
        iommu: &Arc<Iommu>,
        time: Duration,
    ) -> Result<Self, Errno> {
        let shape = segment::command_queue(&*pci)?;
        let memory = iommu.allocate(QUEUE_LEN, false)?;
        let queue = Self {
            memory,
            log_stride: shape.log_stride,
            slots: Slots::new(shape.entries),
            boxes: Boxes::new(iommu.clone()),
            lost: Mutex::default(),
            token: AtomicU8::new(0),
            unread: Unread::default(),
            events: Mutex::default(),
            ended: Condvar::new(),
            failed: AtomicBool::new(false),
            time,
            says_where: false,
            pci,
        };
        segment::set_command_queue(&*queue.pci, queue.memory.iova(0))?;
        Ok(Self {
            says_where: queue.is_known(),
            ..queue
        })
    }

    /// The device has failed: whoever waits is told, and so is whoever comes.
    pub(in crate::control::vfio) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.unread.end();
        self.look();
    }

    /// Whether the device says that the queue is where it is.
    fn is_known(&self) -> bool {
        segment::queue_address(&*self.pci) == Ok(self.memory.iova(0))
    }

    /// How the device is. One that somebody else has reset has failed: nothing that was made is there any more.
    pub(in crate::control::vfio) fn health(&self) -> Health {
        match segment::health(&*self.pci) {
            Health::Good(_) if self.says_where && !self.is_known() => Health::Failed(0),
            health => health,
        }
    }

    /// Some command has ended.
    pub(in crate::control::vfio) fn look(&self) {
        let _waiting = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.notify_all();
    }

    /// This thread reads the queue of `entries` in which the device says that commands have ended.
    pub(in crate::control::vfio) fn start_reading(&self, entries: u32) {
        self.unread.start(entries / 4);
    }

    /// Nobody reads it any more.
    pub(in crate::control::vfio) fn end_reading(&self) {
        self.unread.end();
    }

    /// Reads that queue until it is empty.
    pub(in crate::control::vfio) fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.unread.count();
        let read = read();
        self.unread.take(before);
        read
    }

    /// Runs a command that gives pages to the device or takes them back, which others may wait for.
    pub(in crate::control::vfio) fn execute_for_pages(
        &self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CommandError> {
        self.run(Class::Pages, input, output)
    }

    fn run(&self, class: Class, input: &[u8], output: &mut [u8]) -> Result<(), CommandError> {
        let opcode = Opcode(MboxIn::new(input).map_or(0, |input| input.opcode()));
        let error = |cause| CommandError::other(opcode, cause);
        output.fill(0);
        if input.len() < INLINE || output.len() < 8 {
            return Err(error(CommandCause::Process(Errno(libc::EINVAL))));
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(error(CommandCause::DeviceFailed));
        }
        // Those that give pages keep the others going, the reader too.
        if class == Class::Ordinary {
            self.unread.wait(self.time);
        }
        let slot = self
            .slots
            .take(class, self.time)
            .ok_or(error(CommandCause::TimedOut))?;
        let token = self.next_token();
        let chain = |data: &[u8], len| self.boxes.chain(data, len, token);
        let chains = chain(&input[INLINE..], input.len() - INLINE).and_then(|sent| {
            match chain(&[], output.len().saturating_sub(INLINE)) {
                Ok(answer) => Ok((sent, answer)),
                Err(errno) => {
                    self.boxes.give_back(sent);
                    Err(errno)
                }
            }
        });
        let (sent, answer) = match chains {
            Ok(chains) => chains,
            Err(errno) => {
                self.slots.give_back(slot);
                return Err(error(CommandCause::Process(errno)));
            }
        };
        let entry = entry(input, output.len(), token, &sent, &answer);
        let place = (slot as usize) << self.log_stride;
        // The ownership bit is in the last byte, and is stored last.
        self.memory.write(place, &entry[..STATUS]);
        self.memory.store(place + STATUS, entry[STATUS]);
        self.unread.add();
        let ended = match segment::ring(&*self.pci, 1 << slot) {
            Ok(()) => self.wait(place),
            Err(errno) => Err(CommandCause::Process(errno)),
        };
        let delivery = match ended {
            Ok(delivery) => delivery,
            Err(cause) => {
                // The device may still write the answer: neither place nor boxes are used again.
                let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.extend([sent, answer]);
                return Err(error(cause));
            }
        };
        let inline = output.len().min(INLINE);
        self.memory.read(place + OUTPUT, &mut output[..inline]);
        answer.read(&mut output[inline..]);
        self.boxes.give_back(sent);
        self.boxes.give_back(answer);
        self.slots.give_back(slot);
        if delivery != Delivery::OK {
            return Err(error(CommandCause::NotDelivered(delivery)));
        }
        verdict(opcode, output)
    }

    /// Tokens tell the boxes of one command from those of another; 0 is none.
    fn next_token(&self) -> u8 {
        loop {
            let token = self.token.fetch_add(1, Ordering::Relaxed);
            if token != 0 {
                return token;
            }
        }
    }

    /// Waits until the device gives an entry back.
    fn wait(&self, place: usize) -> Result<Delivery, CommandCause> {
        let deadline = Instant::now() + self.time;
        let backoff = Backoff::new();
        let mut look = FIRST_LOOK;
        let mut checkup = Instant::now() + CHECKUP;
        loop {
            let status = self.memory.load(place + STATUS);
            if status & 1 == 0 {
                return Ok(Delivery(status >> 1));
            }
            if self.failed.load(Ordering::Acquire) {
                return Err(CommandCause::DeviceFailed);
            }
            let now = Instant::now();
            if now >= checkup {
                checkup = now + CHECKUP;
                if !matches!(self.health(), Health::Good(_)) {
                    self.fail();
                    continue;
                }
            }
            if now >= deadline {
                return Err(CommandCause::TimedOut);
            }
            if !backoff.is_completed() {
                backoff.snooze();
                continue;
            }
            let waiting = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.ended.wait_timeout(waiting, look));
            look = (look * 2).min(LAST_LOOK);
        }
    }
}

impl Commands for CommandQueue {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), CommandError> {
        self.run(Class::Ordinary, input, output)
    }
}

/// The entry of a command, owned by the device.
fn entry(input: &[u8], output: usize, token: u8, sent: &Chain, answer: &Chain) -> [u8; 64] {
    let mut entry = CmdQueueEntry::zeroed();
    entry
        .set_type_(TRANSPORT)
        .set_input_length(input.len() as u32)
        .set_output_length(output as u32)
        .set_input_mailbox_pointer_63_32((sent.first() >> 32) as u32)
        .set_input_mailbox_pointer_31_9((sent.first() >> 9) as u32 & 0x7f_ffff)
        .set_output_mailbox_pointer_63_32((answer.first() >> 32) as u32)
        .set_output_mailbox_pointer_31_9((answer.first() >> 9) as u32 & 0x7f_ffff)
        .set_token(token)
        .set_ownership(true);
    let inline = input.len().min(INLINE);
    entry.command_input_inline_data_mut()[..inline].copy_from_slice(&input[..inline]);
    let mut bytes = entry.into_inner();
    bytes[SIGNATURE] = signature(&bytes);
    bytes
}

/// What the answer says.
fn verdict(opcode: Opcode, output: &[u8]) -> Result<(), CommandError> {
    use wqe_format::mlx5::firmware::Status;
    let mut head = [0; MboxOut::SIZE];
    let len = output.len().min(head.len());
    head[..len].copy_from_slice(&output[..len]);
    let (status, syndrome) = match MboxOut::new(&head) {
        Ok(head) => (Status(head.status()), head.syndrome()),
        Err(_) => (Status::OK, 0),
    };
    if status.is_ok() {
        return Ok(());
    }
    Err(CommandError::refused(opcode, status, syndrome))
}

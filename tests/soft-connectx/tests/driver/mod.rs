//! A driver of a few lines, which speaks to the device as `mlx5_core` does: through BAR0 and
//! memory.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod features;
pub(crate) mod objects;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use soft_connectx::{Config, Device, GuestMemory, Interrupts, Ram};
use wqe_format::mlx5::firmware::eq::{CreateEqIn, CreateEqOut};
use wqe_format::mlx5::firmware::hca::SetIssiIn;
use wqe_format::mlx5::firmware::pages::{ManagePagesIn, QueryPagesIn, QueryPagesOut};
use wqe_format::mlx5::firmware::{EventType, Opcode, Status};

const MEMORY: usize = 32 << 20;
const QUEUE: u64 = 0x1000;
const INPUT: u64 = 0x10_0000;
const OUTPUT: u64 = 0x20_0000;
/// What is given away page by page.
const FREE: u64 = 0x30_0000;

/// Vectors that were raised, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vectors(pub(crate) Arc<Mutex<Vec<u16>>>);

impl Interrupts for Vectors {
    fn raise(&self, vector: u16) {
        self.0.lock().unwrap().push(vector);
    }
}

/// An entry of the command queue as it is written; tests break it before they ring.
#[derive(Clone, Debug)]
pub(crate) struct Entry(pub(crate) [u8; 64]);

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) device: Device,
    pub(crate) memory: Arc<Ram>,
    pub(crate) vectors: Vectors,
    /// Whether commands may take their time, as with an adversary.
    pub(crate) patient: bool,
    now: Duration,
    free: u64,
    token: u8,
}

impl Driver {
    /// A device that was reset, and its command queue.
    pub(crate) fn new(config: Config) -> Driver {
        let memory = Arc::new(Ram::new(MEMORY));
        let vectors = Vectors::default();
        let patient = config.adversary.is_some();
        let device = Device::new(config, memory.clone(), Box::new(vectors.clone()));
        let mut driver = Driver {
            device,
            memory,
            vectors,
            patient,
            now: Duration::ZERO,
            free: FREE,
            token: 1,
        };
        driver.connect();
        driver
    }

    /// Tells the device where its command queue is.
    fn connect(&mut self) {
        self.device.bar_write(0x10, &[0; 4]);
        self.device.bar_write(0x14, &(QUEUE as u32).to_be_bytes());
    }

    /// A device that is initialized.
    pub(crate) fn up(config: Config) -> Driver {
        let mut driver = Driver::new(config);
        driver.initialize();
        driver
    }

    /// Brings the device up as mlx5_core does.
    fn initialize(&mut self) {
        self.simple(Opcode::ENABLE_HCA);
        let mut issi = command::<{ SetIssiIn::SIZE }>(Opcode::SET_ISSI);
        SetIssiIn::new(&mut issi).unwrap().set_current_issi(1);
        self.ok(&issi, 16);
        self.give_pages(1);
        self.give_pages(2);
        self.simple(Opcode::INIT_HCA);
    }

    /// Resets the device and brings it up again; everything in memory is lost, too.
    pub(crate) fn again(&mut self) {
        self.device.reset();
        self.free = FREE;
        self.connect();
        self.initialize();
    }

    /// Pages that nobody has.
    pub(crate) fn pages(&mut self, count: usize) -> Vec<u64> {
        (0..count as u64)
            .map(|_| (self.free, self.free += 0x1000).0)
            .collect()
    }

    pub(crate) fn give_pages(&mut self, op_mod: u16) {
        let mut query = command::<{ QueryPagesIn::SIZE }>(Opcode::QUERY_PAGES);
        QueryPagesIn::new(&mut query).unwrap().set_op_mod(op_mod);
        let reply = self.ok(&query, 16);
        let answer = QueryPagesOut::new(&reply).unwrap();
        let (function, count) = (answer.function_id(), answer.num_pages());
        self.give_to(function, 0, count as usize);
    }

    /// Gives some pages, by a slot of the command queue.
    pub(crate) fn give(&mut self, slot: u8, count: usize) {
        self.give_to(0, slot, count);
    }

    fn give_to(&mut self, function: u16, slot: u8, count: usize) {
        let pages = self.pages(count);
        let mut give = vec![0; ManagePagesIn::SIZE + 8 * pages.len()];
        let mut view = ManagePagesIn::new(&mut give[..]).unwrap();
        view.set_opcode(Opcode::MANAGE_PAGES.0).set_op_mod(1);
        view.set_function_id(function)
            .set_input_num_entries(pages.len() as u32);
        for (index, page) in pages.iter().enumerate() {
            view.set_pas(index, *page);
        }
        let entry = self.entry(slot, &give, 16);
        assert_eq!(self.ring(slot, &entry), 0, "delivery");
        assert_eq!(self.output(slot, 16)[0], Status::OK.0);
    }

    /// An event queue of 64 entries for some events; its number and the address of its ring.
    pub(crate) fn event_queue(&mut self, uar: u32, vector: u16, events: &[EventType]) -> (u8, u64) {
        let page = self.pages(1)[0];
        let mut input = command::<{ CreateEqIn::SIZE + 8 }>(Opcode::CREATE_EQ);
        let mut view = CreateEqIn::new(&mut input).unwrap();
        let bits = events.iter().fold(0, |bits, event| bits | 1 << event.0);
        view.set_event_bitmask(0, bits).set_pas(0, page);
        view.eq_context_entry_mut()
            .set_log_eq_size(6)
            .set_uar_page(uar)
            .set_intr(vector);
        let reply = self.ok(&input, 16);
        (CreateEqOut::new(&reply).unwrap().eq_number(), page)
    }

    /// A command of nothing but its opcode.
    pub(crate) fn simple(&mut self, opcode: Opcode) -> Vec<u8> {
        self.ok(&command::<16>(opcode), 16)
    }

    /// The output of a command that is done.
    pub(crate) fn ok(&mut self, input: &[u8], output: usize) -> Vec<u8> {
        let reply = self.send(input, output);
        let opcode = Opcode(u16::from_be_bytes([input[0], input[1]]));
        assert_eq!(Status(reply[0]), Status::OK, "{:?}", opcode.name());
        reply
    }

    /// The status of a command that is refused.
    pub(crate) fn refused(&mut self, input: &[u8]) -> Status {
        let reply = self.send(input, 16);
        assert_ne!(reply[4..8], [0; 4], "a refusal has a syndrome");
        Status(reply[0])
    }

    /// The output of a command, refused or done.
    pub(crate) fn send(&mut self, input: &[u8], output: usize) -> Vec<u8> {
        let entry = self.entry(0, input, output);
        assert_eq!(self.ring(0, &entry), 0, "delivery");
        self.output(0, output)
    }

    /// Lays a command out over entry and mailboxes.
    pub(crate) fn entry(&mut self, slot: u8, input: &[u8], output: usize) -> Entry {
        self.token = self.token.checked_add(1).unwrap_or(1);
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        let inline = input.len().min(16);
        entry[16..16 + inline].copy_from_slice(&input[..inline]);
        entry[56..60].copy_from_slice(&(output as u32).to_be_bytes());
        entry[60] = self.token;
        entry[63] = 1;
        let (boxes_in, boxes_out) = boxes(slot);
        if input.len() > inline {
            entry[8..16].copy_from_slice(&boxes_in.to_be_bytes());
            self.chain(boxes_in, &input[inline..]);
        }
        if output > 16 {
            entry[48..56].copy_from_slice(&boxes_out.to_be_bytes());
            self.chain(boxes_out, &vec![0xee; output - 16]);
        }
        Entry(entry)
    }

    fn chain(&self, first: u64, data: &[u8]) {
        let count = data.len().div_ceil(512);
        for (index, part) in data.chunks(512).enumerate() {
            let address = first + 1024 * index as u64;
            let mut block = [0; 576];
            block[..part.len()].copy_from_slice(part);
            if index + 1 < count {
                block[0x230..0x238].copy_from_slice(&(address + 1024).to_be_bytes());
            }
            block[0x238..0x23c].copy_from_slice(&(index as u32).to_be_bytes());
            block[0x23d] = self.token;
            self.memory.write(address, &block).unwrap();
        }
    }

    pub(crate) fn put(&self, slot: u8, entry: &Entry) {
        self.memory
            .write(QUEUE + 64 * u64::from(slot), &entry.0)
            .unwrap();
    }

    /// Puts an entry into its slot and rings; the delivery status, `0xff` while the device has it.
    pub(crate) fn ring(&mut self, slot: u8, entry: &Entry) -> u8 {
        self.put(slot, entry);
        self.device.bar_write(0x18, &(1u32 << slot).to_be_bytes());
        for _ in 0..if self.patient { 100 } else { 0 } {
            if self.delivery(slot) != 0xff {
                break;
            }
            self.wait(Duration::from_micros(100));
        }
        self.delivery(slot)
    }

    /// Lets time go by.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.device.tick(self.now);
    }

    pub(crate) fn delivery(&self, slot: u8) -> u8 {
        let mut last = [0];
        self.memory
            .read(QUEUE + 64 * u64::from(slot) + 63, &mut last)
            .unwrap();
        if last[0] & 1 == 0 { last[0] >> 1 } else { 0xff }
    }

    pub(crate) fn output(&self, slot: u8, len: usize) -> Vec<u8> {
        let mut output = vec![0; len];
        let inline = len.min(16);
        self.memory
            .read(QUEUE + 64 * u64::from(slot) + 32, &mut output[..inline])
            .unwrap();
        let (_, boxes_out) = boxes(slot);
        for (index, part) in output[inline..].chunks_mut(512).enumerate() {
            self.memory
                .read(boxes_out + 1024 * index as u64, part)
                .unwrap();
        }
        output
    }

    pub(crate) fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(address, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn bar(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.device.bar_read(offset, &mut bytes);
        u32::from_be_bytes(bytes)
    }
}

/// Where a slot's mailboxes lie.
fn boxes(slot: u8) -> (u64, u64) {
    (
        INPUT + 0x8000 * u64::from(slot),
        OUTPUT + 0x8000 * u64::from(slot),
    )
}

/// Input of which only the opcode is set.
pub(crate) fn command<const N: usize>(opcode: Opcode) -> [u8; N] {
    let mut input = [0; N];
    input[..2].copy_from_slice(&opcode.0.to_be_bytes());
    input
}

//! A driver without a kernel: it lays commands into the guest's memory and rings.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;

use soft_connectx::{Config, Device, GuestMemory, Interrupts, Ram};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::command::{CmdIfBox, CmdQueueEntry, MboxOut};
use wqe_format::mlx5::firmware::hca::SetIssiIn;
use wqe_format::mlx5::firmware::pages::{ManagePagesIn, QueryPagesOut};

/// Where the command queue lies.
const QUEUE: u64 = 0x1000;
/// Where mailboxes of input and of output lie, 1024 bytes each.
const INPUT: u64 = 0x1_0000;
const OUTPUT: u64 = 0x8_0000;
const MAILBOX: u64 = 1024;
/// Where pages that the device is given begin.
const PAGES: u64 = 0x10_0000;
/// All memory.
pub(crate) const MEMORY: usize = 4 << 20;
/// Data of a mailbox.
const BLOCK: usize = 512;

/// Interrupts that nobody waits for: commands are polled.
struct Polled;

impl Interrupts for Polled {
    fn raise(&self, _vector: u16) {}
}

pub(crate) struct Rig {
    pub(crate) device: Device,
    pub(crate) memory: Arc<Ram>,
}

impl Rig {
    /// A device whose command queue is set up.
    pub(crate) fn new(config: Config) -> Rig {
        let memory = Arc::new(Ram::new(MEMORY));
        let mut device = Device::new(config, Arc::clone(&memory) as _, Box::new(Polled));
        device.bar_write(0x10, &0_u32.to_be_bytes());
        device.bar_write(0x14, &(QUEUE as u32).to_be_bytes());
        Rig { device, memory }
    }

    /// Runs a command; the answer is its output, or the status of its delivery.
    pub(crate) fn run(&mut self, input: &[u8], room: usize) -> Result<Vec<u8>, u8> {
        let mut entry = CmdQueueEntry::zeroed();
        let inline = input.len().min(16);
        entry.command_input_inline_data_mut()[..inline].copy_from_slice(&input[..inline]);
        entry
            .set_type_(7)
            .set_input_length(input.len() as u32)
            .set_output_length(room as u32)
            .set_token(5)
            .set_ownership(true);
        if self.mailboxes(INPUT, &input[inline..]) {
            entry.set_input_mailbox_pointer_31_9((INPUT >> 9) as u32);
        }
        if self.mailboxes(OUTPUT, &vec![0; room.saturating_sub(16)]) {
            entry.set_output_mailbox_pointer_31_9((OUTPUT >> 9) as u32);
        }
        self.ring(entry.as_bytes());

        let mut bytes = [0; CmdQueueEntry::SIZE];
        self.memory.read(QUEUE, &mut bytes).unwrap();
        let entry = CmdQueueEntry::new(bytes).unwrap();
        assert!(!entry.ownership(), "the device keeps the command");
        if entry.status() != 0 {
            return Err(entry.status());
        }
        let mut output = entry.command_output_inline_data().to_vec();
        for number in 0..room.saturating_sub(16).div_ceil(BLOCK) as u64 {
            let mut data = [0; BLOCK];
            self.memory
                .read(OUTPUT + number * MAILBOX, &mut data)
                .unwrap();
            output.extend(data);
        }
        output.truncate(room.max(16));
        Ok(output)
    }

    /// Lays an entry into the queue's first slot, and rings.
    pub(crate) fn ring(&mut self, entry: &[u8]) {
        self.memory.write(QUEUE, entry).unwrap();
        self.device.bar_write(0x18, &1_u32.to_be_bytes());
    }

    /// A chain of mailboxes with `data`, if there is any.
    fn mailboxes(&self, first: u64, data: &[u8]) -> bool {
        let blocks = data.len().div_ceil(BLOCK);
        for (number, part) in data.chunks(BLOCK).enumerate() {
            let at = first + number as u64 * MAILBOX;
            let mut mailbox = CmdIfBox::zeroed();
            mailbox.mailbox_data_mut()[..part.len()].copy_from_slice(part);
            mailbox.set_token(5).set_block_number(number as u32);
            if number + 1 < blocks {
                mailbox.set_next_pointer_31_10(((at + MAILBOX) >> 10) as u32);
            }
            self.memory.write(at, mailbox.as_bytes()).unwrap();
        }
        blocks > 0
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&mut self, input: &[u8], room: usize) -> Vec<u8> {
        let output = self.run(input, room).expect("delivered");
        let reply = MboxOut::new(&output).unwrap();
        let opcode = Opcode(u16::from_be_bytes([input[0], input[1]]));
        assert_eq!(
            reply.status(),
            0,
            "{opcode:?}: syndrome {:#x}",
            reply.syndrome()
        );
        output
    }

    /// A command of 16 bytes without parameters but `op_mod`.
    pub(crate) fn simple(&mut self, opcode: Opcode, op_mod: u16) -> Vec<u8> {
        let mut input = [0; 16];
        input[..2].copy_from_slice(&opcode.0.to_be_bytes());
        input[6..8].copy_from_slice(&op_mod.to_be_bytes());
        self.ok(&input, 16)
    }

    /// Brings the device up as mlx5_core does.
    pub(crate) fn up(&mut self) {
        self.simple(Opcode::ENABLE_HCA, 0);
        let mut issi = SetIssiIn::zeroed();
        issi.set_opcode(Opcode::SET_ISSI.0).set_current_issi(1);
        self.ok(issi.as_bytes(), 16);
        self.give(1);
        self.give(2);
        self.simple(Opcode::INIT_HCA, 0);
    }

    /// Gives the pages that the device wants for boot (1) or initialization (2).
    fn give(&mut self, what: u16) {
        let wanted = self.simple(Opcode::QUERY_PAGES, what);
        let count = QueryPagesOut::new(&wanted).unwrap().num_pages() as usize;
        let mut bytes = vec![0; ManagePagesIn::SIZE + 8 * count];
        let mut input = ManagePagesIn::new(&mut bytes[..]).unwrap();
        input
            .set_opcode(Opcode::MANAGE_PAGES.0)
            .set_op_mod(1)
            .set_input_num_entries(count as u32);
        for index in 0..count {
            let page = PAGES + (u64::from(what) << 19) + ((index as u64) << 12);
            input.set_pas(index, page);
        }
        self.ok(&bytes, 16);
    }
}

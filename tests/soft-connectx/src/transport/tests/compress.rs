//! Compressed completions: a program that takes blocks apart finds what it would find without compression.

use wqe_format::mlx5::compressed::{Block, Layout, Title, is_valid_enhanced};
use wqe_format::mlx5::{CqeFormat, MiniArray, MiniFormat};

use super::*;
use crate::adversary::Adversary;
use crate::completion::compress::{Compression, TIMEOUT};

const WAIT: Duration = Duration::from_micros(TIMEOUT as u64);

/// Who takes blocks apart, and what was met.
#[derive(Default)]
struct Reader {
    next: u32,
    title: Option<Cqe64>,
    /// Completions of each block.
    blocks: Vec<u32>,
}

impl Reader {
    /// Everything that is there.
    fn read(&mut self, bench: &mut Bench, cqn: u32, how: Option<Compression>) -> Vec<Cqe64> {
        let at = |index: u32| Bench::place(cqn) + u64::from(index & ((1 << LOG_CQ) - 1)) * 64;
        let ram = bench.ram.clone();
        let entry = |index: u32| {
            let mut bytes = [0; 64];
            ram.read(at(index), &mut bytes).unwrap();
            bytes
        };
        let array = |index: u32| MiniArray::read_from_bytes(&entry(index)).unwrap();
        let log = LOG_CQ.into();
        let mut all = Vec::new();
        loop {
            let cqe = Cqe64::read_from_bytes(&entry(self.next)).unwrap();
            let is_enhanced = how.is_some_and(|how| how.layout == Layout::Enhanced);
            let is_there = if is_enhanced {
                is_valid_enhanced(cqe.signature, cqe.op_own, self.next, log)
            } else {
                cqe.op_own.is_software_owned(self.next, log)
            };
            if !is_there {
                break;
            }
            let before = self.next;
            if cqe.format() == CqeFormat::COMPRESSED {
                let format = how.unwrap().format;
                let block = if is_enhanced {
                    let title = Title::new(&self.title.unwrap(), Layout::Enhanced, format);
                    Block::enhanced(title.ok(), cqe.op_own, before, log).unwrap()
                } else {
                    Block::basic(&cqe, before, log, format).unwrap()
                };
                self.blocks.push(block.count());
                self.next += block.count();
                all.extend(block.expand(array));
            } else {
                self.next += 1;
                all.push(cqe);
            }
            self.title = all.last().copied();
            // What was read is not valid on a later turn.
            for index in before..self.next {
                ram.write(at(index) + 62, &[0xff, 0xf0 | (self.next >> log) as u8 & 1])
                    .unwrap();
            }
        }
        let record = (self.next & 0xff_ffff).to_be_bytes();
        ram.write(Bench::place(cqn) + 0x1_0000, &record).unwrap();
        all
    }
}

/// What compression must not change.
fn essence(cqe: &Cqe64) -> (CqeOpcode, u8, u16, u32, u32, u32, u32) {
    let imm = cqe.imm_inval_pkey.get();
    let word = cqe.sop_drop_qpn.into_bits().get();
    let (counter, bytes) = (cqe.wqe_counter.get(), cqe.byte_cnt.get());
    (
        cqe.opcode(),
        u8::from(cqe.op_own.solicited()),
        counter,
        bytes,
        imm,
        word,
        cqe.user_index(),
    )
}

/// Sends, writes and reads of several lengths, so many at a time; what both ends find, and how many completions blocks had.
fn traffic(how: Option<Compression>, seed: Option<u64>) -> (Vec<Vec<Cqe64>>, [Vec<u32>; 2]) {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.adversary = Adversary::new(seed);
    for cqn in [0x41, 0x42] {
        bench.device.resources.cqs.get_mut(cqn).unwrap().compression = how;
    }
    let mut readers = [Reader::default(), Reader::default()];
    let mut found = vec![Vec::new(), Vec::new()];
    let mut number = 0;
    // 262 completions turn the ring of 64 several times, and the ring of 8 receives many times.
    for burst in 0..60u32 {
        let burst = 1 + burst % 8;
        for _ in 0..burst {
            bench.post_receive(0x42, &[data(0x5000, 2048)]);
        }
        let mut first = Vec::new();
        for nth in 0..burst {
            number += 1;
            let list = data(0x1000, 1 + number % 700);
            let imm = number / 20;
            // Runs of equal ones, and changes among them.
            let bytes = match number / 5 % 3 {
                0 => bench.request(0x41, Opcode::SEND_IMM, imm, &[list.as_bytes()]),
                1 => bench.request(0x41, Opcode::SEND, 0, &[list.as_bytes()]),
                _ => {
                    let body = [remote(0x9000).as_bytes(), list.as_bytes()].concat();
                    bench.request(0x41, Opcode::RDMA_WRITE_IMM, imm, &[&body])
                }
            };
            bench.put(0x41, &bytes);
            if nth == 0 {
                first = bytes;
            }
        }
        let register = u64::from(UAR) * 4096 + 0x800;
        bench.device.bar_write(register, &first[..8]);
        bench.wait(WAIT);
        for ((reader, found), cqn) in readers.iter_mut().zip(&mut found).zip([0x41, 0x42]) {
            found.extend(reader.read(&mut bench, cqn, how));
        }
    }
    let [one, other] = readers;
    (found, [one.blocks, other.blocks])
}

const FORMATS: [MiniFormat; 3] = [MiniFormat::HASH, MiniFormat::CSUM, MiniFormat::CSUM_STRIDX];

#[test]
fn blocks_say_what_single_completions_would() {
    let (plain, none) = traffic(None, None);
    assert_eq!(none, [const { Vec::<u32>::new() }; 2]);
    let essences = |all: &[Vec<Cqe64>]| -> Vec<Vec<_>> {
        all.iter()
            .map(|cqes| cqes.iter().map(essence).collect())
            .collect()
    };
    let expected = essences(&plain);
    assert!(plain.iter().all(|end| end.len() == 262));
    for layout in [Layout::Basic, Layout::Enhanced] {
        for format in FORMATS {
            for seed in [None, Some(1), Some(2)] {
                let how = Compression { layout, format };
                let (found, blocks) = traffic(Some(how), seed);
                for (found, expected) in essences(&found).iter().zip(&expected) {
                    let wrong = found.iter().zip(expected).find(|(one, other)| one != other);
                    assert_eq!(
                        (found.len(), wrong),
                        (expected.len(), None),
                        "{how:?} {seed:?}"
                    );
                }
                for blocks in blocks {
                    assert!(blocks.len() > 20, "{how:?} {blocks:?}");
                    assert!(blocks.iter().all(|count| (2..=8).contains(count)));
                }
            }
        }
    }
}

/// A ring of sixteen basic blocks, all requests of which are done at once.
fn burst(how: Compression, count: u32) -> Bench {
    let mut bench = Bench::pair(QpKind::Rc);
    bench
        .device
        .resources
        .cqs
        .get_mut(0x41)
        .unwrap()
        .compression = Some(how);
    let mut bytes = Vec::new();
    for _ in 0..count {
        bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
        bench.put(0x41, &bytes);
    }
    let register = u64::from(UAR) * 4096 + 0x800;
    bench.device.bar_write(register, &bytes[..8]);
    bench
}

const BASIC: Compression = Compression {
    layout: Layout::Basic,
    format: MiniFormat::HASH,
};
const ENHANCED: Compression = Compression {
    layout: Layout::Enhanced,
    format: MiniFormat::HASH,
};

/// Ten sends: a title that counts ten, with eight mini entries behind it, and two more in the ninth entry; or a completion,
/// seven mini entries and two. The bytes are those that Linux' `en_rx.c` and UCX' `ib_mlx5.c` read.
#[test]
fn blocks_stand_where_their_readers_look() {
    let mini = |counter: u8| [0, counter, 0, 0, 0, 0, 0, 0];
    let minis = |from: u8, to: u8| (from..to).flat_map(mini).collect::<Vec<u8>>();

    let mut bench = burst(BASIC, 10);
    assert_eq!(bench.poll(0x41), None, "it waits for more");
    bench.wait(WAIT);
    let at = Bench::place(0x41);
    let title = bench.bytes(at, 64);
    assert_eq!(title[44..48], [0, 0, 0, 10]);
    assert_eq!(title[56..64], [0, 0, 0, 0x41, 0, 0, 0, 0x0c]);
    assert_eq!(bench.bytes(at + 64, 64), minis(0, 8));
    assert_eq!(bench.bytes(at + 8 * 64, 16), minis(8, 10));

    let mut bench = burst(ENHANCED, 10);
    bench.wait(WAIT);
    let first = bench.bytes(at, 64);
    assert_eq!(first[56..64], [0, 0, 0, 0x41, 0, 0, 0, 0]);
    let block = bench.bytes(at + 64, 64);
    assert_eq!(block[..56], minis(1, 8));
    assert_eq!(block[62..], [0, 0x6c]);
    let block = bench.bytes(at + 8 * 64, 64);
    assert_eq!(block[..16], minis(8, 10));
    assert_eq!(block[62..], [0, 0x1c]);
}

#[test]
fn a_command_finds_nothing_held_back() {
    let mut bench = burst(BASIC, 3);
    bench.device.hca.stage = crate::command::Stage::Initialized;
    assert_eq!(bench.poll(0x41), None);
    let mut query = [0; 16];
    query[..2].copy_from_slice(&0x842u16.to_be_bytes());
    assert_eq!(crate::command::execute(&mut bench.device, &query)[0], 0);
    let mut reader = Reader::default();
    assert_eq!(reader.read(&mut bench, 0x41, Some(BASIC)).len(), 3);
}

#[test]
fn an_error_comes_behind_what_was_before_it() {
    for how in [BASIC, ENHANCED] {
        let mut bench = burst(how, 3);
        bench.post(0x41, Opcode::TSO, 0, &[data(0, 4).as_bytes()]);
        bench.post(0x41, Opcode::NOP, 0, &[]);
        bench.wait(WAIT);
        let mut reader = Reader::default();
        let found = reader.read(&mut bench, 0x41, Some(how));
        let counters = found.iter().map(|cqe| cqe.wqe_counter.get());
        assert_eq!(counters.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let opcodes = found.iter().map(|cqe| cqe.opcode()).collect::<Vec<_>>();
        let (done, failed) = (CqeOpcode::REQ, CqeOpcode::REQ_ERR);
        assert_eq!(opcodes, [done, done, done, failed, failed]);
    }
}

/// What is held back has its place: sixteen a time, of which nobody takes any.
#[test]
fn what_is_held_back_has_room() {
    let mut bench = burst(BASIC, 16);
    for turn in 2..=5 {
        let mut bytes = Vec::new();
        for _ in 0..16 {
            bytes = bench.request(0x41, Opcode::NOP, 0, &[]);
            bench.put(0x41, &bytes);
        }
        let register = u64::from(UAR) * 4096 + 0x800;
        bench.device.bar_write(register, &bytes[..8]);
        let expected = if turn <= 4 {
            QpState::Rts
        } else {
            QpState::Err
        };
        assert_eq!(bench.state(0x41), expected, "{turn}");
    }
}

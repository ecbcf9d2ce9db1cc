//! Nothing that a guest writes makes the device panic: commands, registers, memory, work requests; and after a reset it
//! works.

mod driver;

use driver::{Driver, features, objects};
use proptest::prelude::*;
use soft_connectx::{Config, GuestMemory as _, LinkLayer};
use std::time::Duration;
use wqe_format::mlx5::firmware::Opcode;

/// Something a guest does.
#[derive(Clone, Debug)]
enum Act {
    /// A command that begins with an opcode.
    Command {
        opcode: u16,
        rest: Vec<u8>,
        output: usize,
    },
    /// A good command about objects that are there, of which some bytes are changed.
    Changed {
        number: usize,
        damage: Vec<(usize, u8)>,
    },
    /// A work request, rung for.
    Post {
        opcode: u8,
        units: u8,
        words: Vec<u32>,
    },
    /// A frame arrives.
    Frame(Vec<u8>),
    /// A write to the configuration space.
    Config { offset: u64, bytes: Vec<u8> },
    /// A write to BAR0.
    Register { offset: u64, bytes: Vec<u8> },
    /// A command's entry with a few bytes wrong.
    Entry {
        opcode: u16,
        damage: Vec<(usize, u8)>,
    },
    /// Memory changes under the device's hands.
    Memory { address: u64, bytes: Vec<u8> },
}

/// Numbers that resources have, and what lies at the edges.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0), 2 => 0..4u8, 1 => Just(0xff), 1 => any::<u8>()]
}

fn opcode() -> impl Strategy<Value = u16> {
    let known: Vec<u16> = Opcode::ALL
        .iter()
        .filter(|opcode| **opcode != Opcode::TEARDOWN_HCA && **opcode != Opcode::DISABLE_HCA)
        .map(|opcode| opcode.0)
        .collect();
    prop_oneof![12 => prop::sample::select(known), 1 => any::<u16>()]
}

/// Numbers that often name something: small ones, all ones, pages.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0),
        4 => 0_u32..0x60,
        2 => (0_u32..0x2000).prop_map(|page| page << 12),
        1 => Just(u32::MAX),
        2 => any::<u32>(),
    ]
}

/// Bytes with one bit, small ones, and any.
fn damage() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![(0_u32..8).prop_map(|bit| 1 << bit), 0_u8..16, any::<u8>()];
    prop::collection::vec((any::<usize>(), byte), 0..4)
}

fn act() -> impl Strategy<Value = Act> {
    let command = (opcode(), prop::collection::vec(byte(), 6..400), 0..600usize).prop_map(
        |(opcode, rest, output)| Act::Command {
            opcode,
            rest,
            output,
        },
    );
    let offset = prop_oneof![
        3 => (0..20u64, 0..0x1000u64).prop_map(|(page, at)| page * 0x1000 + (at & !3)),
        1 => (0x8000..=u16::MAX).prop_map(features::register),
        1 => prop::sample::select(vec![0x8000_u16, 0xaaab, 0xd556]).prop_map(features::register),
    ];
    let register = (offset, prop::collection::vec(byte(), 0..17))
        .prop_map(|(offset, bytes)| Act::Register { offset, bytes });
    let entry = (
        opcode(),
        prop::collection::vec((0..64usize, any::<u8>()), 0..4),
    )
        .prop_map(|(opcode, damage)| Act::Entry { opcode, damage });
    let memory = (0..32u64 << 20, prop::collection::vec(any::<u8>(), 0..64))
        .prop_map(|(address, bytes)| Act::Memory { address, bytes });
    let changed =
        (any::<usize>(), damage()).prop_map(|(number, damage)| Act::Changed { number, damage });
    let post = (0_u8..0x30, 1_u8..20, prop::collection::vec(word(), 0..40)).prop_map(
        |(opcode, units, words)| Act::Post {
            opcode,
            units,
            words,
        },
    );
    let config = (0_u64..0x200, prop::collection::vec(any::<u8>(), 0..9))
        .prop_map(|(offset, bytes)| Act::Config { offset, bytes });
    let frame = prop::collection::vec(any::<u8>(), 0..300).prop_map(Act::Frame);
    prop_oneof![
        8 => command,
        8 => changed,
        6 => post,
        4 => register,
        1 => entry,
        1 => memory,
        1 => config,
        1 => frame,
    ]
}

fn run(link: LinkLayer, strict: bool, adversary: Option<u64>, acts: Vec<Act>) {
    let mut driver = Driver::up(Config {
        link,
        strict,
        adversary,
        ..Config::default()
    });
    let made = driver.objects();
    let good = objects::good(&made);
    for act in acts {
        match act {
            Act::Command {
                opcode,
                rest,
                output,
            } => {
                let mut input = [&opcode.to_be_bytes()[..], &rest].concat();
                // One in four is as short as it happens to be, the others as long as they have to be at least.
                if output % 4 != 0 {
                    let least = Opcode(opcode).input().map_or(16, |layout| layout.size);
                    input.resize(input.len().max(least), 0);
                }
                let entry = driver.entry(1, &input, output);
                driver.ring(1, &entry);
            }
            Act::Changed { number, damage } => {
                let mut input = good[number % good.len()].clone();
                let len = input.len();
                damage.iter().for_each(|(at, byte)| input[at % len] = *byte);
                let entry = driver.entry(1, &input, 600);
                driver.ring(1, &entry);
            }
            Act::Post {
                opcode,
                units,
                words,
            } => {
                driver.post(&made, opcode, units, &words);
            }
            Act::Frame(frame) => driver.device.receive(&frame),
            Act::Config { offset, bytes } => driver.device.config_write(offset, &bytes),
            Act::Register { offset, bytes } => {
                driver.device.bar_write(offset, &bytes);
                driver.device.bar_read(offset, &mut vec![0; bytes.len()]);
            }
            Act::Entry { opcode, damage } => {
                let input = [&opcode.to_be_bytes()[..], &[0; 900]].concat();
                let mut entry = driver.entry(2, &input, 700);
                damage.iter().for_each(|(at, byte)| entry.0[*at] = *byte);
                driver.ring(2, &entry);
            }
            Act::Memory { address, bytes } => {
                let _ = driver.memory.write(address, &bytes);
            }
        }
        driver.wait(Duration::from_millis(7));
    }
    driver.again();
    driver.objects();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn on_an_infiniband_port(strict: bool, adversary: Option<u64>, acts in prop::collection::vec(act(), 0..40)) {
        run(LinkLayer::InfiniBand, strict, adversary, acts);
    }

    #[test]
    fn on_an_ethernet_port(strict: bool, adversary: Option<u64>, acts in prop::collection::vec(act(), 0..40)) {
        run(LinkLayer::Ethernet, strict, adversary, acts);
    }
}

#[test]
fn good_commands_are_good() {
    let mut driver = Driver::up(Config::default());
    let made = driver.objects();
    for input in features::good(made.pd) {
        let opcode = Opcode(u16::from_be_bytes([input[0], input[1]]));
        // Nobody waits for a page.
        if opcode != Opcode::PAGE_FAULT_RESUME {
            driver.ok(&input, 64);
        }
    }
}

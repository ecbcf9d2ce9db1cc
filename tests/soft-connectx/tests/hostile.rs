//! Nothing that a guest writes makes the device panic: commands, registers, memory.

mod driver;

use driver::Driver;
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

fn act() -> impl Strategy<Value = Act> {
    let command = (opcode(), prop::collection::vec(byte(), 6..400), 0..600usize).prop_map(
        |(opcode, rest, output)| Act::Command {
            opcode,
            rest,
            output,
        },
    );
    let register = (0..20u64, 0..0x1000u64, prop::collection::vec(byte(), 0..17)).prop_map(
        |(page, register, bytes)| Act::Register {
            offset: page * 0x1000 + (register & !3),
            bytes,
        },
    );
    let entry = (
        opcode(),
        prop::collection::vec((0..64usize, any::<u8>()), 0..4),
    )
        .prop_map(|(opcode, damage)| Act::Entry { opcode, damage });
    let memory = (0..32u64 << 20, prop::collection::vec(any::<u8>(), 0..64))
        .prop_map(|(address, bytes)| Act::Memory { address, bytes });
    prop_oneof![8 => command, 4 => register, 1 => entry, 1 => memory]
}

fn run(link: LinkLayer, acts: Vec<Act>) {
    let mut driver = Driver::up(Config {
        link,
        ..Config::default()
    });
    for opcode in [Opcode::ALLOC_UAR, Opcode::ALLOC_PD, Opcode::ALLOC_XRCD] {
        driver.simple(opcode);
        driver.simple(opcode);
    }
    driver.event_queue(16, 0, &[]);
    for (time, act) in acts.into_iter().enumerate() {
        match act {
            Act::Command {
                opcode,
                rest,
                output,
            } => {
                let input = [&opcode.to_be_bytes()[..], &rest].concat();
                let entry = driver.entry(1, &input, output);
                driver.ring(1, &entry);
            }
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
        driver.device.tick(Duration::from_millis(7 * time as u64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn on_an_infiniband_port(acts in prop::collection::vec(act(), 0..60)) {
        run(LinkLayer::InfiniBand, acts);
    }

    #[test]
    fn on_an_ethernet_port(acts in prop::collection::vec(act(), 0..60)) {
        run(LinkLayer::Ethernet, acts);
    }
}

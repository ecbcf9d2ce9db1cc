//! What a hostile guest may do to the software ConnectX: commands of any bytes, good ones damaged, work requests, registers,
//! memory, frames. No panic, and after a reset it works.

#![no_main]

#[path = "../../soft-connectx/tests/driver/mod.rs"]
mod driver;

use std::time::Duration;

use arbitrary::Arbitrary;
use driver::{Driver, features, objects};
use libfuzzer_sys::fuzz_target;
use soft_connectx::{Config, GuestMemory as _, LinkLayer};
use wqe_format::mlx5::firmware::Opcode;

#[derive(Arbitrary, Debug)]
enum Act {
    Command(u8, Vec<u8>, u16),
    Changed(u8, Vec<(u16, u8)>),
    Post(u8, u8, Vec<u32>),
    Frame(Vec<u8>),
    Config(u16, Vec<u8>),
    Register(u16, Vec<u8>),
    Memory(u32, Vec<u8>),
    Wait(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    ethernet: bool,
    strict: bool,
    adversary: Option<u64>,
    acts: Vec<Act>,
}

fuzz_target!(|input: Input| {
    let mut driver = Driver::up(Config {
        link: match input.ethernet {
            true => LinkLayer::Ethernet,
            false => LinkLayer::InfiniBand,
        },
        strict: input.strict,
        adversary: input.adversary,
        ..Config::default()
    });
    let made = driver.objects();
    let good = objects::good(&made);
    for act in input.acts {
        match act {
            Act::Command(number, rest, room) => {
                let opcode = Opcode::ALL[usize::from(number) % Opcode::ALL.len()];
                let mut bytes = [&opcode.0.to_be_bytes()[..], &rest].concat();
                let least = opcode.input().map_or(16, |layout| layout.size);
                bytes.resize(bytes.len().max(least), 0);
                let entry = driver.entry(1, &bytes, usize::from(room % 0x1200));
                driver.ring(1, &entry);
            }
            Act::Changed(number, damage) => {
                let mut bytes = good[usize::from(number) % good.len()].clone();
                let len = bytes.len();
                for (at, byte) in damage {
                    bytes[usize::from(at) % len] = byte;
                }
                let entry = driver.entry(1, &bytes, 600);
                driver.ring(1, &entry);
            }
            Act::Post(opcode, units, words) => driver.post(&made, opcode, units, &words),
            Act::Frame(frame) => driver.device.receive(&frame),
            Act::Config(at, bytes) => driver.device.config_write(at.into(), &bytes),
            Act::Register(at, mut bytes) => {
                driver.device.bar_write(features::register(at), &bytes);
                driver.device.bar_read(features::register(at), &mut bytes);
            }
            Act::Memory(at, bytes) => _ = driver.memory.write(at.into(), &bytes),
            Act::Wait(time) => driver.wait(Duration::from_micros(time.into())),
        }
    }
    driver.again();
    driver.objects();
});

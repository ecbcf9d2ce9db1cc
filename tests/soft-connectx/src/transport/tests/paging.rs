//! Pages that come when they are needed.

use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::{EventType, Opcode as Command};

use super::*;
use crate::command::execute;
use crate::resources::Eq;

/// A key of two pages at 0x10_0000 that are not there yet.
const LAZY: u32 = 0x30 << 8;
const VA: u64 = 0x5000_0000;
/// Where the pages are once they come.
const PAGES: u64 = 0x20_0000;
const EVENTS: u64 = 0x40_0000;

/// A pair, a driver that brings pages, and its event queue.
fn bench() -> Bench {
    let mut bench = Bench::pair(QpKind::Rc);
    let caps = &mut bench.device.caps;
    let odp = caps.query(CapType::ODP, false).unwrap().to_vec();
    caps.set(CapType::ODP, &odp).unwrap();
    bench.device.hca.stage = crate::command::Stage::Initialized;
    let eq = Eq {
        context: Vec::new(),
        ring: ring(EVENTS, 6, 4),
        vector: 0,
        uar: UAR,
        ignores_overrun: false,
        events: [1 << EventType::PAGE_FAULT.0, 0, 0, 0],
        producer: 0,
        consumer: 0,
        armed: false,
        failed: false,
    };
    bench.device.resources.eqs.insert(5, eq);
    let mut lazy = key(1, 0x1f, (VA, 0x2000), vec![0; 16]);
    lazy.may_miss_pages = true;
    bench.device.resources.mkeys.insert(LAZY >> 8, lazy);
    bench
}

/// The event of a fault, which is there: token, key and address.
fn event(bench: &Bench, index: u64) -> (u64, u32, u64) {
    let entry = bench.bytes(EVENTS + index * 64, 64);
    assert_eq!((entry[1], entry[3]), (0xc, 2), "type and kind");
    let number = |range: std::ops::Range<usize>| {
        (entry[range].iter()).fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let token = number(0x26..0x2c);
    (token, number(0x30..0x34) as u32, number(0x34..0x3c))
}

fn faults(bench: &Bench) -> u32 {
    bench.device.resources.eqs.get(5).unwrap().producer
}

fn bring(bench: &mut Bench, flags: u64) {
    let pages = [PAGES | flags, (PAGES + 0x1000) | flags];
    let list = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    let mkeys = &mut bench.device.resources.mkeys;
    mkeys.get_mut(LAZY >> 8).unwrap().translation = list;
}

fn resume(bench: &mut Bench, token: u64, error: bool) -> u8 {
    let mut input = [0; 16];
    input[..2].copy_from_slice(&Command::PAGE_FAULT_RESUME.0.to_be_bytes());
    input[8..].copy_from_slice(&(token | u64::from(error) << 63).to_be_bytes());
    // The token's upper bits stand in the first word's lower half.
    assert_eq!(token >> 32, 0);
    execute(&mut bench.device, &input)[0]
}

#[test]
fn a_sender_waits_for_its_page() {
    let mut bench = bench();
    let sent = bench.fill(PAGES + 0xf80, 0x100);
    let list = DataSegment::new(VA + 0xf80, 0x100, LAZY);
    let write = [remote(0x6000).as_bytes(), list.as_bytes()].concat();
    bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&write]);
    let (token, at, va) = event(&bench, 0);
    assert_eq!((at, va), (LAZY, VA + 0xf80));
    bench.wait(Duration::from_secs(5));
    assert_eq!((faults(&bench), bench.poll(0x41)), (1, None));
    bring(&mut bench, 1);
    assert_eq!(resume(&mut bench, token + 1, false), 3, "BAD_PARAM");
    assert_eq!(resume(&mut bench, token, false), 0);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x6000, 0x100), sent);
    assert_eq!(faults(&bench), 1);
}

#[test]
fn a_page_that_does_not_come_is_an_error_of_protection() {
    let mut bench = bench();
    let list = DataSegment::new(VA, 8, LAZY);
    bench.post(0x41, Opcode::SEND, 0, &[list.as_bytes()]);
    let (token, ..) = event(&bench, 0);
    assert_eq!(resume(&mut bench, token, true), 0);
    bench.failed(0x41, Syndrome::LOCAL_PROT_ERR);
}

#[test]
fn a_receiver_is_not_ready_until_its_page_comes() {
    let mut bench = bench();
    let sent = bench.fill(0x6000, 0x300);
    bench.post_receive(0x42, &[DataSegment::new(VA + 0xf00, 0x300, LAZY)]);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x6000, 0x300).as_bytes()]);
    let (token, at, va) = event(&bench, 0);
    assert_eq!((at, va), (LAZY, VA + 0xf00));
    // It may be read, which is not enough.
    bring(&mut bench, 1);
    resume(&mut bench, token, false);
    bench.wait(Duration::from_millis(1));
    assert_eq!(faults(&bench), 2);
    let (token, ..) = event(&bench, 1);
    bring(&mut bench, 3);
    resume(&mut bench, token, false);
    bench.wait(Duration::from_millis(2));
    assert_eq!(bench.bytes(PAGES + 0xf00, 0x300), sent);
    bench.done(0x41, CqeOpcode::REQ);
    bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(faults(&bench), 2);
}

#[test]
fn what_is_read_from_afar_waits_and_is_answered() {
    let mut bench = bench();
    let expected = bench.fill(PAGES, 0x300);
    let from = RaddrSegment::new(VA, LAZY);
    let read = [from.as_bytes(), data(0x7000, 0x300).as_bytes()].concat();
    bench.post(0x41, Opcode::RDMA_READ, 0, &[&read]);
    let (token, ..) = event(&bench, 0);
    bring(&mut bench, 3);
    resume(&mut bench, token, false);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x7000, 0x300), expected);
}

#[test]
fn what_comes_back_is_asked_for_again() {
    let mut bench = bench();
    let expected = bench.fill(0x7000, 0x80);
    let to = DataSegment::new(VA, 0x80, LAZY);
    let read = [remote(0x7000).as_bytes(), to.as_bytes()].concat();
    bench.post(0x41, Opcode::RDMA_READ, 0, &[&read]);
    let (token, ..) = event(&bench, 0);
    bring(&mut bench, 3);
    resume(&mut bench, token, false);
    bench.wait(Duration::from_millis(20));
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(PAGES, 0x80), expected);
}

#[test]
fn without_a_driver_that_brings_pages_a_miss_is_an_error() {
    let mut bench = bench();
    bench.device.resources.eqs.remove(5);
    let list = DataSegment::new(VA, 8, LAZY);
    bench.post(0x41, Opcode::SEND, 0, &[list.as_bytes()]);
    bench.failed(0x41, Syndrome::LOCAL_PROT_ERR);
}

//! Queue pairs in plain memory, without commands: what they send, and what goes wrong.

mod basic;
mod compress;
mod faults;
mod links;
mod noise;
mod paging;
mod signatures;
mod tags;

use std::sync::Arc;
use std::time::Duration;

use wqe_format::mlx5::{
    Cqe64, CqeOpcode, CtrlFlags, CtrlSegment, DataSegment, Opcode, RaddrSegment, Syndrome,
};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::completion::CqData;
use crate::resources::{
    Buffer, Cq, Mkey, Path, Qp, QpKind, RequesterLimits, Rights, Ring, Send, Srq, SrqKind, Uar,
};
use crate::{Config, GuestMemory, Interrupts, Ram};
use wqe_format::mlx5::firmware::bits::set;

const UAR: u32 = 20;
const PD: u32 = 3;
/// A key of all memory.
pub(super) const KEY: u32 = 0x20 << 8;
/// A key of the page at 0x10_0000, at address 0x7000_0000, that can only be read.
pub(super) const READ_ONLY: u32 = 0x21 << 8;
pub(super) const MTU: u32 = 256;
const LOG_CQ: u8 = 6;
const LOG_SQ: u8 = 4;
const LOG_RQ: u8 = 3;

struct Silent;

impl Interrupts for Silent {
    fn raise(&self, _vector: u16) {}
}

/// A device, its memory, and what a driver would remember.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) ram: Arc<Ram>,
    taken: BTreeMap<u32, u32>,
    sent: BTreeMap<u32, u16>,
    posted: BTreeMap<u32, u16>,
    pub(super) now: Duration,
}

fn ring(address: u64, log_stride: u8, log_size: u8) -> Ring {
    let buffer = Buffer {
        pages: vec![address],
        log_page: 20,
        start: 0,
    };
    Ring {
        buffer,
        offset: 0,
        log_stride,
        log_size,
    }
}

fn key(mode: u64, rights: u64, (start, len): (u64, u64), translation: Vec<u8>) -> Mkey {
    let mut context = [0; 64];
    set(&mut context, 0x10, 1, 1);
    set(&mut context, 0x16, 2, mode & 3);
    set(&mut context, 0x3, 3, mode >> 2);
    set(&mut context, 0x11, 5, rights);
    set(&mut context, 0x20, 0x18, 0xff_ffff);
    set(&mut context, 0x60, 1, u64::from(len == 0));
    set(&mut context, 0x68, 0x18, PD.into());
    set(&mut context, 0x80, 0x40, start);
    set(&mut context, 0xc0, 0x40, len);
    set(&mut context, 0x1a0, 0x20, 4);
    set(&mut context, 0x1da, 6, 12);
    Mkey::new(0, context, translation)
}

impl Bench {
    pub(super) fn new(serial: u16) -> Bench {
        let ram = Arc::new(Ram::new(16 << 20));
        let config = Config {
            serial,
            ..Config::default()
        };
        let mut device = Device::new(config, ram.clone(), Box::new(Silent));
        device.caps.ask_for_host_order();
        device.resources.uars.insert(UAR, Uar { uid: 0 });
        let all = key(0, 0x1f, (0, 0), Vec::new());
        device.resources.mkeys.insert(KEY >> 8, all);
        let page = 0x10_0000u64.to_be_bytes().to_vec();
        let some = key(1, 0b00101, (0x7000_0000, 0x1000), page);
        device.resources.mkeys.insert(READ_ONLY >> 8, some);
        Bench {
            device,
            ram,
            taken: BTreeMap::new(),
            sent: BTreeMap::new(),
            posted: BTreeMap::new(),
            now: Duration::ZERO,
        }
    }

    /// Memory of a queue: 1 MiB each from 8 MiB on for rings, records below.
    pub(super) fn place(number: u32) -> u64 {
        0x80_0000 + u64::from(number & 0x3f) * 0x2_0000
    }

    pub(super) fn cq(&mut self, cqn: u32) {
        let at = Self::place(cqn);
        for index in 0..1 << LOG_CQ {
            self.ram.write(at + index * 64 + 63, &[0xf0]).unwrap();
        }
        let cq = Cq {
            uid: 0,
            context: Vec::new(),
            ring: ring(at, 6, LOG_CQ),
            dbr: at + 0x1_0000,
            eqn: 0,
            uar: UAR,
            collapsed: false,
            ignores_overrun: false,
            compression: None,
            slot_128: false,
            moderation_count: 0,
            moderation_period: 0,
            data: CqData::default(),
        };
        self.device.resources.cqs.insert(cqn, cq);
    }

    /// A queue pair with a completion queue of the same number, which sends to `remote` at this LID.
    pub(super) fn qp(&mut self, number: u32, kind: QpKind, lid: u16, remote: u32) {
        self.cq(number);
        let at = Self::place(number);
        let mut qp = Qp::new(number, 0, kind, vec![0; 232]);
        qp.send = Some(Send {
            ring: ring(at + 0x8000, 6, LOG_SQ),
            cqn: number,
        });
        qp.receive = Receive::Ring {
            ring: ring(at + 0x4000, 5, LOG_RQ),
            cqn: number,
        };
        qp.dbr = at + 0x1_1000;
        qp.uar = UAR;
        qp.pd = PD;
        qp.user_index = number + 0x1000;
        qp.mtu = MTU;
        qp.remote_qpn = remote;
        qp.path = Path {
            rlid: lid,
            ..Path::default()
        };
        qp.rights = Rights {
            read: true,
            write: true,
            atomic: true,
        };
        qp.atomic_mode = 3;
        qp.limits = RequesterLimits {
            retry_count: 3,
            rnr_retry: 2,
            ack_timeout: 8,
            log_sra_max: 2,
        };
        qp.log_rra_max = 2;
        qp.min_rnr_nak = 11;
        qp.q_key = 0x1111;
        // Near the wrap.
        qp.next_send_psn = 0xff_fffa;
        qp.next_rcv_psn = 0xff_fffa;
        self.device.resources.qps.insert(number, qp);
    }

    pub(super) fn to(&mut self, number: u32, state: QpState) {
        let qp = self.device.resources.qps.get_mut(number).unwrap();
        let from = std::mem::replace(&mut qp.state, state);
        state_changed(&mut self.device, number, from, state);
    }

    pub(super) fn state(&self, number: u32) -> QpState {
        self.device.resources.qps.get(number).unwrap().state
    }

    pub(super) fn up(&mut self, number: u32) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.to(number, state);
        }
    }

    /// Two connected queue pairs of this device.
    pub(super) fn pair(kind: QpKind) -> Bench {
        let mut bench = Bench::new(1);
        bench.qp(0x41, kind, 1, 0x42);
        bench.qp(0x42, kind, 1, 0x41);
        bench.up(0x41);
        bench.up(0x42);
        bench
    }

    /// Posts a request and rings.
    pub(super) fn post(&mut self, qpn: u32, opcode: Opcode, imm: u32, body: &[&[u8]]) {
        let bytes = self.request(qpn, opcode, imm, body);
        self.post_bytes(qpn, &bytes);
    }

    pub(super) fn request(&self, qpn: u32, opcode: Opcode, imm: u32, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let index = self.sent.get(&qpn).copied().unwrap_or(0);
        let ds = 1 + body.len().div_ceil(16) as u8;
        let mut ctrl = CtrlSegment::new(opcode, index, qpn, ds, CtrlFlags::CQ_UPDATE);
        ctrl.imm.set(imm);
        [ctrl.as_bytes(), &body].concat()
    }

    pub(super) fn post_bytes(&mut self, qpn: u32, bytes: &[u8]) {
        self.put(qpn, bytes);
        let register = u64::from(UAR) * 4096 + 0x800;
        self.device.bar_write(register, &bytes[..8]);
    }

    /// Puts a request into the ring and counts it, without ringing.
    pub(super) fn put(&mut self, qpn: u32, bytes: &[u8]) {
        let at = Self::place(qpn);
        let sent = self.sent.entry(qpn).or_default();
        for block in bytes.chunks(64) {
            let slot = u64::from(*sent) & ((1 << LOG_SQ) - 1);
            self.ram.write(at + 0x8000 + slot * 64, block).unwrap();
            *sent = sent.wrapping_add(1);
        }
        let record = u32::from(*sent).to_be_bytes();
        self.ram.write(at + 0x1_1004, &record).unwrap();
    }

    /// What a driver does with a queue pair that was reset.
    pub(super) fn forget(&mut self, qpn: u32) {
        self.sent.remove(&qpn);
        self.posted.remove(&qpn);
        let records = Self::place(qpn) + 0x1_1000;
        self.ram.write(records, &[0; 8]).unwrap();
    }

    /// Posts a receive of up to two buffers.
    pub(super) fn post_receive(&mut self, qpn: u32, list: &[DataSegment]) {
        let at = Self::place(qpn);
        let posted = self.posted.entry(qpn).or_default();
        let slot = u64::from(*posted) & ((1 << LOG_RQ) - 1);
        let mut bytes = [list, &[DataSegment::TERMINATOR; 2]].concat();
        bytes.truncate(2);
        let bytes = bytes.as_slice().as_bytes();
        self.ram.write(at + 0x4000 + slot * 32, bytes).unwrap();
        *posted = posted.wrapping_add(1);
        let record = u32::from(*posted).to_be_bytes();
        self.ram.write(at + 0x1_1000, &record).unwrap();
    }

    /// The next completion, if there is one.
    pub(super) fn poll(&mut self, cqn: u32) -> Option<Cqe64> {
        let at = Self::place(cqn);
        let taken = self.taken.entry(cqn).or_default();
        let mut bytes = [0; 64];
        let slot = u64::from(*taken) & ((1 << LOG_CQ) - 1);
        self.ram.read(at + slot * 64, &mut bytes).unwrap();
        let cqe = Cqe64::read_from_bytes(&bytes).unwrap();
        if !cqe.op_own.is_software_owned(*taken, LOG_CQ.into()) {
            return None;
        }
        *taken += 1;
        let record = (*taken & 0xff_ffff).to_be_bytes();
        self.ram.write(at + 0x1_0000, &record).unwrap();
        Some(cqe)
    }

    /// The next completion, which is there.
    pub(super) fn done(&mut self, cqn: u32, opcode: CqeOpcode) -> Cqe64 {
        let cqe = self.poll(cqn).expect("a completion");
        assert_eq!(cqe.opcode(), opcode, "{:?}", cqe.error());
        cqe
    }

    /// The next completion, which is this error.
    pub(super) fn failed(&mut self, cqn: u32, syndrome: Syndrome) -> Cqe64 {
        let cqe = self.poll(cqn).expect("a completion");
        assert_eq!(cqe.error().map(|error| error.syndrome), Some(syndrome));
        cqe
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.device.tick(self.now);
    }

    pub(super) fn fill(&self, at: u64, len: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251 + 1) as u8).collect();
        self.ram.write(at, &bytes).unwrap();
        bytes
    }

    pub(super) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read(at, &mut bytes).unwrap();
        bytes
    }
}

pub(super) fn data(va: u64, len: u32) -> DataSegment {
    DataSegment::new(va, len, KEY)
}

pub(super) fn remote(va: u64) -> RaddrSegment {
    RaddrSegment::new(va, KEY)
}

/// A shared queue whose slots are linked as libmlx5 links them.
pub(super) fn srq(bench: &mut Bench, srqn: u32, kind: SrqKind, cqn: u32) {
    let at = Bench::place(srqn);
    for index in 0u16..8 {
        let next = (index + 1) & 7;
        let slot = at + 0x4000 + u64::from(index) * 64;
        bench.ram.write(slot + 2, &next.to_be_bytes()).unwrap();
        let list = [
            data(0x1000 * u64::from(index) + 0x3_0000, 0x1000),
            DataSegment::TERMINATOR,
        ];
        bench
            .ram
            .write(slot + 16, list.as_slice().as_bytes())
            .unwrap();
    }
    let srq = Srq {
        kind,
        uid: 0,
        context: Vec::new(),
        ring: ring(at + 0x4000, 6, 3),
        dbr: at + 0x1_1000,
        pd: PD,
        xrcd: 1,
        cqn,
        user_index: 0x77,
        limit: 0,
        signature: false,
        error: false,
        data: SrqData::default(),
    };
    bench.device.resources.srqs.insert(srqn, srq);
}

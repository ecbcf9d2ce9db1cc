//! Keys whose data have signatures. Expected bytes are made here with sums of their own: bit by bit, from polynomials that
//! T10 SBC-3 and the catalogue of CRCs have.

use wqe_format::mlx5::{
    BlockSignature, BlockSize, BsfSegment, CrcKind, Escape, Guard, KlmSegment, MkeyAccess,
    MkeyContextSegment, MkeyMask, SignatureDomain, SignatureErrorCqe, SignatureRule,
    UmrCtrlSegment, UmrFlags,
};

use super::*;
use crate::memory::signature::Format;
use crate::resources::Psv;

/// Where a key's bytes are, and where those of another are.
const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x20_0000;
const MEMORY_STATE: u32 = 5;
const WIRE_STATE: u32 = 6;
const APP_TAG: u16 = 0xabcd;
const REF_TAG: u32 = 0x0123_4567;

const DIF: SignatureDomain = SignatureDomain {
    block: BlockSize::B512,
    signature: BlockSignature::T10Dif {
        guard: Guard::Crc,
        ones: false,
        app_tag: APP_TAG,
        ref_tag: REF_TAG,
        counts: true,
        escape: Escape::Never,
    },
};
const CRC: SignatureDomain = SignatureDomain {
    block: BlockSize::B512,
    signature: BlockSignature::Crc {
        kind: CrcKind::Crc32c,
        ones: true,
    },
};

fn rule(memory: Option<SignatureDomain>, wire: Option<SignatureDomain>) -> SignatureRule {
    SignatureRule {
        memory,
        wire,
        check_mask: 0xff,
        copy_mask: None,
    }
}

/// T10's guard: polynomial 8bb7, bit by bit.
fn guard(block: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in block {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carry = crc >> 15;
            crc = (crc << 1) ^ (carry * 0x8bb7);
        }
    }
    crc
}

/// Castagnoli's CRC, whose reversed polynomial is 82f63b78.
fn crc32c(block: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in block {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc = (crc >> 1) ^ (carry * 0x82f6_3b78);
        }
    }
    !crc
}

fn dif(number: usize, block: &[u8]) -> Vec<u8> {
    let tag = REF_TAG + number as u32;
    let mut bytes = guard(block).to_be_bytes().to_vec();
    bytes.extend(APP_TAG.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes
}

/// Data with a signature behind each block of 512.
fn signed(data: &[u8], signature: impl Fn(usize, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let blocks = data.chunks(512).enumerate();
    blocks
        .flat_map(|(number, block)| [block, &signature(number, block)].concat())
        .collect()
}

/// Makes a key, and gives it bytes and a rule by a work request of `qpn`. `count` is what the owner knows of mistakes.
fn sign(bench: &mut Bench, qpn: u32, (key, at, len): (u32, u64, u32), rule: &SignatureRule) {
    let mut free = key_of_keys();
    free.load();
    bench.device.resources.mkeys.insert(key, free);
    for state in [MEMORY_STATE, WIRE_STATE] {
        let psv = Psv { uid: 0, pd: PD };
        bench.device.resources.psvs.insert(state, psv);
    }
    configure(bench, qpn, (key, at, len), rule, 1);
    bench.done(qpn, CqeOpcode::REQ);
}

fn key_of_keys() -> Mkey {
    let mut free = super::key(2, 0, (0, 1), Vec::new());
    set(&mut free.context, 1, 1, 1);
    free
}

fn configure(
    bench: &mut Bench,
    qpn: u32,
    (key, at, len): (u32, u64, u32),
    rule: &SignatureRule,
    count: u32,
) {
    // length, address, rights, key, free; the format and what is known of mistakes
    let parts = 1 | 1 << 6 | 1 << 13 | 1 << 29 | 0x1f << 17 | 1 << 12 | 1 << 9;
    let mut ctrl = UmrCtrlSegment::new(UmrFlags::INLINE, 4, MkeyMask::NONE);
    ctrl.mkey_mask.0.set(parts);
    ctrl.bsf_octowords.set(4);
    let mut context =
        MkeyContextSegment::new(MkeyAccess(0x7c), 0xff_ffff, key << 8, 0, u64::from(len));
    let flags = MkeyContextSegment::BSF_ENABLE | count << MkeyContextSegment::SIG_ERR_COUNT_SHIFT;
    context.flags_pd.set(flags | PD);
    let klm = KlmSegment::new(at, len, KEY);
    let list = [klm.as_bytes(), &[0; 48]].concat();
    let format = BsfSegment::of(rule, MEMORY_STATE, WIRE_STATE).unwrap();
    let body = [
        ctrl.as_bytes(),
        context.as_bytes(),
        &list,
        format.as_bytes(),
    ]
    .concat();
    bench.post(qpn, Opcode::UMR, key << 8, &[&body]);
}

const SENT: u32 = 0x31;
const GOT: u32 = 0x32;

fn with_key(key: u32, va: u64, len: u32) -> DataSegment {
    DataSegment::new(va, len, key << 8)
}

/// Sends through a key of the sender to a key of the receiver, addresses counting data.
fn send(bench: &mut Bench, len: u32) {
    bench.post_receive(0x42, &[with_key(GOT, 0, len)]);
    bench.post(0x41, Opcode::SEND, 0, &[with_key(SENT, 0, len).as_bytes()]);
}

fn exchanged(bench: &mut Bench) {
    bench.done(0x41, CqeOpcode::REQ);
    bench.done(0x42, CqeOpcode::RESP_SEND);
    assert!(bench.poll(0x41).is_none());
    assert!(bench.poll(0x42).is_none());
}

/// What a completion queue was told is wrong.
fn mistake(bench: &mut Bench, cqn: u32) -> SignatureErrorCqe {
    let cqe = bench.done(cqn, CqeOpcode::SIG_ERR);
    zerocopy::transmute!(cqe)
}

#[test]
fn signatures_of_memory_are_taken_out_and_put_in() {
    let mut bench = Bench::pair(QpKind::Rc);
    sign(&mut bench, 0x41, (SENT, HERE, 1560), &rule(Some(DIF), None));
    sign(&mut bench, 0x42, (GOT, THERE, 1548), &rule(Some(CRC), None));
    let data = bench.fill(0x5000, 1536);
    bench.ram.write(HERE, &signed(&data, dif)).unwrap();
    send(&mut bench, 1536);
    exchanged(&mut bench);
    let crc = |_: usize, block: &[u8]| crc32c(block).to_be_bytes().to_vec();
    assert_eq!(bench.bytes(THERE, 1548), signed(&data, crc));
}

#[test]
fn signatures_of_the_wire_are_made_checked_and_taken_out() {
    let mut bench = Bench::pair(QpKind::Rc);
    sign(&mut bench, 0x41, (SENT, HERE, 1024), &rule(None, Some(DIF)));
    sign(&mut bench, 0x42, (GOT, THERE, 1024), &rule(None, Some(DIF)));
    let data = bench.fill(HERE, 1024);
    send(&mut bench, 1024);
    exchanged(&mut bench);
    assert_eq!(bench.bytes(THERE, 1024), data);
    // Without a key for them they are there.
    bench.post_receive(0x42, &[super::data(0x6000, 0x1000)]);
    let body = with_key(SENT, 0, 1024);
    bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    bench.done(0x41, CqeOpcode::REQ);
    let cqe = bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(cqe.byte_cnt.get(), 1040);
    assert_eq!(bench.bytes(0x6000, 1040), signed(&data, dif));
    // From the second block on they are those of the second block.
    bench.post_receive(0x42, &[super::data(0x6000, 0x1000)]);
    let body = with_key(SENT, 512, 512);
    bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    bench.done(0x41, CqeOpcode::REQ);
    bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(bench.bytes(0x6000, 520), signed(&data, dif)[520..]);
}

#[test]
fn signatures_on_both_sides_are_passed_on_or_made_anew() {
    let mut bench = Bench::pair(QpKind::Rc);
    let both = |check_mask, copy_mask| SignatureRule {
        check_mask,
        copy_mask,
        ..rule(Some(DIF), Some(DIF))
    };
    // The guard is what memory has, which is wrong and not looked at; tags are made anew.
    sign(
        &mut bench,
        0x41,
        (SENT, HERE, 1040),
        &both(0x3f, Some(0xc0)),
    );
    let data = bench.fill(0x5000, 1024);
    let mut stored = signed(&data, dif);
    stored[512] ^= 0x55;
    bench.ram.write(HERE, &stored).unwrap();
    bench.post_receive(0x42, &[super::data(0x6000, 0x1000)]);
    let body = with_key(SENT, 0, 1024);
    bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    exchanged(&mut bench);
    assert_eq!(bench.bytes(0x6000, 1040), stored);
    // Made of data with that guard: the receiver's memory gets what came, in one piece with what is before it.
    sign(&mut bench, 0x42, (GOT, THERE, 1040), &both(0x3f, None));
    bench.ram.write(0x7000, &[9; 252]).unwrap();
    bench.post_receive(0x42, &[super::data(0x8000, 252), with_key(GOT, 0, 1024)]);
    let body = [super::data(0x7000, 252), super::data(0x6000, 1040)];
    bench.post(
        0x41,
        Opcode::SEND,
        0,
        &[body[0].as_bytes(), body[1].as_bytes()],
    );
    exchanged(&mut bench);
    assert_eq!(bench.bytes(THERE, 1040), stored);
    assert_eq!(bench.bytes(0x8000, 252), [9; 252]);
}

/// A mistake is told once, until the owner of the key says that he knows of it.
#[test]
fn mistakes_are_told_and_data_go_on() {
    let mut bench = Bench::pair(QpKind::Rc);
    let in_memory = rule(Some(DIF), None);
    sign(&mut bench, 0x41, (SENT, HERE, 1040), &in_memory);
    let data = bench.fill(0x5000, 1024);
    let mut stored = signed(&data, dif);
    // the reference tag of the second block
    stored[1039] ^= 1;
    bench.ram.write(HERE, &stored).unwrap();
    let through = |bench: &mut Bench| {
        bench.post_receive(0x42, &[super::data(0x6000, 0x1000)]);
        let body = with_key(SENT, 0, 1024);
        bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
    };
    through(&mut bench);
    let told = mistake(&mut bench, 0x41);
    assert_eq!(told.syndrome.get(), 1 << 11);
    assert_eq!((told.sig_type, told.domain), (0, 1));
    assert_eq!((told.mkey.get(), told.err_offset.get()), (SENT << 8, 512));
    assert_eq!(told.actual_ref_tag.get(), REF_TAG + 1);
    assert_eq!(told.expected_ref_tag.get(), (REF_TAG + 1) ^ 1);
    exchanged(&mut bench);
    assert_eq!(bench.bytes(0x6000, 1024), data);
    // not a second time
    through(&mut bench);
    exchanged(&mut bench);
    configure(&mut bench, 0x41, (SENT, HERE, 1040), &in_memory, 0);
    bench.done(0x41, CqeOpcode::REQ);
    through(&mut bench);
    mistake(&mut bench, 0x41);
    exchanged(&mut bench);
    // On the wire it is the receiver who finds it, and a peer's write too.
    sign(&mut bench, 0x42, (GOT, THERE, 1024), &rule(None, Some(DIF)));
    bench.post_receive(0x42, &[with_key(GOT, 0, 1024)]);
    bench.ram.write(0x6000, &stored).unwrap();
    bench.post(
        0x41,
        Opcode::SEND,
        0,
        &[super::data(0x6000, 1040).as_bytes()],
    );
    let told = mistake(&mut bench, 0x42);
    assert_eq!((told.domain, told.err_offset.get()), (0, 512));
    exchanged(&mut bench);
    configure(
        &mut bench,
        0x42,
        (GOT, THERE, 1024),
        &rule(None, Some(DIF)),
        0,
    );
    bench.done(0x42, CqeOpcode::REQ);
    let to = RaddrSegment::new(0, GOT << 8);
    let body = super::data(0x6000, 1040);
    bench.post(
        0x41,
        Opcode::RDMA_WRITE,
        0,
        &[to.as_bytes(), body.as_bytes()],
    );
    bench.done(0x41, CqeOpcode::REQ);
    mistake(&mut bench, 0x42);
    assert_eq!(bench.bytes(THERE, 1024), data);
}

/// A queue pair that stops at mistakes: what is fenced behind wrong data is not begun until it goes on.
#[test]
fn a_mistake_stops_the_queue_that_asks_for_it() {
    let mut bench = Bench::pair(QpKind::Rc);
    sign(&mut bench, 0x41, (SENT, HERE, 520), &rule(Some(DIF), None));
    let qp = bench.device.resources.qps.get_mut(0x41).unwrap();
    qp.drains_mistakes = true;
    bench.fill(HERE, 520);
    let body = with_key(SENT, 0, 512);
    let to = remote(0x6000);
    let write = bench.request(
        0x41,
        Opcode::RDMA_WRITE,
        0,
        &[to.as_bytes(), body.as_bytes()],
    );
    bench.put(0x41, &write);
    let mut answer = bench.request(0x41, Opcode::SEND, 0, &[data(0x5000, 16).as_bytes()]);
    answer[11] |= 4 << 5;
    bench.post_receive(0x42, &[data(0x7000, 16)]);
    bench.post_bytes(0x41, &answer);
    mistake(&mut bench, 0x41);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.state(0x41), QpState::Sqd);
    assert!(bench.poll(0x42).is_none());
    let qp = bench.device.resources.qps.get(0x41).unwrap();
    // four of the key's change, one of the write
    assert_eq!(sent(qp).unwrap().blocks, 5);
    bench.to(0x41, QpState::Rts);
    exchanged(&mut bench);
}

/// Addresses at the end of what numbers can say are outside of every key.
#[test]
fn the_last_addresses_are_out_of_bounds() {
    for (memory, wire) in [(Some(DIF), None), (None, Some(DIF)), (Some(DIF), Some(DIF))] {
        for va in [
            u64::MAX,
            u64::MAX - 512,
            u64::MAX / 520 * 512,
            u64::MAX - 4096,
        ] {
            let mut bench = Bench::pair(QpKind::Rc);
            sign(&mut bench, 0x41, (SENT, HERE, 520), &rule(memory, wire));
            let body = with_key(SENT, va, 1024);
            bench.post(0x41, Opcode::SEND, 0, &[body.as_bytes()]);
            bench.failed(0x41, Syndrome::LOCAL_PROT_ERR);
            let mut bench = Bench::pair(QpKind::Rc);
            sign(&mut bench, 0x42, (GOT, THERE, 520), &rule(memory, wire));
            let to = RaddrSegment::new(va, GOT << 8);
            let body = data(0x5000, 1040);
            bench.post(
                0x41,
                Opcode::RDMA_WRITE,
                0,
                &[to.as_bytes(), body.as_bytes()],
            );
            bench.failed(0x41, Syndrome::REMOTE_ACCESS_ERR);
        }
    }
}

/// Formats and states that are not there are refused.
#[test]
fn what_makes_no_sense_is_refused() {
    let mut bench = Bench::pair(QpKind::Rc);
    sign(&mut bench, 0x41, (SENT, HERE, 520), &rule(Some(DIF), None));
    bench.device.resources.psvs.remove(MEMORY_STATE);
    configure(
        &mut bench,
        0x41,
        (SENT, HERE, 520),
        &rule(Some(DIF), None),
        1,
    );
    bench.failed(0x41, Syndrome::LOCAL_QP_OP_ERR);
    let key = bench.device.resources.mkeys.get(SENT).unwrap();
    assert!(key.signed().is_some(), "it is as it was");
    let mut format = BsfSegment::of(&rule(Some(CRC), Some(DIF)), 1, 2).unwrap();
    assert!(Format::of(&format).is_some());
    format.mem = 5;
    assert!(Format::of(&format).is_none(), "no such block");
    format.mem = 1;
    format.m_bfs_psv.set(0x62 << 24);
    assert!(Format::of(&format).is_none(), "no such sum");
    format = BsfSegment::default();
    assert!(Format::of(&format).is_none(), "no inline part");
}

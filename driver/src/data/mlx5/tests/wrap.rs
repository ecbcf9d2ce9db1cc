//! Work requests that meet the ring's end.

use std::iter::once;

use proptest::prelude::*;

use super::model::{Style, wqe};
use super::*;

fn style(kind: QueueKind, index: u32) -> Style {
    Style {
        kind,
        index: index as u16,
        fence: 0,
        header: if kind == QueueKind::RawPacket { 18 } else { 0 },
    }
}

/// Checks a work request posted at a block: all its bytes are where the ring's length puts them, and no others are written.
fn check(make: Make, start: u32, wr: &Wr) {
    let mut bed = make.bed();
    bed.queue.start_at(start, start);
    bed.queue.post(once(wr)).unwrap();
    let expected = wqe(wr, style(make.kind, start));
    let length = expected.bytes.len();
    expected.check(&bed.wqe(start as usize, length));
    assert_eq!(bed.queue.posted_blocks(), start + expected.blocks());
    let all = make.wqebbs as usize * 64;
    let rest = bed.wqe(start as usize, all);
    // One unit behind a packet without a header is written as libmlx5 does.
    assert!(
        rest[length..].iter().all(|&byte| byte == FILL),
        "written behind its units"
    );
}

fn make(kind: QueueKind, wqebbs: u32) -> Make {
    let mut make = Make::new(kind);
    make.wqebbs = wqebbs;
    make.limits.max_wr = (wqebbs / 16).max(1);
    make.limits.max_sge = 60;
    make
}

/// B01: every start, every length of scatter list, small and large rings.
#[test]
fn lists_wrap() {
    for wqebbs in [4, 8, 64] {
        for kind in [QueueKind::Rc, QueueKind::Ud, QueueKind::XrcSend] {
            let make = make(kind, wqebbs);
            let room = (wqebbs as usize * 4).min(63) - 6;
            for start in 0..wqebbs {
                for count in 0..=room {
                    let sges = (1..=count as u32).map(sge).collect();
                    let opcode = if kind == QueueKind::Ud {
                        WrOpcode::SEND_WITH_IMM
                    } else {
                        WrOpcode::RDMA_WRITE
                    };
                    check(make, start, &Wr::new(opcode, sges));
                }
            }
        }
    }
}

/// B01, concrete: 512 bytes of ring, 320 bytes from block 6 on, so bytes 128 to 319 lie at 0 to 191.
#[test]
fn a_request_of_320_bytes_at_block_6_of_8() {
    let make = make(QueueKind::Rc, 8);
    let mut bed = make.bed();
    bed.queue.start_at(6, 6);
    let wr = Wr::new(WrOpcode::SEND, (1..20).map(sge).collect());
    bed.queue.post(once(&wr)).unwrap();
    let ring = bed.ring.bytes();
    assert_eq!(ring[6 * 64 + 7], 20);
    let expected = wqe(&wr, style(QueueKind::Rc, 6));
    let bytes: Vec<_> = expected.bytes.iter().map(|byte| byte.unwrap()).collect();
    assert_eq!(ring[384..512], bytes[..128]);
    assert_eq!(ring[..192], bytes[128..]);
    assert!(ring[192..384].iter().all(|&byte| byte == FILL));
}

/// B02: a bind at block 62 of 64: control segments end at the ring's end, the layout is at its start.
#[test]
fn windows_wrap() {
    for kind in [QueueKind::Rc, QueueKind::Uc, QueueKind::XrcSend] {
        for length in [4096, 0] {
            for start in 0..64 {
                let mut wr = Wr::new(WrOpcode::BIND_MW, Vec::new());
                wr.bind = Bind {
                    old_rkey: 0x100,
                    new_rkey: 0x101,
                    addr: 0x1000,
                    length,
                    lkey: 0x200,
                    access: 0b110,
                    type_1: false,
                };
                check(make(kind, 64), start, &wr);
            }
        }
    }
    let make = make(QueueKind::Rc, 64);
    let mut bed = make.bed();
    bed.queue.start_at(62, 62);
    let mut wr = Wr::new(WrOpcode::BIND_MW, Vec::new());
    wr.bind.length = 4096;
    wr.bind.lkey = 0x0a0b_0c0d;
    bed.queue.post(once(&wr)).unwrap();
    let ring = bed.ring.bytes();
    assert_eq!(ring[..8], [0, 0, 0x10, 0, 0x0a, 0x0b, 0x0c, 0x0d]);
    assert_eq!(ring[62 * 64 + 7], 12);
}

/// B03: 44 inline bytes written from the last block: 28 of them there, 16 at the start.
#[test]
fn inline_data_wraps() {
    let data: Vec<u8> = (0..0x2c).collect();
    let mut bed = make(QueueKind::Rc, 64).bed();
    bed.queue.start_at(63, 63);
    let wr = Wr::new(WrOpcode::RDMA_WRITE, vec![of(&data)]).with(SendFlags::INLINE);
    bed.queue.post(once(&wr)).unwrap();
    let ring = bed.ring.bytes();
    let last = &ring[63 * 64..];
    assert_eq!(last[32..36], [0x80, 0, 0, 0x2c]);
    assert_eq!(last[36..], data[..28]);
    assert_eq!(ring[..16], data[28..]);
    assert_eq!(last[7], 5);
    assert_eq!(bed.queue.posted_blocks(), 65);
    for length in [28, 29] {
        let mut bed = make(QueueKind::Rc, 64).bed();
        bed.queue.start_at(63, 63);
        let wr = Wr::new(WrOpcode::RDMA_WRITE, vec![of(&data[..length])]).with(SendFlags::INLINE);
        bed.queue.post(once(&wr)).unwrap();
        let (blocks, first) = if length == 28 { (64, FILL) } else { (65, 28) };
        assert_eq!(bed.queue.posted_blocks(), blocks);
        assert_eq!(bed.ring.bytes()[0], first);
    }
}

fn any_kind() -> impl Strategy<Value = QueueKind> {
    prop::sample::select(vec![
        QueueKind::Rc,
        QueueKind::Uc,
        QueueKind::Ud,
        QueueKind::XrcSend,
        QueueKind::RawPacket,
    ])
}

fn opcodes(kind: QueueKind) -> Vec<u32> {
    match kind {
        QueueKind::Rc | QueueKind::XrcSend => (0..10).collect(),
        QueueKind::Uc => vec![0, 1, 2, 3, 7, 8, 9],
        QueueKind::Ud => vec![2, 3],
        _ => vec![2, 10],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// B01, B03, B11: lists of any requests, at any place of any ring, as the model has them; nothing else is written.
    #[test]
    fn any_request_anywhere(
        kind in any_kind(),
        pick in 0..10_usize,
        start in 0..70_000_u32,
        lengths in prop::collection::vec(0..120_usize, 0..8),
        flags in 0..32_u32,
        header in prop::collection::vec(any::<u8>(), 14..192),
        bind in (any::<bool>(), any::<u32>(), any::<u64>(), 0..=(1_u64 << 31), 0..64_u32),
        data in prop::collection::vec(any::<u8>(), 1024),
    ) {
        let mut flags = flags;
        let opcodes = opcodes(kind);
        let opcode = opcodes[pick % opcodes.len()];
        // Inline atomics are nonsense that libmlx5 would write; ours has their old value's place only.
        if matches!(opcode, 5 | 6) {
            flags &= !8;
        }
        let mut at = 0;
        let sges: Vec<Sge> = lengths.iter().map(|&length| {
            at += length;
            of(&data[at - length..at])
        }).collect();
        let mut wr = Wr::new(WrOpcode(opcode), sges).with(SendFlags(flags));
        wr.header = header;
        let (type_1, new_rkey, addr, length, access) = bind;
        wr.bind = Bind { type_1, old_rkey: new_rkey ^ 1, new_rkey, addr, length, lkey: !new_rkey, access };
        let make = make(kind, 64);
        let mut bed = make.bed();
        bed.queue.start_at(start, start);
        let posted = bed.queue.post(once(&wr));
        // The way for one work request does the same.
        let mut other = make.bed();
        other.queue.start_at(start, start);
        let one = other.queue.post_one(&wr);
        prop_assert_eq!(one.err().map(|refused| refused.error), posted.as_ref().err().map(|refused| refused.error));
        if posted.is_ok() {
            prop_assert_eq!(other.ring.bytes(), bed.ring.bytes());
        }
        prop_assert_eq!(other.uar.bytes(), bed.uar.bytes());
        prop_assert_eq!(other.doorbell.bytes(), bed.doorbell.bytes());
        let total: usize = lengths.iter().sum();
        if kind == QueueKind::RawPacket && opcode == 2 && total < 18 {
            prop_assert_eq!(posted.unwrap_err().error, PostError::HeadersTooShort);
            return Ok(());
        }
        if flags & 8 != 0 && opcode != 7 && opcode != 8 && total - style(kind, 0).header.min(total) > 828 {
            prop_assert_eq!(posted.unwrap_err().error, PostError::InlineTooLong);
            return Ok(());
        }
        prop_assert!(posted.is_ok());
        let mut style = style(kind, start);
        if opcode == 10 {
            style.header = 0;
        }
        let expected = wqe(&wr, style);
        let length = expected.bytes.len();
        let found = bed.wqe((start % 64) as usize, 64 * 64);
        expected.check(&found[..length]);
        prop_assert!(found[length..].iter().all(|&byte| byte == FILL));
        prop_assert_eq!(bed.doorbell(), start.wrapping_add(expected.blocks()) & 0xffff);
    }
}

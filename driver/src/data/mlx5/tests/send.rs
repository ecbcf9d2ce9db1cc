//! What posting writes, and what it refuses.

use std::iter::once;

use proptest::prelude::*;

use super::model::{Style, wqe};
use super::*;

fn plain(kind: QueueKind) -> Style {
    Style {
        kind,
        index: 0,
        fence: 0,
        header: 0,
    }
}

const CONNECTED: [QueueKind; 3] = [QueueKind::Rc, QueueKind::Uc, QueueKind::XrcSend];

fn takes(kind: QueueKind, opcode: u32) -> bool {
    match kind {
        QueueKind::Rc | QueueKind::XrcSend => opcode <= 9,
        QueueKind::Uc => matches!(opcode, 0..=3 | 7..=9),
        QueueKind::Ud => matches!(opcode, 2 | 3),
        QueueKind::RawPacket => matches!(opcode, 2 | 10),
        _ => false,
    }
}

fn window(length: u64) -> Bind {
    Bind {
        type_1: false,
        old_rkey: 0xa1a2_a3a4,
        new_rkey: 0xa1a2_a3a5,
        addr: 0xb1b2_b3b4_b5b6_b7b8,
        length,
        lkey: 0xc1c2_c3c4,
        access: 0b1111,
    }
}

/// B11: every operation of every kind of queue on a ring of 0xff: what the device reads is as the model says, reserved
/// bytes are 0, and nothing behind the work request's units is written.
#[test]
fn every_operation_is_written_over_stale_bytes() {
    for kind in [CONNECTED.as_slice(), &[QueueKind::Ud, QueueKind::Dci]].concat() {
        for opcode in 0..12 {
            let mut bed = Bed::new(kind);
            let mut wr = Wr::new(WrOpcode(opcode), vec![sge(0x1234), sge(7)]);
            wr.bind = window(4096);
            let posted = bed.queue.post(once(&wr));
            if !takes(kind, opcode) {
                assert_eq!(posted.unwrap_err().error, PostError::Opcode);
                assert_eq!(bed.queue.posted_blocks(), 0);
                continue;
            }
            assert_eq!(posted.unwrap(), 1, "{kind:?} {opcode}");
            let expected = wqe(&wr, plain(kind));
            expected.check(&bed.wqe(0, expected.bytes.len()));
            assert_eq!(bed.doorbell(), expected.blocks());
            let ring = bed.ring.bytes();
            assert!(
                ring[expected.bytes.len()..]
                    .iter()
                    .all(|&byte| byte == FILL)
            );
            let record = bed.record.send().unwrap().record(0);
            assert_eq!((record.wr_id, record.head), (wr.wr_id, 1));
            assert_eq!(Some(record.opcode), expected.bytes[3]);
            assert_eq!(
                record.kind,
                match opcode {
                    7 => WorkKind::LocalInv,
                    8 => WorkKind::BindMw,
                    _ => WorkKind::Plain,
                }
            );
        }
    }
}

/// Windows: both types, unbound, zero-based, and one of more than 2 GiB, whose length its layout cannot say.
#[test]
fn binds_and_invalidations() {
    for (type_1, length, access) in [
        (false, 4096, 0b1110),
        (true, 4096, 0b0100),
        (false, 0, 0b1111),
        (true, 0, 0),
        (false, 1 << 31, 0b10_0010),
    ] {
        let mut bed = Bed::new(QueueKind::Rc);
        let mut wr = Wr::new(WrOpcode::BIND_MW, Vec::new());
        wr.bind = Bind {
            type_1,
            access,
            ..window(length)
        };
        bed.queue.post(once(&wr)).unwrap();
        let expected = wqe(&wr, plain(QueueKind::Rc));
        expected.check(&bed.wqe(0, expected.bytes.len()));
    }
    let mut bed = Bed::new(QueueKind::Rc);
    let mut wr = Wr::new(WrOpcode::BIND_MW, Vec::new());
    wr.bind = window((1 << 31) + 1);
    let error = bed.queue.post(once(&wr)).unwrap_err().error;
    assert_eq!(error, PostError::WindowTooLong);
    assert_eq!(error.errno(Verb::PostSend).0, libc::EOPNOTSUPP);
}

/// B04: several pieces are one after the other in the ring, empty ones between them make nothing, keys are not looked at.
#[test]
fn inline_pieces_are_gathered() {
    let text = *b"what is inline is taken at once, from wherever it is in memory.";
    for lengths in [&[5, 0, 7, 3][..], &[30, 30], &[0, 0], &[1], &[44], &[63]] {
        let mut bed = Bed::new(QueueKind::Rc);
        let mut at = 0;
        let sges = lengths
            .iter()
            .map(|&length| {
                at += length;
                of(&text[at - length..at])
            })
            .collect();
        let wr = Wr::new(WrOpcode::RDMA_WRITE, sges).with(SendFlags::INLINE);
        bed.queue.post(once(&wr)).unwrap();
        let expected = wqe(&wr, plain(QueueKind::Rc));
        expected.check(&bed.wqe(0, expected.bytes.len()));
        let found = bed.wqe(0, 256);
        if at == 0 {
            assert_eq!(found[7], 2, "no inline segment");
        } else {
            assert_eq!(found[32..36], (at as u32 | 1 << 31).to_be_bytes());
            assert_eq!(found[36..36 + at], text[..at]);
        }
    }
}

/// B06: what one work request of a list says is not said of the next.
#[test]
fn nothing_is_carried_from_one_request_to_the_next() {
    let data = [0x5a; 40];
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_inline = 60;
    make.limits.max_wr = 16;
    let mut bed = make.bed();
    let wr = Wr::new(WrOpcode::SEND, vec![of(&data)]).with(SendFlags::INLINE);
    assert_eq!(bed.queue.post(vec![wr; 10]).unwrap(), 10);

    let mut bed = make.bed();
    let all = SendFlags::FENCE
        .with(SendFlags::SIGNALED)
        .with(SendFlags::SOLICITED);
    let first = Wr::new(WrOpcode::SEND_WITH_IMM, vec![sge(100)]).with(all);
    let second = Wr::new(WrOpcode::SEND, Vec::new());
    assert_eq!(bed.queue.post([&first, &second]).unwrap(), 2);
    assert_eq!(
        bed.wqe(0, 64)[8..16],
        [0, 0, 0, 0x8a, 0xde, 0xad, 0xbe, 0xef]
    );
    assert_eq!(
        bed.wqe(1, 64)[..16],
        [0, 0, 1, 0x0a, 0xab, 0xcd, 0xef, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

/// B08: numbers of errors are positive and libmlx5's; what stands before the refused one is posted and rung.
#[test]
fn refusals() {
    let refuse = |make: Make, wr: Wr| {
        let mut bed = make.bed();
        let good = Wr::new(WrOpcode::SEND, vec![sge(1)]);
        let list = [good.clone(), good.clone(), wr, good.clone(), good];
        let refused = bed.queue.post(&list).unwrap_err();
        assert!(std::ptr::eq(refused.request, &list[2]));
        assert_eq!(bed.doorbell(), 2);
        let uar = bed.uar.bytes();
        assert_eq!(
            uar[..8],
            [0, 0, 1, 0x0a, 0xab, 0xcd, 0xef, 2],
            "the last good one"
        );
        assert_eq!(bed.queue.head(), 2);
        refused.error.errno(Verb::PostSend).0
    };
    let make = Make::new(QueueKind::Rc);
    let many = vec![sge(1); make.limits.max_sge as usize + 1];
    assert_eq!(refuse(make, Wr::new(WrOpcode::SEND, many)), libc::ENOMEM);
    assert_eq!(
        refuse(make, Wr::new(WrOpcode(99), Vec::new())),
        libc::EINVAL
    );
    let long = vec![0; make.limits.max_inline as usize + 1];
    let inline = Wr::new(WrOpcode::SEND, vec![of(&long)]).with(SendFlags::INLINE);
    assert_eq!(refuse(make, inline), libc::ENOMEM);
    let mut without = make;
    without.limits.atomics = false;
    let atomic = Wr::new(WrOpcode::ATOMIC_FETCH_AND_ADD, vec![sge(8)]);
    assert_eq!(refuse(without, atomic), libc::EOPNOTSUPP);
    let mut full = make;
    full.limits.max_wr = 2;
    assert_eq!(
        refuse(full, Wr::new(WrOpcode::SEND, Vec::new())),
        libc::ENOMEM
    );
}

/// B21: bit 31 of a length would make a pointer inline data; 1 GiB is fine.
#[test]
fn lengths_with_bit_31_are_refused() {
    for length in [0x8000_0000, 0xffff_ffff] {
        for opcode in [WrOpcode::SEND, WrOpcode::RDMA_READ] {
            let mut bed = Bed::new(QueueKind::Rc);
            for sges in [vec![sge(length)], vec![sge(1), sge(length)]] {
                let wr = Wr::new(opcode, sges);
                let error = bed.queue.post(once(&wr)).unwrap_err().error;
                assert_eq!(error.errno(Verb::PostSend).0, libc::EINVAL);
                assert_eq!(bed.queue.posted_blocks(), 0);
            }
        }
    }
    let mut bed = Bed::new(QueueKind::Rc);
    let wr = Wr::new(WrOpcode::SEND, vec![sge(0x4000_0000), sge(0x7fff_ffff)]);
    bed.queue.post(once(&wr)).unwrap();
    let expected = wqe(&wr, plain(QueueKind::Rc));
    expected.check(&bed.wqe(0, expected.bytes.len()));
}

/// B22: inline lengths whose sum wraps 32 or 64 bits are refused before a byte is read.
#[test]
fn inline_sums_do_not_wrap() {
    let at_nothing = |length| Sge {
        addr: 16,
        length,
        lkey: 0,
    };
    let mut bed = Bed::new(QueueKind::Rc);
    for lengths in [
        &[0x8000_0000, 0x8000_0000, 16][..],
        &[0xffff_fff0],
        &[16, 0xffff_fff0],
    ] {
        let sges = lengths.iter().map(|&length| at_nothing(length)).collect();
        let wr = Wr::new(WrOpcode::SEND, sges).with(SendFlags::INLINE);
        let error = bed.queue.post(once(&wr)).unwrap_err().error;
        assert_eq!(error, PostError::InlineTooLong);
    }
    for lengths in [[usize::MAX, 2], [usize::MAX - 3, usize::MAX]] {
        let mut draft = bed.queue.begin();
        // SAFETY: no headers.
        unsafe {
            bed.queue
                .open(&mut draft, 0, SendFlags::NONE, &Operation::Send)
        }
        .unwrap();
        let pieces = lengths.map(|len| InlinePiece {
            addr: std::ptr::dangling(),
            len,
        });
        // SAFETY: refused before anything is read.
        let error =
            unsafe { bed.queue.set_inline_list(&mut draft, pieces.into_iter()) }.unwrap_err();
        assert_eq!(error, PostError::InlineTooLong);
        assert_eq!(bed.queue.commit(&mut draft).unwrap_err(), error);
    }
    assert_eq!(bed.queue.posted_blocks(), 0);
    assert_eq!(bed.ring.bytes()[16..64], [FILL; 48], "no data was written");
}

/// B19: an empty element would be one of 2 GiB, so it is left out.
#[test]
fn empty_elements_are_left_out() {
    let mut bed = Bed::new(QueueKind::Rc);
    let wr = Wr::new(WrOpcode::SEND, vec![sge(4), sge(0), sge(4)]);
    bed.queue.post(once(&wr)).unwrap();
    assert_eq!(bed.wqe(0, 64)[7], 3);
    let wr = Wr::new(WrOpcode::RDMA_WRITE, vec![sge(0)]);
    bed.queue.post(once(&wr)).unwrap();
    assert_eq!(bed.wqe(1, 64)[7], 2);
    let wr = Wr::new(WrOpcode::RDMA_READ, vec![sge(0), sge(0)]);
    bed.queue.post(once(&wr)).unwrap();
    assert_eq!(bed.wqe(2, 64)[7], 2);
}

/// B17: a fence is asked for, or follows from an invalidation or a bind: for the next work request, also in the next call,
/// also by the other way of posting, and not if that one was refused.
#[test]
fn fences() {
    let flags = |bed: &Bed, block| bed.wqe(block, 64)[11];
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_wr = 16;
    let mut bed = make.bed();
    let send = Wr::new(WrOpcode::SEND, vec![sge(1)]);
    let fenced = send.clone().with(SendFlags::FENCE);
    let invalidate = Wr::new(WrOpcode::LOCAL_INV, Vec::new());
    // One block each, and two for an invalidation.
    bed.queue
        .post([&fenced, &invalidate, &send, &send])
        .unwrap();
    assert_eq!(
        [0, 1, 3, 4].map(|block| flags(&bed, block)),
        [0x80, 0, 0x20, 0]
    );
    bed.queue.post(once(&invalidate)).unwrap();
    bed.queue.post(once(&fenced)).unwrap();
    bed.queue.post(once(&send)).unwrap();
    assert_eq!([5, 7, 8].map(|block| flags(&bed, block)), [0, 0x80, 0]);
    // Two in a row: the second is fenced, and so is what follows it.
    bed.queue.post([&invalidate, &invalidate]).unwrap();
    assert_eq!([9, 11].map(|block| flags(&bed, block)), [0, 0x20]);
    bed.queue
        .post(once(&Wr::new(WrOpcode::SEND, vec![sge(1); 17])))
        .unwrap_err();
    let mut draft = bed.queue.begin();
    // SAFETY: no headers.
    unsafe {
        bed.queue
            .open(&mut draft, 0, SendFlags::SIGNALED, &Operation::Send)
    }
    .unwrap();
    let rkey = Operation::LocalInv { rkey: 1 };
    // SAFETY: no headers.
    unsafe { bed.queue.open(&mut draft, 0, SendFlags::NONE, &rkey) }.unwrap();
    bed.queue.commit(&mut draft).unwrap();
    assert_eq!([13, 14].map(|block| flags(&bed, block)), [0x28, 0]);
    bed.complete();
    bed.queue.post(once(&send)).unwrap();
    assert_eq!(flags(&bed, 16), 0x20);
}

/// A queue that signals all has the bit in each work request.
#[test]
fn signals_of_all() {
    let mut make = Make::new(QueueKind::Uc);
    make.signal_all = true;
    let mut bed = make.bed();
    bed.queue
        .post(once(&Wr::new(WrOpcode::SEND, Vec::new())))
        .unwrap();
    assert_eq!(bed.wqe(0, 64)[11], 8);
}

/// B32: nothing is taken before RTS, all from then on; a reset begins anew, with the doorbell record cleared.
#[test]
fn states() {
    let mut bed = Bed::new(QueueKind::Rc);
    let wr = Wr::new(WrOpcode::SEND, Vec::new());
    bed.queue.post([&wr, &wr]).unwrap();
    bed.queue.reset();
    assert_eq!(bed.doorbell(), 0);
    let error = bed.queue.post(once(&wr)).unwrap_err().error;
    assert_eq!(error, PostError::WrongState);
    assert_eq!(error.errno(Verb::PostSend).0, libc::ENOMEM);
    let mut draft = bed.queue.begin();
    // SAFETY: no headers.
    unsafe {
        bed.queue
            .open(&mut draft, 0, SendFlags::NONE, &Operation::Send)
    }
    .unwrap_err();
    let error = bed.queue.commit(&mut draft).unwrap_err();
    assert_eq!(error.errno(Verb::WrComplete).0, libc::EINVAL);
    assert_eq!(bed.doorbell(), 0);
    bed.queue.set_accepting(true);
    bed.queue.post(once(&wr)).unwrap();
    assert_eq!(bed.doorbell(), 1);
    assert_eq!(bed.wqe(0, 64)[..4], [0, 0, 0, 0x0a]);
    // An empty list rings nothing.
    let before = bed.uar.bytes();
    assert_eq!(bed.queue.post::<&Wr>([]).unwrap(), 0);
    let mut draft = bed.queue.begin();
    assert_eq!(bed.queue.commit(&mut draft).unwrap(), 0);
    assert_eq!(bed.uar.bytes(), before);
}

/// B13: the signature makes the exclusive or of the request's units 0xff, over the ring's end too, and of no byte behind them.
#[test]
fn signatures_cover_the_request_and_no_more() {
    for start in [0, 63] {
        for behind in [0x00, 0x5a] {
            let mut make = Make::new(QueueKind::Rc);
            make.signature = true;
            let mut bed = make.bed();
            bed.ring.fill(behind);
            bed.queue.start_at(start, start);
            let wr = Wr::new(WrOpcode::RDMA_WRITE, vec![sge(1), sge(2), sge(3)]);
            bed.queue.post(once(&wr)).unwrap();
            let found = bed.wqe(start as usize, 128);
            let xor = found[..5 * 16].iter().fold(0, |xor, byte| xor ^ byte);
            assert_eq!(xor, 0xff);
            let unsigned = found[..5 * 16].iter().enumerate();
            let signature = unsigned
                .filter(|(place, _)| *place != 8)
                .fold(0, |xor, (_, byte)| xor ^ byte);
            assert_eq!(found[8], !signature);
        }
    }
}

/// B10: the block counter goes over 2^16, the work request counter over 2^32; indices, the doorbell record and the records
/// follow.
#[test]
fn counters_wrap() {
    let mut bed = Bed::new(QueueKind::Rc);
    bed.queue.start_at(0xfffe, u32::MAX - 1);
    let mut wr = Wr::new(WrOpcode::RDMA_WRITE, vec![sge(1), sge(2), sge(3)]);
    for (wr_id, block, index, after, head) in [
        (1, 62, 0xfffe, 0, u32::MAX),
        (2, 0, 0, 2, 0),
        (3, 2, 2, 4, 1),
    ] {
        wr.wr_id = wr_id;
        bed.queue.post(once(&wr)).unwrap();
        let style = Style {
            index,
            ..plain(QueueKind::Rc)
        };
        wqe(&wr, style).check(&bed.wqe(block, 80));
        assert_eq!(bed.doorbell(), after);
        let record = bed.record.send().unwrap().record(index.into());
        assert_eq!((record.wr_id, record.head), (wr_id, head));
    }
    assert_eq!(bed.queue.free(), 1);
    bed.record.send().unwrap().complete(1);
    assert_eq!(bed.queue.free(), 4);
    bed.queue.start_at(u32::MAX, 0);
    bed.queue.post([&wr, &wr]).unwrap();
    assert_eq!(bed.doorbell(), 3);
}

/// B09: sixteen work requests of 256 bytes, posted one by one and unsignaled; one completion of the last frees all.
#[test]
fn one_completion_frees_all_before_it() {
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_wr = 16;
    let mut bed = make.bed();
    let wr = Wr::new(WrOpcode::SEND, vec![sge(1)]);
    for _ in 0..3 {
        for _ in 0..16 {
            bed.queue.post(once(&wr)).unwrap();
        }
        let error = bed.queue.post(once(&wr)).unwrap_err().error;
        assert_eq!(error, PostError::QueueFull);
        let record = bed
            .record
            .send()
            .unwrap()
            .record(bed.queue.posted_blocks() - 1);
        bed.record.send().unwrap().complete(record.head);
    }
}

proptest! {
    /// B09: with requests of one to four blocks and completions that lag behind, the queue refuses exactly when as many as it
    /// was made for are posted, and what it writes never reaches a block that is not complete.
    #[test]
    fn room_is_counted_right(steps in prop::collection::vec((0..12_usize, 0..3_u32), 1..200)) {
        let mut make = Make::new(QueueKind::Rc);
        make.limits.max_wr = 16;
        let mut bed = make.bed();
        // (head, end) of what is posted and not complete.
        let mut outstanding = std::collections::VecDeque::new();
        let mut complete_blocks = 0;
        for (sges, completions) in steps {
            let wr = Wr::new(WrOpcode::SEND, vec![sge(1); sges]);
            let posted = bed.queue.post(once(&wr));
            if outstanding.len() == 16 {
                prop_assert_eq!(posted.unwrap_err().error, PostError::QueueFull);
            } else {
                prop_assert!(posted.is_ok());
                let end = bed.queue.posted_blocks();
                prop_assert!(end.wrapping_sub(complete_blocks) <= 64, "a posted block was written over");
                outstanding.push_back((bed.queue.head(), end));
            }
            for _ in 0..completions {
                if let Some((head, end)) = outstanding.pop_front() {
                    complete_blocks = end;
                    bed.record.send().unwrap().complete(head);
                }
            }
        }
    }
}

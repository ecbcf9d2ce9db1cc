//! Configuring keys, and canceling. Expected bytes stand in the test: fields of mlx5dv.h's `mlx5_wqe_umr_ctrl_seg`,
//! `mlx5_wqe_mkey_context_seg`, `mlx5_wqe_umr_klm_seg` and `mlx5_wqe_umr_repeat_*_seg`.

use super::*;

const KEY: u32 = 0x0102_0355;

fn update<'a>(access: Option<u32>, layout: Option<KeyLayout<'a>>) -> KeyUpdate<'a> {
    KeyUpdate {
        key: KEY,
        entries: 4,
        access,
        layout,
        signature: None,
    }
}

fn bed() -> Bed {
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_inline = 92;
    make.bed()
}

fn post(bed: &mut Bed, flags: SendFlags, update: &KeyUpdate<'_>) -> Result<u32, PostError> {
    let mut draft = bed.queue.begin();
    let _ = bed.queue.configure_key(&mut draft, 9, flags, update);
    bed.queue.commit(&mut draft)
}

/// Access and a list of one buffer: padded to four entries; the key's number as immediate data; the next one waits.
#[test]
fn lists() {
    let mut bed = bed();
    let buffers = [Sge {
        addr: 0x1112_1314_1516_1718,
        length: 0x2122_2324,
        lkey: 0x3132_3334,
    }];
    let update = update(Some(0b1101), Some(KeyLayout::List(&buffers)));
    assert_eq!(post(&mut bed, SendFlags::INLINE, &update), Ok(1));
    let wqe = bed.wqe(0, 192);
    assert_eq!(wqe[..4], [0, 0, 0, 0x25]);
    assert_eq!(wqe[7], 12);
    assert_eq!(wqe[8..16], [0, 0, 0, 0, 1, 2, 3, 0x55]);
    // Inline; four octowords; len, key, four accesses, free.
    assert_eq!(wqe[16..24], [0x80, 0, 0, 0, 0, 4, 0, 0]);
    assert_eq!(
        wqe[24..32],
        (1_u64 | 1 << 13 | 0xf << 18 | 1 << 29).to_be_bytes()
    );
    assert_eq!(wqe[32..64], [0; 32]);
    // Local write, remote read, atomic; any queue pair, the key's low byte.
    assert_eq!(wqe[64..72], [0, 0, 0x58, 0, 0xff, 0xff, 0xff, 0x55]);
    assert_eq!(wqe[72..88], [0; 16]);
    assert_eq!(wqe[88..96], 0x2122_2324_u64.to_be_bytes());
    assert_eq!(wqe[96..128], [0; 32]);
    let entry = [
        0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
        0x18,
    ];
    assert_eq!(wqe[128..144], entry);
    assert_eq!(wqe[144..], [0; 48]);
    assert_eq!(bed.record.send().unwrap().record(0).kind, WorkKind::Mkey);
    let mut draft = bed.queue.begin();
    // SAFETY: no headers.
    unsafe {
        bed.queue
            .open(&mut draft, 1, SendFlags::NONE, &Operation::Send)
    }
    .unwrap();
    bed.queue.commit(&mut draft).unwrap();
    assert_eq!(bed.wqe(3, 64)[11], 0x20);
}

/// A pattern over the end of the ring.
#[test]
fn patterns() {
    let mut bed = bed();
    bed.queue.start_at(62, 62);
    let pieces = [PatternPiece {
        addr: 0x1112_1314_1516_1718,
        length: 0x0203,
        skip: 0x0100,
        lkey: 0x3132_3334,
    }; 2];
    let layout = KeyLayout::Pattern {
        repeat: 0x0a0b,
        pieces: &pieces,
    };
    assert_eq!(
        post(&mut bed, SendFlags::INLINE, &update(None, Some(layout))),
        Ok(1)
    );
    let wqe = bed.wqe(62, 192);
    assert_eq!(wqe[24..32], (1_u64 | 1 << 13 | 1 << 29).to_be_bytes());
    assert_eq!(wqe[88..96], (0x0406_u64 * 0x0a0b).to_be_bytes());
    let head = [0, 0, 4, 6, 0, 0, 4, 0, 0, 0, 0x0a, 0x0b, 0, 0, 0, 2];
    assert_eq!(wqe[128..144], head);
    let entry = [
        3, 3, 2, 3, 0x31, 0x32, 0x33, 0x34, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
    ];
    assert_eq!(wqe[144..160], entry);
    assert_eq!(wqe[160..176], entry);
    assert_eq!(wqe[176..], [0; 16]);
}

/// What is refused leaves nothing.
#[test]
fn refused() {
    let buffer = Sge {
        addr: 0,
        length: 1,
        lkey: 0,
    };
    let long = [buffer; 7];
    let wide = [PatternPiece {
        addr: 0,
        length: 0xff00,
        skip: 0x100,
        lkey: 0,
    }];
    let wide = KeyLayout::Pattern {
        repeat: 1,
        pieces: &wide,
    };
    let list = |n| KeyUpdate {
        entries: 64,
        ..update(None, Some(KeyLayout::List(&long[..n])))
    };
    let inline = SendFlags::INLINE;
    for (flags, update, error) in [
        (SendFlags::NONE, update(None, None), PostError::KeyElsewhere),
        (inline, update(Some(1 << 4), None), PostError::KeyAccess),
        (
            inline,
            update(None, Some(KeyLayout::List(&long[..5]))),
            PostError::TooManySges,
        ),
        (inline, list(7), PostError::TooManySges),
        (inline, update(None, Some(wide)), PostError::TooLong),
    ] {
        let mut bed = bed();
        assert_eq!(post(&mut bed, flags, &update), Err(error));
        assert_eq!(bed.queue.posted_blocks(), 0);
    }
    assert_eq!(post(&mut bed(), inline, &list(6)), Ok(1));
    let mut other = Bed::new(QueueKind::Uc);
    assert_eq!(
        post(&mut other, inline, &update(None, None)),
        Err(PostError::Opcode)
    );
}

fn read(bed: &mut Bed, draft: &mut Draft, wr_id: u64) {
    let remote = Remote { addr: 1, rkey: 2 };
    let operation = Operation::RdmaRead(remote);
    // SAFETY: no headers.
    unsafe {
        bed.queue
            .open(draft, wr_id, SendFlags::NONE, &operation)
            .unwrap()
    };
}

/// Canceled are those of the number that the device has not begun, over the end of the ring too; they keep their index and
/// their opcode, for the completion.
#[test]
fn cancels() {
    let mut bed = bed();
    bed.queue.start_at(0xfffd, 7);
    for wr_id in [5, 6, 5, 5] {
        let mut draft = bed.queue.begin();
        read(&mut bed, &mut draft, wr_id);
        bed.queue.commit(&mut draft).unwrap();
    }
    // SAFETY: there is no device.
    assert_eq!(unsafe { bed.queue.cancel(0xfffe, 5) }, 2);
    for (at, opcode) in [
        (0xfffd_u32, 0x10),
        (0xfffe, 0x10),
        (0xffff, 0),
        (0x10000, 0),
    ] {
        let index = (at as u16).to_be_bytes();
        assert_eq!(
            bed.wqe(at as usize % 64, 4),
            [0, index[0], index[1], opcode]
        );
        let record = bed.record.send().unwrap().record(at);
        assert_eq!(record.opcode, 0x10);
        assert_eq!(record.kind == WorkKind::Canceled, opcode == 0);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { bed.queue.cancel(1, 5) }, 0);
    // SAFETY: as above. A number that cannot be.
    assert_eq!(unsafe { bed.queue.cancel(0x8000, 5) }, 0);
}

/// What a batch that never was posted left behind looks like work requests, of later places than the blocks' own: here in the
/// midst of one of three blocks, with its number. (libmlx5 goes on there: it overwrites the middle and misses the one behind.)
#[test]
fn cancels_over_what_an_abandoned_batch_left() {
    let mut bed = bed();
    let mut draft = bed.queue.begin();
    for wr_id in [6, 9, 9] {
        read(&mut bed, &mut draft, wr_id);
    }
    // Not committed.
    let buffers = [Sge::default()];
    let update = update(None, Some(KeyLayout::List(&buffers)));
    assert_eq!(post(&mut bed, SendFlags::INLINE, &update), Ok(1));
    let mut draft = bed.queue.begin();
    read(&mut bed, &mut draft, 9);
    bed.queue.commit(&mut draft).unwrap();
    assert_eq!(bed.queue.posted_blocks(), 4);
    let mut expected = bed.wqe(0, 256);
    // The opcodes of both.
    assert_eq!([expected[3], expected[195]], [0x25, 0x10]);
    expected[3] = 0;
    expected[195] = 0;
    // SAFETY: there is no device.
    assert_eq!(unsafe { bed.queue.cancel(0, 9) }, 2);
    assert_eq!(bed.wqe(0, 256), expected);
}

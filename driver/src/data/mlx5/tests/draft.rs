//! Batches that are described step by step: the same bytes as lists have, but for immediate data that is none.

use proptest::prelude::*;

use super::model::{Style, wqe};
use super::*;

/// Opens what a work request of a list does.
fn open(bed: &Bed, draft: &mut Draft, wr: &Wr) -> Result<(), PostError> {
    let rkey = u32::from_be_bytes(wr.imm);
    let imm = U32::from_bytes(wr.imm);
    let remote = wr.remote;
    let AtomicOperands { compare_add, swap } = wr.atomic;
    let operation = match wr.opcode.0 {
        0 => Operation::RdmaWrite(remote),
        1 => Operation::RdmaWriteWithImm { remote, imm },
        2 => Operation::Send,
        3 => Operation::SendWithImm { imm },
        4 => Operation::RdmaRead(remote),
        5 => Operation::AtomicCmpAndSwp {
            remote,
            compare: compare_add,
            swap,
        },
        6 => Operation::AtomicFetchAndAdd {
            remote,
            add: compare_add,
        },
        7 => Operation::LocalInv { rkey },
        8 => Operation::BindMw(wr.bind),
        9 => Operation::SendWithInv { rkey },
        10 => Operation::Tso(wr.segmentation().unwrap()),
        other => panic!("opcode {other}"),
    };
    // SAFETY: the headers are the work request's.
    unsafe { bed.queue.open(draft, wr.wr_id, wr.flags, &operation) }
}

/// Gives it destination and payload, in one of two orders.
fn complete(bed: &Bed, draft: &mut Draft, wr: &Wr, payload_first: bool) {
    for payload in [payload_first, !payload_first] {
        if payload {
            let pieces = wr.sges.iter().map(InlinePiece::of_sge);
            let inline = wr.flags.contains(SendFlags::INLINE);
            // Refusals stay in the draft.
            let _ = match wr.sges.as_slice() {
                // SAFETY: tests give live memory where it is read.
                [sge] if inline => unsafe { bed.queue.set_inline(draft, InlinePiece::of_sge(sge)) },
                // SAFETY: as above.
                _ if inline => unsafe { bed.queue.set_inline_list(draft, pieces) },
                // SAFETY: as above.
                [sge] => unsafe { bed.queue.set_sge(draft, sge) },
                // SAFETY: as above.
                sges => unsafe { bed.queue.set_sges(draft, sges) },
            };
        } else if bed.record.kind() == QueueKind::Ud {
            bed.queue.set_datagram(draft, &wr.destination().unwrap());
        } else if bed.record.kind() == QueueKind::XrcSend {
            bed.queue.set_srqn(draft, wr.srqn);
        }
    }
}

fn opcodes(kind: QueueKind) -> &'static [u32] {
    match kind {
        QueueKind::Rc | QueueKind::XrcSend => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        QueueKind::Uc => &[0, 1, 2, 3, 7, 8, 9],
        QueueKind::Ud => &[2, 3],
        _ => &[2, 10],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// B01, B03, B06, B11, B17: batches of any requests at any place of the ring are as the model has them, one behind
    /// the other; nothing else is written.
    #[test]
    fn batches_are_written_as_lists_are(
        kind in prop::sample::select(vec![
            QueueKind::Rc, QueueKind::Uc, QueueKind::Ud, QueueKind::XrcSend, QueueKind::RawPacket,
        ]),
        start in 0..70_000_u32,
        requests in prop::collection::vec(
            (0..10_usize, 0..32_u32, prop::collection::vec(0..60_usize, 0..4), any::<bool>()),
            1..4,
        ),
        data in prop::collection::vec(any::<u8>(), 1024),
    ) {
        let mut bed = Bed::new(kind);
        bed.queue.start_at(start, start);
        let mut draft = bed.queue.begin();
        let mut blocks = start;
        let mut fence = 0;
        let mut expected = Vec::new();
        let mut last = Vec::new();
        for (pick, flags, lengths, payload_first) in &requests {
            let opcode = opcodes(kind)[pick % opcodes(kind).len()];
            let mut flags = *flags;
            let mut lengths = lengths.clone();
            if matches!(opcode, 5 | 6) {
                flags &= !8;
                lengths = vec![8];
            }
            if kind == QueueKind::RawPacket && opcode == 2 {
                lengths.push(18);
            }
            let mut at = 0;
            let sges = lengths.iter().map(|&length| {
                at += length;
                of(&data[at - length..at])
            }).collect();
            let mut wr = Wr::new(WrOpcode(opcode), sges).with(SendFlags(flags));
            wr.bind.length = *pick as u64 % 3 * 4096;
            wr.header = data[..14 + at].to_vec();
            prop_assert_eq!(open(&bed, &mut draft, &wr), Ok(()));
            let window = matches!(opcode, 7 | 8);
            if !window {
                complete(&bed, &mut draft, &wr, *payload_first);
            }
            let style = Style {
                kind,
                index: blocks as u16,
                fence,
                header: if kind == QueueKind::RawPacket && opcode == 2 { 18 } else { 0 },
            };
            let model = wqe(&wr, style);
            fence = if window { 0x20 } else { 0 };
            last = model.bytes[..8].iter().map(|byte| byte.unwrap()).collect();
            expected.push((blocks, model.clone()));
            blocks = blocks.wrapping_add(model.blocks());
        }
        prop_assert_eq!(bed.queue.commit(&mut draft), Ok(requests.len() as u32));
        prop_assert_eq!(bed.doorbell(), blocks & 0xffff);
        let mut ring = bed.ring.bytes();
        for (block, model) in &expected {
            let block = *block as usize % 64;
            let length = model.bytes.len();
            model.check(&bed.wqe(block, length));
            for place in 0..length {
                ring[(block * 64 + place) % (64 * 64)] = FILL;
            }
        }
        prop_assert!(ring.iter().all(|&byte| byte == FILL), "written elsewhere");
        prop_assert_eq!(&bed.uar.bytes()[..8], last.as_slice());
        let shared = bed.record.send().unwrap();
        for (place, (block, _)) in expected.iter().enumerate() {
            prop_assert_eq!(shared.record(*block).head, start + 1 + place as u32);
        }
    }
}

fn remote() -> Remote {
    Wr::new(WrOpcode::SEND, Vec::new()).remote
}

fn post(bed: &mut Bed, operation: &Operation, sges: &[Sge]) -> Result<u32, PostError> {
    let mut draft = bed.queue.begin();
    // SAFETY: no headers.
    unsafe { bed.queue.open(&mut draft, 9, SendFlags::NONE, operation) }?;
    if !sges.is_empty() {
        // SAFETY: no packets.
        unsafe { bed.queue.set_sges(&mut draft, sges) }?;
    }
    bed.queue.commit(&mut draft)
}

/// B50: masked atomics: opcode, modifier and operands where UCX puts them; the old value's place is as long as was said.
#[test]
fn masked_atomics() {
    let remote = remote();
    for (operation, opcode, opmod, operands) in [
        (
            Operation::MaskedCmpAndSwp8 {
                remote,
                compare: 0x0102_0304_0506_0708,
                compare_mask: 0x1112_1314_1516_1718,
                swap: 0x2122_2324_2526_2728,
                swap_mask: 0x3132_3334_3536_3738,
            },
            0x14,
            9,
            vec![
                0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 1, 2, 3, 4, 5, 6, 7, 8, 0x31, 0x32,
                0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
            ],
        ),
        (
            Operation::MaskedFetchAndAdd8 {
                remote,
                add: 0x0102_0304_0506_0708,
                boundaries: 0x8000_0000_0000_0000,
            },
            0x15,
            9,
            vec![1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Operation::MaskedCmpAndSwp4 {
                remote,
                compare: 0x0102_0304,
                compare_mask: 0x1112_1314,
                swap: 0x2122_2324,
                swap_mask: 0x3132_3334,
            },
            0x14,
            8,
            vec![
                0x21, 0x22, 0x23, 0x24, 1, 2, 3, 4, 0x31, 0x32, 0x33, 0x34, 0x11, 0x12, 0x13, 0x14,
            ],
        ),
        (
            Operation::MaskedFetchAndAdd4 {
                remote,
                add: 0x0102_0304,
                boundaries: 1 << 31,
            },
            0x15,
            8,
            vec![1, 2, 3, 4, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    ] {
        for (kind, transport) in [
            (QueueKind::Rc, 0),
            (QueueKind::XrcSend, 16),
            (QueueKind::Dci, 48),
        ] {
            let mut bed = Bed::new(kind);
            // The last block, so that the longest of them meet the ring's end within their operands.
            bed.queue.start_at(63, 63);
            let mut draft = bed.queue.begin();
            // SAFETY: no headers.
            unsafe { bed.queue.open(&mut draft, 9, SendFlags::NONE, &operation) }.unwrap();
            match kind {
                QueueKind::XrcSend => bed.queue.set_srqn(&mut draft, 5),
                QueueKind::Dci => {
                    let av = DatagramSegment::default();
                    bed.queue.set_dct(&mut draft, &av, 0x1234, 0x5678, 0x9abc);
                }
                _ => {}
            }
            // SAFETY: no packets.
            unsafe { bed.queue.set_sge(&mut draft, &sge(8)) }.unwrap();
            assert_eq!(bed.queue.commit(&mut draft), Ok(1));
            let found = bed.wqe(63, 128);
            assert_eq!(found[..4], [opmod, 0, 63, opcode]);
            let at = 16 + transport + 16;
            assert_eq!(found[at..at + operands.len()], operands);
            let data = at + operands.len();
            assert_eq!(found[data..data + 4], [0, 0, 0, 8]);
            assert_eq!(usize::from(found[7]) * 16, data + 16);
        }
        assert_eq!(
            post(&mut Bed::new(QueueKind::Uc), &operation, &[]),
            Err(PostError::Opcode)
        );
        // An atomic without memory for the old value is not complete.
        assert_eq!(
            post(&mut Bed::new(QueueKind::Rc), &operation, &[]),
            Err(PostError::Incomplete)
        );
    }
}

/// A request of a dynamically connected initiator: address vector with access key, target and stream.
#[test]
fn dynamic_connections() {
    let mut bed = Bed::new(QueueKind::Dci);
    let mut draft = bed.queue.begin();
    let write = Operation::RdmaWrite(remote());
    // SAFETY: no headers.
    unsafe { bed.queue.open(&mut draft, 9, SendFlags::SIGNALED, &write) }.unwrap();
    let av = DatagramSegment {
        rgid: [0x77; 16],
        ..DatagramSegment::default()
    };
    bed.queue
        .set_dct(&mut draft, &av, 0x12_3456, 0x0102_0304_0506_0708, 0xabcd);
    // SAFETY: no packets.
    unsafe { bed.queue.set_sge(&mut draft, &sge(5)) }.unwrap();
    assert_eq!(bed.queue.commit(&mut draft), Ok(1));
    let found = bed.wqe(0, 96);
    assert_eq!(
        found[..12],
        [0, 0, 0, 8, 0xab, 0xcd, 0xef, 6, 0, 0xab, 0xcd, 8]
    );
    assert_eq!(
        found[16..28],
        [1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x12, 0x34, 0x56]
    );
    assert_eq!(found[48..64], [0x77; 16]);
    assert_eq!(
        found[64..76],
        [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14]
    );
    assert_eq!(found[80..84], [0, 0, 0, 5]);
    // Without destination it is not complete.
    assert_eq!(
        post(&mut bed, &Operation::Send, &[sge(1)]),
        Err(PostError::Incomplete)
    );
}

/// A copy: opaque state, from, to; 2 GiB are written as 0; what the device cannot is refused.
#[test]
fn copies() {
    let copy = |length| Operation::Memcpy {
        to_lkey: 0x0102_0304,
        to: 0x1112_1314_1516_1718,
        from_lkey: 0x2122_2324,
        from: 0x3132_3334_3536_3738,
        length,
        state_lkey: 0x4142_4344,
        state: 0x5152_5354_5556_5758,
    };
    for length in [1, 1 << 31] {
        let mut bed = Bed::new(QueueKind::Rc);
        assert_eq!(post(&mut bed, &copy(length), &[]), Ok(1));
        let bytes = if length == 1 { [0, 0, 0, 1] } else { [0; 4] };
        let expected = [
            &[1, 0, 0, 0x2f, 0xab, 0xcd, 0xef, 4, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[
                0, 0, 0, 0, 0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
            ],
            &bytes,
            &[
                0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
            ],
            &bytes,
            &[1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        ]
        .concat();
        assert_eq!(bed.wqe(0, 64), expected);
        assert_eq!(bed.record.send().unwrap().record(0).kind, WorkKind::Memcpy);
    }
    for length in [0, (1 << 31) + 1] {
        let error = post(&mut Bed::new(QueueKind::Rc), &copy(length), &[]);
        assert_eq!(error, Err(PostError::CopyLength));
    }
    assert_eq!(
        post(&mut Bed::new(QueueKind::Uc), &copy(1), &[]),
        Err(PostError::Opcode)
    );
}

/// A request that the program built: copied over the ring's end, with our index in it; kept as such for the poller.
#[test]
fn built_requests() {
    let mut bytes: Vec<u8> = (0..160).collect();
    bytes[..8].copy_from_slice(&[7, 0xee, 0xee, 0x23, 0, 0, 9, 9]);
    let mut bed = Bed::new(QueueKind::Rc);
    bed.queue.start_at(0x3f, 0x3f);
    let mut draft = bed.queue.begin();
    bed.queue.raw(&mut draft, 77, &bytes).unwrap();
    assert_eq!(bed.queue.commit(&mut draft), Ok(1));
    bytes[1..3].copy_from_slice(&[0, 0x3f]);
    assert_eq!(bed.wqe(63, 144), bytes[..144]);
    assert_eq!(bed.wqe(63 + 2, 64)[16..], [FILL; 48]);
    assert_eq!(bed.queue.posted_blocks(), 0x3f + 3);
    let record = bed.record.send().unwrap().record(0x3f);
    assert_eq!(
        (record.wr_id, record.kind, record.opcode),
        (77, WorkKind::Raw, 0x23)
    );
    for (length, ds) in [(15, 1), (16, 0), (32, 3), (1024, 63)] {
        let mut bed = Make {
            wqebbs: 32,
            ..Make::new(QueueKind::Rc)
        }
        .bed();
        let mut bytes = vec![0; length];
        bytes[7] = ds;
        let mut draft = bed.queue.begin();
        assert_eq!(bed.queue.raw(&mut draft, 1, &bytes), Err(PostError::Length));
        assert_eq!(bed.queue.commit(&mut draft), Err(PostError::Length));
    }
}

/// B08: an error anywhere posts none of the batch; the first is the one that is said, whatever comes after it.
#[test]
fn all_or_nothing() {
    let mut bed = Bed::new(QueueKind::Rc);
    let mut draft = bed.queue.begin();
    let send = |bed: &Bed, draft: &mut Draft| {
        // SAFETY: no headers.
        unsafe { bed.queue.open(draft, 1, SendFlags::NONE, &Operation::Send) }
    };
    send(&bed, &mut draft).unwrap();
    // SAFETY: no packets.
    let error = unsafe { bed.queue.set_sges(&mut draft, &[sge(1); 17]) }.unwrap_err();
    assert_eq!(error, PostError::TooManySges);
    assert_eq!(send(&bed, &mut draft), Err(error));
    draft.refuse(PostError::Incomplete);
    assert_eq!(bed.queue.commit(&mut draft), Err(error));
    assert_eq!(error.errno(Verb::WrComplete).0, libc::ENOMEM);
    assert_eq!((bed.queue.head(), bed.doorbell()), (0, u32::MAX));
    // The queue is full in the middle of a batch.
    let mut draft = bed.queue.begin();
    for _ in 0..4 {
        send(&bed, &mut draft).unwrap();
    }
    assert_eq!(send(&bed, &mut draft), Err(PostError::QueueFull));
    assert_eq!(bed.queue.commit(&mut draft), Err(PostError::QueueFull));
    // A setter without a request, and one for another kind of queue.
    let mut draft = bed.queue.begin();
    // SAFETY: no packets.
    let error = unsafe { bed.queue.set_sge(&mut draft, &sge(1)) }.unwrap_err();
    assert_eq!(error, PostError::Incomplete);
    let mut draft = bed.queue.begin();
    send(&bed, &mut draft).unwrap();
    bed.queue.set_srqn(&mut draft, 1);
    assert_eq!(bed.queue.commit(&mut draft), Err(PostError::Incomplete));
    // A batch that another overtook is refused, as its blocks are not free any more.
    let mut stale = bed.queue.begin();
    send(&bed, &mut stale).unwrap();
    post(&mut bed, &Operation::Nop, &[]).unwrap();
    assert_eq!(send(&bed, &mut stale), Err(PostError::Incomplete));
    assert_eq!(bed.queue.commit(&mut stale), Err(PostError::Incomplete));
    assert_eq!(bed.queue.head(), 1);
    // One that was given up leaves nothing.
    let mut given_up = bed.queue.begin();
    send(&bed, &mut given_up).unwrap();
    assert_eq!(post(&mut bed, &Operation::Nop, &[]), Ok(1));
    assert_eq!(bed.wqe(1, 64)[..8], [0, 0, 1, 0, 0xab, 0xcd, 0xef, 1]);
}

/// A second payload takes the place of the first.
#[test]
fn payloads_replace_each_other() {
    let text = [5; 40];
    let mut bed = Bed::new(QueueKind::Rc);
    let mut draft = bed.queue.begin();
    // SAFETY: no headers.
    unsafe {
        bed.queue
            .open(&mut draft, 1, SendFlags::NONE, &Operation::Send)
    }
    .unwrap();
    let piece = InlinePiece {
        addr: text.as_ptr(),
        len: text.len(),
    };
    // SAFETY: live memory.
    unsafe { bed.queue.set_inline(&mut draft, piece) }.unwrap();
    // SAFETY: no packets.
    unsafe { bed.queue.set_sge(&mut draft, &sge(3)) }.unwrap();
    assert_eq!(bed.queue.commit(&mut draft), Ok(1));
    assert_eq!(bed.wqe(0, 64)[7], 2);
    assert_eq!(bed.wqe(0, 64)[16..20], [0, 0, 0, 3]);
    // Whatever way the work request was begun by, and however long the payload before was: it has one block then.
    for before in 0..3 {
        let mut draft = bed.queue.begin();
        // SAFETY: no headers.
        unsafe {
            bed.queue
                .open(&mut draft, 1, SendFlags::NONE, &Operation::Send)
        }
        .unwrap();
        match before {
            // SAFETY: no packets.
            0 => unsafe { bed.queue.set_sges(&mut draft, &[sge(1); 4]) },
            // SAFETY: live memory.
            1 => unsafe {
                bed.queue
                    .set_inline_list(&mut draft, [piece; 2].into_iter())
            },
            // SAFETY: live memory.
            _ => unsafe { bed.queue.set_inline(&mut draft, piece) },
        }
        .unwrap();
        // SAFETY: no packets.
        unsafe { bed.queue.set_sge(&mut draft, &sge(5)) }.unwrap();
        let blocks = bed.queue.posted_blocks();
        assert_eq!(bed.queue.commit(&mut draft), Ok(1));
        assert_eq!(bed.queue.posted_blocks(), blocks + 1);
        assert_eq!(bed.wqe(blocks as usize, 64)[7], 2);
        assert_eq!(bed.wqe(blocks as usize, 64)[16..20], [0, 0, 0, 5]);
    }
}

/// Two numbers for the same error on packets: of one buffer, and of a list.
#[test]
fn long_inline_packets() {
    let packet = vec![1; 1000];
    for list in [false, true] {
        let mut bed = Bed::new(QueueKind::RawPacket);
        let mut draft = bed.queue.begin();
        // SAFETY: no headers.
        unsafe {
            bed.queue
                .open(&mut draft, 1, SendFlags::NONE, &Operation::Send)
        }
        .unwrap();
        let piece = InlinePiece {
            addr: packet.as_ptr(),
            len: packet.len(),
        };
        let set = if list {
            // SAFETY: live memory.
            unsafe { bed.queue.set_inline_list(&mut draft, [piece].into_iter()) }
        } else {
            // SAFETY: live memory.
            unsafe { bed.queue.set_inline(&mut draft, piece) }
        };
        let error = bed.queue.commit(&mut draft).unwrap_err();
        assert_eq!(set, Err(error));
        let expected = if list { libc::EINVAL } else { libc::ENOMEM };
        assert_eq!(error.errno(Verb::WrComplete).0, expected);
    }
}

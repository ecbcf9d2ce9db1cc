//! Data inside completions.

use super::super::super::record::WorkKind;
use super::rig::*;

const INLINE_32: u8 = 4;
const INLINE_64: u8 = 8;
const LOC_LEN_ERR: u32 = 1;

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| seed.wrapping_add(at as u8)).collect()
}

fn segment(address: u64, length: u32, lkey: u32) -> Vec<u8> {
    [
        &length.to_be_bytes()[..],
        &lkey.to_be_bytes(),
        &address.to_be_bytes(),
    ]
    .concat()
}

impl Rig {
    /// Takes one completion, by either way of polling: status, length.
    fn take(&mut self, lazy: bool) -> (u64, u32) {
        if lazy {
            self.cq.start_poll().unwrap();
            let taken = (self.cq.wr_id(), self.cq.status());
            self.cq.end_poll();
            self.check_guards();
            taken
        } else {
            let taken = self.poll_one();
            (taken.wr_id, taken.status)
        }
    }

    /// An entry with data, whose other half is poisoned: 32 bytes at the start of the fields, 64 before them.
    fn complete_with_data(&mut self, entry: Bytes, bits: u8, data: &[u8]) {
        let mut lower = [0xbb; 64];
        let mut entry = entry.inline(bits);
        if bits == INLINE_32 {
            entry = entry.put(0, &[0xcc; 32]).put(0, data);
        } else {
            lower[..data.len()].copy_from_slice(data);
        }
        if self.size == 128 {
            self.complete_wide(&lower, entry);
        } else {
            self.complete(entry);
        }
    }
}

/// The ways in which data can stand in an entry: its size, the format's bits, how many bytes there is room for.
const WAYS: [(u32, u8, usize); 3] = [
    (64, INLINE_32, 32),
    (128, INLINE_32, 32),
    (128, INLINE_64, 64),
];

/// B34, B50: READ and atomics; 32 bytes at the fields' start, 64 before them, in every entry of the ring. Debian's libmlx5
/// reads them one line too early, or a byte.
#[test]
fn reads_and_atomics() {
    for (size, bits, room) in WAYS {
        for (sop, units, length) in [
            (0x10, 2, 16),
            (0x10, 2, room),
            (0x11, 3, 8),
            (0x12, 3, 8),
            (0x14, 4, 8),
            (0x15, 3, 8),
        ] {
            for lazy in [false, true] {
                let mut rig = Rig::new(2, size);
                for index in 0..4u16 {
                    let buffer = Memory::new(64);
                    let block = index * 5 + 2;
                    let head = 2000 + u32::from(index);
                    let send = rig.queue(RC).send().unwrap();
                    let record = send.record(block.into());
                    send.set_record(
                        block.into(),
                        super::super::super::WorkRecord { head, ..record },
                    );
                    // ctrl {opcode, index; qpn, units}, remote address, operands; then two segments, the first of 5 bytes.
                    let at = usize::from(block % 16) * 64;
                    let total = units + 2;
                    let wqe = [
                        (u32::from(block) << 8 | sop).to_be_bytes(),
                        (RC_QPN << 8 | total).to_be_bytes(),
                    ];
                    rig.sq.write(at, &wqe.concat());
                    let list = [
                        segment(buffer.address(), 5, 7),
                        segment(buffer.address() + 5, length as u32 - 5, 7),
                    ]
                    .concat();
                    let first = units as usize * 16;
                    for (step, bytes) in list.chunks(16).enumerate() {
                        rig.sq.write((at + first + step * 16) % 1024, bytes);
                    }
                    let data = pattern(index as u8 * 7 + 1, length);
                    let entry = Bytes::new(REQ)
                        .uidx(RC)
                        .byte_count(length as u32)
                        .sop(sop as u8, RC_QPN)
                        .counter(block);
                    rig.complete_with_data(entry, bits, &data);
                    let wr_id = 0x1000 + u64::from(block % 16);
                    assert_eq!(rig.take(lazy), (wr_id, 0), "{size} {bits} {sop:#x}");
                    assert_eq!(
                        buffer.read(0, length),
                        data,
                        "{size} {bits} {sop:#x} entry {index}"
                    );
                    assert_eq!(buffer.read(length, 64 - length), vec![0; 64 - length]);
                    buffer.check_guards();
                    assert_eq!(rig.send_tail(RC), head);
                }
            }
        }
    }
}

/// A work request at the last block whose list goes on at the ring's start.
#[test]
fn a_list_around_the_end_of_the_ring() {
    let mut rig = Rig::new(4, 128);
    let buffer = Memory::new(64);
    rig.sq.write(
        15 * 64,
        &[0, 0, 15, 0x10, 0x80, 0, 1, 6].map(|byte: u8| byte),
    );
    // Segments 2 and 3 in the last block, 4 and 5 in the first.
    for (step, at) in [15 * 64 + 32, 15 * 64 + 48, 0, 16].into_iter().enumerate() {
        let address = buffer.address() + step as u64 * 16;
        rig.sq.write(at, &segment(address, 16, 7));
    }
    let data = pattern(3, 64);
    let entry = Bytes::new(REQ)
        .uidx(RC)
        .byte_count(64)
        .sop(0x10, RC_QPN)
        .counter(15);
    rig.complete_with_data(entry, INLINE_64, &data);
    assert_eq!(rig.take(false), (0x100f, 0));
    assert_eq!(buffer.read(0, 64), data);
}

/// B34: receives, of a queue's own ring by the counter modulo its size, and of a shared queue behind the link.
#[test]
fn receives() {
    for (size, bits, room) in WAYS {
        for queue in [RC, RC_SRQ, XRC_SRQ] {
            for lazy in [false, true] {
                for length in [0, 1, 7, 8, 31, room] {
                    let mut rig = Rig::new(4, size);
                    let empty: &[wqe_format::rxe::Sge] = &[];
                    rig.srq
                        .post((0..7u64).map(|n| (0x3000 + n, empty)))
                        .unwrap();
                    let buffer = Memory::new(64);
                    let list = [
                        segment(buffer.address() + 32, 7, 9),
                        segment(buffer.address(), 32, 9),
                        segment(buffer.address() + 39, 25, 9),
                    ];
                    let own = queue == RC;
                    let (counter, wr_id) = if own { (0x100b, 0x2003) } else { (3, 0x3003) };
                    for (step, bytes) in list.iter().enumerate() {
                        if own && step < 2 {
                            rig.rq.write(3 * RQ_STRIDE + step * 16, bytes);
                        } else if !own {
                            rig.srq_ring.write(3 * SRQ_STRIDE + 16 + step * 16, bytes);
                        }
                    }
                    let data = pattern(length as u8, length);
                    let entry = Bytes::new(RESP_SEND)
                        .uidx(queue)
                        .byte_count(length as u32)
                        .counter(counter);
                    rig.complete_with_data(entry, bits, &data);
                    let fits = length <= if own { 39 } else { 64 };
                    let status = if fits { 0 } else { LOC_LEN_ERR };
                    assert_eq!(
                        rig.take(lazy),
                        (wr_id, status),
                        "{size} {bits} {queue} {length}"
                    );
                    let got =
                        [buffer.read(32, 7), buffer.read(0, 32), buffer.read(39, 25)].concat();
                    let there = if own { length.min(39) } else { length };
                    assert_eq!(got[..there], data[..there]);
                    assert!(got[there..].iter().all(|byte| *byte == 0));
                    buffer.check_guards();
                    if own {
                        assert_eq!(rig.recv_tail(RC), 1);
                    } else {
                        assert_eq!(
                            rig.srq.post([(0u64, empty)]).unwrap(),
                            1,
                            "its place is free"
                        );
                    }
                }
            }
        }
    }
}

/// Memory that does not exist is skipped, not written to; what follows gets its own part.
#[test]
fn null_memory_is_skipped() {
    for queue in [RC, RC_SRQ] {
        let mut rig = Rig::new(4, 128);
        let empty: &[wqe_format::rxe::Sge] = &[];
        rig.srq.post([(0u64, empty)]).unwrap();
        let buffer = Memory::new(64);
        let list = [segment(0, 20, NULL_LKEY), segment(buffer.address(), 20, 9)].concat();
        rig.rq.write(0, &list);
        rig.srq_ring.write(16, &list);
        let data = pattern(1, 40);
        let entry = Bytes::new(RESP_SEND).uidx(queue).byte_count(40);
        rig.complete_with_data(entry, INLINE_64, &data);
        assert_eq!(rig.take(false).1, 0);
        assert_eq!(buffer.read(0, 20), data[20..]);
    }
}

/// What cannot be: more bytes than the format has, 64 bytes in an entry of 64, data of a SEND, of a kind of queue that reads
/// nothing, of a READ that was complete already. Nothing is copied, the place comes back.
#[test]
fn impossible_data() {
    for lazy in [false, true] {
        let mut rig = Rig::new(8, 128);
        let buffer = Memory::new(64);
        rig.rq.write(0, &segment(buffer.address(), 64, 9));
        let entry = Bytes::new(RESP_SEND).uidx(RC);
        for (bits, length) in [(INLINE_32, 33), (INLINE_64, 65), (INLINE_64, u32::MAX)] {
            rig.complete_with_data(entry.byte_count(length), bits, &[1; 32]);
            assert_eq!(rig.take(lazy).1, LOC_LEN_ERR);
        }
        assert_eq!(rig.recv_tail(RC), 3);
        // A READ whose record is behind the tail.
        rig.queue(RC).send().unwrap().complete(1002);
        rig.sq.write(2 * 64, &[0, 0, 2, 0x10, 0x80, 0, 1, 3]);
        rig.sq.write(2 * 64 + 32, &segment(buffer.address(), 64, 9));
        let read = Bytes::new(REQ).byte_count(8).counter(2);
        rig.complete_with_data(read.uidx(RC).sop(0x10, RC_QPN), INLINE_64, &[1; 8]);
        assert_eq!(rig.take(lazy).1, 21);
        // A datagram queue reads nothing.
        rig.complete_with_data(read.uidx(UD).sop(0x10, UD_QPN), INLINE_64, &[1; 8]);
        assert_eq!(rig.take(lazy).1, 21);
        assert_eq!(buffer.read(0, 64), [0; 64]);
        assert_eq!(rig.cq.dropped(), 0);

        let mut rig = Rig::new(8, 64);
        rig.rq.write(0, &segment(buffer.address(), 64, 9));
        rig.complete(entry.byte_count(8).inline(INLINE_64));
        if lazy {
            assert!(rig.cq.start_poll().is_err());
        } else {
            assert_eq!(rig.poll(4), []);
        }
        assert_eq!(
            rig.cq.dropped(),
            1,
            "there is nothing before an entry of 64 bytes"
        );
        assert_eq!(buffer.read(0, 64), [0; 64]);
        assert_eq!(rig.told(), 1);
    }
    // A SEND has nothing to copy to; libmlx5 says REM_INV_REQ_ERR in a batch, by the posted opcode.
    let mut rig = Rig::new(4, 64);
    rig.set_kind(2, 0x0a, WorkKind::Plain);
    rig.sq.write(2 * 64, &[0, 0, 2, 0x0a, 0x80, 0, 1, 2]);
    rig.complete(
        Bytes::new(REQ)
            .uidx(RC)
            .sop(0x0a, RC_QPN)
            .counter(2)
            .inline(INLINE_32),
    );
    assert_eq!(rig.take(false), (0x1002, 9));
    rig.queue(RC).send().unwrap().complete(1000);
    rig.complete(
        Bytes::new(REQ)
            .uidx(RC)
            .sop(0x0a, RC_QPN)
            .counter(2)
            .inline(INLINE_32),
    );
    assert_eq!(rig.take(true), (0x1002, 0));
}

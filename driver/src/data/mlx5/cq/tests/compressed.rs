//! Compressed completions: blocks written byte by byte as DPDK's and UCX's readers take them apart (see
//! `wqe_format::mlx5::compressed` for the layouts). Unproven on hardware.

use wqe_format::mlx5::MiniFormat;
use wqe_format::mlx5::compressed::Layout;

use super::rig::*;

const COMPRESSED: u8 = 3 << 2;

impl Rig {
    fn compressed(entries: u32, layout: Layout) -> Self {
        let mut rig = Rig::new(entries, 64);
        assert!(rig.cq.enable_compression(layout, MiniFormat::HASH));
        rig
    }

    /// Writes 64 bytes into entry `index`, whatever stands there.
    fn put(&mut self, index: u32, bytes: &[u8]) {
        let at = self.offset(index);
        self.ring.write(at, bytes);
    }

    /// A basic block of receives: the title's byte count says how many, `counter` is the first's. The mini entries have the
    /// byte counts.
    ///
    /// A device makes no block of one: its array would stand in an entry that is not the block's.
    fn basic_block(&mut self, queue: u32, counter: u16, lengths: &[u32]) {
        let count = lengths.len() as u32;
        for (nth, lengths) in lengths.chunks(8).enumerate() {
            let mut array = [0xee; 64];
            for (at, length) in lengths.iter().enumerate() {
                array[at * 8..at * 8 + 4].copy_from_slice(&[0x11; 4]);
                array[at * 8 + 4..at * 8 + 8].copy_from_slice(&length.to_be_bytes());
            }
            // The first array stands behind the title, the others where their first completion does.
            let at = if nth == 0 { 1 } else { nth as u32 * 8 };
            // An array's last byte may look like a valid entry of any lap.
            self.put(self.pi.wrapping_add(at), &array);
        }
        let title = Bytes::new(RESP_SEND)
            .inline(COMPRESSED)
            .uidx(queue)
            .sop(0, RC_QPN)
            .counter(counter)
            .byte_count(count);
        let next = self.pi.wrapping_add(count);
        self.complete(title);
        self.pi = next;
    }

    /// An ordinary entry of an enhanced queue.
    fn enhanced_title(&mut self, entry: Bytes) {
        let turn = (self.pi / self.entries) as u8;
        self.complete(entry.put(62, &[turn]));
    }

    /// An enhanced block of up to 7 receives behind a title.
    fn enhanced_block(&mut self, lengths: &[u32]) {
        let mut bytes = [0u8; 64];
        for (at, length) in lengths.iter().enumerate() {
            bytes[at * 8 + 4..at * 8 + 8].copy_from_slice(&length.to_be_bytes());
        }
        bytes[62] = (self.pi / self.entries) as u8;
        bytes[63] = (lengths.len() as u8 - 1) << 4 | COMPRESSED;
        self.put(self.pi, &bytes);
        self.pi = self.pi.wrapping_add(lengths.len() as u32);
    }

    fn take_all(&mut self, room: usize) -> Vec<(u64, u32)> {
        let mut got = Vec::new();
        loop {
            let some = self.poll(room);
            if some.is_empty() {
                return got;
            }
            got.extend(
                some.iter()
                    .map(|completion| (completion.wr_id, completion.byte_len)),
            );
        }
    }

    fn take_lazily(&mut self, most: usize) -> Vec<(u64, u32)> {
        let mut got = Vec::new();
        while self.cq.start_poll().is_ok() {
            got.push((self.cq.wr_id(), self.cq.read_byte_len()));
            for _ in 1..most {
                if !self.cq.next_poll() {
                    break;
                }
                got.push((self.cq.wr_id(), self.cq.read_byte_len()));
            }
            self.cq.end_poll();
        }
        got
    }
}

fn lengths(count: u32) -> Vec<u32> {
    (0..count).map(|n| 100 + n).collect()
}

fn expected(counter: u16, lengths: &[u32]) -> Vec<(u64, u32)> {
    lengths
        .iter()
        .enumerate()
        .map(|(n, length)| {
            (
                0x2000 + u64::from(counter.wrapping_add(n as u16) % 8),
                *length,
            )
        })
        .collect()
}

/// B42: blocks of 2 to 62, at every place of the ring and across its end, taken one by one, in threes and at once,
/// by both ways of polling, with ordinary entries around them; then the same entries on the next turns, where nothing of the
/// block may seem valid.
#[test]
fn basic_blocks() {
    for count in [2, 7, 8, 9, 15, 16, 17, 62] {
        for start in [0, 1, 7, 40, 60, 63, 64, 125, u32::MAX - 9] {
            for room in [1, 3, 100] {
                for lazy in [false, true] {
                    let mut rig = Rig::compressed(64, Layout::Basic);
                    rig.start_at(start);
                    let sizes = lengths(count);
                    for round in 0..3u16 {
                        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(round));
                        rig.basic_block(RC, round + 3, &sizes);
                        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(9));
                        let mut all = vec![(0x1000 + u64::from(round), 0)];
                        all.extend(expected(round + 3, &sizes));
                        all.push((0x1009, 0));
                        let got = if lazy {
                            rig.take_lazily(room)
                        } else {
                            rig.take_all(room)
                        };
                        assert_eq!(got, all, "{count} at {start}");
                        assert_eq!(rig.told(), rig.pi & 0xff_ffff);
                        assert_eq!(rig.take_all(room), []);
                    }
                    assert_eq!(rig.cq.dropped(), 0);
                }
            }
        }
    }
}

/// B42: clean and resize in the middle of a block, and before it is met.
#[test]
fn clean_and_resize_inside_a_block() {
    for before in [0, 1, 5] {
        for dead in [false, true] {
            let mut rig = Rig::compressed(32, Layout::Basic);
            rig.start_at(29);
            let sizes = lengths(9);
            rig.basic_block(RC, 0, &sizes);
            rig.complete(Bytes::new(REQ).uidx(UD).sop(0x0a, UD_QPN).counter(9));
            let mut got: Vec<_> = Vec::new();
            for _ in 0..before {
                let taken = rig.poll(1);
                got.push((taken[0].wr_id, taken[0].byte_len));
            }
            assert_eq!(got, expected(0, &sizes)[..before as usize]);
            let removed = rig.cq.clean(if dead { RC } else { RC_SRQ }, None);
            assert_eq!(removed, if dead { 9 - before } else { 0 });
            let memory = Memory::new(64 * 64);
            // SAFETY: the memory lives as long as the queue.
            let new = unsafe { rig.cq.prepare_ring(memory.at(), 64, None) }.unwrap();
            rig.complete(Bytes::new(RESIZE_CQ));
            assert_eq!(rig.cq.use_ring(new), Ok(()));
            (rig.ring, rig.entries) = (memory, 64);
            rig.basic_block(RC, 5, &[7, 8]);
            let mut rest = if dead {
                vec![]
            } else {
                expected(0, &sizes)[before as usize..].to_vec()
            };
            rest.push((0x1009, 0));
            rest.extend(expected(5, &[7, 8]));
            assert_eq!(rig.take_all(4), rest);
        }
    }
}

/// B42: an error between blocks and one inside the last of them; a block of sends.
#[test]
fn errors_and_sends() {
    let mut rig = Rig::compressed(32, Layout::Basic);
    rig.basic_block(RC, 0, &[1, 2]);
    rig.complete(
        Bytes::new(RESP_ERR)
            .uidx(RC)
            .sop(0, RC_QPN)
            .counter(2)
            .error(0, 5),
    );
    rig.basic_block(RC, 3, &[3, 4]);
    assert_eq!(
        rig.take_all(9),
        [
            (0x2000, 1),
            (0x2001, 2),
            (0x2002, 0),
            (0x2003, 3),
            (0x2004, 4)
        ]
    );
    // Mini entries of sends: counter, send opcode, byte count (Linux include/linux/mlx5/device.h `struct mlx5_mini_cqe8`).
    let mut array = [0; 64];
    for (at, (counter, opcode, length)) in
        [(1u16, 0x0a, 0u32), (4, 0x10, 77)].into_iter().enumerate()
    {
        array[at * 8..at * 8 + 2].copy_from_slice(&counter.to_be_bytes());
        array[at * 8 + 2] = opcode;
        array[at * 8 + 4..at * 8 + 8].copy_from_slice(&length.to_be_bytes());
    }
    rig.put(rig.pi + 1, &array);
    rig.complete(
        Bytes::new(REQ)
            .inline(COMPRESSED)
            .uidx(RC)
            .sop(0x0a, RC_QPN)
            .byte_count(2),
    );
    rig.pi += 1;
    let got = rig.poll(9);
    assert_eq!(rig.cq.dropped(), 0);
    let seen: Vec<_> = got
        .iter()
        .map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.qp_num))
        .collect();
    assert_eq!(seen, [(0x1001, 0, 0, RC_QPN), (0x1004, 2, 77, RC_QPN)]);
    assert_eq!(rig.send_tail(RC), 1004);
}

/// What cannot be a block is dropped, entry by entry, and what follows is taken.
#[test]
fn impossible_blocks() {
    for count in [0, 33, u32::MAX] {
        let mut rig = Rig::compressed(32, Layout::Basic);
        let title = Bytes::new(RESP_SEND)
            .inline(COMPRESSED)
            .uidx(RC)
            .byte_count(count);
        rig.complete(title);
        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(9));
        assert_eq!(rig.take_all(9), [(0x1009, 0)]);
        assert_eq!(rig.cq.dropped(), 1);
    }
    // Longer than what is left of the lap.
    let mut rig = Rig::compressed(4, Layout::Basic);
    rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(9));
    rig.complete(
        Bytes::new(RESP_SEND)
            .inline(COMPRESSED)
            .uidx(RC)
            .byte_count(4),
    );
    assert_eq!(rig.cq.waiting(), 2);
    // An enhanced block without a title.
    let mut rig = Rig::compressed(8, Layout::Enhanced);
    rig.enhanced_block(&[1]);
    rig.enhanced_title(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(9));
    assert_eq!(rig.take_all(9), [(0x1009, 0)]);
    assert_eq!(rig.cq.dropped(), 1);
    // Entries of 128 bytes are never compressed.
    assert!(
        !Rig::new(4, 128)
            .cq
            .enable_compression(Layout::Basic, MiniFormat::HASH)
    );
}

/// B42: enhanced blocks, several behind a title, across the ring's end and over the turns of the 8-bit turn number, polled
/// in the middle of blocks; clean and resize there.
#[test]
fn enhanced_blocks() {
    for start in [0, 13, 0xff_fff0, 255 * 16, 256 * 16 - 3, u32::MAX - 15] {
        for room in [1, 3, 100] {
            for lazy in [false, true] {
                let mut rig = Rig::compressed(16, Layout::Enhanced);
                rig.pi = start;
                rig.cq.go_to(start);
                for round in 0..40u16 {
                    let title = Bytes::new(RESP_SEND)
                        .uidx(RC)
                        .sop(0, RC_QPN)
                        .counter(round)
                        .byte_count(50);
                    rig.enhanced_title(title);
                    rig.enhanced_block(&lengths(7));
                    rig.enhanced_block(&lengths(3));
                    let all = expected(round, &[vec![50], lengths(7), lengths(3)].concat());
                    let got = if lazy {
                        rig.take_lazily(room)
                    } else {
                        rig.take_all(room)
                    };
                    assert_eq!(got, all, "at {start} round {round}");
                    assert_eq!(rig.told(), rig.pi & 0xff_ffff);
                }
                assert_eq!(rig.cq.dropped(), 0);
            }
        }
    }
    for before in 0..9 {
        let mut rig = Rig::compressed(16, Layout::Enhanced);
        rig.pi = 13;
        rig.cq.go_to(13);
        let title = |queue| {
            Bytes::new(RESP_SEND)
                .uidx(queue)
                .sop(0, RC_QPN)
                .byte_count(50)
        };
        rig.enhanced_title(title(UD));
        rig.enhanced_title(title(RC).counter(1));
        rig.enhanced_block(&lengths(7));
        let all = [
            expected(0, &[50]),
            expected(1, &[vec![50], lengths(7)].concat()),
        ]
        .concat();
        let mut got = Vec::new();
        for _ in 0..before {
            let taken = rig.poll(1);
            got.push((taken[0].wr_id, taken[0].byte_len));
        }
        assert_eq!(rig.cq.clean(UD, None), u32::from(before == 0));
        let memory = Memory::new(32 * 64);
        // SAFETY: the memory lives as long as the queue.
        let new = unsafe { rig.cq.prepare_ring(memory.at(), 32, None) }.unwrap();
        rig.enhanced_title(Bytes::new(RESIZE_CQ));
        assert_eq!(rig.cq.use_ring(new), Ok(()));
        (rig.ring, rig.entries) = (memory, 32);
        rig.enhanced_title(title(RC).counter(3));
        rig.enhanced_block(&[8]);
        got.extend(rig.take_all(2));
        let from = usize::from(before == 0);
        assert_eq!(
            got,
            [&all[from..], &expected(3, &[50, 8])].concat(),
            "after {before}"
        );
    }
}

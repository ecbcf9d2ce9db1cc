//! Laps, batches, what the device is told and when, arming.

use super::rig::*;
use crate::data::mlx5::cq::Mode;

fn send(block: u16) -> Bytes {
    Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(block)
}

fn receive(entry: u16) -> Bytes {
    Bytes::new(RESP_SEND).uidx(RC).sop(0, RC_QPN).counter(entry)
}

/// B33, B10: laps and wraps for small and large queues, also of the 32-bit consumer index; the device is told 24 bits of it.
#[test]
fn laps() {
    for (entries, starts) in [
        (2, vec![0, 1, 2, 3, 0xff_ffff, u32::MAX - 1, u32::MAX]),
        (4, vec![0, 3, 4, 7, 0xff_fffe, u32::MAX - 2]),
        (1 << 16, vec![0, 0xfffe, 0x1_fffe, u32::MAX - 1]),
    ] {
        for size in [64, 128] {
            for &start in &starts {
                let mut rig = Rig::new(entries, size);
                rig.start_at(start);
                assert_eq!(rig.poll(4), []);
                for step in 0..5u32 {
                    let block = start.wrapping_add(step) as u16;
                    rig.complete(send(block));
                    if entries > 2 {
                        rig.complete(receive(block));
                    }
                    let got = rig.poll(4);
                    assert_eq!(got[0].wr_id, 0x1000 + u64::from(block % 16));
                    if entries > 2 {
                        assert_eq!(got[1].wr_id, 0x2000 + u64::from(block % 8));
                    }
                    assert_eq!(rig.poll(4), [], "an entry is taken once");
                    assert_eq!(rig.told(), rig.pi & 0xff_ffff);
                }
            }
        }
    }
}

/// B33: a fresh queue is empty in its first lap, whatever the owner bit of opcode 0xf, and stale entries of the lap before
/// are not taken again.
#[test]
fn fresh_queues_are_empty() {
    for size in [64, 128] {
        let mut rig = Rig::new(4, size);
        for index in 0..4 {
            assert_eq!(rig.ring.read(rig.offset(index) + 63, 1), [0xf0]);
            for byte in 0xf0..=0xffu8 {
                rig.ring.write(rig.offset(index) + 63, &[byte]);
                assert_eq!(rig.poll(4), []);
                assert_eq!(
                    rig.cq.start_poll(),
                    Err(crate::data::mlx5::cq::NothingTaken::Empty)
                );
            }
        }
    }
}

/// Runs of sends, of receives and of both, across the ring's end, in batches of every size.
#[test]
fn batches_of_every_size() {
    for (room, frequent) in (1..=9usize).flat_map(|room| [(room, true), (room, false)]) {
        let mut rig = Rig::new(8, 64);
        if !frequent {
            // As by a processor without the instructions.
            rig.cq.mode = Mode::Narrow;
        }
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for round in 0..200u16 {
            for _ in 0..(round % 9).min(8) {
                if rig.pi.wrapping_sub(rig.cq.ci) == 8 {
                    break;
                }
                let number = expected.len() as u16;
                // Runs of three of a kind, and one error among the tenth.
                if number % 10 == 9 {
                    rig.complete(
                        Bytes::new(REQ_ERR)
                            .uidx(RC)
                            .sop(0x0a, RC_QPN)
                            .counter(number)
                            .error(0, 5),
                    );
                    expected.push(0x1000 + u64::from(number % 16));
                } else if (number / 3).is_multiple_of(2) {
                    rig.complete(send(number));
                    expected.push(0x1000 + u64::from(number % 16));
                } else {
                    rig.complete(receive(number));
                    expected.push(0x2000 + u64::from(number % 8));
                }
            }
            got.extend(rig.poll(room).iter().map(|completion| completion.wr_id));
            assert_eq!(rig.told(), rig.cq.ci & 0xff_ffff);
        }
        while got.len() < expected.len() {
            got.extend(rig.poll(room).iter().map(|completion| completion.wr_id));
        }
        assert_eq!(got, expected, "{room} at once");
    }
}

/// A batch poll tells the device also when it found nothing; a lazy one that found nothing does not (facts §5, measured on
/// libmlx5).
#[test]
fn what_the_device_is_told() {
    let mut rig = Rig::new(4, 64);
    rig.record.write(0, &[0xee; 8]);
    assert!(rig.cq.start_poll().is_err());
    assert_eq!(rig.record.read(0, 8), [0xee; 8]);
    assert_eq!(rig.poll(4), []);
    assert_eq!(rig.record.read(0, 8), [0, 0, 0, 0, 0xee, 0xee, 0xee, 0xee]);
    assert_eq!(rig.cq.poll(&mut []), 0);
    for block in 0..3 {
        rig.complete(send(block));
    }
    assert_eq!(rig.cq.poll(&mut []), 0, "no room, nothing taken");
    rig.cq.start_poll().unwrap();
    assert!(rig.cq.next_poll());
    assert_eq!(rig.told(), 0, "before the end the device is told nothing");
    rig.cq.end_poll();
    assert_eq!(rig.told(), 2);
    // B27's shape: start, nothing more, end; then exactly one.
    rig.cq.start_poll().unwrap();
    assert!(!rig.cq.next_poll());
    rig.cq.end_poll();
    assert!(rig.cq.start_poll().is_err());
    assert_eq!(rig.told(), 3);
}

/// B43: the words of an arming, and that events count, not armings.
#[test]
fn arming() {
    let mut rig = Rig::new(4, 64);
    rig.start_at(0x0345_6789);
    let armed = |rig: &Rig| (rig.record.word(4), rig.uar.word(0x20), rig.uar.word(0x24));
    rig.cq.arm(false);
    assert_eq!(armed(&rig), (0x0045_6789, 0x0045_6789, CQN));
    rig.cq.arm(true);
    assert_eq!(
        armed(&rig),
        (0x0145_6789, 0x0145_6789, CQN),
        "solicited only"
    );
    let events = rig.cq.event_count();
    for sequence in 1..=5u32 {
        events.event_taken();
        for _ in 0..2 {
            rig.cq.arm(false);
            let word = (sequence % 4) << 28 | 0x45_6789;
            assert_eq!(armed(&rig), (word, word, CQN));
        }
    }
    rig.complete(send(0));
    rig.poll(4);
    rig.cq.arm(true);
    assert_eq!(armed(&rig).0, 0x1145_678a);
    assert_eq!(rig.uar.read(0, 0x20), [0; 0x20]);
    assert_eq!(rig.uar.read(0x28, 24), [0; 24]);
}

/// Entries of version 0 name queue pairs by their number, and shared receive queues by theirs.
#[test]
fn version_0() {
    for size in [64, 128] {
        for lazy in [false, true] {
            let mut rig = Rig::with(8, size, false, Default::default());
            let empty: &[wqe_format::rxe::Sge] = &[];
            rig.srq.post([(0x3000u64, empty)]).unwrap();
            rig.complete(Bytes::new(REQ).sop(0x0a, RC_QPN).counter(1));
            rig.complete(Bytes::new(RESP_SEND).sop(0, UD_QPN).counter(2));
            rig.complete(Bytes::new(RESP_SEND).uidx(0x99).sop(0, 1).counter(0));
            rig.complete(
                Bytes::new(REQ_ERR)
                    .sop(0x0a, RC_SRQ_QPN)
                    .counter(3)
                    .error(0, 5),
            );
            rig.complete(Bytes::new(RESP_SEND).uidx(0x97).sop(0, RC_QPN).counter(0));
            rig.complete(Bytes::new(REQ).sop(0x0a, RC_QPN).counter(4));
            let expected = [0x1001, 0x2002, 0x3000, 0x1003, 0x1004];
            let got: Vec<u64> = if lazy {
                let mut got = Vec::new();
                rig.cq.start_poll().unwrap();
                got.push(rig.cq.wr_id());
                while rig.cq.next_poll() {
                    got.push(rig.cq.wr_id());
                }
                rig.cq.end_poll();
                got
            } else {
                rig.poll(8)
                    .iter()
                    .map(|completion| completion.wr_id)
                    .collect()
            };
            assert_eq!(got, expected);
            assert_eq!(rig.cq.dropped(), 1, "of a shared queue that is not there");
        }
    }
}

/// B46: while the kernel writes the clock page, lazy polling says so and takes nothing; afterwards the same completion comes
/// once, with the time that the page gives. Batches do not look at the clock.
#[test]
fn a_busy_clock_takes_nothing() {
    use crate::data::mlx5::cq::{ClockPage, NothingTaken};

    let mut rig = Rig::new(4, 64);
    let page = Memory::new(64);
    let put = |sign: u32| {
        page.write(0, &sign.to_ne_bytes());
        page.write(8, &5_000u64.to_ne_bytes());
        page.write(16, &100u64.to_ne_bytes());
        page.write(32, &(3u32 << 4).to_ne_bytes());
        page.write(36, &4u32.to_ne_bytes());
        page.write(40, &u64::MAX.to_ne_bytes());
    };
    // SAFETY: 64 bytes, aligned to 8, that live as long as the rig.
    rig.cq.clock = Some(unsafe { ClockPage::new(page.at()) });
    put(1);
    assert_eq!(
        rig.cq.start_poll(),
        Err(NothingTaken::Empty),
        "empty is empty"
    );
    rig.record.write(0, &[0xee; 4]);
    for block in 0..3 {
        rig.complete(send(block).put(48, &(110 + u64::from(block)).to_be_bytes()));
    }
    for _ in 0..3 {
        assert_eq!(rig.cq.start_poll(), Err(NothingTaken::ClockBusy));
    }
    assert_eq!(rig.record.read(0, 4), [0xee; 4], "nothing was taken");
    assert_eq!(rig.send_tail(RC), 999);
    // A queue pair can go meanwhile.
    assert_eq!(rig.cq.clean(UD, None), 0);
    assert!(rig.table.remove(UD), "no visit is left open");
    put(2);
    rig.cq.start_poll().unwrap();
    assert_eq!(
        (rig.cq.wr_id(), rig.cq.read_completion_wallclock_ns()),
        (0x1000, 5_030)
    );
    assert!(rig.cq.next_poll());
    assert_eq!(
        (rig.cq.wr_id(), rig.cq.read_completion_wallclock_ns()),
        (0x1001, 5_033)
    );
    rig.cq.end_poll();
    assert_eq!(rig.told(), 2);
    put(3);
    assert_eq!(rig.poll_one().wr_id, 0x1002);
}

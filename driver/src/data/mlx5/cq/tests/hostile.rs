//! Whatever an entry says: no panic, nothing written outside, no endless loop, and every entry either completes or is counted.

use proptest::prelude::*;
use wqe_format::mlx5::MiniFormat;
use wqe_format::mlx5::compressed::Layout;

use super::rig::*;

/// An entry about a queue that is not there, of every opcode and format, between two that are: dropped and counted, and
/// the others are taken in the same call.
#[test]
fn unknown_queues_are_dropped() {
    for opcode in 0..15u8 {
        for format in 0..4u8 {
            for size in [64, 128] {
                for lazy in [false, true] {
                    let mut rig = Rig::new(8, size);
                    let good = |n| Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(n);
                    rig.complete(good(1));
                    rig.complete(
                        Bytes::new(opcode)
                            .inline(format << 2)
                            .uidx(NOBODY)
                            .sop(0x0a, RC_QPN),
                    );
                    rig.complete(good(2));
                    let got: Vec<u64> = if lazy {
                        rig.cq.start_poll().unwrap();
                        let mut got = vec![rig.cq.wr_id()];
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
                    assert_eq!(got, [0x1001, 0x1002]);
                    // The mark of a resize is the queue's own affair.
                    let dropped = u64::from(opcode != RESIZE_CQ);
                    assert_eq!(rig.cq.dropped(), dropped, "opcode {opcode} format {format}");
                    assert_eq!(rig.told(), 3);
                }
            }
        }
    }
}

/// A queue without a receive side gets no receive, one without sends no send completion.
#[test]
fn directions_that_a_queue_has_not() {
    let mut rig = Rig::new(8, 64);
    rig.complete(Bytes::new(REQ).uidx(RWQ).sop(0x0a, 8));
    rig.complete(Bytes::new(REQ_ERR).uidx(XRC_SRQ).sop(0x0a, 8).error(0, 5));
    assert_eq!(rig.poll(4), []);
    assert_eq!(rig.cq.dropped(), 2);
    rig.complete(Bytes::new(REQ).uidx(RWQ).sop(0x0a, 8));
    assert!(rig.cq.start_poll().is_err());
    assert_eq!(rig.told(), 3, "what was dropped is the device's again");
}

/// B58: an error of a page fault on a shared queue's entry makes no completion: the entry is posted again, under another
/// index with the same number. On other queues it is an ordinary error.
#[test]
fn page_faults() {
    for lazy in [false, true] {
        let mut rig = Rig::new(8, 64);
        let empty: &[wqe_format::rxe::Sge] = &[];
        rig.srq
            .post((0..3u64).map(|n| (0x3000 + n, empty)))
            .unwrap();
        let fault = |queue| {
            Bytes::new(RESP_ERR)
                .uidx(queue)
                .sop(0, 1)
                .counter(1)
                .error(0x93, 0x22)
        };
        rig.complete(fault(RC_SRQ));
        rig.complete(Bytes::new(RESP_SEND).uidx(RC_SRQ).sop(0, 1).counter(0));
        rig.complete(Bytes::new(RESP_SEND).uidx(RC_SRQ).sop(0, 1).counter(3));
        rig.complete(fault(RC));
        let got: Vec<(u64, u32)> = if lazy {
            rig.cq.start_poll().unwrap();
            let mut got = vec![(rig.cq.wr_id(), rig.cq.status())];
            while rig.cq.next_poll() {
                got.push((rig.cq.wr_id(), rig.cq.status()));
            }
            rig.cq.end_poll();
            got
        } else {
            rig.poll(8)
                .iter()
                .map(|completion| (completion.wr_id, completion.status))
                .collect()
        };
        assert_eq!(got, [(0x3000, 0), (0x3001, 0), (0x2001, 16)]);
        assert_eq!(rig.cq.dropped(), 0);
    }
}

/// A device that writes nothing but what is dropped, faster than it is read: a call ends after a lap.
#[test]
fn a_call_drops_no_more_than_a_lap() {
    for lazy in [false, true] {
        let mut rig = Rig::new(4, 64);
        // Opcode 7 with every owner bit cannot be both: two laps of entries whose owner bit follows the reader.
        for lap in 0..3 {
            for _ in 0..4 {
                rig.complete(Bytes::new(7));
            }
            if lazy {
                assert!(rig.cq.start_poll().is_err());
            } else {
                assert_eq!(rig.poll(4), []);
            }
            assert_eq!(rig.cq.dropped(), 4 * (lap + 1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]

    /// B33, B48: random entries about queues that are there or not, through every call, on rings of both sizes: entries taken
    /// are completions or counted, nothing outside is written, and the queue still works afterwards.
    #[test]
    fn random_entries(
        size in prop_oneof![Just(64u32), Just(128)],
        v1 in any::<bool>(),
        compressed in prop_oneof![Just(None), Just(Some(Layout::Basic)), Just(Some(Layout::Enhanced))],
        start in any::<u32>(),
        entries in proptest::collection::vec((any::<[[u8; 32]; 2]>(), 0..12usize, any::<bool>()), 1..16),
        calls in proptest::collection::vec(0..7u8, 1..12),
    ) {
        let mut rig = Rig::with(16, size, v1, Default::default());
        let compressed = compressed
            .filter(|layout| rig.cq.enable_compression(*layout, MiniFormat::CSUM_STRIDX));
        rig.start_at(start);
        let empty: &[wqe_format::rxe::Sge] = &[];
        rig.srq.post((0..7u64).map(|n| (0x3000 + n, empty))).unwrap();
        let count = entries.len() as u32;
        for (bytes, queue, plain) in entries {
            let mut entry = Bytes([0; 64]).put(0, &bytes[0]).put(32, &bytes[1]);
            let queues = [RC, RC_SRQ, UD, XRC_SRQ, RWQ, NOBODY, 0];
            let numbers = [RC_QPN, RC_SRQ_QPN, UD_QPN, 0x99];
            if let Some(queue) = queues.get(queue) {
                entry = entry.uidx(*queue);
            }
            if let Some(number) = numbers.get(queue) {
                entry = entry.sop(entry.0[56], *number);
            }
            if plain {
                entry.0[63] &= 0x71;
            }
            // Not one that nobody has written: the device would not.
            if entry.0[63] >= 0xf0 {
                entry.0[63] ^= 0x80;
            }
            let turn = (rig.pi / rig.entries) as u8;
            rig.complete(if compressed == Some(Layout::Enhanced) { entry.put(62, &[turn]) } else { entry });
        }
        let srq = rig.srq.shared().clone();
        let mut cleaned = 0;
        let mut taken = 0u64;
        for call in calls {
            match call {
                0 => taken += rig.poll(1).len() as u64,
                1 => taken += rig.poll(7).len() as u64,
                2 => {
                    if rig.cq.start_poll().is_ok() {
                        taken += 1;
                        while rig.cq.next_poll() {
                            taken += 1;
                            let _ = (rig.cq.read_opcode(), rig.cq.read_wc_flags(), rig.cq.read_tm_info());
                            let _ = (rig.cq.read_imm_or_rkey(), rig.cq.read_vendor_err());
                        }
                        rig.cq.end_poll();
                    }
                }
                3 => {
                    let number = if v1 { RC_SRQ } else { RC_SRQ_QPN };
                    cleaned += rig.cq.clean(number, Some(&srq));
                }
                4 => cleaned += rig.cq.clean(if v1 { RC } else { RC_QPN }, None),
                5 => prop_assert!(rig.cq.waiting() <= 16),
                _ => rig.cq.arm(true),
            }
            rig.check_guards();
        }
        while !rig.poll(3).is_empty() {
            taken += 1;
        }
        if compressed.is_some() {
            // A block may claim entries that nobody wrote; all that matters is above.
            return Ok(());
        }
        let walked = u64::from(rig.cq.ci.wrapping_sub(start));
        prop_assert_eq!(walked, u64::from(count));
        prop_assert!(taken + u64::from(cleaned) + rig.cq.dropped() <= walked * 3);
        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(5));
        prop_assert_eq!(rig.poll_one().wr_id, 0x1005);
    }
}

/// Steps in the wrong order take nothing: what they would look up may be gone, as no visit keeps it.
#[test]
fn stepping_without_a_start() {
    let mut rig = Rig::new(8, 64);
    for counter in 1..5 {
        rig.complete(
            Bytes::new(RESP_SEND)
                .uidx(RC_SRQ)
                .sop(0, 1)
                .counter(counter),
        );
    }
    assert!(!rig.cq.next_poll());
    rig.cq.start_poll().unwrap();
    assert!(rig.cq.next_poll());
    rig.cq.end_poll();
    assert!(!rig.cq.next_poll());
    rig.cq.start_poll().unwrap();
    let found = rig.poll(1);
    assert_eq!(found.len(), 1);
    assert!(!rig.cq.next_poll());
    // An end without a start changes nothing either.
    rig.cq.end_poll();
    rig.cq.end_poll();
    assert!(rig.cq.start_poll().is_err());
}

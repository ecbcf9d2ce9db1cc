//! Entries that are taken out or moved: clean and resize.

use super::super::{NewRing, ResizeError};
use super::rig::*;

fn empty() -> &'static [wqe_format::rxe::Sge] {
    &[]
}

fn ids(rig: &mut Rig) -> Vec<u64> {
    let mut got = Vec::new();
    loop {
        let some = rig.poll(3);
        if some.is_empty() {
            return got;
        }
        got.extend(some.iter().map(|completion| completion.wr_id));
    }
}

/// B37: three sends and two receives of a queue with a shared receive queue among others' completions: exactly its two
/// places come back, the others keep their order, the device is told.
#[test]
fn clean_takes_out_one_queue() {
    for size in [64, 128] {
        for start in [0, 5, 0xff_fffb, u32::MAX - 4] {
            let mut rig = Rig::new(16, size);
            rig.start_at(start);
            rig.srq
                .post((0..7u64).map(|n| (0x3000 + n, empty())))
                .unwrap();
            let other = |n: u16| Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(n);
            let dead = Bytes::new(REQ)
                .uidx(RC_SRQ)
                .sop(0x0a, RC_SRQ_QPN)
                .counter(9);
            let dead_receive = |n| {
                Bytes::new(RESP_SEND)
                    .uidx(RC_SRQ)
                    .sop(0, RC_SRQ_QPN)
                    .counter(n)
            };
            let failed = Bytes::new(RESP_ERR)
                .uidx(RC_SRQ)
                .sop(0, RC_SRQ_QPN)
                .counter(4)
                .error(0, 5);
            for entry in [
                dead,
                other(1),
                dead_receive(2),
                dead,
                other(2),
                other(3),
                Bytes::new(REQ_ERR)
                    .uidx(RC_SRQ)
                    .sop(0x0a, RC_SRQ_QPN)
                    .error(0, 5),
                failed,
                Bytes::new(RESP_SEND).uidx(XRC_SRQ).sop(0, 7).counter(1),
            ] {
                rig.complete(entry);
            }
            let srq = rig.srq.shared().clone();
            assert_eq!(rig.cq.clean(RC_SRQ, Some(&srq)), 5);
            assert_eq!(rig.told(), rig.cq.ci & 0xff_ffff);
            assert_eq!(rig.cq.ci, start.wrapping_add(5));
            assert_eq!(rig.srq.post((0..2u64).map(|n| (n, empty()))).unwrap(), 2);
            assert!(
                rig.srq.post([(0u64, empty())]).is_err(),
                "two places, not more"
            );
            // The same again finds nothing, and tells the device nothing.
            rig.record.write(0, &[0xee; 4]);
            assert_eq!(rig.cq.clean(RC_SRQ, Some(&srq)), 0);
            assert_eq!(rig.record.read(0, 4), [0xee; 4]);
            // The device goes on where it was.
            rig.complete(other(4));
            assert_eq!(ids(&mut rig), [0x1001, 0x1002, 0x1003, 0x3001, 0x1004]);
            assert_eq!(rig.cq.dropped(), 0);
        }
    }
}

/// B38: the largest queue pair number, an empty queue, a full one, one that is all the dead queue's.
#[test]
fn clean_of_edges() {
    for v1 in [true, false] {
        let mut rig = Rig::with(4, 64, v1, Default::default());
        let number = if v1 { UD } else { UD_QPN };
        assert_eq!(rig.cq.clean(number, None), 0);
        for lap in 0..3 {
            for _ in 0..4 {
                rig.complete(Bytes::new(REQ).uidx(UD).sop(0x0a, UD_QPN).counter(lap));
            }
            assert_eq!(rig.cq.clean(0, None), 0);
            assert_eq!(rig.cq.clean(number, None), 4);
            assert_eq!(rig.poll(4), []);
            assert_eq!(rig.told(), 4 * (u32::from(lap) + 1));
        }
    }
}

impl Rig {
    /// The device goes over to a new ring, at the index behind its mark, and the program follows.
    fn resize(&mut self, entries: u32, mark: bool) -> (Memory, Result<(), ResizeError>) {
        let memory = Memory::new(entries as usize * self.size);
        // SAFETY: the caller keeps the memory as long as the rig.
        let new: NewRing = unsafe { self.cq.prepare_ring(memory.at(), entries, None) }.unwrap();
        if mark {
            self.complete(Bytes::new(RESIZE_CQ));
        }
        let result = self.cq.use_ring(new);
        self.entries = entries;
        (memory, result)
    }
}

/// B40: entries go to the index after their own with the new lap's owner bit, also where the new ring wraps; order stays, the
/// mark is counted, the device is told and goes on.
#[test]
fn resize_carries_over() {
    for size in [64, 128] {
        for (old, new, ci, pending) in [
            (8, 16, 13, 5),
            (8, 4, 13, 3),
            (16, 8, 30, 7),
            (4, 8, 3, 2),
            (8, 16, 13, 0),
            (2, 64, u32::MAX - 1, 1),
            (8, 4, 0xff_fffe, 2),
        ] {
            let mut rig = Rig::new(old, size);
            rig.start_at(ci);
            for step in 0..pending {
                rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(step));
            }
            let (memory, result) = rig.resize(new, true);
            assert_eq!(result, Ok(()), "{old} to {new} at {ci}");
            for step in 0..u32::from(pending) {
                let index = ci.wrapping_add(1).wrapping_add(step);
                let at = (index % new) as usize * rig.size + rig.size - 64;
                let owner = memory.read(at + 63, 1)[0];
                assert_eq!(u32::from(owner), (index / new) & 1, "owner bit of {index}");
            }
            rig.ring = memory;
            assert_eq!(rig.cq.ci, ci.wrapping_add(1));
            assert_eq!(rig.told(), rig.cq.ci & 0xff_ffff);
            assert_eq!(rig.cq.entries(), new);
            // Behind the mark; the ring is full with that, or not.
            for step in pending..(new as u16).min(pending + 3) {
                rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(step));
            }
            let expected: Vec<u64> = (0..(new as u16).min(pending + 3))
                .map(|step| 0x1000 + u64::from(step))
                .collect();
            assert_eq!(ids(&mut rig), expected, "{old} to {new} at {ci}");
        }
    }
}

/// B40: no mark is an error, not an endless loop, also in a full ring; too many for the new ring is one too. The queue is
/// where the device is, and goes on.
#[test]
fn resize_without_mark_or_room() {
    for pending in [0, 3, 8] {
        let mut rig = Rig::new(8, 64);
        for step in 0..pending {
            rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(step));
        }
        let (memory, result) = rig.resize(16, false);
        assert_eq!(result, Err(ResizeError::NoMark));
        rig.ring = memory;
        assert_eq!(rig.poll(4), []);
    }
    let mut rig = Rig::new(8, 64);
    for step in 0..4 {
        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(step));
    }
    let (memory, result) = rig.resize(4, true);
    assert_eq!(result, Err(ResizeError::TooMany));
    rig.ring = memory;
    rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(7));
    assert_eq!(ids(&mut rig), [0x1007]);
}

/// B40: what waits is known before the kernel is asked, so that a ring that is too small can be refused.
#[test]
fn waiting_entries() {
    let mut rig = Rig::new(4, 64);
    for pending in 0..4 {
        assert_eq!(rig.cq.waiting(), pending);
        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN));
    }
    assert_eq!(rig.cq.waiting(), 4);
}

//! Receive queues and shared receive queues.

use std::collections::VecDeque;
use std::iter::once;

use proptest::prelude::*;

use super::*;

struct RecvBed {
    queue: RecvQueue,
    ring: Arc<Memory>,
    doorbell: Arc<Memory>,
    record: Arc<QueueRecord>,
}

fn recv_bed(entries: u32, stride_shift: u32, max_sge: u32, signature: bool) -> RecvBed {
    let ring = Memory::new((entries as usize) << stride_shift);
    let doorbell = Memory::new(64);
    let recv = RecvShared::new(ring.at(0), entries, stride_shift, signature, 0);
    let keep: KeepAlive = Box::new(ring.clone());
    // SAFETY: the record keeps the ring.
    let record = unsafe {
        QueueRecord::new(
            QueueKind::Rc,
            QPN,
            0,
            None,
            ReceiveSide::Own(recv),
            Some(keep),
        )
    };
    let record = Arc::new(record);
    let parts = RecvParts {
        record: record.clone(),
        doorbell: doorbell.at(0).cast(),
        max_wr: entries,
        max_sge,
    };
    // SAFETY: the bed keeps the doorbell record, and has the only queue over the ring.
    let mut queue = unsafe { RecvQueue::new(parts) };
    queue.set_accepting(true);
    RecvBed {
        queue,
        ring,
        doorbell,
        record,
    }
}

impl RecvBed {
    fn doorbell(&self) -> u32 {
        u32::from_be_bytes(self.doorbell.bytes()[..4].try_into().unwrap())
    }

    fn entry(&self, index: usize) -> Vec<u8> {
        let shift = self.record.recv().unwrap().stride_shift();
        self.ring.bytes()[index << shift..][..1 << shift].to_vec()
    }
}

/// The 16 bytes of an element.
fn element(length: u32) -> Vec<u8> {
    [
        &length.to_be_bytes()[..],
        &[
            0x91, 0x92, 0x93, 0x94, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88,
        ],
    ]
    .concat()
}

const TERMINATOR: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// B20, B19: a list shorter than an entry ends with the terminator, and nothing behind it is written; empty elements are left
/// out; a full one has none.
#[test]
fn lists_end_with_a_terminator() {
    let mut bed = recv_bed(4, 6, 4, false);
    let lists: [&[Sge]; 4] = [&[sge(1), sge(2)], &[sge(1); 4], &[], &[sge(0), sge(100)]];
    let requests = lists.iter().zip(10..).map(|(&list, wr_id)| (wr_id, list));
    assert_eq!(bed.queue.post(requests).unwrap(), 4);
    let fill = [FILL; 64];
    let expected = [
        [&element(1), &element(2), &TERMINATOR[..], &fill[..16]].concat(),
        element(1).repeat(4),
        [&TERMINATOR[..], &fill[..48]].concat(),
        [&element(100), &TERMINATOR[..], &fill[..32]].concat(),
    ];
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(bed.entry(index), *expected);
        assert_eq!(
            bed.record.recv().unwrap().wr_id(index as u32),
            10 + index as u64
        );
    }
    assert_eq!(bed.doorbell(), 4);
    // Entry 1 again, with one element: what it had is behind the terminator.
    bed.record.recv().unwrap().complete_one();
    bed.record.recv().unwrap().complete_one();
    bed.queue
        .post([(20, &[sge(9)][..]), (21, &[sge(9)])])
        .unwrap();
    assert_eq!(
        bed.entry(1),
        [element(9), TERMINATOR.to_vec(), element(1).repeat(2)].concat()
    );
    assert_eq!(bed.doorbell(), 6);
}

/// B08, B21: errors of receives, with libmlx5's numbers; what stands before is posted.
#[test]
fn receives_that_are_refused() {
    let mut bed = recv_bed(4, 6, 3, false);
    let good: &[Sge] = &[sge(1)];
    for (bad, error) in [
        (vec![sge(1); 4], PostError::TooManySges),
        (vec![sge(1), sge(1 << 31)], PostError::TooLong),
        (vec![sge(u32::MAX)], PostError::TooLong),
    ] {
        let head = bed.queue.head();
        let refused = bed
            .queue
            .post([(1, good), (2, &bad), (3, good)])
            .unwrap_err();
        assert_eq!((refused.error, refused.request.0), (error, 2));
        assert_eq!(error.errno(Verb::PostRecv).0, libc::EINVAL);
        assert_eq!(bed.doorbell(), head + 1);
    }
    let refused = bed.queue.post([(7, good), (8, good)]).unwrap_err();
    assert_eq!(
        (refused.error, refused.request.0),
        (PostError::QueueFull, 8)
    );
    assert_eq!(PostError::QueueFull.errno(Verb::PostRecv).0, libc::ENOMEM);
}

/// B32: nothing before INIT; a raw packet queue is posted to, but the device is told from RTR on; a reset clears the doorbell
/// record.
#[test]
fn states_of_receive_queues() {
    let mut bed = recv_bed(4, 6, 3, false);
    bed.queue.set_accepting(false);
    let refused = bed.queue.post(once((1, &[][..]))).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);
    assert_eq!(PostError::WrongState.errno(Verb::PostRecv).0, libc::EINVAL);
    bed.queue.set_accepting(true);
    bed.queue.hold_back(true);
    bed.queue.post([(1, &[][..]), (2, &[])]).unwrap();
    assert_eq!(bed.doorbell.bytes()[..4], [FILL; 4]);
    bed.queue.hold_back(false);
    assert_eq!(bed.doorbell(), 2);
    bed.queue.reset();
    assert_eq!(bed.doorbell(), 0);
    assert_eq!(bed.record.recv().unwrap().tail(), 0);
    bed.queue.post(once((1, &[][..]))).unwrap_err();
}

/// B10: the doorbell record counts modulo 2^16.
#[test]
fn receive_counters_wrap() {
    let mut bed = recv_bed(4, 4, 1, false);
    bed.queue.start_at(0xffff);
    bed.queue
        .post([(1, &[sge(1)][..]), (2, &[sge(2)])])
        .unwrap();
    assert_eq!(bed.doorbell(), 1);
    assert_eq!(bed.entry(3), element(1));
    assert_eq!(bed.entry(0), element(2));
    bed.queue.start_at(u32::MAX);
    bed.queue.post([(3, &[sge(3)][..]); 4]).unwrap();
    bed.queue.post(once((4, &[][..]))).unwrap_err();
    assert_eq!(bed.doorbell(), 3);
}

/// B13: a signed receive: the entry is cleared, then the list, then a byte that covers signature and as many elements as were
/// given, the queue's number and the index.
#[test]
fn signed_receives() {
    let mut bed = recv_bed(4, 6, 3, true);
    bed.queue.start_at(0x1_0201);
    bed.queue.post(once((1, &[sge(5), sge(6)][..]))).unwrap();
    let mut expected = [&[0; 16][..], &element(5), &element(6), &TERMINATOR].concat();
    let xor = |bytes: &[u8]| bytes.iter().fold(0, |xor, byte| xor ^ byte);
    let number = 0xff ^ 0xab ^ 0xcd ^ 0xef;
    let index = 0xff ^ 0x02 ^ 0x01;
    expected[4] = 0xff ^ xor(&expected[..48]) ^ number ^ index;
    assert_eq!(bed.entry(1), expected);
}

struct SrqBed {
    queue: SharedReceiveQueue,
    ring: Arc<Memory>,
    doorbell: Arc<Memory>,
}

fn srq_bed(entries: u32, list_entries: u32, stride_shift: u32, max_sge: u32) -> SrqBed {
    let ring = Memory::new((entries as usize) << stride_shift);
    ring.fill(0);
    let doorbell = Memory::new(64);
    let parts = SrqParts {
        ring: ring.at(0),
        entries,
        list_entries,
        stride_shift,
        max_sge,
        doorbell: doorbell.at(0).cast(),
        concurrent: true,
        null_lkey: 0,
        tags: None,
        memory: Some(Box::new((ring.clone(), doorbell.clone()))),
    };
    // SAFETY: the queue keeps its memory, and is the only one over it.
    let queue = unsafe { SharedReceiveQueue::new(parts) };
    SrqBed {
        queue,
        ring,
        doorbell,
    }
}

impl SrqBed {
    fn next(&self, entry: u32) -> u32 {
        let at = (entry as usize) << self.queue.shared().stride_shift();
        let bytes = self.ring.bytes();
        assert_eq!(bytes[at..at + 2], [0, 0]);
        u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]).into()
    }

    fn doorbell(&self) -> u32 {
        u32::from_be_bytes(self.doorbell.bytes()[..4].try_into().unwrap())
    }

    fn list(&self, entry: u32) -> Vec<u8> {
        let shift = self.queue.shared().stride_shift();
        self.ring.bytes()[(entry as usize) << shift..][16..1 << shift].to_vec()
    }

    fn post(&self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        match self.queue.post(once((wr_id, sges))) {
            Ok(count) => {
                assert_eq!(count, 1);
                Ok(())
            }
            Err(refused) => Err(refused.error),
        }
    }
}

/// The links at first: the list, and the wait queue behind it. Scatter lists behind 16 bytes, ended as in other queues;
/// B19: an empty element is left out here too (libmlx5 writes it, and the device takes it for 2 GiB).
#[test]
fn entries_of_a_shared_queue() {
    let bed = srq_bed(8, 4, 6, 3);
    assert_eq!([0, 1, 2].map(|entry| bed.next(entry)), [1, 2, 3]);
    assert_eq!([4, 5, 6].map(|entry| bed.next(entry)), [5, 6, 7]);
    assert_eq!([3, 7].map(|entry| bed.next(entry)), [0, 0]);
    bed.post(1, &[sge(0), sge(100)]).unwrap();
    bed.post(2, &[sge(1); 3]).unwrap();
    assert_eq!(
        bed.list(0),
        [&element(100), &TERMINATOR[..], &[0; 16]].concat()
    );
    assert_eq!(bed.list(1), element(1).repeat(3));
    assert_eq!(bed.doorbell(), 2);
    assert_eq!(bed.post(3, &[sge(1); 4]), Err(PostError::TooManySges));
    assert_eq!(bed.post(3, &[sge(1 << 31)]), Err(PostError::TooLong));
    assert_eq!(bed.doorbell(), 2);
}

/// B58: the queue takes one fewer than the list has, then is full; a list stops where it is; each release frees one.
#[test]
fn a_shared_queue_is_full() {
    let bed = srq_bed(4, 4, 5, 1);
    let requests = (0..5).map(|wr_id| (wr_id, &[][..]));
    let refused = bed.queue.post(requests).unwrap_err();
    assert_eq!(
        (refused.error, refused.request.0),
        (PostError::QueueFull, 3)
    );
    assert_eq!(bed.doorbell(), 3);
    bed.queue.shared().release(1);
    bed.queue.shared().release(1);
    bed.post(7, &[]).unwrap();
    // The last of the list was posted; entry 1 is the list's tail and may be posted when there is another behind it.
    assert_eq!(bed.queue.shared().wr_id(3), 7);
    assert_eq!(bed.next(3), 1);
    assert_eq!(bed.post(8, &[]), Err(PostError::QueueFull));
    bed.queue.shared().release(0);
    bed.post(8, &[]).unwrap();
    assert_eq!(bed.queue.shared().wr_id(1), 8);
    // An entry that the device does not have is not released.
    bed.queue.shared().release(0);
    assert_eq!(bed.post(9, &[]), Err(PostError::QueueFull));
}

/// A page fault: the entry goes to the end of the wait queue, the first that waits into the list, and the work request is
/// posted again under the list's head.
#[test]
fn a_page_fault_posts_again() {
    let bed = srq_bed(8, 4, 6, 3);
    bed.post(1, &[sge(11), sge(12)]).unwrap();
    bed.post(2, &[sge(13)]).unwrap();
    bed.queue.shared().repost_after_fault(0);
    assert_eq!(bed.queue.shared().wr_id(2), 1);
    assert_eq!(
        bed.list(2),
        [element(11), element(12), TERMINATOR.to_vec()].concat()
    );
    assert_eq!(bed.doorbell(), 3);
    assert_eq!(bed.next(7), 0, "the faulted one waits last");
    assert_eq!(bed.next(3), 4, "the one that waited longest is in the list");
    // Twice for one entry is a fault of the device, and does nothing.
    bed.queue.shared().repost_after_fault(0);
    assert_eq!(bed.doorbell(), 3);
    // Without a wait queue it is the list's tail at once.
    let bed = srq_bed(4, 4, 6, 3);
    bed.post(1, &[sge(11)]).unwrap();
    bed.queue.shared().repost_after_fault(0);
    assert_eq!(bed.queue.shared().wr_id(1), 1);
    assert_eq!(bed.next(3), 0);
    assert_eq!(bed.doorbell(), 2);
}

proptest! {
    /// B58: whatever the order of completions and faults, the device finds along the links exactly what was posted, once, and
    /// no entry is lost.
    #[test]
    fn the_list_is_whole(
        waits in any::<bool>(),
        steps in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 1..300),
    ) {
        let entries = if waits { 16 } else { 8 };
        let bed = srq_bed(entries, 8, 5, 1);
        let mut posted = 0;
        // What the device has taken from the list: entries, in order; and how far it is.
        let mut device = VecDeque::new();
        let mut at = 0;
        let mut seen = 0;
        let mut wr_id = 0;
        for (what, which) in steps {
            match what {
                0 => {
                    let room = device.len() + (posted - seen) < 7;
                    let result = bed.post(wr_id, &[sge(1 + wr_id as u32)]);
                    if room {
                        prop_assert!(result.is_ok(), "room for {} of 7", device.len());
                    }
                    if result.is_ok() {
                        wr_id += 1;
                        posted += 1;
                    }
                }
                1 | 2 if device.is_empty() => {}
                _ => {
                    let (entry, id) = device.remove(which.index(device.len())).unwrap();
                    prop_assert_eq!(bed.queue.shared().wr_id(entry), id);
                    if what == 1 {
                        bed.queue.shared().release(entry);
                    } else {
                        bed.queue.shared().repost_after_fault(entry);
                        posted += 1;
                    }
                }
            }
            prop_assert_eq!(bed.doorbell() as usize, if posted == 0 { 0xffff_ffff } else { posted });
            while seen < posted {
                let id = bed.queue.shared().wr_id(at);
                prop_assert_eq!(&bed.list(at)[..4], (1 + id as u32).to_be_bytes());
                prop_assert!(device.iter().all(|&(_, other)| other != id), "one work request twice");
                device.push_back((at, id));
                at = bed.next(at);
                seen += 1;
            }
        }
    }
}

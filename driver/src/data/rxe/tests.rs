//! Queues against a peer that plays the kernel's side of the same memory.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use wqe_format::rxe::queue::{CONSUMER_INDEX, DATA, INDEX_MASK, LOG2_ELEM_SIZE, PRODUCER_INDEX};
use wqe_format::rxe::{
    BindMw, Cqe, Datagram, Operation, RecvWqe, SendFlags, SendWqe, Sge, Transport, WrOpcode,
};
use zerocopy::FromBytes;

use super::*;
use crate::sys::fd::UverbsFd;
use crate::sys::kernel::KernelRef;
use crate::sys::mapping::SharedMapping;

/// The kernel's side of a queue: a second mapping of the same memory.
pub(super) struct Peer {
    fd: UverbsFd,
    pub(super) mapping: SharedMapping,
    log2: u32,
    pub(super) mask: u32,
}

impl Peer {
    /// A queue of `mask + 1` entries of 2^`log2` bytes, whose memory is `fill` where nothing else stands.
    pub(super) fn new(log2: u32, mask: u32, fill: u8) -> Self {
        let len = DATA + ((mask as usize + 1) << log2);
        // SAFETY: a NUL-terminated name and no flags.
        let raw: RawFd = unsafe { libc::memfd_create(c"queue".as_ptr(), 0) };
        // SAFETY: a system call on our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(raw, len as i64) }, 0);
        let fd = UverbsFd::owned(KernelRef::Linux, raw);
        let mapping = SharedMapping::map(&fd, len, 0).unwrap();
        let start = mapping.start().as_ptr().wrapping_add(DATA);
        // SAFETY: `len` bytes of a mapping that nobody else uses yet.
        unsafe { start.write_bytes(fill, len - DATA) };
        let peer = Self {
            fd,
            mapping,
            log2,
            mask,
        };
        peer.word(LOG2_ELEM_SIZE).store(log2, Ordering::Relaxed);
        peer.word(INDEX_MASK).store(mask, Ordering::Relaxed);
        peer
    }

    pub(super) fn map(&self) -> SharedMapping {
        SharedMapping::map(&self.fd, self.mapping.len(), 0).unwrap()
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        let word = self.mapping.start().as_ptr().wrapping_add(offset);
        // SAFETY: a header offset of a mapping that lives as long as `self`.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    fn entry(&self, index: u32) -> Vec<u8> {
        let offset = DATA + ((index & self.mask) as usize) * (1 << self.log2);
        let mut bytes = vec![0; 1 << self.log2];
        // SAFETY: an entry within the mapping.
        let from = unsafe { self.mapping.start().as_ptr().add(offset) };
        // SAFETY: as above; the vector has the entry's length.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// Takes the next work request, as the kernel does.
    pub(super) fn consume(&self) -> Option<Vec<u8>> {
        let consumer = self.word(CONSUMER_INDEX).load(Ordering::Relaxed);
        if self.word(PRODUCER_INDEX).load(Ordering::Acquire) == consumer {
            return None;
        }
        let entry = self.entry(consumer);
        self.word(CONSUMER_INDEX)
            .store((consumer + 1) & self.mask, Ordering::Release);
        Some(entry)
    }

    /// Adds a completion, if there is room.
    pub(super) fn complete(&self, cqe: Cqe) -> bool {
        let producer = self.word(PRODUCER_INDEX).load(Ordering::Relaxed);
        let next = (producer + 1) & self.mask;
        if next == self.word(CONSUMER_INDEX).load(Ordering::Acquire) {
            return false;
        }
        let offset = DATA + (producer as usize) * (1 << self.log2);
        // SAFETY: an entry within the mapping.
        let place = unsafe { self.mapping.start().as_ptr().add(offset) };
        // SAFETY: as above; the entry is the producer's.
        unsafe { place.cast::<Cqe>().write(cqe) };
        self.word(PRODUCER_INDEX).store(next, Ordering::Release);
        true
    }
}

const LIMITS: SendLimits = SendLimits {
    max_sge: 4,
    max_inline: 64,
};

fn send_queue(transport: Transport, mask: u32) -> (Peer, SendQueue) {
    let peer = Peer::new(9, mask, 0xff);
    let mut queue = SendQueue::new(peer.map(), transport, LIMITS).unwrap();
    queue.set_accepting(true);
    (peer, queue)
}

pub(super) fn sge(length: u32) -> Sge {
    Sge {
        addr: 0x1000,
        length,
        lkey: 7,
    }
}

fn post(
    queue: &mut SendQueue,
    wr_id: u64,
    operation: &Operation,
    sges: &[Sge],
) -> Result<(), PostError> {
    let mut draft = queue.begin();
    queue.open(&mut draft, wr_id, SendFlags::SIGNALED, operation, None)?;
    queue.set_sges(&mut draft, sges)?;
    queue.close(&mut draft);
    assert!(queue.commit(&draft));
    Ok(())
}

fn wqe(entry: &[u8]) -> (SendWqe, &[u8]) {
    SendWqe::read_from_prefix(entry).unwrap()
}

/// B26: full ⇔ the producer's successor is the consumer, for every pair of indices.
#[test]
fn queues_of_every_size_hold_mask_entries() {
    for mask in [1, 3, 7, 63] {
        for start in 0..=mask {
            let (peer, _) = send_queue(Transport::Rc, mask);
            peer.word(PRODUCER_INDEX).store(start, Ordering::Relaxed);
            peer.word(CONSUMER_INDEX).store(start, Ordering::Relaxed);
            let mut queue = SendQueue::new(peer.map(), Transport::Rc, LIMITS).unwrap();
            queue.set_accepting(true);
            for number in 0..mask {
                assert_eq!(queue.free(), mask - number);
                post(&mut queue, u64::from(number), &Operation::Send, &[]).unwrap();
            }
            let full = post(&mut queue, 9, &Operation::Send, &[]);
            assert_eq!(full, Err(PostError::QueueFull));
            assert_eq!(PostError::QueueFull.errno().0, libc::ENOMEM);
            for number in 0..mask {
                assert_eq!(wqe(&peer.consume().unwrap()).0.wr.wr_id, u64::from(number));
            }
            assert!(peer.consume().is_none());
        }
    }
}

/// B24: the length is the sum of the elements' lengths; B11: nothing of the slot's earlier content stays.
#[test]
fn a_gather_list_is_summed_and_copied() {
    let (peer, mut queue) = send_queue(Transport::Rc, 3);
    let list = [sge(100), sge(200), sge(12)];
    post(&mut queue, 5, &Operation::Send, &list).unwrap();
    let entry = peer.consume().unwrap();
    let (head, rest) = wqe(&entry);
    assert_eq!((head.dma.length, head.dma.resid), (312, 312));
    let dma = head.dma;
    assert_eq!(
        (dma.num_sge, dma.cur_sge, dma.sge_offset, dma.reserved),
        (3, 0, 0, 0)
    );
    assert_eq!((head.status, head.state, head.mask), (0, 0, 0));
    assert_eq!(head.wr.operation(), Some(Operation::Send));
    assert_eq!(
        head.wr.datagram().av,
        wqe_format::rxe::AddressVector::default()
    );
    for (place, expected) in list.iter().enumerate() {
        assert_eq!(
            Sge::read_from_prefix(&rest[place * 16..]).unwrap().0,
            *expected
        );
    }
    let five = [sge(1); 5];
    assert_eq!(
        post(&mut queue, 6, &Operation::Send, &five),
        Err(PostError::TooManySges)
    );
}

/// B22: lengths are summed in 64 bits, and nothing is read when the sum is refused (the pieces are not mapped).
#[test]
fn inline_lengths_do_not_wrap() {
    let (_peer, queue) = send_queue(Transport::Rc, 3);
    let lists: [&[usize]; 4] = [
        &[1 << 31, 1 << 31, 16],
        &[usize::MAX, 17],
        &[0xffff_fff0],
        &[65],
    ];
    for lengths in lists {
        let mut draft = queue.begin();
        queue
            .open(&mut draft, 1, SendFlags::default(), &Operation::Send, None)
            .unwrap();
        let pieces = lengths.iter().map(|&len| InlinePiece {
            addr: std::ptr::without_provenance(8),
            len,
        });
        // SAFETY: the sums are over the limit.
        let result = unsafe { queue.set_inline(&mut draft, pieces) };
        assert_eq!(result, Err(PostError::InlineTooLong), "{lengths:?}");
        assert_eq!(draft.error(), Some(PostError::InlineTooLong));
    }
}

/// B04, B06: inline pieces are concatenated, and each work request of a batch counts its own.
#[test]
fn inline_pieces_are_gathered_for_each_work_request() {
    let (peer, mut queue) = send_queue(Transport::Rc, 15);
    let data: Vec<u8> = (0..64).collect();
    let mut draft = queue.begin();
    for number in 0..10 {
        queue
            .open(
                &mut draft,
                number,
                SendFlags::default(),
                &Operation::Send,
                None,
            )
            .unwrap();
        let pieces = [(0, 5), (9, 0), (20, 7), (40, 3), (50, 14)];
        let pieces = pieces.iter().map(|&(start, len)| InlinePiece {
            addr: data[start..].as_ptr(),
            len,
        });
        // SAFETY: all pieces are in `data`.
        unsafe { queue.set_inline(&mut draft, pieces) }.unwrap();
        queue.close(&mut draft);
    }
    assert!(peer.consume().is_none(), "nothing before the commit");
    assert!(queue.commit(&draft));
    for number in 0..10 {
        let entry = peer.consume().unwrap();
        let (head, rest) = wqe(&entry);
        assert_eq!(
            (head.wr.wr_id, head.dma.length, head.ssn),
            (number, 29, number as u32)
        );
        assert!(head.wr.flags().contains(SendFlags::INLINE));
        let expected = [&data[..5], &data[20..27], &data[40..43], &data[50..64]].concat();
        assert_eq!(&rest[..29], expected);
    }
}

/// B08: of a batch with a bad work request, those before it are posted and no others.
#[test]
fn a_bad_work_request_ends_the_batch() {
    let (peer, mut queue) = send_queue(Transport::Rc, 7);
    let mut draft = queue.begin();
    for number in 0..2 {
        queue
            .open(
                &mut draft,
                number,
                SendFlags::default(),
                &Operation::Send,
                None,
            )
            .unwrap();
        queue.set_sges(&mut draft, &[sge(8)]).unwrap();
        queue.close(&mut draft);
    }
    queue
        .open(&mut draft, 2, SendFlags::default(), &Operation::Send, None)
        .unwrap();
    assert_eq!(
        queue.set_sges(&mut draft, &[sge(1); 5]),
        Err(PostError::TooManySges)
    );
    queue.close(&mut draft);
    // The error stays: the rest of the list is not looked at.
    let next = queue.open(&mut draft, 3, SendFlags::default(), &Operation::Send, None);
    assert_eq!(next, Err(PostError::TooManySges));
    assert!(queue.commit(&draft));
    assert_eq!(wqe(&peer.consume().unwrap()).0.wr.wr_id, 0);
    assert_eq!(wqe(&peer.consume().unwrap()).0.wr.wr_id, 1);
    assert!(peer.consume().is_none());
}

/// B21, B50: what can't be sent is refused before it is in the queue.
#[test]
fn local_checks() {
    let (_peer, mut queue) = send_queue(Transport::Rc, 7);
    for lengths in [
        &[0x8000_0000][..],
        &[0xffff_ffff],
        &[0x4000_0000, 0x4000_0000],
    ] {
        let list: Vec<Sge> = lengths.iter().map(|&length| sge(length)).collect();
        assert_eq!(
            post(&mut queue, 1, &Operation::Send, &list),
            Err(PostError::TooLong)
        );
    }
    post(&mut queue, 1, &Operation::Send, &[sge(0x4000_0000)]).unwrap();
    let atomic = |remote_addr| Operation::AtomicFetchAndAdd {
        remote_addr,
        rkey: 1,
        add: 1,
    };
    assert_eq!(
        post(&mut queue, 1, &atomic(4), &[sge(8)]),
        Err(PostError::Atomic)
    );
    assert_eq!(
        post(&mut queue, 1, &atomic(8), &[sge(4)]),
        Err(PostError::Atomic)
    );
    post(&mut queue, 1, &atomic(8), &[sge(8)]).unwrap();
}

/// Official providers let zero-based windows of type 2 pass; the kernel knows them.
#[test]
fn zero_based_windows_are_of_type_2() {
    let zero_based = wqe_format::rxe::Access::ZERO_BASED;
    assert_eq!(BindMw::type_1(0, 1, 2, 3, zero_based), None);
    let (peer, mut queue) = send_queue(Transport::Rc, 7);
    let bind = Operation::BindMw(BindMw {
        access: zero_based,
        ..BindMw::default()
    });
    post(&mut queue, 1, &bind, &[]).unwrap();
    assert_eq!(wqe(&peer.consume().unwrap()).0.wr.operation(), Some(bind));
    assert_eq!(
        post(&mut queue, 1, &bind, &[sge(1)]),
        Err(PostError::NoLocalMemory)
    );
}

fn begun(queue: &SendQueue, flags: SendFlags, operation: &Operation) -> Draft {
    let mut draft = queue.begin();
    queue.open(&mut draft, 1, flags, operation, None).unwrap();
    draft
}

/// The kernel takes a flush's length from the transfer, not from the request.
#[test]
fn a_flush_has_its_length_twice() {
    let (peer, mut queue) = send_queue(Transport::Rc, 7);
    let flush = wqe_format::rxe::Flush {
        remote_addr: 0x1000,
        length: 4096,
        rkey: 3,
        placement: 2,
        selectivity: 0,
    };
    let mut draft = begun(&queue, SendFlags::SIGNALED, &Operation::Flush(flush));
    queue.set_sges(&mut draft, &[]).unwrap();
    queue.close(&mut draft);
    assert!(queue.commit(&draft));
    let entry = peer.consume().unwrap();
    let (head, _) = wqe(&entry);
    assert_eq!(
        (head.dma.length, head.dma.resid, head.iova),
        (4096, 4096, 0x1000)
    );
    assert_eq!(head.wr.operation(), Some(Operation::Flush(flush)));
}

/// The payload decides the flag: with a wrong one the kernel would send the list instead of what it names.
#[test]
fn the_inline_flag_follows_the_payload() {
    let (peer, mut queue) = send_queue(Transport::Rc, 7);
    let mut draft = begun(&queue, SendFlags::INLINE, &Operation::Send);
    queue.set_sges(&mut draft, &[sge(8)]).unwrap();
    queue.close(&mut draft);
    queue
        .open(&mut draft, 2, SendFlags::default(), &Operation::Send, None)
        .unwrap();
    let piece = InlinePiece {
        addr: b"data".as_ptr(),
        len: 4,
    };
    // SAFETY: the piece is a string of that length.
    unsafe { queue.set_inline(&mut draft, std::iter::once(piece)) }.unwrap();
    queue.close(&mut draft);
    assert!(queue.commit(&draft));
    for inline in [false, true] {
        let entry = peer.consume().unwrap();
        let flags = wqe(&entry).0.wr.flags();
        assert_eq!(flags.contains(SendFlags::INLINE), inline);
    }
    let read = Operation::RdmaRead {
        remote_addr: 0,
        rkey: 0,
    };
    let mut draft = begun(&queue, SendFlags::default(), &read);
    // SAFETY: as above.
    let refused = unsafe { queue.set_inline(&mut draft, std::iter::once(piece)) };
    assert_eq!(refused, Err(PostError::NoInline));
}

/// A work request that lacks what it needs stays out of the queue, with those after it.
#[test]
fn incomplete_work_requests_are_refused() {
    let atomic = Operation::AtomicFetchAndAdd {
        remote_addr: 8,
        rkey: 1,
        add: 1,
    };
    let value = Operation::AtomicWrite {
        remote_addr: 8,
        rkey: 1,
    };
    for (transport, operation) in [
        (Transport::Rc, atomic),
        (Transport::Rc, value),
        (Transport::Ud, Operation::Send),
    ] {
        let (_peer, mut queue) = send_queue(transport, 7);
        let mut draft = begun(&queue, SendFlags::default(), &operation);
        queue.close(&mut draft);
        assert_eq!(draft.error(), Some(PostError::Incomplete), "{operation}");
        let next = queue.open(&mut draft, 2, SendFlags::default(), &operation, None);
        assert_eq!(next, Err(PostError::Incomplete));
        assert!(!queue.commit(&draft));
    }
    let (_peer, mut queue) = send_queue(Transport::Rc, 7);
    let mut draft = begun(&queue, SendFlags::default(), &value);
    queue.set_atomic_value(&mut draft, [1; 8]).unwrap();
    queue.close(&mut draft);
    assert_eq!(draft.error(), None);
    assert!(queue.commit(&draft));
}

/// B32: the state gates both queues.
#[test]
fn states_gate_posting() {
    let (_peer, mut queue) = send_queue(Transport::Rc, 7);
    queue.set_accepting(false);
    assert_eq!(
        post(&mut queue, 1, &Operation::Send, &[]),
        Err(PostError::WrongState)
    );
    let peer = Peer::new(7, 3, 0);
    let mut queue = RecvQueue::new(peer.map(), 1, false).unwrap();
    assert_eq!(queue.post(1, &[]), Err(PostError::WrongState));
    queue.set_accepting(true);
    queue.post(1, &[]).unwrap();
}

#[test]
fn transports_offer_their_operations() {
    let rdma = Operation::RdmaRead {
        remote_addr: 0,
        rkey: 0,
    };
    for transport in [Transport::Uc, Transport::Ud] {
        let (_peer, mut queue) = send_queue(transport, 7);
        assert_eq!(post(&mut queue, 1, &rdma, &[]), Err(PostError::Opcode));
    }
    let offered = |transport| {
        let of = WrOpcode::ALL
            .iter()
            .filter(|opcode| opcode.is_offered_by(transport));
        of.count()
    };
    assert_eq!(
        [Transport::Rc, Transport::Uc, Transport::Ud].map(offered),
        [12, 6, 2]
    );
}

/// B30: a datagram carries the handle's number and no path, or a path.
#[test]
fn datagrams_carry_their_destination() {
    let (peer, queue) = send_queue(Transport::Ud, 7);
    let mut queue = queue;
    let to = Datagram {
        remote_qpn: 0x11,
        remote_qkey: 0x1111_1111,
        ah_num: 7,
        av: Default::default(),
    };
    let mut draft = queue.begin();
    queue
        .open(
            &mut draft,
            1,
            SendFlags::default(),
            &Operation::Send,
            Some(&to),
        )
        .unwrap();
    queue.set_sges(&mut draft, &[sge(4)]).unwrap();
    queue.close(&mut draft);
    queue.commit(&draft);
    assert_eq!(wqe(&peer.consume().unwrap()).0.wr.datagram(), to);
}

/// B20: fewer elements than the entry has room for; none at all.
#[test]
fn receives_of_every_length() {
    let peer = Peer::new(8, 7, 0xff);
    let mut queue = RecvQueue::new(peer.map(), 4, true).unwrap();
    for count in 0..=4 {
        let list = vec![sge(10); count];
        queue.post(count as u64, &list).unwrap();
        let entry = peer.consume().unwrap();
        let (head, rest) = RecvWqe::read_from_prefix(&entry).unwrap();
        assert_eq!(
            (head.wr_id, head.dma.num_sge as usize),
            (count as u64, count)
        );
        assert_eq!(head.dma.length as usize, 10 * count);
        for place in 0..count {
            assert_eq!(
                Sge::read_from_prefix(&rest[place * 16..]).unwrap().0,
                sge(10)
            );
        }
    }
    assert_eq!(queue.post(9, &[sge(1); 5]), Err(PostError::TooManySges));
}

/// B27: stepping at the end of the queue takes nothing, so no completion is seen twice or never.
#[test]
fn stepping_over_nothing_takes_nothing() {
    let peer = Peer::new(6, 3, 0);
    let mut queue = CompletionQueue::new(peer.map()).unwrap();
    for number in 0..10 {
        assert!(peer.complete(Cqe {
            wr_id: number,
            ..Cqe::default()
        }));
        assert_eq!(queue.peek().map(|cqe| cqe.wr_id), Some(number));
        queue.step();
        assert_eq!(queue.peek(), None);
        queue.step();
        queue.publish();
        let producer = peer.word(PRODUCER_INDEX).load(Ordering::Relaxed);
        assert_eq!(peer.word(CONSUMER_INDEX).load(Ordering::Relaxed), producer);
        assert_eq!(queue.poll(), None);
    }
}

/// B29: a header that lies is refused, whatever it says.
#[test]
fn lying_headers_are_refused() {
    let cases = [
        (6, 7),
        (31, 1),
        (32, 1),
        (u32::MAX, 3),
        (6, 2),
        (3, 3),
        (6, u32::MAX),
    ];
    for (log2, mask) in cases {
        let peer = Peer::new(6, 3, 0);
        peer.word(LOG2_ELEM_SIZE).store(log2, Ordering::Relaxed);
        peer.word(INDEX_MASK).store(mask, Ordering::Relaxed);
        assert!(
            CompletionQueue::new(peer.map()).is_err(),
            "{log2} {mask:#x}"
        );
    }
}

proptest! {
    /// Whatever the peer writes into the indices, a poll ends and stays inside of the queue.
    #[test]
    fn hostile_indices(producer: u32, consumer: u32, polls in 0_usize..40) {
        let peer = Peer::new(6, 7, 0xa5);
        peer.word(PRODUCER_INDEX).store(producer, Ordering::Relaxed);
        peer.word(CONSUMER_INDEX).store(consumer, Ordering::Relaxed);
        let mut queue = CompletionQueue::new(peer.map()).unwrap();
        for _ in 0..polls {
            let _ = queue.poll();
        }
        let mut sends = SendQueue::new(Peer::new(9, 7, 0).map(), Transport::Rc, LIMITS).unwrap();
        sends.set_accepting(true);
        for number in 0..polls {
            let _ = post(&mut sends, number as u64, &Operation::Send, &[sge(1)]);
        }
    }

    /// Posting and consuming in any order: every work request arrives once and in order, and the queue refuses one
    /// exactly when it holds `mask`.
    #[test]
    fn posts_arrive_in_order(log2_entries in 1_u32..6, steps in prop::collection::vec((any::<bool>(), 1_u32..9), 1..80)) {
        let mask = (1 << log2_entries) - 1;
        let (peer, mut queue) = send_queue(Transport::Rc, mask);
        let (mut posted, mut taken) = (0_u64, 0_u64);
        for (posting, count) in steps {
            for _ in 0..count {
                if posting {
                    let result = post(&mut queue, posted, &Operation::Send, &[sge(posted as u32 & 0xffff)]);
                    prop_assert_eq!(result.is_ok(), posted - taken < u64::from(mask));
                    posted += u64::from(result.is_ok());
                } else if let Some(entry) = peer.consume() {
                    let head = wqe(&entry).0;
                    prop_assert_eq!(head.wr.wr_id, taken);
                    prop_assert_eq!(head.ssn, taken as u32);
                    prop_assert_eq!(head.dma.length, taken as u32 & 0xffff);
                    taken += 1;
                } else {
                    prop_assert_eq!(posted, taken);
                }
            }
        }
    }

    /// Completions arrive once and in order over any number of laps.
    #[test]
    fn completions_arrive_in_order(steps in prop::collection::vec((any::<bool>(), 1_u32..9), 1..80)) {
        let peer = Peer::new(6, 7, 0);
        let mut queue = CompletionQueue::new(peer.map()).unwrap();
        let (mut written, mut polled) = (0_u64, 0_u64);
        for (writing, count) in steps {
            for _ in 0..count {
                if writing {
                    written += u64::from(peer.complete(Cqe { wr_id: written, ..Cqe::default() }));
                } else if let Some(cqe) = queue.poll() {
                    prop_assert_eq!(cqe.wr_id, polled);
                    polled += 1;
                } else {
                    prop_assert_eq!(written, polled);
                }
            }
        }
    }
}

//! Queues that are replaced by larger or smaller ones while they hold something.

use std::sync::atomic::Ordering;

use wqe_format::rxe::queue::{CONSUMER_INDEX, DATA, PRODUCER_INDEX};
use wqe_format::rxe::{Cqe, RecvWqe};
use zerocopy::FromBytes;

use super::tests::{Peer, sge};
use super::*;

impl Peer {
    /// Entries that were given away and not taken.
    fn pending(&self) -> u32 {
        let index = |offset| self.word(offset).load(Ordering::Relaxed);
        index(PRODUCER_INDEX).wrapping_sub(index(CONSUMER_INDEX)) & self.mask
    }
}

/// The queue that the kernel makes on a resize: what is pending stands at its start.
fn carried_over(from: &Peer, log2: u32, mask: u32) -> Peer {
    let to = Peer::new(log2, mask, 0);
    let mut count = 0;
    while let Some(entry) = from.consume() {
        let place = to
            .mapping
            .start()
            .as_ptr()
            .wrapping_add(DATA + (count << log2));
        // SAFETY: an entry of the new queue, which is as long.
        unsafe { place.copy_from_nonoverlapping(entry.as_ptr(), 1 << log2) };
        count += 1;
    }
    to.word(PRODUCER_INDEX)
        .store(count as u32, Ordering::Relaxed);
    to
}

/// B40: pending completions survive growing and shrinking, in order; a lying header changes nothing.
#[test]
fn resized_completion_queues_keep_what_is_pending() {
    let mut peer = Peer::new(6, 7, 0);
    let mut queue = CompletionQueue::new(peer.map()).unwrap();
    let (mut written, mut polled) = (0_u64, 0_u64);
    for mask in [15, 7, 63, 7, 31, 7, 15] {
        // The indices are somewhere in the middle of a lap, with five pending.
        for _ in 0..13 {
            assert!(peer.complete(Cqe {
                wr_id: written,
                ..Cqe::default()
            }));
            written += 1;
            if written - polled > 5 {
                assert_eq!(queue.poll().map(|cqe| cqe.wr_id), Some(polled));
                polled += 1;
            }
        }
        peer = carried_over(&peer, 6, mask);
        let lying = Peer::new(6, 2, 0);
        assert!(queue.replace(lying.map()).is_err());
        queue.replace(peer.map()).unwrap();
        assert_eq!(queue.capacity(), mask);
        assert_eq!(queue.peek().map(|cqe| cqe.wr_id), Some(polled));
    }
    while let Some(cqe) = queue.poll() {
        assert_eq!(cqe.wr_id, polled);
        polled += 1;
    }
    assert_eq!(polled, written);
}

/// B58: a resized shared receive queue goes on behind what is pending, and is full when it holds its new capacity.
#[test]
fn resized_receive_queues_go_on_behind_what_is_pending() {
    let mut peer = Peer::new(7, 3, 0);
    let mut queue = RecvQueue::new(peer.map(), 1, true).unwrap();
    let (mut posted, mut taken) = (0, 0);
    let mut take = |peer: &Peer| {
        let entry = peer.consume().unwrap();
        let (head, _) = RecvWqe::read_from_prefix(&entry).unwrap();
        assert_eq!(head.wr_id, taken);
        taken += 1;
    };
    for mask in [7, 3, 15] {
        while queue.post(posted, &[sge(1)]).is_ok() {
            posted += 1;
        }
        while peer.pending() > 1 {
            take(&peer);
        }
        peer = carried_over(&peer, 7, mask);
        queue.replace(peer.map()).unwrap();
        let mut room = 0;
        while queue.post(posted, &[sge(1)]).is_ok() {
            posted += 1;
            room += 1;
        }
        assert_eq!(room, mask - 1, "one was pending");
        assert_eq!(queue.post(posted, &[]), Err(PostError::QueueFull));
    }
    while peer.pending() > 0 {
        take(&peer);
    }
    assert_eq!(taken, posted);
}

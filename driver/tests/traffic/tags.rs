//! Messages that find their buffers by tags.

use oxverbs::{
    Completion, CompletionQueue, Context, QueuePair, Rc, SharedReceiveQueueAttributes,
    TagListAttributes, TagMatchingQueue, WcOpcode,
};

use crate::traffic::{ALL, good};

pub(crate) const RECEIVES: SharedReceiveQueueAttributes = SharedReceiveQueueAttributes {
    max_wr: 8,
    max_sge: 1,
    limit: 0,
};
pub(crate) const LIST: TagListAttributes = TagListAttributes {
    max_tags: 4,
    max_changes: 8,
};

/// Bytes of a receive, and of a message of several packets.
const LEN: usize = 4_500;
/// `struct ibv_tmh` (infiniband/tm_types.h): operation, 3 bytes, the program's word, the tag; all in network order.
const HEADER: usize = 16;
/// `IBV_TMH_EAGER` and `IBV_TMH_NO_TAG`.
const EAGER: u8 = 3;
const NO_TAG: u8 = 0;

fn message(operation: u8, tag: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![operation, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(tag.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn numbers(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7) as u8).collect()
}

/// The one message that has met a tag: with one completion, or with two if it has several packets.
fn met(cq: &mut CompletionQueue, several: bool) -> Completion {
    let mut completion = good(cq);
    assert_eq!(completion.opcode(), WcOpcode::TM_RECV);
    assert!(completion.tags().met);
    assert_eq!(completion.tags().has_data, !several);
    if several {
        completion = good(cq);
        assert_eq!(completion.opcode(), WcOpcode::TM_RECV);
        assert!(!completion.tags().met && completion.tags().has_data);
    }
    completion
}

/// A queue with places for 4 tags, its receives posted, and two connected queue pairs: the first sends, the second receives
/// through the list.
pub(crate) fn messages_find_their_tags(context: &Context) {
    let pd = context.protection_domain().unwrap();
    let mut sent = context.completion_queue(32).unwrap();
    let mut cq = context.completion_queue(64).unwrap();
    let mut tags = pd.tag_matching_queue(&cq, RECEIVES, LIST).unwrap();
    assert!(tags.receives().number().is_none());
    let mut receiver = pd
        .queue_pair::<Rc>(&cq)
        .shared_receive_queue(tags.receives())
        .create()
        .unwrap();
    let mut sender = pd.queue_pair::<Rc>(&sent).create().unwrap();
    let ends = [&sender, &receiver].map(|qp| qp.endpoint(1, 0).unwrap());
    sender.connect(&ends[0], &ends[1], ALL).unwrap();
    receiver.connect(&ends[1], &ends[0], ALL).unwrap();
    let source = pd.allocate(1 << 14, ALL).unwrap();
    let sink = pd.allocate(1 << 16, ALL).unwrap();
    let place = |at: usize| sink.slice(at * 8192..at * 8192 + LEN);
    for at in 0..2 {
        tags.receives().post(place(at)).unwrap();
    }
    let send = |sender: &mut QueuePair<Rc>, sent: &mut CompletionQueue, bytes: &[u8]| {
        source.copy_in(0, bytes);
        let token = sender
            .send_half()
            .send(source.slice(0..bytes.len()))
            .unwrap();
        let completion = good(sent);
        assert!(token.is_of(&completion));
        sender.reclaim(&completion).unwrap();
    };

    // Around the list's places several times: each message meets the first tag that it fits, in the order of the list.
    for turn in 0..5 {
        let wanted = 0xfeed_0000_0000_0000 | turn;
        let add = |tags: &mut TagMatchingQueue, cq: &mut CompletionQueue, at, tag, mask| {
            let handle = tags.add(place(at), tag, mask).unwrap();
            let completion = good(cq);
            assert_eq!(completion.opcode(), WcOpcode::TM_ADD);
            assert!(handle.is_of(&completion));
            assert!(tags.reclaim(&completion).is_none(), "the list has it");
            handle
        };
        let other = add(&mut tags, &mut cq, 2, !wanted, u64::MAX);
        let first = add(&mut tags, &mut cq, 3, wanted, u64::MAX);
        let any = add(&mut tags, &mut cq, 4, wanted, 0xffff << 48);
        for (handle, at, len) in [(first, 3, 20), (any, 4, LEN)] {
            let data = numbers(at + len, len);
            send(&mut sender, &mut sent, &message(EAGER, wanted, &data));
            let completion = met(&mut cq, len > 1000);
            assert!(handle.is_of(&completion));
            let buffer = tags.reclaim(&completion).expect("the tag's own");
            assert_eq!(buffer.len(), LEN);
            assert_eq!(sink.to_vec(at * 8192..at * 8192 + len), data, "turn {turn}");
            assert!(tags.reclaim(&completion).is_none(), "once");
        }
        tags.remove(other).unwrap();
        let completion = good(&mut cq);
        assert_eq!(completion.opcode(), WcOpcode::TM_DEL);
        assert!(other.is_of(&completion) && tags.reclaim(&completion).is_some());
        assert!(tags.remove(other).is_err(), "it is gone");
    }

    // A message that meets no tag, and one that has none: receives, header and all.
    for (turn, operation) in [EAGER, NO_TAG].into_iter().enumerate() {
        let bytes = message(operation, 5, &numbers(turn, 100));
        send(&mut sender, &mut sent, &bytes);
        let completion = good(&mut cq);
        let opcode = match operation {
            EAGER => WcOpcode::TM_RECV,
            _ => WcOpcode::TM_NO_TAG,
        };
        assert_eq!(completion.opcode(), opcode);
        assert!(!completion.tags().met);
        assert_eq!(completion.byte_len() as usize, HEADER + 100);
        let buffer = tags.reclaim(&completion).expect("a receive");
        assert_eq!(sink.to_vec(turn * 8192..turn * 8192 + bytes.len()), bytes);
        tags.receives().post(buffer).unwrap();
    }
    // Until the device is told, it matches nothing that was added since; telling it is a change of its own.
    tags.handled(1);
    tags.sync(7).unwrap();
    let completion = good(&mut cq);
    assert_eq!(
        (completion.opcode(), completion.wr_id()),
        (WcOpcode::TM_SYNC, 7)
    );
    assert!(tags.reclaim(&completion).is_none());

    // The list holds no more than it was made for.
    let full: Vec<_> = (0..4)
        .map(|at| tags.add(place(2 + at), at as u64, u64::MAX).unwrap())
        .collect();
    assert!(tags.add(place(6), 9, u64::MAX).is_err());
    for handle in &full {
        assert!(handle.is_of(&good(&mut cq)));
    }
    send(&mut sender, &mut sent, &message(EAGER, 3, b"the last"));
    let completion = met(&mut cq, false);
    assert!(full[3].is_of(&completion) && tags.reclaim(&completion).is_some());
    assert_eq!(sink.to_vec(5 * 8192..5 * 8192 + 8), b"the last");
    // A tag that was met cannot be removed.
    assert!(tags.remove(full[3]).is_err());

    // Limit events count receives, not tags.
    tags.receives().set_limit(2).unwrap();
    assert_eq!(tags.receives().query().unwrap().limit, 2);
    drop(receiver);
    drop(tags);
    assert_eq!(cq.poll().count(), 0);
}

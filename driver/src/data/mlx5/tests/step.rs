//! The frequent steps of a batch leave the same bytes as the general ones.

use proptest::prelude::*;
use wqe_format::rxe::Sge;

use super::*;

/// A work request that may or may not be a frequent one.
#[derive(Clone, Copy, Debug)]
struct Step {
    operation: u8,
    flags: u32,
    payload: u8,
    length: u32,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step =
        (0..6_u8, 0..8_u32, 0..4_u8, 0..80_u32).prop_map(|(operation, flags, payload, length)| {
            Step {
                operation,
                flags,
                payload,
                length,
            }
        });
    prop::collection::vec(prop::collection::vec(step, 1..4), 1..40)
}

const REMOTE: Remote = Remote {
    addr: 0x1122_3344_5566_7788,
    rkey: 0x99aa_bbcc,
};

/// Describes a work request; with `frequent`, by the frequent steps where they do it. Says how often they did.
fn describe(queue: &SendQueue, draft: &mut Draft, step: &Step, data: &[u8], frequent: bool) -> u32 {
    let flags = SendFlags(step.flags);
    let wr_id = u64::from(step.length) << 32 | u64::from(step.operation);
    let operation = match step.operation {
        0 => Operation::Send,
        1 | 2 => Operation::RdmaWrite(REMOTE),
        3 => Operation::RdmaRead(REMOTE),
        4 => Operation::LocalInv { rkey: 7 },
        _ => Operation::SendWithImm {
            imm: U32::new(0x0102_0304),
        },
    };
    let mut done = 0;
    // SAFETY: nothing was posted since the batch was begun.
    let begun = frequent && unsafe { queue.open_frequent(draft, wr_id, flags, &operation) };
    done += u32::from(begun);
    if !begun {
        // SAFETY: no headers are read.
        let _ = unsafe { queue.open_any(draft, wr_id, flags, &operation) };
    }
    let sge = Sge {
        addr: 0x0102_0304_0506_0708,
        length: step.length,
        lkey: 0x0a0b_0c0d,
    };
    let piece = InlinePiece {
        addr: data.as_ptr(),
        len: step.length as usize,
    };
    // What is set last counts.
    for kind in [step.payload & 1, step.payload >> 1] {
        let set = match kind {
            // SAFETY: the queue's own draft.
            0 => frequent && unsafe { queue.set_sge_frequent(draft, &sge) },
            // SAFETY: as above; as many bytes are there.
            _ => frequent && unsafe { queue.set_inline_frequent(draft, piece) },
        };
        done += u32::from(set);
        if !set {
            let _ = match kind {
                // SAFETY: nothing is read on this kind of queue.
                0 => unsafe { queue.set_sge(draft, &sge) },
                // SAFETY: as above.
                _ => unsafe { queue.set_inline(draft, piece) },
            };
        }
    }
    done
}

proptest! {
    #[test]
    fn frequent_steps_are_the_general_ones(
        batches in steps(),
        kind in prop::sample::select(vec![QueueKind::Rc, QueueKind::Uc, QueueKind::XrcSend]),
        signature in any::<bool>(),
        shared in any::<bool>(),
        signal_all in any::<bool>(),
    ) {
        let make = Make {
            signature,
            signal_all,
            sharing: if shared { Sharing::Locked } else { Sharing::Exclusive },
            ..Make::new(kind)
        };
        let data: Vec<u8> = (0..80).collect();
        let (mut general, mut frequent) = (make.bed(), make.bed());
        for (turn, batch) in batches.iter().enumerate() {
            let mut expected = general.queue.begin();
            let mut draft = frequent.queue.begin();
            for step in batch {
                describe(&general.queue, &mut expected, step, &data, false);
                describe(&frequent.queue, &mut draft, step, &data, true);
            }
            // Some are left: what they wrote is written over.
            if turn % 5 != 4 {
                let expected = general.queue.commit(&mut expected);
                // SAFETY: nothing was posted since the batch was begun.
                if unsafe { frequent.queue.commit_frequent(&draft) } {
                    prop_assert_eq!(expected, Ok(batch.len() as u32));
                } else {
                    prop_assert_eq!(expected, frequent.queue.commit(&mut draft));
                }
            }
            prop_assert_eq!(general.ring.bytes(), frequent.ring.bytes());
            prop_assert_eq!(general.doorbell.bytes(), frequent.doorbell.bytes());
            prop_assert_eq!(general.uar.bytes(), frequent.uar.bytes());
            for block in 0..make.wqebbs {
                let records = [&general, &frequent].map(|bed| bed.record.send().unwrap().record(block));
                prop_assert_eq!(records[0], records[1]);
            }
            prop_assert_eq!(general.queue.head(), frequent.queue.head());
            prop_assert_eq!(general.queue.posted_blocks(), frequent.queue.posted_blocks());
            if turn % 2 == 1 {
                general.complete();
                frequent.complete();
            }
        }
    }
}

/// All but a queue's first work request, which looks for room, go by the frequent steps; a second payload does not.
#[test]
fn frequent_steps_are_taken() {
    let mut bed = Bed::new(QueueKind::Rc);
    let mut draft = bed.queue.begin();
    for operation in 0..4 {
        let step = Step {
            operation,
            flags: 2,
            payload: 2,
            length: 16,
        };
        let done = describe(&bed.queue, &mut draft, &step, &[0; 16], true);
        assert_eq!(done, if operation == 0 { 0 } else { 2 });
    }
    // SAFETY: nothing was posted since the batch was begun.
    assert!(unsafe { bed.queue.commit_frequent(&draft) });
    assert_eq!(bed.queue.head(), 4);
}

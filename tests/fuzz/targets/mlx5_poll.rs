//! A completion queue whose entries, records and work queues hold any bytes: polling ends, does not panic, and writes only
//! into the buffers that were posted.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use fuzz::Guarded;
use libfuzzer_sys::fuzz_target;
use oxverbs::data::mlx5::{
    Completion, CompletionQueue, CqParts, CqeVersion, KeySignature, QueueKind, QueueRecord,
    ReceiveSide, RecvShared, SendShared, SignatureKeys, UserIndexTable, WorkKind, WorkRecord,
};

const ENTRIES: u32 = 8;
const WQEBBS: u32 = 16;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Entries of 128 bytes.
    large: bool,
    by_number: bool,
    null_lkey: u32,
    /// What the device writes, an entry a time, before each poll: where, which owner bit, and what.
    writes: Vec<(u8, bool, [u8; 32])>,
    /// Lengths and keys of the scatter elements in the work queues.
    elements: [(u16, u32); 4],
    polls: u8,
}

fuzz_target!(|input: Input| {
    let size = if input.large { 128 } else { 64 };
    let ring = Guarded::new((ENTRIES * size) as usize);
    let (send_ring, recv_ring) = (
        Guarded::new(WQEBBS as usize * 64),
        Guarded::new(WQEBBS as usize * 64),
    );
    let (doorbell, uar, buffer) = (
        Guarded::new(8),
        Guarded::new(4096),
        Guarded::new(usize::from(u16::MAX) + 1),
    );
    // Scatter lists as a program would have posted them: the device cannot change the buffers' addresses, for the ring is
    // the program's; lengths and keys are any.
    for block in 0..WQEBBS as usize {
        for (slot, &(length, key)) in input.elements.iter().enumerate() {
            let mut element = [0; 16];
            element[..4].copy_from_slice(&u32::from(length).to_be_bytes());
            element[4..8].copy_from_slice(&key.to_be_bytes());
            let addr = buffer.start().as_ptr().expose_provenance() as u64;
            element[8..].copy_from_slice(&addr.to_be_bytes());
            for ring in [&send_ring, &recv_ring] {
                // SAFETY: four elements of 16 bytes fill a block of the ring.
                unsafe {
                    let at = ring.start().add(block * 64 + slot * 16);
                    at.cast::<[u8; 16]>().write(element);
                }
            }
        }
    }
    let table = UserIndexTable::new();
    for (number, kind) in [
        (1, QueueKind::Rc),
        (2, QueueKind::Ud),
        (3, QueueKind::XrcSend),
        (4, QueueKind::RawPacket),
        (5, QueueKind::Rwq),
    ] {
        let send = SendShared::new(send_ring.start(), WQEBBS, input.null_lkey);
        for wqebb in 0..WQEBBS {
            let record = WorkRecord {
                wr_id: u64::from(wqebb),
                head: wqebb + 1,
                opcode: [0x0a, 0x10, 0x11, 0x25][wqebb as usize % 4],
                kind: WorkKind::Plain,
            };
            send.set_record(wqebb, record);
        }
        let receive = ReceiveSide::Own(RecvShared::new(
            recv_ring.start(),
            WQEBBS,
            6,
            number == 2,
            input.null_lkey,
        ));
        // SAFETY: the rings outlive the record.
        let record = unsafe { QueueRecord::new(kind, number, 0, Some(send), receive, None) };
        table.insert(number, Arc::new(record)).expect("free");
    }
    let version = if input.by_number {
        CqeVersion::V0 {
            queue_pairs: Arc::clone(&table),
            shared_queues: table,
        }
    } else {
        CqeVersion::V1(table)
    };
    let key = Arc::new(KeySignature::new(1, 2));
    let signatures = Arc::new(SignatureKeys::default());
    signatures.insert(1, Arc::clone(&key));
    let parts = CqParts {
        ring: ring.start(),
        entries: ENTRIES,
        entry_size: size,
        cqn: 1,
        doorbell_record: doorbell.start().cast(),
        uar: uar.start(),
        version,
        clock: None,
        error_log: Arc::default(),
        signatures,
        memory: None,
    };
    // SAFETY: memory of these sizes for this queue alone; the buffers of the elements above are writable.
    let mut cq = unsafe { CompletionQueue::new(parts) }.expect("a valid geometry");
    let mut completions = [Completion::default(); 3];
    for write in input.writes.chunks(usize::from(input.polls) + 1) {
        for (at, owner, bytes) in write {
            let mut entry = *bytes;
            entry[31] = entry[31] & !1 | u8::from(*owner);
            let at = (u32::from(*at) % ENTRIES + 1) * size - 32;
            // SAFETY: the last 32 bytes of an entry.
            unsafe {
                let at = ring.start().add(at as usize);
                at.cast::<[u8; 32]>().write(entry);
            }
        }
        let before = cq.consumer_index();
        let count = cq.poll(&mut completions);
        assert!(count <= completions.len());
        let taken = cq.consumer_index().wrapping_sub(before);
        assert!(taken >= count as u32 && taken <= ENTRIES + completions.len() as u32);
        // Without a rule, no error is one that it explains.
        assert!(!matches!(key.check(), Ok(Some(_))));
        cq.arm(false);
    }
    for memory in [&ring, &send_ring, &recv_ring, &doorbell, &uar, &buffer] {
        memory.check();
    }
});

//! Sending raw Ethernet packets, for the tests that do.

use oxverbs::{MemoryRegion, QueuePair, RawPacket};

/// Posts a packet, which goes through the start of the region.
pub(crate) fn post(qp: &mut QueuePair<RawPacket>, region: &MemoryRegion, frame: &[u8]) {
    region.copy_in(0, frame);
    let sge = region.sge(0..frame.len());
    let mut batch = qp.send_batch();
    // SAFETY: the region is memory of this process.
    unsafe { batch.send(0) }.signaled().sges(&[sge]);
    // SAFETY: the region outlives the queue pair and is not changed before the completion.
    unsafe { batch.post() }.unwrap();
}

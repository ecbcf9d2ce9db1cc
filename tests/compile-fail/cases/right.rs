// The same calls, right: if this failed to compile, the others would prove nothing.
use oxverbs::{AddressHandle, QueuePair, Rc, RemoteMemory, Uc, Ud};

fn datagram(qp: &mut QueuePair<Ud>, ah: &AddressHandle) {
    let mut batch = qp.send_batch();
    batch.send(1, &ah.queue_pair(2, 3)).signaled().empty();
}

fn read(qp: &mut QueuePair<Rc>, from: RemoteMemory) {
    let mut batch = qp.send_batch();
    batch.read(1, from).empty();
}

fn unreliable(qp: &mut QueuePair<Uc>, to: RemoteMemory) {
    let mut batch = qp.send_batch();
    batch.write(1, to).inline(b"x");
    // SAFETY: the payload is inline.
    unsafe { batch.post() }.unwrap();
}

fn main() {
    let _ = (datagram, read, unreliable);
}

use oxverbs::{QueuePair, RemoteMemory, Uc};

fn f(qp: &mut QueuePair<Uc>, from: RemoteMemory) {
    let mut batch = qp.send_batch();
    batch.read(1, from).empty();
}

fn main() {
    let _ = f;
}

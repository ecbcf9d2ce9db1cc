use oxverbs::{QueuePair, RemoteMemory, Ud};

fn f(qp: &mut QueuePair<Ud>, to: RemoteMemory) {
    let mut batch = qp.send_batch();
    batch.write(1, to).empty();
}

fn main() {
    let _ = f;
}

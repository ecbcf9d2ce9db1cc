use oxverbs::{QueuePair, Ud};

fn f(qp: &mut QueuePair<Ud>) {
    let mut batch = qp.send_batch();
    batch.send(1).signaled().empty();
}

fn main() {
    let _ = f;
}

use oxverbs::{QueuePair, Rc};

fn f(qp: &mut QueuePair<Rc>) {
    let batch = qp.send_batch();
    batch.post().unwrap();
}

fn main() {
    let _ = f;
}

use oxverbs::{AddressHandle, Destination};

fn f(ah: AddressHandle) -> Destination<'static> {
    let to = ah.queue_pair(1, 2);
    drop(ah);
    to
}

fn main() {
    let _ = f;
}

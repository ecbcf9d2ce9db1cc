//! One suite of verbs behaviour that runs on any RDMA device.

fn main() {}

//! What to do about errors whose cause is outside the program.

pub(super) const NO_UVERBS: &str = "the kernel has no RDMA for user programs: load its modules \
     (`modprobe ib_uverbs`; for RoCE without hardware `modprobe rdma_rxe` and \
     `rdma link add rxe0 type rxe netdev eth0`)";

pub(super) const NO_DEVICE: &str = "this machine has no RDMA device; for RoCE without hardware \
     `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`";

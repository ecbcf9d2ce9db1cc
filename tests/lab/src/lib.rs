//! QEMU guests with Debian kernels in which RDMA programs run.

//! The fake kernel under unmodified C programs: a library for `LD_PRELOAD`.
//!
//! It defines the functions of libc by which libibverbs and its providers reach the kernel, answers those
//! that concern a fake device, and hands the rest on as plain system calls. Found devices come from a tree
//! like sysfs in a temporary directory, to which it points `SYSFS_PATH`; RDMA netlink is made to fail,
//! since libibverbs asks sysfs only without it.
//!
//! Environment: `OXVERBS_FAKE` has settings ([`fake_kernel::Config::parse`]), `OXVERBS_FAKE_RECORD` a file that
//! the calls are written to at exit. Programs can steer it by the functions of the module `control`.

mod control;
mod interpose;
mod process;

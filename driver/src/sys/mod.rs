//! The only place with system calls and memory mappings.

pub mod barrier;
pub mod errno;
pub mod eventfd;
pub mod fd;
pub mod host;
pub mod ioctl;
pub mod kernel;
pub mod limits;
pub mod mapping;
pub mod netlink;
pub mod pages;
pub mod poll;
pub mod process;
pub mod sysfs;
pub mod vfio;

pub use errno::Errno;

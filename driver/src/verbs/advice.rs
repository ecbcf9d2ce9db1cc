//! What to do about errors whose cause is outside the program.

use std::borrow::Cow;

use crate::error::Error;
use crate::sys::Errno;
use crate::sys::limits;

pub(super) const NO_UVERBS: &str = "the kernel has no RDMA for user programs: load its modules \
     (`modprobe ib_uverbs`; for RoCE without hardware `modprobe rdma_rxe` and \
     `rdma link add rxe0 type rxe netdev eth0`)";

pub(super) const NO_DEVICE: &str = "this machine has no RDMA device; for RoCE without hardware \
     `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`";

/// A device node that does not open.
pub(super) fn open(action: String, errno: Errno) -> Error {
    let advice = match errno.0 {
        libc::EACCES | libc::EPERM => {
            "this user may not use RDMA devices: run as root, or let a udev rule give the node away, \
             such as `KERNEL==\"uverbs*\", MODE=\"0666\"`"
        }
        libc::ENOENT => {
            "the node is missing: is udev running, and is /dev/infiniband shared with \
             this container?"
        }
        libc::ENODEV | libc::ENXIO => {
            "the device was removed, or belongs to another network \
             namespace (`rdma system show`)"
        }
        libc::EMFILE => "this process has too many files open (`ulimit -n`)",
        _ => return Error::kernel(action, errno),
    };
    Error::kernel(action, errno).advise(advice)
}

/// Memory that does not register.
pub(super) fn register(action: String, errno: Errno) -> Error {
    let advice: Cow<'static, str> = match errno.0 {
        libc::ENOMEM => locked_memory().into(),
        libc::ENOSPC => {
            "there are as many mappings as the IOMMU's driver grants: raise dma_entry_limit of \
             vfio_iommu_type1, or register fewer, larger ranges"
                .into()
        }
        libc::EFAULT => "the range is not mapped, or not writable although the access asks for \
             writing"
            .into(),
        libc::EINVAL => "the access rights do not go together (remote writing and atomics need \
             local writing), or the device does not have them"
            .into(),
        libc::EOPNOTSUPP => "the kernel or the device does not have this".into(),
        _ => return Error::kernel(action, errno),
    };
    Error::kernel(action, errno).advise(advice)
}

/// How much memory may be locked, and how to raise that.
pub(super) fn locked_memory() -> String {
    memlock(limits::memlock(), limits::pinned_kib())
}

fn memlock(limit: Option<u64>, pinned_kib: Option<u64>) -> String {
    let pinned = pinned_kib.map_or(String::new(), |kib| format!(", {kib} KiB are in use"));
    match limit {
        Some(limit) => format!(
            "locked memory is limited to {} KiB{pinned}; raise it with `ulimit -l`, in \
             /etc/security/limits.conf (memlock) or with LimitMEMLOCK= of the service",
            limit / 1024
        ),
        None => format!("locked memory is not limited{pinned}: the machine is out of memory"),
    }
}

/// A path that does not resolve.
pub(super) fn resolve(action: String, errno: Errno) -> Error {
    let advice = match errno.0 {
        libc::ETIMEDOUT => {
            "nobody answers ARP or neighbour discovery for the destination GID: is \
             the peer up, and do both ends use a GID of the same network (option -g)?"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            "there is no route to the destination GID from \
             the source GID's address: choose another source GID index"
        }
        libc::EINVAL => {
            "the port, the source GID index or the destination GID is not valid; RoCE \
             needs a GID of its own (option -g)"
        }
        libc::ENODATA | libc::ENOENT => "the source GID table has no such entry",
        _ => return Error::kernel(action, errno),
    };
    Error::kernel(action, errno).advise(advice)
}

/// A queue that is not made.
pub(super) fn create(action: String, errno: Errno) -> Error {
    let advice = match errno.0 {
        libc::ENOMEM => "the device or the kernel is out of room for such objects",
        libc::EINVAL => {
            "more entries, scatter/gather elements or inline bytes than the device has \
             (see its attributes)"
        }
        libc::EOPNOTSUPP => "the device does not have this",
        _ => return Error::kernel(action, errno),
    };
    Error::kernel(action, errno).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_says_the_limit_and_what_is_used() {
        let text = memlock(Some(65536), Some(12));
        assert!(
            text.starts_with("locked memory is limited to 64 KiB, 12 KiB are in use"),
            "{text}"
        );
        assert!(memlock(None, None).contains("out of memory"));
        let error = register("register 4096 bytes".into(), Errno(libc::ENOMEM)).to_string();
        assert!(error.contains("locked memory"), "{error}");
    }

    #[test]
    fn causes_are_told_apart() {
        let text = |error: Error| error.to_string();
        assert!(text(open("open x".into(), Errno(libc::EACCES))).contains("udev rule"));
        assert!(text(open("open x".into(), Errno(libc::ENODEV))).contains("namespace"));
        assert!(text(resolve("y".into(), Errno(libc::ETIMEDOUT))).contains("ARP"));
        assert!(text(resolve("y".into(), Errno(libc::ENETUNREACH))).contains("route"));
        assert!(text(create("z".into(), Errno(libc::EINVAL))).contains("more entries"));
        assert_eq!(
            text(create("z".into(), Errno(libc::EBUSY))),
            "cannot z: Device or resource busy (os error 16)"
        );
    }
}

use std::io;
use std::os::unix::fs::symlink;

use super::*;
use crate::control::vfio::linux::Address;

fn explained(error: VfioError) -> Error {
    let root = tempfile::tempdir().unwrap();
    let address = Address::parse("3b:00.0").unwrap();
    let directory = root.path().join("bus/pci/devices/0000:3b:00.0");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("vendor"), "0x15b3\n").unwrap();
    fs::write(directory.join("device"), "0x101b\n").unwrap();
    let function = Function::read(root.path(), address).unwrap();
    explain(&function, 31, error)
}

#[test]
fn each_error_says_what_to_do() {
    let io = io::Error::from_raw_os_error;
    let group = |errno| VfioError::OpenGroup(io(errno), "31".into());
    for (error, errno, part) in [
        (
            VfioError::OpenContainer(io(libc::EACCES)),
            Some(libc::EACCES),
            "chown $USER /dev/vfio/vfio",
        ),
        (
            VfioError::OpenContainer(io(libc::ENOENT)),
            Some(libc::ENOENT),
            "modprobe -a vfio-pci",
        ),
        (
            group(libc::EACCES),
            Some(libc::EACCES),
            "chown $USER /dev/vfio/31",
        ),
        (group(libc::EBUSY), Some(libc::EBUSY), "uses /dev/vfio/31"),
        (
            group(libc::ENOENT),
            Some(libc::ENOENT),
            "/dev/vfio/31 is missing",
        ),
        (VfioError::GroupViable, None, "iommu_groups/31"),
        (VfioError::GroupSetContainer, None, "uses /dev/vfio/31"),
        (VfioError::VfioExtension, None, "vfio_iommu_type1"),
        (VfioError::VfioApiVersion, None, "API version"),
    ] {
        let error = explained(error);
        assert_eq!(error.errno(), errno, "{error}");
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
        assert!(
            text.starts_with("cannot open 0000:3b:00.0 by VFIO (group 31)"),
            "{text}"
        );
    }
}

#[test]
fn who_has_a_file_open_is_found() {
    let proc = tempfile::tempdir().unwrap();
    let add = |process: &str, comm: &str, target: &str| {
        let files = proc.path().join(process).join("fd");
        fs::create_dir_all(&files).unwrap();
        symlink(target, files.join("3")).unwrap();
        fs::write(proc.path().join(process).join("comm"), format!("{comm}\n")).unwrap();
    };
    add("17", "dpdk-testpmd", "/dev/vfio/31");
    add("18", "bash", "/dev/null");
    add("self", "me", "/dev/vfio/31");
    let found = users_of(proc.path(), Path::new("/dev/vfio/31"));
    assert_eq!(found, ["process 17 (dpdk-testpmd)"]);
}

//! Debian's unmodified libibverbs and rxe provider on the fake kernel: the fake kernel's own test.

mod common;

use common::{compile, has_official, on_fake, succeed};

#[test]
fn ibv_devinfo_describes_the_device() {
    if !has_official("fake-kernel::official::ibv_devinfo_describes_the_device") {
        return;
    }
    let Some(devinfo) = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|dir| dir.join("ibv_devinfo"))
        .find(|path| path.exists())
    else {
        return test_support::skip(
            "fake-kernel::official::ibv_devinfo_describes_the_device",
            "ibverbs-utils is not installed",
        );
    };
    let mut command = on_fake(&devinfo, "devices=2");
    command.arg("-v");
    let output = succeed(command);
    for line in [
        "hca_id:\trxe0",
        "hca_id:\trxe1",
        "max_cqe:\t\t\t32767",
        "num_comp_vectors:\t\t2",
        "state:\t\t\tPORT_ACTIVE (4)",
        "GID[  1]:\t\t::ffff:127.0.0.1, RoCE v2",
        "GID[  1]:\t\t::ffff:127.0.0.2, RoCE v2",
    ] {
        assert!(output.contains(line), "{line:?} is not in:\n{output}");
    }
}

fn traffic(test: &str, settings: &str) {
    if !has_official(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("traffic", dir.path());
    let output = succeed(on_fake(&program, settings));
    assert_eq!(output, "ok\n");
}

/// RC, UC and UD traffic of every kind, shared queues, events, windows, errors: all checked in C.
#[test]
fn traffic_on_linux_6_12() {
    traffic("fake-kernel::official::traffic_on_linux_6_12", "");
}

/// B62: a kernel without the ioctl gets the same by `write()`.
#[test]
fn traffic_without_the_ioctl() {
    traffic(
        "fake-kernel::official::traffic_without_the_ioctl",
        "no-ioctl",
    );
}

/// B62: a kernel whose ioctl does not take write commands.
#[test]
fn traffic_without_invoke_write() {
    traffic(
        "fake-kernel::official::traffic_without_invoke_write",
        "no-invoke-write",
    );
}

/// B62: a kernel whose ioctl lacks methods that came later.
#[test]
fn traffic_without_young_methods() {
    traffic(
        "fake-kernel::official::traffic_without_young_methods",
        "without=UVERBS_METHOD_CQ_CREATE,without=UVERBS_METHOD_QP_CREATE,\
         without=UVERBS_METHOD_SRQ_CREATE,without=UVERBS_METHOD_QUERY_PORT",
    );
}

/// B30: a kernel without address handle numbers is given the address vector.
#[test]
fn traffic_without_address_handle_numbers() {
    traffic(
        "fake-kernel::official::traffic_without_address_handle_numbers",
        "no-ah-num",
    );
}

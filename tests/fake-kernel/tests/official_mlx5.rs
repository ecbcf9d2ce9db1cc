//! Debian's unmodified libibverbs and libmlx5 on the fake kernel.

mod common;

use common::{compile_with, has_provider, on_fake, succeed};

fn devinfo(test: &str, settings: &str) -> Option<String> {
    if !has_provider(test, "libmlx5-rdmav") {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(devinfo) = std::env::split_paths(&path)
        .map(|dir| dir.join("ibv_devinfo"))
        .find(|path| path.exists())
    else {
        test_support::skip(test, "ibverbs-utils is not installed");
        return None;
    };
    let mut command = on_fake(&devinfo, settings);
    command.arg("-v");
    Some(succeed(command))
}

#[test]
fn ibv_devinfo_describes_the_device() {
    let Some(output) = devinfo(
        "fake-kernel::official_mlx5::ibv_devinfo_describes_the_device",
        "mlx5,devices=2",
    ) else {
        return;
    };
    for line in [
        "hca_id:\tmlx5_0",
        "hca_id:\tmlx5_1",
        "fw_ver:\t\t\t\t16.35.2000",
        "vendor_part_id:\t\t\t4121",
        "max_cqe:\t\t\t4194303",
        "link_layer:\t\tEthernet",
        "GID[  3]:\t\t::ffff:127.0.0.1, RoCE v2",
        "max_tso:\t\t\t262144",
    ] {
        assert!(output.contains(line), "{line:?} is not in:\n{output}");
    }
}

#[test]
fn ibv_devinfo_describes_an_infiniband_port() {
    let Some(output) = devinfo(
        "fake-kernel::official_mlx5::ibv_devinfo_describes_an_infiniband_port",
        "mlx5,link=ib",
    ) else {
        return;
    };
    for line in ["link_layer:\t\tInfiniBand", "port_lid:\t\t17"] {
        assert!(output.contains(line), "{line:?} is not in:\n{output}");
    }
}

fn program(test: &str, name: &str, settings: &str) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile_with(name, dir.path(), &["-DWITH_MLX5DV", "-lmlx5"]);
    let mut command = on_fake(&program, settings);
    if !settings.contains("no-clock") {
        command.env("EXPECT_CLOCK", "1");
    }
    assert_eq!(succeed(command), "ok\n", "{settings}");
}

#[test]
fn first_write() {
    for settings in [
        "mlx5",
        "mlx5,cqe-version=0",
        "mlx5,tot-bfregs=16",
        "mlx5,no-bf,no-devx,no-clock",
    ] {
        program(
            "fake-kernel::official_mlx5::first_write",
            "mlx5_first",
            settings,
        );
    }
}

#[test]
fn every_kind_of_object() {
    for settings in [
        "mlx5",
        "mlx5,cqe-version=0",
        "mlx5,tot-bfregs=16",
        "mlx5,no-bf,no-devx,no-clock",
    ] {
        program(
            "fake-kernel::official_mlx5::every_kind_of_object",
            "mlx5_objects",
            settings,
        );
    }
}

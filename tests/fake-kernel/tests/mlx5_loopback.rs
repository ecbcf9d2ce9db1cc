//! Traffic of every kind between queue pairs of one C program, executed by the loopback device: under Debian's
//! libmlx5 and under our plug-in.

mod common;

use std::path::Path;

use common::{compile, compile_with, has_provider, on_fake, plugin, succeed};

/// Kernels and devices of different age.
const SETTINGS: [&str; 4] = [
    "mlx5,run",
    "mlx5,run,cqe-version=0",
    "mlx5,run,tot-bfregs=16",
    "mlx5,run,no-bf,no-devx",
];

/// What changes the program's side: sizes of completions, payloads in them, who locks, how work is rung.
const ENVIRONMENTS: [(&str, &str); 4] = [
    ("MLX5_CQE_SIZE", "128"),
    ("MLX5_SCATTER_TO_CQE", "0"),
    ("MLX5_SINGLE_THREADED", "1"),
    ("MLX5_SHUT_UP_BF", "1"),
];

/// Parts of the program that our plug-in runs: all but dynamic connections, which need libmlx5's own interface.
const PARTS: [&str; 9] = [
    "rc", "uc", "resize", "srq", "ud", "events", "windows", "xrc", "errors",
];

/// Kinds of objects that our plug-in makes.
const OBJECTS: [&str; 8] = ["srq", "xrc", "open", "ud", "rss", "memory", "domains", "cq"];

/// The program under libmlx5, with its own interface for dynamic connections.
fn official(test: &str, settings: &[&str], environments: &[(&str, &str)]) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let libraries = ["-DWITH_MLX5DV", "-lmlx5"];
    let program = compile_with("mlx5_traffic", dir.path(), &libraries);
    for settings in settings {
        let mut command = on_fake(&program, settings);
        command.env("EXPECT_PROVIDER", "libmlx5");
        assert_eq!(succeed(command), "ok\n", "{settings}");
    }
    for (name, value) in environments {
        let mut command = on_fake(&program, SETTINGS[0]);
        command.env("EXPECT_PROVIDER", "libmlx5").env(name, value);
        assert_eq!(succeed(command), "ok\n", "{name}={value}");
    }
}

fn ours(
    program: &Path,
    plugin: &Path,
    parts: &[&str],
    settings: &str,
    environment: Option<(&str, &str)>,
) {
    let mut command = on_fake(program, settings);
    command
        .args(parts)
        .env("IBV_DRIVERS", plugin)
        // mlx5 devices are ours on request only.
        .env("OXVERBS_DEVICES", "mlx5_0")
        .env("EXPECT_PROVIDER", "oxverbs")
        .envs(environment);
    assert_eq!(succeed(command), "ok\n", "{settings} {environment:?}");
}

#[test]
fn libmlx5_on_every_device() {
    let name = "fake-kernel::mlx5_loopback::libmlx5_on_every_device";
    official(name, &SETTINGS, &[]);
}

#[test]
fn libmlx5_in_every_environment() {
    let name = "fake-kernel::mlx5_loopback::libmlx5_in_every_environment";
    official(name, &[], &ENVIRONMENTS);
}

#[test]
fn our_plugin() {
    if !has_provider("fake-kernel::mlx5_loopback::our_plugin", "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("mlx5_traffic", dir.path());
    let plugin = plugin(dir.path());
    for settings in SETTINGS {
        ours(&program, &plugin, &PARTS, settings, None);
    }
    for environment in ENVIRONMENTS {
        ours(&program, &plugin, &PARTS, SETTINGS[0], Some(environment));
    }
}

#[test]
fn our_plugin_makes_objects() {
    let name = "fake-kernel::mlx5_loopback::our_plugin_makes_objects";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("mlx5_objects", dir.path());
    let plugin = plugin(dir.path());
    for settings in SETTINGS {
        ours(&program, &plugin, &OBJECTS, settings, None);
    }
}

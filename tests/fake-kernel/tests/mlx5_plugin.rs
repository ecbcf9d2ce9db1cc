//! mlx5 devices: the same C program under Debian's libmlx5 and under our plug-in, on the fake kernel.

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use common::{compile, has_provider, on_fake, plugin, succeed};

/// What the program prints under one provider.
fn under(program: &Path, ours: Option<&Path>, settings: &str, part: &str) -> String {
    let mut command = on_fake(program, settings);
    command.arg(part);
    if let Some(plugin) = ours {
        command
            .env("IBV_DRIVERS", plugin)
            // mlx5 devices are ours on request only.
            .env("OXVERBS_DEVICES", "mlx5_0")
            .env("EXPECT_PROVIDER", "oxverbs");
    } else {
        command.env("EXPECT_PROVIDER", "libmlx5");
    }
    succeed(command)
}

/// Compares the transcripts of some parts of `mlx5_control.c`.
fn same(test: &str, settings: &str, parts: &[&str]) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("mlx5_control", dir.path());
    let plugin = plugin(dir.path());
    for part in parts {
        let official = under(&program, None, settings, part);
        let ours = under(&program, Some(&plugin), settings, part);
        assert!(official.lines().count() > 3, "{official}");
        for (official, ours) in official.lines().zip(ours.lines()) {
            assert_eq!(official, ours, "{settings}: {part} (left: libmlx5)");
        }
        assert_eq!(official.lines().count(), ours.lines().count());
    }
}

/// Sizes that are granted, numbers that are answered, the errno of what is refused.
#[test]
fn control_verbs_answer_as_libmlx5s() {
    let parts = [
        "device", "regions", "cq", "qp", "srq", "ah", "states", "xrc", "domains", "wq", "dm",
        "flow",
    ];
    let name = "fake-kernel::mlx5_plugin::control_verbs_answer_as_libmlx5s";
    same(name, "mlx5", &parts);
}

/// The same on a kernel that gives doorbell registers with the context, and completions that name their queue by number.
#[test]
fn control_verbs_answer_as_libmlx5s_on_older_kernels() {
    let parts = ["device", "regions", "qp", "srq", "ah", "states"];
    let name = "fake-kernel::mlx5_plugin::control_verbs_answer_as_libmlx5s_on_older_kernels";
    for settings in [
        "mlx5,tot-bfregs=16",
        "mlx5,cqe-version=0",
        "mlx5,no-bf,no-devx",
    ] {
        same(name, settings, &parts);
    }
    // Without the kernel's clock there are no wall-clock times.
    same(name, "mlx5,no-clock", &["cq"]);
    // The program's way to RTS goes over Ethernet.
    same(name, "mlx5,link=ib", &parts[..5]);
}

/// The program about the builder's lock, under one provider.
fn builder(program: &Path, ours: Option<&Path>, environment: &[(&str, &str)]) -> Command {
    let mut command = on_fake(program, "mlx5,run");
    if let Some(plugin) = ours {
        command
            .env("IBV_DRIVERS", plugin)
            .env("OXVERBS_DEVICES", "mlx5_0");
    }
    command
        .env("EXPECT_STATE_GATE", "1")
        .env(
            "EXPECT_PROVIDER",
            if ours.is_some() { "oxverbs" } else { "libmlx5" },
        )
        .envs(environment.iter().copied());
    command
}

/// B56: the builder's lock is free after every way out, and a failed or aborted batch leaves nothing: with a lock, and
/// without one in a thread domain or where the program says that it has one thread.
#[test]
fn the_builders_lock_is_always_released() {
    let name = "fake-kernel::mlx5_plugin::the_builders_lock_is_always_released";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("builder", dir.path());
    let plugin = plugin(dir.path());
    for environment in [
        &[][..],
        &[("THREAD_DOMAIN", "1")],
        &[("MLX5_SINGLE_THREADED", "1")],
    ] {
        for ours in [None, Some(plugin.as_path())] {
            assert_eq!(succeed(builder(&program, ours, environment)), "ok\n");
        }
    }
}

/// B56: who promised one thread and comes twice at once is stopped, as by libmlx5, before a ring is damaged.
#[test]
fn a_broken_promise_ends_the_program() {
    let name = "fake-kernel::mlx5_plugin::a_broken_promise_ends_the_program";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("builder", dir.path());
    let plugin = plugin(dir.path());
    for promise in ["THREAD_DOMAIN", "MLX5_SINGLE_THREADED"] {
        for ours in [None, Some(plugin.as_path())] {
            let environment = [(promise, "1"), ("BREAK_PROMISE", "1")];
            let output = builder(&program, ours, &environment)
                .output()
                .expect("timeout(1) of coreutils");
            // timeout(1) passes the signal on.
            let signal = output
                .status
                .signal()
                .or(output.status.code().map(|c| c - 128));
            assert_eq!(signal, Some(libc::SIGABRT), "{promise} {ours:?} {output:?}");
            if ours.is_some() {
                let words = String::from_utf8_lossy(&output.stderr);
                assert!(words.contains("made for one"), "{words}");
            }
        }
    }
}

/// An XRC target that somebody else made is opened and closed (which libmlx5 44 does not survive).
#[test]
fn an_opened_xrc_target_closes() {
    let name = "fake-kernel::mlx5_plugin::an_opened_xrc_target_closes";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("mlx5_control", dir.path());
    let mut command = on_fake(&program, "mlx5");
    command
        .arg("xrc")
        .env("OPEN_QP", "1")
        .env("IBV_DRIVERS", plugin(dir.path()))
        .env("OXVERBS_DEVICES", "mlx5_0")
        .env("EXPECT_PROVIDER", "oxverbs");
    let output = succeed(command);
    assert!(output.contains("open: ok same number 1\n"), "{output}");
}

/// A device that nobody asked us to take is left alone, even if there is no other provider.
#[test]
fn devices_are_taken_on_request_only() {
    let name = "fake-kernel::mlx5_plugin::devices_are_taken_on_request_only";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("mlx5_control", dir.path());
    let provider = |devices: Option<&str>, marker: bool| {
        let home = tempfile::tempdir().expect("a temporary directory");
        // The marker counts beside the file itself, not beside a link to it.
        let link = plugin(home.path()).with_file_name("liboxverbs-rdmav34.so");
        let file = std::fs::read_link(&link).expect("a link");
        std::fs::remove_file(&link).expect("it can be removed");
        std::fs::copy(file, &link).expect("a copy");
        if marker {
            std::fs::write(home.path().join("claim-mlx5"), "").expect("a file");
        }
        let mut command = on_fake(&program, "mlx5");
        command
            .arg("regions")
            .env("IBV_DRIVERS", home.path().join("liboxverbs"));
        if let Some(devices) = devices {
            command.env("OXVERBS_DEVICES", devices);
        }
        command.env("EXPECT_PROVIDER", "oxverbs");
        command.output().expect("timeout(1)").status.success()
    };
    assert!(!provider(None, false));
    assert!(provider(None, true));
    assert!(provider(Some("mlx5_0"), false));
    assert!(!provider(Some("mlx5_1"), true));
}

//! Our provider plug-in, loaded by Debian's libibverbs, on the fake kernel: what the official provider
//! does there, and every kernel call of every object failing once.

mod common;

use std::process::Command;

use common::{compile, has_official, on_fake, plugin, succeed};

fn with_plugin(test: &str, program: &str, settings: &str) -> Option<(tempfile::TempDir, Command)> {
    if !has_official(test) {
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile(program, dir.path());
    let mut command = on_fake(&program, settings);
    command
        .env("IBV_DRIVERS", plugin(dir.path()))
        .env("EXPECT_PROVIDER", "oxverbs");
    Some((dir, command))
}

fn traffic(test: &str, settings: &str) {
    let Some((_dir, command)) = with_plugin(test, "traffic", settings) else {
        return;
    };
    assert_eq!(succeed(command), "ok\n");
}

/// B45: destroying waits for acknowledgements and takes back what nobody fetched, among the rest.
#[test]
fn traffic_on_linux_6_12() {
    traffic("fake-kernel::plugin::traffic_on_linux_6_12", "");
}

/// B62: a kernel without the ioctl gets the same by `write()`.
#[test]
fn traffic_without_the_ioctl() {
    traffic("fake-kernel::plugin::traffic_without_the_ioctl", "no-ioctl");
}

/// B62: a kernel whose ioctl does not take write commands.
#[test]
fn traffic_without_invoke_write() {
    traffic(
        "fake-kernel::plugin::traffic_without_invoke_write",
        "no-invoke-write",
    );
}

/// B56: the builder's lock is free after every way out, and a failed or aborted batch leaves nothing.
#[test]
fn the_builders_lock_is_always_released() {
    let name = "fake-kernel::plugin::the_builders_lock_is_always_released";
    let Some((_dir, mut command)) = with_plugin(name, "builder", "") else {
        return;
    };
    command.env("EXPECT_STATE_GATE", "1");
    assert_eq!(succeed(command), "ok\n");
}

/// Numbers of calls per object, from lines `cq errno 12: 3 calls`.
fn print_calls(who: &str, output: &str) {
    let counts: Vec<_> = output
        .lines()
        .filter_map(|line| line.split_once(" errno 12: "))
        .map(|(object, calls)| format!("{object} {}", calls.trim_end_matches(" calls")))
        .collect();
    assert_eq!(counts.len(), 9, "{output}");
    println!(
        "{who}, kernel calls made to fail per object: {}",
        counts.join(", ")
    );
}

/// Each call of open, create and destroy of each object fails with ENOMEM, EINTR, EIO, or is answered
/// short: the errno comes out; no descriptor, mapping or kernel object is left.
#[test]
fn each_kernel_call_fails_once() {
    let name = "fake-kernel::plugin::each_kernel_call_fails_once";
    let Some((_dir, mut command)) = with_plugin(name, "faults", "") else {
        return;
    };
    command.env("SHORT_ANSWERS", "1");
    print_calls("plug-in", &succeed(command));
}

/// The control: the official provider under the same faults.
#[test]
fn each_kernel_call_fails_once_for_the_official_provider() {
    let name = "fake-kernel::plugin::each_kernel_call_fails_once_for_the_official_provider";
    if !has_official(name) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile("faults", dir.path());
    let mut command = on_fake(&program, "");
    command.env("EXPECT_PROVIDER", "librxe");
    print_calls("official", &succeed(command));
}

/// The same faults under valgrind: no heap block is lost.
#[test]
fn no_fault_leaks_memory() {
    let name = "fake-kernel::plugin::no_fault_leaks_memory";
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return test_support::skip(name, "valgrind is not installed");
    }
    let Some((dir, command)) = with_plugin(name, "faults", "") else {
        return;
    };
    let mut checked = Command::new("timeout");
    checked
        .args(["300", "valgrind", "-q", "--leak-check=full"])
        .args([
            // Copies by process_vm_writev are invisible to valgrind's notion of initialised memory.
            "--undef-value-errors=no",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
            "--error-exitcode=9",
        ]);
    checked
        .arg(dir.path().join("faults"))
        .env("SHORT_ANSWERS", "1");
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => checked.env(key, value),
            None => checked.env_remove(key),
        };
    }
    print_calls("plug-in under valgrind", &succeed(checked));
}

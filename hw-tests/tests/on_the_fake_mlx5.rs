//! The suite on the fake kernel's mlx5, whose loopback device executes what is posted: under our plug-in, and as a control
//! under Debian's libmlx5.
//!
//! The suite was written with rxe at hand. What fails here is libmlx5's behaviour, which programs know and our plug-in has
//! too; each such case is named with its reason, and must fail under libmlx5 as well.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cases that fail under libmlx5 and under ours, up to a `*`, and why.
const KNOWN: &[(&str, &str)] = &[
    (
        "state/rc/post/*",
        "a send queue before RTS is a full one to libmlx5: ENOMEM, not EINVAL",
    ),
    ("state/uc/post/*", "as above"),
    ("state/ud/post/*", "as above"),
    (
        "cq/overflow/event_and_no_garbage[B09]",
        "the device fills the entry that the program was not promised",
    ),
    (
        "srq/size/*",
        "a query tells of the entries for pages on demand too",
    ),
    (
        "query/gid/table_against_sysfs",
        "the fake kernel's sysfs is not at /sys",
    ),
];

fn is_known(case: &str) -> bool {
    KNOWN.iter().any(|(name, _)| match name.strip_suffix('*') {
        Some(start) => case.starts_with(start),
        None => case == *name,
    })
}

/// A file that cargo builds beside the tests.
fn beside(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let file = exe.with_file_name(name);
    assert!(file.exists(), "{} is not there", file.display());
    file
}

/// Whether Debian's libmlx5 is installed.
fn has_libmlx5() -> bool {
    ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .iter()
        .filter_map(|triple| std::fs::read_dir(format!("/usr/lib/{triple}/libibverbs")).ok())
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libmlx5-"))
}

/// Cases that passed, and those that failed.
fn run(
    plugin: Option<&Path>,
    (settings, gid_index): (&str, &str),
    filter: Option<&str>,
) -> (usize, BTreeSet<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hw-tests"));
    command
        .args(["--device", "mlx5_0", "--provider", "libibverbs"])
        .args(["--gid-index", gid_index])
        .env("LD_PRELOAD", beside("libfake_kernel_preload.so"))
        .env("OXVERBS_FAKE", settings)
        .env_remove("SYSFS_PATH")
        .env_remove("IBV_DRIVERS");
    if let Some(plugin) = plugin {
        command
            .env("IBV_DRIVERS", plugin)
            .env("OXVERBS_DEVICES", "mlx5_0");
    }
    if let Some(filter) = filter {
        command.args(["--filter", filter]);
    }
    let output = command.output().expect("the suite");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended = |how: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
            .filter(|(_, end)| end.starts_with(how))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let (passed, failed) = (ended("ok").len(), ended("FAILED"));
    let closing = text.lines().last().unwrap_or_default();
    assert!(
        closing.starts_with(&format!("{passed} passed, {} failed", failed.len())),
        "{closing}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (passed, failed)
}

/// Runs the cases under our plug-in; those that fail must be known, and fail under libmlx5 too. How many passed.
fn compare(test: &str, device: (&str, &str), filter: Option<&str>) -> Option<usize> {
    if !has_libmlx5() {
        test_support::skip(test, "libibverbs1 or ibverbs-providers is not installed");
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    for abi in [34, 57, 59, 64, 65] {
        let name = dir.path().join(format!("liboxverbs-rdmav{abi}.so"));
        std::os::unix::fs::symlink(beside("liboxverbs_ffi.so"), name).expect("a link");
    }
    let plugin = dir.path().join("liboxverbs");
    let (passed, failed) = run(Some(&plugin), device, filter);
    let unknown: Vec<_> = failed.iter().filter(|case| !is_known(case)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let escaped: Vec<String> = failed
        .iter()
        .map(|case| case.replace('[', "\\[").replace(']', "\\]"))
        .collect();
    let filter = format!("^({})$", escaped.join("|"));
    let (_, official) = run(None, device, Some(&filter));
    assert_eq!(failed, official, "left: ours, right: libmlx5");
    Some(passed)
}

/// B02, B03, B04, B06, B08, B09, B14 to B17, B19 to B22, B27, B32, B37, B38, B40, B43, B45, B48, B50, B58, B60: all cases
/// pass under our plug-in but those in which libmlx5 differs from the suite, and in them it does.
#[test]
fn our_plugin_passes_all_but_what_libmlx5_has_too() {
    let test = "hw-tests::on_the_fake_mlx5::our_plugin_passes_all_but_what_libmlx5_has_too";
    if let Some(passed) = compare(test, ("mlx5,run", "1"), None) {
        assert!(passed >= 800, "only {passed} cases passed");
    }
}

/// Paths by LID, and datagrams with and without a global route header.
#[test]
fn infiniband() {
    let test = "hw-tests::on_the_fake_mlx5::infiniband";
    let filter = "^(transfer/ud|post/ud|ah|window|event/arm|query)";
    if let Some(passed) = compare(test, ("mlx5,run,link=ib", "0"), Some(filter)) {
        assert!(passed >= 50, "only {passed} cases passed");
    }
}

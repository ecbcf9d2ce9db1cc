//! The suite on the software ConnectX in the process, through the userspace driver: no kernel driver, no privilege.
//!
//! Nothing may fail here. What the device does not do is a skip, which the case names with its source.

use std::collections::BTreeSet;
use std::process::Command;

/// Areas that the driver has most of its own code for; no case in them waits for long.
const DRIVER: &str = "^(srq|window|multicast|mr|pd|ah|qp|query|event|state/rc|atomic|invalidate|inline/rc/read\
    |null|clock|rss)";

/// Runs cases, of which none fails. How many passed.
fn run(device: &str, gid_index: &str, filter: &str, more: &[&str]) -> usize {
    let output = Command::new(env!("CARGO_BIN_EXE_hw-tests"))
        .args(["--device", device, "--gid-index", gid_index])
        .args(["--filter", filter])
        .args(more)
        .output()
        .expect("the suite");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended = |how: &str| -> BTreeSet<&str> {
        text.lines()
            .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
            .filter(|(_, end)| end.starts_with(how))
            .map(|(name, _)| name)
            .collect()
    };
    let (passed, failed) = (ended("ok").len(), ended("FAILED"));
    let closing = text.lines().last().unwrap_or_default();
    assert!(
        closing.starts_with(&format!("{passed} passed, {} failed", failed.len())),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(failed.is_empty(), "{text}");
    passed
}

/// B37, B45, B58 and what else a driver can get wrong in its commands.
#[test]
fn on_ethernet() {
    let passed = run("soft", "1", DRIVER, &[]);
    assert!(passed >= 228, "only {passed} cases passed");
}

/// Paths by LID, and datagrams with and without a global route header.
#[test]
fn on_infiniband() {
    let passed = run(
        "soft-ib",
        "0",
        "^(transfer/ud|post/ud|ah|query|multicast|srq/rc|null|clock)",
        &[],
    );
    assert!(passed >= 85, "only {passed} cases passed");
}

/// A virtual function can do all that its physical one can, as far as programs go.
#[test]
fn on_a_virtual_function() {
    let filter = "^(transfer/rc/send|counters|query|mr|rss|multicast|event/port)";
    for (device, gid_index, least) in [("soft-vf", "1", 115), ("soft-ib-vf", "0", 105)] {
        let passed = run(device, gid_index, filter, &["--keep-open"]);
        assert!(passed >= least, "only {passed} cases passed on {device}");
    }
}

/// The device stays open from one case to the next, which finds nothing of the one before.
#[test]
fn on_a_device_that_stays_open() {
    let filter = "^(srq|window|mr|pd|qp|query|event|fork|null|clock)";
    let passed = run("soft-ib", "0", filter, &["--keep-open"]);
    assert!(passed >= 135, "only {passed} cases passed");
}

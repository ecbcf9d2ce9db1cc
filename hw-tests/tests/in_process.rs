//! The suite on the software ConnectX in the process, through the userspace driver: no kernel driver, no privilege.
//!
//! What fails here, and is not the driver's fault, is named with its reason, and must fail: a case that was mended leaves
//! the list.

use std::collections::BTreeSet;
use std::process::Command;

/// Cases that fail, on which ports, and why.
const KNOWN: &[(&str, Port, &str)] = &[
    (
        "inline/rc/read_refused",
        Port::Any,
        "the data path ignores the flag on reads and atomics, as libmlx5's",
    ),
    (
        "srq/limit/above_size_refused",
        Port::Any,
        "the size is known with the entries for pages on demand, as mlx5_ib's",
    ),
    (
        "atomic/fetch_add/entry_of_7_bytes[B50]",
        Port::Any,
        "the length of an atomic's element is 8, whatever it says",
    ),
    (
        "window/type1/region_without_mw_bind",
        Port::Any,
        "a memory key has no bit for that right (`mlx5_ifc.h` `mkc`), and nobody else looks",
    ),
    ("window/type2/region_without_mw_bind", Port::Any, "as above"),
    (
        "window/type1/beyond_the_region",
        Port::Any,
        "the device model looks at what a window leads to when it is used, not when it is bound",
    ),
    ("window/type2/beyond_the_region", Port::Any, "as above"),
    (
        "qp/caps/send_sge_over_max_refused",
        Port::Any,
        "nobody checks it but by the longest work request",
    ),
    ("qp/caps/recv_sge_over_max_refused", Port::Any, "as above"),
    (
        "ah/bad_sgid_index",
        Port::InfiniBand,
        "on InfiniBand the device's driver does not know of address handles",
    ),
    ("ah/domain_in_use_refused", Port::InfiniBand, "as above"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Any,
    InfiniBand,
}

/// Areas that the driver has most of its own code for; no case in them waits for long.
const DRIVER: &str =
    "^(srq|window|multicast|mr|pd|ah|qp|query|event|state/rc|atomic|invalidate|inline/rc/read)";

/// Runs cases; those that fail must be the known ones. How many passed.
fn run(device: &str, gid_index: &str, filter: &str) -> usize {
    let output = Command::new(env!("CARGO_BIN_EXE_hw-tests"))
        .args(["--device", device, "--gid-index", gid_index])
        .args(["--filter", filter])
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
    let filter = regex::Regex::new(filter).expect("a regular expression");
    let is_infiniband = device.starts_with("soft-ib");
    let known: BTreeSet<&str> = (KNOWN.iter())
        .filter(|(_, port, _)| *port == Port::Any || is_infiniband)
        .map(|(name, ..)| *name)
        .filter(|name| filter.is_match(name))
        .collect();
    assert_eq!(failed, known, "left: failed, right: known\n{text}");
    passed
}

/// B37, B45, B58 and what else a driver can get wrong in its commands.
#[test]
fn on_ethernet() {
    let passed = run("soft", "1", DRIVER);
    assert!(passed >= 210, "only {passed} cases passed");
}

/// Paths by LID, and datagrams with and without a global route header.
#[test]
fn on_infiniband() {
    let passed = run(
        "soft-ib",
        "0",
        "^(transfer/ud|post/ud|ah|query|multicast|srq/rc)",
    );
    assert!(passed >= 70, "only {passed} cases passed");
}

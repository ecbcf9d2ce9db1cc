//! Debian packages that tests on the host need: installed where that needs no asking, named where it does.

use std::process::{Command, Stdio};

/// What the tests on the fake kernel compile against and run.
const PACKAGES: [&str; 4] = [
    "libibverbs-dev",
    "ibverbs-providers",
    "ibverbs-utils",
    "valgrind",
];

/// Installs what is missing if this is Debian and we are root; else says what is missing. Tests that need it skip
/// themselves by name.
pub(crate) fn prepare() {
    let missing: Vec<&str> = PACKAGES
        .into_iter()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return;
    }
    let list = missing.join(" ");
    if !is_root() || !(install(&missing) || (apt_get(&["update"]) && install(&missing))) {
        println!("not installed, so some tests will be skipped: apt-get install {list}");
    }
}

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    status.is_ok_and(|output| output.stdout == b"installed")
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn install(packages: &[&str]) -> bool {
    println!("installing {}", packages.join(" "));
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> bool {
    Command::new("apt-get")
        .arg("--quiet=2")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

//! Whether a program goes on with the official provider where ours does not know libibverbs.
//!
//! A program that links libmlx5.so.1 has ours mapped whatever libibverbs it finds. Ours has to say in one line why it does not
//! register, and libibverbs then loads the official provider, as it does for programs that do not link libmlx5.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use lab::drop_in;

/// Prints what a device says of itself through libibverbs.
const PROGRAM: &str = include_str!("refusal.c");

/// File names under which Debian's libibverbs (rdma-core 56) is another one's, and what ours says of each.
const OTHERS: [(&str, &str); 4] = [
    (
        "libibverbs.so.1.14.99.1",
        "is of rdma-core 99; this build knows",
    ),
    // Versions of vendors' builds, which change private parts.
    (
        "libibverbs.so.1.14.2501060.0",
        "is of rdma-core 2501060; this build knows",
    ),
    ("libibverbs.so.1-vendor", "can't tell the rdma-core release"),
    // It claims to be newer than what it registers providers by.
    (
        "libibverbs.so.1.18.65.0",
        "should register providers by number 65, but does not",
    ),
];

/// What the program did.
#[derive(Debug, PartialEq)]
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// What ours said; libibverbs complains by itself where the host has no configuration of it.
    fn told(&self) -> Vec<&str> {
        let ours = |line: &&str| line.starts_with("oxverbs");
        self.stderr.lines().filter(ours).collect()
    }
}

/// Runs the program with libraries of `tree`, and with ours in `scratch` under each libibverbs. Prints what is wrong.
pub(super) fn check(
    compiler: &mut Command,
    tree: &Path,
    scratch: &Path,
    fake: &Path,
) -> Result<bool> {
    let (source, program) = (scratch.join("refusal.c"), scratch.join("refusal"));
    fs::write(&source, PROGRAM)?;
    super::output(
        compiler
            .args(["-Wl,--no-as-needed", "-o"])
            .arg(&program)
            .arg(&source)
            .arg(tree.join("libibverbs.so.1"))
            .arg(tree.join(drop_in::SONAME)),
    )?;
    let run = |path: String| -> Result<Run> {
        let output = Command::new(tree.join("ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(path)
            .arg("--preload")
            .arg(fake)
            .arg(&program)
            .env("OXVERBS_FAKE", "mlx5")
            .env("IBV_DRIVERS", tree.join("libibverbs/libmlx5"))
            .output()
            .with_context(|| program.display().to_string())?;
        Ok(Run {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    };
    let official = run(tree.display().to_string())?;
    if official.code != Some(0) || !official.stdout.ends_with("mlx5dv: 1\n") {
        bail!("the program does not run with Debian's libraries: {official:?}");
    }
    // Official serves, and ours, which the program asks, knows that it does not.
    let without_ours = official.stdout.replace("mlx5dv: 1", "mlx5dv: 0");
    let place = scratch.join("other");
    let mut good = true;
    for (file, reason) in OTHERS {
        // Nothing of the last one may be found.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place)?;
        fs::copy(tree.join("libibverbs.so.1"), place.join(file))?;
        symlink(file, place.join("libibverbs.so.1"))?;
        let ours = run(format!(
            "{}:{}:{}",
            place.display(),
            scratch.display(),
            tree.display()
        ))?;
        let lines = ours.told();
        let said = matches!(
            lines.as_slice(),
            [line] if line.starts_with("oxverbs: not registered: ") && line.contains(reason)
        );
        if ours.code != Some(0) || ours.stdout != without_ours || !said {
            println!("{file}: {ours:?} instead of {official:?} and one line: … {reason} …");
            good = false;
        }
    }
    let ours = run(format!("{}:{}", scratch.display(), tree.display()))?;
    if (ours.code, &ours.stdout) != (Some(0), &official.stdout) || !ours.told().is_empty() {
        println!("with Debian's libibverbs: {ours:?} instead of {official:?}");
        good = false;
    }
    if good {
        println!(
            "{} unknown libibverbs: refused in one line, the program goes on",
            OTHERS.len()
        );
    }
    Ok(good)
}

//! `cargo xtask oracle`: every WQE byte and completion of ours beside libmlx5's, of Debian stable and of the next release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use lab::cache::Cache;
use lab::{Userland, witness};
use serde_json::{Value, json};
use test_support::skip::skip_part;

use crate::cargo;

/// Compare WQEs, doorbells and completions with Debian's libmlx5, on the fake kernel.
///
/// The same seeded calls go through libmlx5, our native queues and our plug-in in one process: the installed libmlx5
/// first, then trixie's through its own loader. Prints a coverage table; an empty cell fails, and so does any difference
/// that has no name.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// WQEs to post on each implementation, for each libmlx5.
    #[arg(long, default_value_t = 100_000)]
    wqes: u64,
    /// Of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the numbers to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Do not build before (use what is in the target directory).
    #[arg(long)]
    no_build: bool,
}

/// Builds the program, and says where it is.
pub(crate) fn program() -> Result<PathBuf> {
    cargo::release("oracle", "oracle")
}

/// Whether the host has libmlx5.
pub(crate) fn has_libmlx5() -> bool {
    let output = Command::new("/sbin/ldconfig").arg("-p").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libmlx5.so.1"))
}

/// A release to compare with.
struct Witness {
    name: &'static str,
    /// End of the library's file name.
    release: &'static str,
    /// Program and first arguments that run the oracle with its libraries.
    command: Vec<PathBuf>,
}

fn witnesses(oracle: &Path) -> Result<Vec<Witness>> {
    let mut witnesses = Vec::new();
    if has_libmlx5() {
        witnesses.push(Witness {
            name: "bookworm",
            release: "44.0",
            command: vec![oracle.to_owned()],
        });
    } else {
        skip_part("xtask::oracle::bookworm", "libmlx5 is not installed");
    }
    let cache = Cache::open(false)?;
    let tree = witness::userland(&cache, Userland::Trixie)?;
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    witnesses.push(Witness {
        name: "trixie",
        release: "56.1",
        command: vec![
            libraries.join("ld-linux-x86-64.so.2"),
            "--library-path".into(),
            libraries,
            oracle.to_owned(),
        ],
    });
    Ok(witnesses)
}

/// What became of a witness' passes.
struct Said {
    reports: Vec<Value>,
    failed: bool,
}

/// Compares with one witness. What a pass prints appears in one piece, when it is over.
fn passes(arguments: &Arguments, witness: &Witness, plugin: &Path) -> Result<Said> {
    let scratch = std::env::temp_dir().join(format!(
        "oxverbs-oracle-{}-{}.json",
        std::process::id(),
        witness.name
    ));
    let (wqes, some) = (
        arguments.wqes.to_string(),
        (arguments.wqes / 10).to_string(),
    );
    // The posts, once more with a device that wants the headers of raw packets inline, as before ConnectX-5; the
    // completion matrix in entries of both sizes.
    let passes: [(&str, &[&str]); 6] = [
        ("", &["compare", "--wqes", &wqes]),
        (
            ", headers inline",
            &[
                "compare",
                "--wqes",
                &some,
                "--inline-header",
                "--services",
                "Raw",
            ],
        ),
        (", completions of 64 bytes", &["matrix", "--entry", "64"]),
        (", completions of 128 bytes", &["matrix", "--entry", "128"]),
        (", tags", &["tags", "--entry", "64"]),
        (
            ", tags, completions of 128 bytes",
            &["tags", "--entry", "128"],
        ),
    ];
    let mut said = Said {
        reports: Vec::new(),
        failed: false,
    };
    for (what, words) in passes {
        let _ = fs::remove_file(&scratch);
        let output = Command::new(&witness.command[0])
            .args(&witness.command[1..])
            .args(words)
            .args(["--seed", &arguments.seed.to_string()])
            .args(["--expect", witness.release])
            .arg("--plugin")
            .arg(plugin)
            .arg("--json")
            .arg(&scratch)
            .env("OXVERBS_DEVICES", "mlx5_1")
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| witness.command[0].display().to_string())?;
        print!(
            "== {}: libmlx5 {}{what}\n{}",
            witness.name,
            witness.release,
            String::from_utf8_lossy(&output.stdout)
        );
        said.failed |= !output.status.success();
        let report = fs::read(&scratch).with_context(|| {
            format!("{}: the oracle ended with {}", witness.name, output.status)
        })?;
        said.reports.push(serde_json::from_slice::<Value>(&report)?);
    }
    let _ = fs::remove_file(&scratch);
    Ok(said)
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let (oracle, plugin) = if arguments.no_build {
        let release = cargo::target().join("release");
        (release.join("oracle"), release.join("liboxverbs_ffi.so"))
    } else {
        (program()?, crate::install::build()?)
    };
    let witnesses = witnesses(&oracle)?;
    let mut reports = Vec::new();
    let mut failed = false;
    // The witnesses at the same time, since each pass has one thread; what they say in order.
    let said = thread::scope(|scope| {
        let running: Vec<_> = (witnesses.iter())
            .map(|witness| scope.spawn(|| passes(arguments, witness, &plugin)))
            .collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.collect::<Vec<_>>()
    });
    for said in said {
        let said = said.map_err(|_| anyhow!("a witness' thread panicked"))??;
        reports.extend(said.reports);
        failed |= said.failed;
    }
    let sum = |field: &str| -> u64 {
        reports
            .iter()
            .filter_map(|report| report.get(field)?.as_u64())
            .sum()
    };
    let mut names: Vec<&String> = reports
        .iter()
        .filter_map(|report| report.get("divergences")?.as_object())
        .flat_map(|names| names.keys())
        .collect();
    names.sort_unstable();
    names.dedup();
    let (wqes, completions) = (sum("wqes"), sum("completions"));
    let differences = sum("differences");
    let line = format!(
        "oracle: {wqes} wqes, {completions} completions, {differences} differences, {} named divergences",
        names.len()
    );
    if let Some(file) = &arguments.json {
        let all = json!({ "wqes": wqes, "completions": completions, "differences": differences,
            "divergences": names, "witnesses": reports });
        fs::write(file, serde_json::to_string_pretty(&all)? + "\n")?;
    }
    println!("{line}");
    Ok(u8::from(failed || reports.is_empty()))
}

//! `cargo xtask fuzz`: coverage-guided fuzzing with libFuzzer, on stable Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cargo;

/// Feed hostile bytes and calls to the readers, the posting and the polling of mlx5 (tests/fuzz/targets), guided by coverage.
///
/// What was found interesting is kept in target/fuzz/corpus and used again; an input that fails is written to
/// target/fuzz/failures, and `cargo xtask fuzz TARGET --input FILE` runs it alone. Needs a C++ compiler for libFuzzer.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Targets [default: all].
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Run one target with this input only.
    #[arg(long, requires = "targets")]
    input: Option<PathBuf>,
    /// Name the targets.
    #[arg(long)]
    list: bool,
}

/// Where coverage is counted, as libFuzzer wants it; these are stable options of the compiler.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// Inputs to begin with, and their bytes: structured targets reject short ones.
const SEEDS: u64 = 16;
const SEED_BYTES: u64 = 1024;

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let package = cargo::root().join("tests/fuzz");
    let known = targets(&package)?;
    if arguments.list {
        for target in &known {
            println!("{target}");
        }
        return Ok(0);
    }
    if let Some(unknown) = arguments.targets.iter().find(|name| !known.contains(name)) {
        bail!("no such target: {unknown} (there are {})", known.join(", "));
    }
    let chosen = if arguments.targets.is_empty() {
        &known
    } else {
        &arguments.targets
    };
    if !has_cxx() {
        for target in chosen {
            println!("skipped {target}: no C++ compiler (c++, or $CXX) to build libFuzzer with");
        }
        println!("fuzz: 0 passed, 0 failed, {} skipped", chosen.len());
        return Ok(0);
    }
    let out = cargo::target().join("fuzz");
    let programs = build(&package, &out)?;
    let mut failed = 0;
    for target in chosen {
        let mut command = Command::new(programs.join(target));
        if let Some(input) = &arguments.input {
            command.arg(input);
        } else {
            let corpus = out.join("corpus").join(target);
            seed(&corpus)?;
            let failures = out.join("failures").join(target);
            fs::create_dir_all(&failures)?;
            command
                .arg(corpus)
                .arg(format!("-artifact_prefix={}/", failures.display()))
                .arg(format!("-max_total_time={}", arguments.seconds))
                .args([
                    "-max_len=4096",
                    "-len_control=0",
                    "-timeout=10",
                    "-verbosity=0",
                ])
                .arg("-print_final_stats=1");
        }
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && arguments.input.is_none() {
            let of = |stat: &str| {
                let line = said.lines().find_map(|line| line.strip_prefix(stat));
                line.map_or("?", str::trim).to_owned()
            };
            println!(
                "fuzz {target}: {} inputs run, {} of them new",
                of("stat::number_of_executed_units:"),
                of("stat::new_units_added:")
            );
        } else {
            println!("fuzz {target}: {}\n{said}", output.status);
            failed += usize::from(!output.status.success());
        }
    }
    println!(
        "fuzz: {} passed, {failed} failed, 0 skipped",
        chosen.len() - failed
    );
    Ok(u8::from(failed > 0))
}

/// Names of the targets: files of their folder.
fn targets(package: &Path) -> Result<Vec<String>> {
    let dir = package.join("targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn has_cxx() -> bool {
    Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds all targets; gives the directory that they are in.
fn build(package: &Path, out: &Path) -> Result<PathBuf> {
    // The target is named so that the flags reach the programs only, not what builds them.
    let version = cargo::rustc("-vV")?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV does not say the host")?;
    let status = cargo::cargo()
        .current_dir(package)
        .env("RUSTFLAGS", INSTRUMENTED)
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--target",
            host,
            "--target-dir",
        ])
        .arg(out)
        .status()?;
    if !status.success() {
        bail!("building tests/fuzz: {status}");
    }
    Ok(out.join(host).join("release"))
}

/// Fills an empty corpus, always with the same bytes.
fn seed(corpus: &Path) -> Result<()> {
    fs::create_dir_all(corpus)?;
    if fs::read_dir(corpus)?.next().is_some() {
        return Ok(());
    }
    for number in 0..SEEDS {
        // A linear congruential generator (Knuth's MMIX constants); its high byte.
        let mut state = number;
        let bytes: Vec<u8> = (0..SEED_BYTES)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        fs::write(corpus.join(format!("seed-{number}")), bytes)?;
    }
    Ok(())
}

//! The stages of `cargo xtask test`, in the order of what is cheap to find out.

use std::env;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab::cache::Cache;
use lab::{Userland, witness};

use crate::cargo::{root, target};

use super::counts::Counts;
use super::run::{cargo, show_and_keep, word};

/// A part of the proof.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) budget: Duration,
    pub(crate) run: fn() -> Result<Counts>,
}

/// All of them.
pub(crate) const STAGES: &[Stage] = &[
    Stage {
        name: "cargo",
        about: "unit, property, layout, loom, fake-kernel and guest tests of every package",
        budget: Duration::from_secs(600),
        run: cargo_tests,
    },
    Stage {
        name: "fuzz",
        about: "hostile bytes and calls, guided by coverage, for 15 seconds each",
        budget: Duration::from_secs(300),
        run: || word(&["fuzz", "--seconds", "15"]),
    },
    Stage {
        name: "bench mlx5",
        about: "instructions of posting and polling on mlx5 against those recorded; fences and stores against libmlx5's",
        budget: Duration::from_secs(300),
        run: bench_mlx5,
    },
    Stage {
        name: "suite",
        about: "the device-independent suite on rxe of Debian stable's kernel, and its planted faults",
        budget: Duration::from_secs(600),
        run: suite,
    },
    Stage {
        name: "programs",
        about: "unmodified programs through the plug-in, and Rust's ping-pongs against C's (trixie)",
        budget: Duration::from_secs(480),
        run: || word(&["apps", "--provider", "ours", "--ci", "--verbose"]),
    },
    Stage {
        name: "userlands",
        about: "the same plug-in under the rdma-core of bookworm and of sid",
        budget: Duration::from_secs(180),
        run: userlands,
    },
    Stage {
        name: "mlx5",
        about: "Linux' own mlx5 drivers on the software ConnectX: programs over libmlx5 on InfiniBand, over ours on RoCE",
        budget: Duration::from_secs(240),
        run: mlx5,
    },
    Stage {
        name: "compare",
        about: "rdma-core's Python suite under the official provider and ours, on both kernels",
        budget: Duration::from_secs(1200),
        run: compare,
    },
    Stage {
        name: "oracle",
        about: "mlx5's work requests and completions are libmlx5's, of bookworm and of trixie, byte for byte",
        budget: Duration::from_secs(600),
        run: || word(&["oracle", "--wqes", "100000"]),
    },
    Stage {
        name: "bench",
        about: "rxe through the plug-in and natively is as fast as through the official provider",
        budget: Duration::from_secs(600),
        run: || word(&["bench", "rxe"]),
    },
];

fn bench_mlx5() -> Result<Counts> {
    let recorded = root().join("tests/oracle/instructions.json");
    let recorded = recorded.to_string_lossy();
    word(&["bench", "mlx5", "--regions", "50", "--gate", &recorded])
}

/// Enough to see that layouts fit: every ping-pong, both posting interfaces, perftest, rdma_cm.
const SMOKE: &str = "^(ibv_.*|ib_send_lat|ib_write_bw|ib_read_lat|ib_atomic_lat|rping)$";

fn userlands() -> Result<Counts> {
    let mut counts = Counts::default();
    for userland in ["bookworm", "sid"] {
        let words = ["apps", "--provider", "ours", "--userland", userland];
        counts.add(word(
            &[&words[..], &["--filter", SMOKE, "--verbose"]].concat(),
        )?);
    }
    Ok(counts)
}

/// What shows in a minute each that a device, its driver and a provider understand each other.
fn mlx5() -> Result<Counts> {
    const OFFICIAL: &str = "^(ibv_.*_pingpong( -e)?|ib_(send|read)_lat|ib_write_bw)$";
    const OURS: &str = "^(ibv_.*_pingpong( -e)?|ibv_devinfo.*|rping|ucmatose|udaddy|rdma_client)$";
    let mut counts = Counts::default();
    for (link, provider, filter) in [("ib", "official", OFFICIAL), ("roce", "ours", OURS)] {
        let words = ["apps", "--device", "mlx5", "--link", link];
        let more = ["--provider", provider, "--filter", filter, "--verbose"];
        counts.add(word(&[&words[..], &more].concat())?);
    }
    Ok(counts)
}

fn compare() -> Result<Counts> {
    let mut counts = Counts::default();
    for kernel in ["stable", "backports"] {
        counts.add(word(&["compare", "--device", "rxe", "--kernel", kernel])?);
    }
    Ok(counts)
}

/// The device-independent suite in a guest. It uses no libibverbs, so the provider does not matter to it.
fn suite() -> Result<Counts> {
    build(&["--package", "hw-tests"])?;
    let program = "/oxverbs/target/debug/hw-tests";
    let mut counts = Counts::default();
    for (name, arguments) in [("hw-tests", &[][..]), ("hw-tests --prove", &["--prove"])] {
        let mut command = Command::new(env::current_exe()?);
        command.args(["lab", "--device", "rxe", "--timeout", "1500", "--", program]);
        command.args(["--device", "rxe0"]).args(arguments);
        let printed = show_and_keep(&mut command)?;
        let mut of = Counts::of_libtest(name, &printed.output);
        if !printed.success && of.failed.is_empty() {
            of.failed.push(format!("{name} (see above)"));
        }
        counts.add(of);
    }
    Ok(counts)
}

fn build(what: &[&str]) -> Result<()> {
    let status = cargo().args(["build", "--quiet"]).args(what).status()?;
    if !status.success() {
        bail!("cargo build {}: {status}", what.join(" "));
    }
    Ok(())
}

/// `cargo test` for the workspace, with every witness that the archive has.
fn cargo_tests() -> Result<Counts> {
    let mut counts = Counts::default();
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let skips = target().join("test.skips");
    fs::write(&skips, "").with_context(|| skips.display().to_string())?;
    command.env(test_support::skip::SKIPS_FILE, &skips);
    // The lab's own tests boot guests.
    command.env("OXVERBS_LAB", "1");
    let cache = Cache::open(false)?;
    let mut headers = Vec::new();
    for release in [Userland::Bookworm, Userland::Trixie] {
        headers.push(witness::kernel_headers(&cache, release)?);
    }
    command.env("OXVERBS_UAPI_HEADERS", env::join_paths(headers)?);
    let mut headers = Vec::new();
    for release in [Userland::Bookworm, Userland::Trixie, Userland::Sid] {
        headers.push(witness::verbs_headers(&cache, release)?);
    }
    command.env("OXVERBS_VERBS_HEADERS", env::join_paths(headers)?);
    let mut ucx = Vec::new();
    for release in [Userland::Bookworm, Userland::Trixie] {
        ucx.push(witness::ucx(&cache, release)?);
    }
    command.env("OXVERBS_UCX", env::join_paths(ucx)?);
    // The installed release of rdma-core is a witness of its own.
    let mut userlands = Vec::new();
    for release in [Userland::Trixie, Userland::Sid] {
        userlands.push(witness::userland(&cache, release)?);
    }
    command.env("OXVERBS_USERLANDS", env::join_paths(userlands)?);
    let mut sources = Vec::new();
    for release in [Userland::Bookworm, Userland::Trixie, Userland::Sid] {
        let suite = release.suite();
        match witness::rdma_core_source(&cache, release)? {
            Some(dir) => sources.push(dir),
            None => counts.add(Counts::skip(
                format!("layouts against the rdma-core source of {suite}"),
                "the archive lists the source package but does not have it",
            )),
        }
    }
    command.env("OXVERBS_RDMA_CORE_SRC", env::join_paths(sources)?);
    // Without it the tests that read it skip themselves by name.
    if let Some(dir) = witness::linux_source(&cache)? {
        command.env("OXVERBS_LINUX_SRC", dir);
    }
    drop(cache);
    let printed = show_and_keep(&mut command)?;
    counts.add(Counts::of_libtest("", &printed.output));
    let skipped = fs::read_to_string(&skips).with_context(|| skips.display().to_string())?;
    counts.take_in_skips(&skipped);
    if !printed.success && counts.failed.is_empty() {
        counts.add(Counts::failure("cargo test (see above)"));
    }
    Ok(counts)
}

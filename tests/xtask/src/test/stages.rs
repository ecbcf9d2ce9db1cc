//! The stages of `cargo xtask test`, in the order of what is cheap to find out.

use std::env;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::cache::Cache;
use lab::{Userland, witness};

use super::Session;
use super::counts::Counts;
use super::run::{cargo, show_and_keep};

/// A part of the proof.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) budget: Duration,
    pub(crate) run: fn(&Session) -> Result<Counts>,
}

/// All of them.
pub(crate) const STAGES: &[Stage] = &[Stage {
    name: "cargo",
    about: "unit, property, layout and fake-kernel tests of every package, against the headers of bookworm and trixie; guests that boot",
    budget: Duration::from_secs(480),
    run: cargo_tests,
}];

/// `cargo test` for the workspace, with every witness that the archive has.
fn cargo_tests(session: &Session) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut command = cargo();
    command.current_dir(&session.root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let skips = session.root.join("target/test.skips");
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
    drop(cache);
    let printed = show_and_keep(&mut command)?;
    counts.add(Counts::of_libtest(&printed.output));
    let skipped = fs::read_to_string(&skips).with_context(|| skips.display().to_string())?;
    counts.take_in_skips(&skipped);
    if !printed.success && counts.failed.is_empty() {
        counts.add(Counts::failure("cargo test (see above)"));
    }
    Ok(counts)
}

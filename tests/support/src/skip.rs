//! Skips that are named and counted.
//!
//! The test harness knows only "passed", "failed" and "ignored at compile time". A test that finds at
//! run time that it cannot run calls [`skip`] and returns; `cargo xtask test` gives it a file to
//! write to, takes the skipped tests out of the passed ones, and fails for a skip that
//! `tests/allowed-skips.txt` does not list.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable with the file that skips are appended to.
pub const SKIPS_FILE: &str = "OXVERBS_SKIPS";

/// Says that `test` was not run, and why.
///
/// `test` is the name a reader would look for (`uverbs-abi::headers::trixie`). One call stands for one test
/// function that returns right after it; for a part of a test that goes on, use [`skip_part`].
pub fn skip(test: &str, reason: &str) {
    record("test", test, reason);
}

/// Says that a part of a test was left out, while the test itself went on with the rest.
pub fn skip_part(part: &str, reason: &str) {
    record("part", part, reason);
}

fn record(kind: &str, name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    let Some(path) = std::env::var_os(SKIPS_FILE) else {
        return;
    };
    let line = format!("{kind}\t{name}\t{}\n", reason.replace(['\t', '\n'], " "));
    // One write call on a file opened for appending: lines of parallel tests do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot record a skip in {}: {error}", path.display());
    }
}

//! Cargo and the compiler, as the words of this program call them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The repository.
pub(crate) fn root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().unwrap_or(path)
}

/// Where cargo builds, as far as the environment says.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs us, in the repository.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// What the compiler says of itself.
pub(crate) fn rustc(option: &str) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg(option)
        .output()
        .with_context(|| format!("rustc {option}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds a package for release, by itself, so that no other package's features get into it. Gives the file of this name.
pub(crate) fn release(package: &str, name: &str) -> Result<PathBuf> {
    let output = cargo()
        .args(["build", "--release", "--package", package])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    if !output.status.success() {
        bail!("cargo build --package {package}: {}", output.status);
    }
    // Where the target directory is, is cargo's to say.
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message.get("filenames").cloned())
        .filter_map(|files| files.as_array().cloned())
        .flatten()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.file_name() == Some(OsStr::new(name)));
    file.with_context(|| format!("cargo built no {name}"))
}

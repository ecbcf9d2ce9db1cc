//! `cargo xtask bench mlx5`: what posting and polling cost, beside libmlx5 in the same process.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use test_support::skip::skip;

use crate::{install, oracle};

/// Nanoseconds and instructions per operation of libmlx5, our plug-in and our native queues, on the fake kernel.
///
/// Interleaved regions of 256 operations, the minimum of many; instructions by single step, exact. libmlx5 and the plug-in in
/// two modes: as they come, and with `MLX5_SINGLE_THREADED=1` (a process each). BlueFlame is on for all. The registers are
/// plain memory, so no PCIe cost is in any number.
///
/// Exit status: 1 if a limit of the project is missed; each is named.
#[derive(Debug, Args)]
pub(super) struct Mlx5 {
    /// Timed regions of each case.
    #[arg(long, default_value_t = 2000)]
    regions: usize,
    /// Only cases whose names contain this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the ratios into this file, such as `docs/bench-mlx5.svg`.
    #[arg(long)]
    svg: Option<PathBuf>,
}

pub(super) fn run(arguments: &Mlx5) -> Result<u8> {
    if !oracle::has_libmlx5() {
        skip("xtask::bench::mlx5", "libmlx5 is not installed");
        return Ok(0);
    }
    let program = oracle::program()?;
    let plugin = install::build()?;
    let mut command = Command::new(&program);
    command
        .args(["bench", "--regions", &arguments.regions.to_string()])
        .args(["--filter", &arguments.filter])
        .arg("--plugin")
        .arg(&plugin);
    for (option, file) in [("--json", &arguments.json), ("--svg", &arguments.svg)] {
        if let Some(file) = file {
            command.arg(option).arg(file);
        }
    }
    let status = command
        .status()
        .with_context(|| program.display().to_string())?;
    Ok(status.code().map_or(125, |code| code as u8))
}

//! `cargo xtask cache`: what the lab's cache holds.

use anyhow::Result;
use clap::Args;
use lab::cache::{self, Cache};

/// Show what the lab's cache of Debian packages holds, or remove what is no longer used.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Remove trees and packages of versions that a later `--refresh` replaced.
    #[arg(long)]
    prune: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let cache = Cache::open(false)?;
    if arguments.prune {
        for path in cache.prune()? {
            println!("removed {}", path.display());
        }
    }
    println!("{}", cache::directory()?.display());
    for (below, what) in [
        ("debs", "packages"),
        ("trees", "unpacked"),
        ("initrds", "initial file systems"),
        ("indexes", "indexes"),
    ] {
        println!("{:6} MiB  {what}", cache::size(&cache.path(below)) >> 20);
    }
    Ok(0)
}

//! Compares our data path with Debian's libmlx5 on the fake kernel, and times both. `cargo xtask oracle` and
//! `cargo xtask bench mlx5` build and run this.

use std::process::ExitCode;

use clap::Parser;
use oracle::cli::{Arguments, run};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // SAFETY: there is no other thread yet.
    let kernel = unsafe { fake_kernel_preload::start(oracle::cli::kernel(&arguments)) };
    match run(&arguments, kernel) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(125)
        }
    }
}

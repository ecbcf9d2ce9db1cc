//! What the examples share.
#![allow(dead_code, unused_imports, reason = "each example uses a part")]

use std::error::Error;
use std::process::ExitCode;

mod connected;
mod data;
mod exchange;
mod options;
mod pingpong;

pub(crate) use connected::{ConnectedOptions, Kind, run as run_connected};
pub(crate) use data::Buffers;
pub(crate) use exchange::{Destination, exchange};
pub(crate) use options::{Options, mtu};
pub(crate) use pingpong::{Completions, Exchange, Link, RECV, SEND, report, run};

/// Runs `example` and prints its error in one line, with what to do about it.
pub(crate) fn main(example: impl FnOnce() -> Result<(), Box<dyn Error>>) -> ExitCode {
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// 24 random bits for a first packet number.
pub(crate) fn random_psn() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8) as u32 & 0xff_ffff
}

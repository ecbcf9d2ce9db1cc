//! What the examples share.
#![allow(dead_code, unused_imports, reason = "each example uses a part")]

mod connected;
mod data;
mod exchange;
mod options;
mod pingpong;
mod report;

pub(crate) use connected::{ConnectedOptions, Kind, run as run_connected};
pub(crate) use data::Buffers;
pub(crate) use exchange::{Destination, exchange};
pub(crate) use options::{Options, mtu};
pub(crate) use pingpong::{Completions, Exchange, Link, RECV, SEND, report, run};
pub(crate) use report::main;

/// 24 random bits for a first packet number.
pub(crate) fn random_psn() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8) as u32 & 0xff_ffff
}

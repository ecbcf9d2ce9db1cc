//! libmlx5 as an oracle: the same verbs calls through Debian's unmodified library and through ours, on the fake kernel in
//! one process, compared byte for byte and timed.
//!
//! Only x86-64: the single-step trace decodes its instructions.

#![cfg(target_arch = "x86_64")]

pub mod bench;
pub mod c;
pub mod call;
pub mod campaign;
pub mod cli;
pub mod compare;
pub mod coverage;
pub mod direct;
pub mod generate;
pub mod golden;
pub mod heads;
pub mod lifecycle;
pub mod matrix;
pub mod native;
pub mod ours;
pub mod own_pool;
pub mod pass;
pub mod pool;
pub mod pools;
pub mod receive;
pub mod ring;
pub mod script;
pub mod shape;
pub mod subject;
pub mod tags;
pub mod trace;

//! Pingpong over a reliable connection; its other end may be `ibv_rc_pingpong`.

mod common;

use std::process::ExitCode;

use clap::Parser;
use common::{ConnectedOptions, Options};
use oxverbs::{Mtu, Rc};

/// Send messages back and forth over a reliable connection. The other end may be the C program ibv_rc_pingpong.
#[derive(Parser, Debug)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes.
    #[arg(short, long, default_value = "1024", value_parser = common::mtu, value_name = "SIZE")]
    mtu: Mtu,
    /// Use on-demand paging.
    #[arg(short, long)]
    odp: bool,
    /// Use implicit on-demand paging.
    #[arg(short = 'O', long, conflicts_with = "odp")]
    iodp: bool,
    /// Get the completions' timestamps.
    #[arg(short, long)]
    ts: bool,
    /// Use device memory.
    #[arg(short = 'j', long)]
    dm: bool,
    /// Fetch the buffer's pages first (with --odp).
    #[arg(short = 'P', long, requires = "odp")]
    prefetch: bool,
    /// Use the new posting functions: accepted for the C program's sake, as there is one way to post here.
    #[arg(short = 'N', long = "new_send")]
    new_send: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    common::main(|| {
        let more = ConnectedOptions {
            size: arguments.size,
            mtu: arguments.mtu,
            on_demand: arguments.odp,
            prefetch: arguments.prefetch,
            implicit: arguments.iodp,
            timestamps: arguments.ts,
            device_memory: arguments.dm,
        };
        common::run_connected::<Rc>(&arguments.common, more)
    })
}
